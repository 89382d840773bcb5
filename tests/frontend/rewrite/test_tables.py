"""Element-wise operators between two 8-bit values become tables: which ones, and that the tables are theirs."""

import numpy as np
import pytest
import tvm
from relay_samples import Conv, Mul, Quantized, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.frontend.relay.lower import lower_region
from byoc_hw.frontend.relay.partition import folding, prepare
from byoc_hw.frontend.relay.record import regions
from byoc_hw.frontend.relay.reference import Reference

SHAPE = (1, 4, 64, 3)
NUMBERS = Quantized(0.1, 3)
OUT = Quantized(0.05, -3)


def every_value():
    return np.arange(768).reshape(SHAPE).astype(np.int8)


def real(x):
    return relay.qnn.op.dequantize(x, *NUMBERS.constants())


def quantized(value, dtype="int8"):
    return relay.qnn.op.quantize(value, *OUT.constants(), out_dtype=dtype)


def pairwise(operator, x, y):
    return operator(x, y, *NUMBERS.constants(), *NUMBERS.constants(), *OUT.constants())


def hard_swish(value):
    return value * relay.clip(value + const(3.0, "float32"), 0.0, 6.0) / const(6.0, "float32")


CHAINS = {
    "nn.relu": lambda x: relay.nn.relu(x),
    "clip": lambda x: relay.clip(x, -3, 7),
    "maximum": lambda x: relay.maximum(x, const(4, "int8")),
    "sigmoid": lambda x: quantized(relay.sigmoid(real(x))),
    "tanh, then a limit": lambda x: relay.nn.relu(quantized(relay.tanh(real(x)))),
    "hard-swish": lambda x: quantized(hard_swish(real(x))),
    "PReLU": lambda x: quantized(relay.nn.prelu(real(x), const([0.1, 0.2, -0.3], "float32"), axis=3)),
    "swish": lambda x: pairwise(relay.qnn.op.mul, x, quantized(relay.sigmoid(real(x)))),
    "requantize": lambda x: relay.qnn.op.requantize(x, *NUMBERS.constants(), *OUT.constants(), out_dtype="uint8"),
    "qnn.sigmoid": lambda x: relay.qnn.op.sigmoid(x, *NUMBERS.constants(), *OUT.constants()),
    "qnn.add of a number": lambda x: pairwise(relay.qnn.op.add, x, const(7, "int8")),
    "qnn.subtract from a number": lambda x: pairwise(relay.qnn.op.subtract, const(7, "int8"), x),
    "exp that overflows": lambda x: quantized(relay.exp(real(x) * const(100.0, "float32"))),
}


def lowered(mod):
    return [lower_region(function, variable.name_hint) for variable, function in regions(mod).items()]


@pytest.mark.slow
def test_a_chain_is_one_table_that_has_tvms_values_for_all_256():
    """Values are read by several chains, each of which begins at the model's input."""
    x = variable(SHAPE)
    mod = module(relay.Tuple([make(x) for make in CHAINS.values()]), x)
    after = byoc_hw.partition_for_hwlib(mod)
    assert not byoc_hw.explain(after).host, str(byoc_hw.explain(after))
    kinds = [layer.kind for graph in lowered(after) for layer in graph.layers]
    assert kinds == ["lookup"] * len(CHAINS)
    outputs = byoc_hw.build(after).run([every_value()]).outputs
    for name, got, want in zip(CHAINS, outputs, Reference(mod).run([every_value()]), strict=True):
        np.testing.assert_array_equal(got, want, err_msg=name, strict=True)


def test_a_uint8_model_becomes_int8_and_back():
    x = variable(SHAPE, "uint8")
    inside = relay.qnn.op.requantize(x, *NUMBERS.constants(), *OUT.constants(), out_dtype="int8")
    doubled = pairwise(relay.qnn.op.add, inside, inside)
    mod = module(quantized(relay.sigmoid(real(doubled)), "uint8"), x)
    after = byoc_hw.partition_for_hwlib(mod)
    (graph,) = lowered(after)
    assert [layer.kind for layer in graph.layers] == ["lookup"]  # the addition of a value to itself is in the table
    values = every_value().view(np.uint8)
    np.testing.assert_array_equal(byoc_hw.build(after).run([values]).outputs[0], Reference(mod).run([values])[0])


# ---------------------------------------------------------------- what is left as it was


def by_row(x):
    return quantized(real(x) * const(np.arange(4).reshape(4, 1, 1), "float32"))


def declined_convolution(x):
    return Conv(height=4, width=64, channels=3, strides=(3, 3), clip=(-100.0, 100.0)).expr(x)


LEFT = {
    "a value for each row": (by_row, "no pattern covers multiply"),
    "no number": (lambda x: quantized(relay.sqrt(real(x))), "values of all 256 inputs are numbers: got nan"),
    "a clip of what the host computes": (declined_convolution, "stride is one of 1, 2: got 3"),
    "values of other places": (lambda x: quantized(relay.cumsum(real(x), axis=3)), "no pattern covers cumsum"),
    "another shape": (
        lambda x: quantized(relay.sum(real(x), axis=3)),
        "sum: data is the result of qnn.dequantize, not the result of cast",
    ),
}


@pytest.mark.parametrize(("make", "reason"), LEFT.values(), ids=LEFT)
def test_leaves_what_is_no_table(make, reason):
    x = variable(SHAPE)
    unchanged(module(make(x), x), reason)


def test_deny_and_accelerators_without_tables_leave_the_model_as_it_was():
    x = variable(SHAPE)
    mod = module(CHAINS["sigmoid"](x), x)
    unchanged(mod, "lookup: kept on the host by deny='lookup'", deny=["lookup"])
    unchanged(mod, "lookup: kept on the host by deny='sigmoid_1'", deny=["sigmoid_1"])
    limits = {kind: limit for kind, limit in REFERENCE.limits.items() if kind != "lookup"}
    unchanged(mod, "got lookup", accelerator=byoc_hw.Accelerator(limits=limits))


def unchanged(mod, reason, **options):
    after = byoc_hw.partition_for_hwlib(mod, **options)
    assert reason in str(byoc_hw.explain(after))
    assert not regions(after)
    untouched = tvm.transform.Sequential(folding())(prepare(mod, None))
    assert tvm.ir.structural_equal(after["main"], untouched["main"])


def test_a_product_of_different_values_stays_one():
    mul = Mul(shape=SHAPE)
    x, y = mul.variables()
    mod = module(mul.expr(relay.nn.relu(x), quantized(relay.sigmoid(real(y)))), x, y)
    (graph,) = lowered(byoc_hw.partition_for_hwlib(mod))
    assert [layer.kind for layer in graph.layers] == ["lookup", "lookup", "mul"]


@pytest.mark.parametrize("shape", [(1, 4), (1, 3, 2, 1)])
def test_a_layer_of_a_table_and_a_tensor_of_constants_stays_one(shape):
    x, numbers = variable(shape), const(np.arange(np.prod(shape)).reshape(shape) - 128, "int8")
    difference = pairwise(relay.qnn.op.subtract, numbers, quantized(relay.sigmoid(real(x))))
    (graph,) = lowered(byoc_hw.partition_for_hwlib(module(difference, x)))
    assert [layer.kind for layer in graph.layers] == ["lookup", "add"]
