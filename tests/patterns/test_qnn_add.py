"""qnn_add: which additions it takes, as what layer, what it declines and why, and what it computes."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    BROADCAST,
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
from relay_samples import Add, Conv, Quantized, WithConstant, WithItself, const, module, variable

import byoc_hw
from byoc_hw import DIANA_DIGITAL
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.graph import Conv2d

COMPOSITE = "qnn_add"

FORMS = {
    "plain": Add(),
    "clip": Add(clip=(-100.0, 50.0)),
    "zero points": Add(lhs=Quantized(0.1, -128), rhs=Quantized(0.2, 127), out=Quantized(0.3, -128)),
    "a vector": Add(shape=(1, 40)),
    "five dimensions": Add(shape=(1, 2, 3, 4, 5)),
    "tokens": Add(shape=(9, 20)),
    "batches": Add(shape=(2, 6, 5, 7)),
    "one element": Add(shape=(1,)),
    # As many scales as channels, but all the same.
    "scales that are one": Add(lhs=Quantized((0.25,) * 7, 3)),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_takes_the_whole_form(form):
    layer = accepted(form.module(), COMPOSITE)
    assert layer.kind == "add"
    assert layer.ifm.shape == layer.ifm2.shape == layer.ofm.shape == form.shape
    for tensor, given_as in ((layer.ifm, form.lhs), (layer.ifm2, form.rhs), (layer.ofm, form.out)):
        assert tensor.quantization.zero_point == (given_as.zero_point,)
        assert tensor.quantization.scale == (float(np.float32(np.ravel(given_as.scale)[0])),)
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


def test_takes_a_tensor_added_to_itself():
    """Each side with its own quantization, as the operator states them."""
    x, add = variable((1, 4, 4, 3)), Add()
    layer = accepted(module(add.expr(x, x), x), COMPOSITE)
    assert (layer.ifm.quantization.zero_point, layer.ifm2.quantization.zero_point) == ((-3,), (4,))


@pytest.mark.parametrize("side", ["lhs", "rhs"])
def test_takes_a_constant_operand(side):
    layer = accepted(WithConstant(Add(), constant_first=side == "lhs").module(), COMPOSITE)
    constant = layer.ifm if side == "lhs" else layer.ifm2
    np.testing.assert_array_equal(constant.data, WithConstant.data)


def test_a_constant_operand_has_the_shape_that_the_layer_reads():
    x = variable((1, 4))
    (graph,) = graphs(partitioned(module(Add().expr(const([1, 2, 3, 4], "int8"), x), x)))
    assert [tensor.data.shape for tensor in graph.layers[0].inputs if tensor.data is not None] == [(1, 4)]


@pytest.mark.parametrize(("one", "other", "ifm", "ifm2"), BROADCAST.values(), ids=BROADCAST)
def test_takes_a_broadcast_operand_on_either_side(one, other, ifm, ifm2):
    for first, zero_points in ((Add(shape=one, other=other), (-3, 4)), (Add(shape=other, other=one), (4, -3))):
        layer = accepted(first.module(), COMPOSITE)
        assert (layer.ifm.shape, layer.ifm2.shape, layer.broadcast) == (ifm, ifm2, True)
        assert tuple(tensor.quantization.zero_point[0] for tensor in layer.inputs) == zero_points


def residual(layout):
    first, second = Conv(channels=4, filters=4, layout=layout), Conv(channels=4, filters=4, layout=layout, seed=3)
    x = variable(first.ifm_shape)
    shortcut = first.expr(x)
    add = Add(lhs=Quantized(0.4, 5), rhs=Quantized(0.4, 5))
    return module(add.expr(second.expr(shortcut), shortcut), x)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_residual_block_is_one_region(layout):
    mod = residual(layout)
    after = partitioned(mod)
    (graph,) = graphs(after)
    assert [layer.kind for layer in computing(graph)] == [Conv2d.kind, Conv2d.kind, "add"]
    compare(mod, byoc_hw.build(after), Reference(mod))


# ---------------------------------------------------------------- declined


DECLINED = {
    **{
        name: (Add(shape=one, other=other), f"{SHAPES_RULE}: got {found}")
        for name, (one, other, found) in NOT_BROADCAST.items()
    },
    "int16": (Add(dtype="int16"), "activation type is int8: got int16"),
    "a scale for each channel": (
        Add(lhs=Quantized((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7))),
        "one scale for the whole tensor: got 7 different ones",
    ),
}


@pytest.mark.parametrize(("add", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(add, reason):
    declined(add.module(), f"qnn_add: {reason}")


def test_names_a_zero_point_that_is_computed():
    add = Add(shape=(1, 4))
    x, y, zero_point = *add.variables(), variable((), "int32", "z")
    add.lhs.constants = lambda: (const(0.1, "float32"), zero_point)
    declined(
        module(add.expr(x, y), x, y, zero_point), "qnn_add: qnn.add: lhs_zero_point is the input z, not a constant"
    )


def test_declines_a_broadcast_operand_where_the_hardware_has_none():
    reason = "both inputs have one shape: got (1, 6, 5, 7) and (1, 1, 1, 7)"
    declined(Add(other=(1, 1, 1, 7)).module(), f"qnn_add: {reason}", accelerator=DIANA_DIGITAL)


@pytest.mark.parametrize("name", ["qnn_add", "qnn.add_1"])
def test_deny_keeps_it_on_the_host(name):
    declined(Add().module(), f"qnn_add: kept on the host by deny={name!r}", deny=[name])


# ---------------------------------------------------------------- code and results


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, Add(shape=(1, 4, 5, 6), clip=(-100.0, 127.0)).module())


QUANTIZATIONS = st.builds(Quantized, st.floats(2.0**-9, 4.0, width=32), ZERO_POINTS)
ADDS = pairwise_shapes().flatmap(
    lambda shapes: st.builds(
        partial(Add, **shapes), lhs=QUANTIZATIONS, rhs=QUANTIZATIONS, out=QUANTIZATIONS, clip=CLIPS
    )
)


@settings(max_examples=4)
@given(st.lists(ADDS, min_size=3, max_size=4), BROADCASTING, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)


EDGES = {
    "one element": Add(shape=(1,)),
    "a tensor added to itself": WithItself(Add(shape=(1, 4, 4, 3))),
    **{name: Add(shape=one, other=other) for name, (one, other, _, _) in BROADCAST.items()},
    "constant on the right": WithConstant(Add()),
    "constant on the left": WithConstant(Add(), constant_first=True),
    "no change of scale": Add(lhs=Quantized(0.1), rhs=Quantized(0.1), out=Quantized(0.1)),
    "all saturates": Add(lhs=Quantized(8.0, -128), rhs=Quantized(8.0, 127), out=Quantized(0.01, 0)),
    "nothing is left": Add(lhs=Quantized(1e-9), rhs=Quantized(1e-9), out=Quantized(1.0, 7)),
    "empty clip": Add(clip=(10.0, 3.0)),
}


@pytest.mark.slow
def test_gives_tvms_results_in_the_corners():
    check_bit_exact(list(EDGES.values()), COMPOSITE)
