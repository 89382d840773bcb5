"""Sums and products of float that TVM regroups: the reference and the host have the bits of a plain `relay.build`."""

import random

import numpy as np
import pytest
import tvm
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay import golden
from byoc_hw.frontend.relay.front_end import reference
from byoc_hw.frontend.relay.regrouping import regrouped

SHAPE = (1, 4, 4, 3)
X, Q = relay.var("x", shape=SHAPE), relay.var("q", shape=SHAPE, dtype="int8")


def module(*outputs):
    body = outputs[0] if len(outputs) == 1 else relay.Tuple(list(outputs))
    function = relay.Function(relay.analysis.free_vars(body), body)
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


def scalar(value):
    return relay.const(np.float32(value))


def per_channel(seed=0):
    return relay.const(np.abs(np.random.default_rng(seed).standard_normal(3)).astype("float32"))


def real(q=Q):
    return relay.qnn.op.dequantize(q, scalar(0.037), relay.const(3))


def offloaded(q=Q):
    return relay.nn.max_pool2d(q, (3, 3), padding=(1, 1), layout="NHWC")


def normalized(x):
    return relay.nn.batch_norm(x, *(per_channel(seed) for seed in range(4)), axis=3)[0]


def convolved(x):
    weights = relay.const(np.random.default_rng(5).standard_normal((1, 1, 3, 3)).astype("float32"))
    return relay.nn.conv2d(x, weights, data_layout="NHWC", kernel_layout="HWIO", channels=3, kernel_size=(1, 1))


REGROUPED = {
    "a sum of a sum": X + scalar(1.1) + scalar(3.3),
    "a product of a sum": (X + scalar(1.1)) * scalar(3.3),
    "a product of a product": (X * scalar(1.1)) * scalar(1 / 6),
    "a square of a sum": X * X + scalar(2.0) * X * real() + real() * real(),
    "a reshape between them": relay.reshape(relay.reshape(X * scalar(1.1), (16, 3)), SHAPE) * per_channel(),
    "what a dequantize is": real() * scalar(0.7),
    "what a region gives": real(offloaded()) * scalar(0.7) + X,
    "what a normalization is": normalized(X) + scalar(1 / 6),
    "a normalization of a normalization": normalized(normalized(real() * per_channel())) + real(),
    "a convolution that takes the scale": relay.nn.relu(convolved(X) * per_channel()) * scalar(3.3) * scalar(0.7),
    "a sum with a one by itself": X + relay.reshape(X * scalar(1.1), SHAPE) * scalar(1.0) * scalar(3.0),
    "a sum with zeros": relay.divide(scalar(1.0), relay.negative(relay.nn.relu(X)) + relay.zeros_like(X)),
    "a sum of bool": relay.cast(relay.greater(X, scalar(0.0)) + relay.greater(X, scalar(0.0)), "float32"),
}
PLAIN = {
    "a sum with itself": X + X,
    "a sum with zero": relay.divide(scalar(1.0), relay.negative(relay.nn.relu(X)) + scalar(0.0)),
    "a sum with a constant of zeros": X + relay.const(np.zeros(3, "float32")),
    "a sum of a product": X * scalar(1.1) + scalar(3.3),
    "a product of what is no constant": relay.clip(X + scalar(3.0), 0.0, 6.0) * scalar(1 / 6) * X,
    "a sum of two products": X * real() + X,
    "products side by side": relay.concatenate([X * scalar(3.0), real()], axis=3),
    "a sum of a convolution": relay.nn.relu(convolved(X) + per_channel()),
    "whole numbers": (relay.cast(Q, "int32") + relay.const(3)) * relay.const(5),
    "a product of another function's result": relay.sigmoid(X + scalar(1.0)) * X,
}


def is_regrouped(mod):
    return "FoldScaleAxis" in regrouped(mod, "llvm")[1]


def check_bits(mod):
    """The bits of a plain `relay.build` are those of the reference, and of the host's C."""
    rng = np.random.default_rng(0)
    inputs = {
        one.name_hint: rng.integers(-128, 128, SHAPE).astype("int8")
        if one.checked_type.dtype == "int8"
        else (3 * rng.standard_normal(SHAPE)).astype("float32")
        for one in mod["main"].params
    }
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, golden.TARGET)
    plain = tvm.contrib.graph_executor.GraphModule(library["default"](tvm.cpu()))
    plain.run(**inputs)
    expected = [plain.get_output(index).numpy().tobytes() for index in range(plain.get_num_outputs())]
    partitioned = byoc_hw.partition_for_hwlib(mod)
    assert [one.tobytes() for one in reference(partitioned).run(inputs)] == expected
    assert [one.tobytes() for one in byoc_hw.build(partitioned).run(inputs).outputs] == expected


@pytest.mark.parametrize("name", REGROUPED)
def test_what_tvm_regroups_has_its_bits(name):
    mod = module(REGROUPED[name])
    assert is_regrouped(mod)
    check_bits(mod)


@pytest.mark.parametrize("name", PLAIN)
def test_what_tvm_does_not_regroup_is_not_simplified(name):
    mod = module(PLAIN[name])
    assert not is_regrouped(mod)
    check_bits(mod)


FORMS = [
    *[lambda both, value, other, constant: both(value, constant)] * 6,
    *[lambda both, value, other, constant: both(constant, value)] * 2,
    lambda both, value, other, constant: value + other,
    lambda both, value, other, constant: value * other,
    lambda both, value, other, constant: relay.divide(value, scalar(4.0)),
    lambda both, value, other, constant: relay.nn.relu(value),
    lambda both, value, other, constant: relay.sigmoid(value),
    lambda both, value, other, constant: normalized(value),
    lambda both, value, other, constant: convolved(value),
    lambda both, value, other, constant: relay.nn.bias_add(value, per_channel(), axis=3),
    lambda both, value, other, constant: relay.cast(relay.cast(value, "int32"), "float32"),
    lambda both, value, other, constant: relay.transpose(relay.transpose(value, (0, 3, 1, 2)), (0, 2, 3, 1)),
]


@st.composite
def chains(draw):
    """Two outputs of a chain of operators of float, most of them sums and products."""
    choice = random.Random(draw(st.integers(0, 2**32 - 1))).choice
    values = [X, real(choice([Q, offloaded(), offloaded(offloaded())]))]
    for _ in range(choice(range(2, 7))):
        constant = choice([scalar(choice([0.0, 1.0, 1.1, -0.7, 1 / 6])), per_channel()])
        both = choice([relay.add, relay.multiply, relay.subtract])
        values.append(choice(FORMS)(both, choice(values[-2:]), choice(values), constant))
    return module(*values[-2:])


@pytest.mark.slow
@given(chains())
@settings(max_examples=examples(12))
def test_any_chain_has_tvms_bits(mod):
    check_bits(mod)
