"""qnn_mul: which multiplications it takes, as what layer, what it declines and why, and what it computes."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    BROADCASTING,
    CLIPS,
    NOT_BROADCAST,
    SEEDS,
    SHAPES_RULE,
    ZERO_POINTS,
    accepted,
    check_bit_exact,
    check_golden,
    compare,
    computing,
    declined,
    graphs,
    pairwise_shapes,
    partitioned,
)
from relay_samples import Conv, Mul, Quantized, WithConstant, WithItself, const, module, variable

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference

COMPOSITE = "qnn_mul"

FORMS = {
    "plain": Mul(),
    "clip": Mul(clip=(-100.0, 50.0)),
    "zero points": Mul(lhs=Quantized(0.1, -128), rhs=Quantized(0.2, 127), out=Quantized(0.3, -128)),
    "a vector": Mul(shape=(1, 40)),
    "five dimensions": Mul(shape=(1, 2, 3, 4, 5)),
    "tokens": Mul(shape=(9, 20)),
    "batches": Mul(shape=(2, 6, 5, 7)),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_takes_the_whole_form(form):
    layer = accepted(form.module(), COMPOSITE)
    assert layer.kind == "mul"
    assert layer.ifm.shape == layer.ifm2.shape == layer.ofm.shape == form.shape
    for tensor, given_as in ((layer.ifm, form.lhs), (layer.ifm2, form.rhs), (layer.ofm, form.out)):
        assert tensor.quantization.zero_point == (given_as.zero_point,)
        assert tensor.quantization.scale == (float(np.float32(given_as.scale)),)
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


def gated(layout):
    """A gate, as squeeze-and-excite or a gated linear unit has it: two convolutions and their product."""
    value, gate = (Conv(channels=4, filters=4, layout=layout, seed=seed) for seed in (1, 2))
    x = variable(value.ifm_shape)
    return module(Mul(lhs=Quantized(0.4, 5), rhs=Quantized(0.4, 5)).expr(value.expr(x), gate.expr(x)), x)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_gate_is_one_region(layout):
    mod = gated(layout)
    after = partitioned(mod)
    (graph,) = graphs(after)
    assert [layer.kind for layer in computing(graph)] == ["conv2d", "conv2d", "mul"]
    compare(mod, byoc_hw.build(after), Reference(mod))


# ---------------------------------------------------------------- declined


DECLINED = {
    **{
        name: (Mul(shape=one, other=other), f"{SHAPES_RULE}: got {found}")
        for name, (one, other, found) in NOT_BROADCAST.items()
    },
    "int16": (Mul(dtype="int16"), "activation type is int8: got int16"),
    "a product that is scaled up beyond an int32": (
        Mul(lhs=Quantized(8.0), rhs=Quantized(8.0), out=Quantized(1e-4)),
        "sums, before and after they are scaled, fit in 32 bits: got 37 bits",
    ),
}


@pytest.mark.parametrize(("mul", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(mul, reason):
    declined(mul.module(), f"qnn_mul: {reason}")


def test_names_a_zero_point_that_is_computed():
    mul = Mul(shape=(1, 4))
    x, y, zero_point = *mul.variables(), variable((), "int32", "z")
    mul.lhs.constants = lambda: (const(0.1, "float32"), zero_point)
    declined(
        module(mul.expr(x, y), x, y, zero_point), "qnn_mul: qnn.mul: lhs_zero_point is the input z, not a constant"
    )


@pytest.mark.parametrize("name", ["qnn_mul", "qnn.mul_1"])
def test_deny_keeps_it_on_the_host(name):
    declined(Mul().module(), f"qnn_mul: kept on the host by deny={name!r}", deny=[name])


# ---------------------------------------------------------------- code and results


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, Mul(shape=(1, 4, 5, 6), clip=(-100.0, 127.0)).module())
    check_golden("qnn_mul_by_channel", Mul(shape=(1, 4, 5, 6), other=(1, 1, 1, 6)).module())


QUANTIZATIONS = st.builds(Quantized, st.floats(2.0**-9, 1.0, width=32), ZERO_POINTS)
OUTPUTS = st.builds(Quantized, st.floats(2.0**-7, 32.0, width=32), ZERO_POINTS)
MULS = pairwise_shapes().flatmap(
    lambda shapes: st.builds(partial(Mul, **shapes), lhs=QUANTIZATIONS, rhs=QUANTIZATIONS, out=OUTPUTS, clip=CLIPS)
)


@settings(max_examples=4)
@given(st.lists(MULS, min_size=3, max_size=4), BROADCASTING, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)


EDGES = {
    "one element": Mul(shape=(1,)),
    "a tensor by itself": WithItself(Mul(shape=(1, 4, 4, 3))),
    "a constant": WithConstant(Mul()),
    # TVM does not scale at all where the product's scale is the output's.
    "no change of scale": Mul(lhs=Quantized(0.5), rhs=Quantized(0.5), out=Quantized(0.25)),
    "all saturates": Mul(lhs=Quantized(1.0, -128), rhs=Quantized(1.0, 127), out=Quantized(0.01, 0)),
    "nothing is left": Mul(lhs=Quantized(1e-3), rhs=Quantized(1e-3), out=Quantized(1.0, 7)),
    "empty clip": Mul(clip=(10.0, 3.0)),
}


def test_gives_tvms_results_in_the_corners():
    check_bit_exact(list(EDGES.values()), COMPOSITE)
