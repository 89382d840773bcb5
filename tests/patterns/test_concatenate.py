"""concatenate: what it takes, also as split, stack and qnn.concatenate; what it declines and why; what comes out."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    ACCELERATORS,
    SEEDS,
    accepted,
    check_bit_exact,
    check_golden,
    compare,
    composites,
    declined,
    graphs,
    inputs_of,
    partitioned,
)
from relay_samples import Conv, Pool, Sample, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference

COMPOSITE = "concatenate"


@dataclass
class Joined(Sample):
    """Inputs of these extents along the axis, the others as in `shape`; `again` repeats the first one."""

    extents: tuple = (3, 4, 2)
    shape: tuple = (1, 5, 6, 0)
    axis: int = 3
    dtype: str = "int8"
    again: bool = False

    def variables(self, prefix=""):
        axis = self.axis % len(self.shape)
        shapes = [(*self.shape[:axis], extent, *self.shape[axis + 1 :]) for extent in self.extents]
        return [variable(shape, self.dtype, f"{prefix}x{index}") for index, shape in enumerate(shapes)]

    def expr(self, *parts):
        return relay.concatenate((*parts, parts[0]) if self.again else parts, self.axis)


FORMS = {
    "channels": (Joined(), (1, 5, 6, 9)),
    "width": (Joined(axis=2), (1, 5, 9, 0)),
    "height, from behind": (Joined(axis=-3, shape=(1, 5, 6, 3)), (1, 9, 6, 3)),
    "batch": (Joined(axis=0, shape=(1, 5, 6, 3)), (9, 5, 6, 3)),
    "vectors": (Joined(axis=1, shape=(1, 0)), (1, 9)),
    "one": (Joined(extents=(3,)), (1, 5, 6, 3)),
    "one twice": (Joined(extents=(3,), again=True), (1, 5, 6, 6)),
}


@pytest.mark.parametrize(("form", "shape"), FORMS.values(), ids=FORMS)
def test_takes_any_axis(form, shape):
    form = Joined(form.extents, tuple(extent or 7 for extent in form.shape), form.axis, again=form.again)
    layer = accepted(form.module(), COMPOSITE)
    assert layer.kind == "concat"
    assert layer.ofm.shape == tuple(extent or 7 for extent in shape)


DECLINED = {
    "uint8": (Joined(dtype="uint8"), "activation type is int8: got uint8"),
    "float": (Joined(dtype="float32"), "activation type is int8: got float32"),
}


@pytest.mark.parametrize(("form", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(form, reason):
    declined(form.module(), f"{COMPOSITE}: {reason}")


def test_generated_c_reads_as_the_golden_file():
    """Two convolutions write into one tensor, which the third one reads: no copy of it."""
    first, second = Conv(height=3, width=4, channels=2, filters=3), Conv(height=3, width=4, channels=2, filters=5)
    x = variable(first.ifm_shape)
    last = Conv(height=3, width=4, channels=8, filters=2, kernel=(1, 1), padding=(0, 0, 0, 0))
    check_golden(COMPOSITE, module(last.expr(relay.concatenate((first.expr(x), second.expr(x)), 3)), x))


def test_is_traced_and_equals_tvm_layer_by_layer():
    x, y = variable((1, 3, 4, 2)), variable((1, 3, 4, 3), name="y")
    maximum = Pool(operator="nn.max_pool2d", shape=(1, 3, 4, 2), kernel=(1, 1), strides=(1, 1)).expr(x)
    constant = const([[[[5], [-7], [9], [1]]]], "int8")
    joined = relay.concatenate((maximum, y, relay.concatenate((constant, constant, constant), 1)), 3)
    part = relay.strided_slice(joined, [0, 0, 1, 0], [1, 3, 4, 5])
    mod = module(relay.nn.pad(part, ((0, 0), (1, 0), (0, 2), (0, 0))), x, y)
    after = partitioned(mod)
    validation = byoc_hw.validate(byoc_hw.build(after), inputs_of(mod), after)
    assert validation.ok
    assert not validation.unseen


# ---------------------------------------------------------------- split, stack, qnn.concatenate


def test_takes_the_parts_of_a_split_and_joins_them_again():
    x = variable((1, 5, 6, 9))
    parts = relay.split(x, [2, 5], axis=3)
    mod = module(relay.concatenate((parts[2], parts[0], parts[1]), 3), x)
    after = partitioned(mod)
    (graph,) = graphs(after)
    assert [layer.kind for layer in graph.layers] == ["slice", "slice", "slice", "concat"]
    assert not byoc_hw.explain(after).host
    compare(mod, byoc_hw.build(after), Reference(mod))


def test_takes_a_stack():
    x, y = variable((1, 5, 6, 2)), variable((1, 5, 6, 2), name="y")
    mod = module(relay.stack((x, y), 2), x, y)
    after = partitioned(mod)
    assert not byoc_hw.explain(after).host
    compare(mod, byoc_hw.build(after), Reference(mod))


def quantized(scales, zero_points):
    parts = [variable((1, 3, 4, 2), name=f"x{index}") for index in range(2)]
    of_parts = [
        tuple(const(value, dtype) for value in values)
        for values, dtype in ((scales, "float32"), (zero_points, "int32"))
    ]
    out = const(scales[0], "float32"), const(zero_points[0], "int32")
    return module(relay.qnn.op.concatenate(relay.Tuple(parts), *map(relay.Tuple, of_parts), *out, 3), *parts)


def test_takes_qnn_concatenate_of_one_quantization():
    mod = quantized((0.5, 0.5), (3, 3))
    assert accepted(mod, COMPOSITE).kind == "concat"


def test_requantizes_inputs_with_another_quantization_as_tvm_does():
    mod = quantized((0.5, 0.31), (3, -7))
    after = partitioned(mod)
    assert COMPOSITE in composites(after)
    compare(mod, byoc_hw.build(after), Reference(mod))


# ---------------------------------------------------------------- bit for bit


@st.composite
def joined(draw):
    rank = draw(st.sampled_from((4, 4, 4, 2, 3)))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    extents = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 16, 17)), min_size=1, max_size=4)))
    return Joined(extents, shape, draw(st.integers(-rank, rank - 1)), again=draw(st.booleans()))


@settings(max_examples=4)
@given(st.lists(joined(), min_size=4, max_size=4), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)
