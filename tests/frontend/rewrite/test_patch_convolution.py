"""Convolutions of patches become convolutions of single pixels: exactly, and only where those are offloaded."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import SEEDS, compare, computing, graphs, partitioned, reasons
from relay_samples import Conv, module, side_by_side
from tvm import relay

import byoc_hw
from byoc_hw import REFERENCE
from byoc_hw.frontend.relay.record import regions
from byoc_hw.frontend.relay.reference import Reference

PATCHES = Conv(height=12, width=8, channels=3, kernel=(4, 4), strides=(4, 4), padding=(0, 0, 0, 0))


def test_is_a_convolution_of_single_pixels_behind_a_move():
    mod = partitioned(PATCHES.module())
    (graph,) = graphs(mod)
    assert [layer.kind for layer in graph.layers] == ["reshape", "transpose", "reshape", "conv2d"]
    conv = graph.layers[3]
    assert (conv.kernel, conv.strides, conv.ifm.shape) == ((1, 1), (1, 1), (1, 3, 2, 48))
    assert not byoc_hw.explain(mod).host


def test_rows_and_columns_that_no_window_sees_are_left_out():
    (graph,) = graphs(partitioned(replace(PATCHES, height=15, width=9).module()))
    assert [layer.kind for layer in graph.layers] == ["slice", "reshape", "transpose", "reshape", "conv2d"]


LEFT = {
    "padding": (replace(PATCHES, padding=(1, 0, 1, 0)), "stride is one of 1, 2: got 4"),
    "windows that overlap": (replace(PATCHES, kernel=(5, 4)), "stride is one of 1, 2: got 4"),
    "windows that are apart": (replace(PATCHES, kernel=(3, 3)), "stride is one of 1, 2: got 4"),
    "groups": (replace(PATCHES, channels=4, groups=2), "stride is one of 1, 2: got 4"),
    "the convolution is refused": (replace(PATCHES, sum_zero_point=4), "requantize's input zero point is 0: got 4"),
}


@pytest.mark.parametrize(("sample", "reason"), LEFT.values(), ids=LEFT)
def test_leaves_what_would_not_be_offloaded_as_it_is(sample, reason):
    mod = partitioned(sample.module())
    assert not regions(mod)
    assert any(reason in one for one in reasons(mod))


def test_strides_that_the_array_has_are_left_to_it():
    (graph,) = graphs(partitioned(replace(PATCHES, kernel=(2, 2), strides=(2, 2)).module()))
    assert [(layer.kind, layer.strides) for layer in graph.layers] == [("conv2d", (2, 2))]


def test_leaves_a_sum_that_is_used_elsewhere_too():
    (x,) = PATCHES.variables()
    out = PATCHES.expr(x)
    assert not regions(partitioned(module(relay.Tuple([out, out.args[0]]), x)))


def test_an_accelerator_without_moves_leaves_them_to_the_host():
    mod = PATCHES.module()
    limits = {kind: REFERENCE.limits[kind] for kind in ("conv2d", "reshape")}
    after = partitioned(mod, accelerator=replace(REFERENCE, label="CONV", limits=limits))
    (graph,) = graphs(after)
    assert [layer.kind for layer in computing(graph)] == ["conv2d"]
    compare(mod, byoc_hw.build(after), Reference(mod))


@st.composite
def samples(draw):
    strides = draw(st.sampled_from([(3, 3), (4, 4), (1, 5), (8, 3)]))
    height, width = (draw(st.integers(stride, 2 * stride + 1)) for stride in strides)
    return Conv(
        height=height,
        width=width,
        channels=draw(st.sampled_from((1, 3, 8))),
        filters=draw(st.sampled_from((1, 5, 17))),
        kernel=strides,
        strides=strides,
        padding=(0, 0, 0, 0),
        layout=draw(st.sampled_from(("NHWC", "NHWC", "NCHW"))),
        bias=draw(st.booleans()),
        per_channel=draw(st.booleans()),
        clip=draw(st.sampled_from((None, (-20.0, 100.0)))),
        weight_zero_point=draw(st.sampled_from((0, 7))),
        seed=draw(SEEDS),
    )


@pytest.mark.slow
@settings(max_examples=4)
@given(st.lists(samples(), min_size=4, max_size=4), SEEDS)
def test_gives_tvms_results_bit_for_bit(drawn, seed):
    mod = side_by_side(drawn)
    after = partitioned(mod)
    assert not byoc_hw.explain(after).host
    compare(mod, byoc_hw.build(after), Reference(mod), seed)
