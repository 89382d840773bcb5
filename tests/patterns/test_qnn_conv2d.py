"""qnn_conv2d: which convolutions it takes, as what layer, what it declines and why, and what it computes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    ACCELERATORS,
    NARROW,
    SEEDS,
    accepted,
    check_bit_exact,
    check_golden,
    composites,
    computing,
    convolution_knobs,
    declined,
    graphs,
    partitioned,
    reasons,
    weight_values,
)
from relay_samples import Conv, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw import DIANA_DIGITAL, REFERENCE, SMALL
from byoc_hw.frontend.relay.sources import calls_in_order
from byoc_hw.graph import Conv2d, Reshape, Transpose

COMPOSITE = "qnn_conv2d"

FORMS = {
    "plain": Conv(),
    "without bias": Conv(bias=False),
    "bias as add": Conv(bias_as_add=True),  # what layout conversion makes of a bias_add
    "clip": Conv(clip=(-100.0, 50.0)),
    "one scale": Conv(per_channel=False),
    "zero points": Conv(ifm_zero_point=127, weight_zero_point=-7, ofm_zero_point=-128),
    "asymmetric padding": Conv(padding=(0, 1, 2, 0)),
    "stride 2": Conv(strides=(2, 2), padding=(0, 0, 1, 1)),
    "strides that differ": Conv(strides=(1, 2)),
    "largest kernel": Conv(kernel=(11, 11), padding=(5, 5, 5, 5)),
    "flat kernel": Conv(kernel=(1, 5), padding=(0, 2, 0, 2)),
    "1x1": Conv(kernel=(1, 1), padding=(0, 0, 0, 0)),
    "one channel in": Conv(channels=1),
    "one filter": Conv(filters=1),
    # No group of several channels: the TFLite importer makes this an ordinary convolution too.
    "depthwise of one channel": Conv(depthwise=True, channels=1),
    "two filters on one channel": Conv(depthwise=True, channels=1, multiplier=2),
    "groups": Conv(groups=2),
    "groups in NCHW": Conv(groups=2, layout="NCHW"),
    "two filters on each channel": Conv(depthwise=True, multiplier=2),
    "two filters on each channel in NCHW": Conv(depthwise=True, multiplier=2, layout="NCHW"),
    "kernel layout OHWI": Conv(kernel_layout="OHWI"),
    "NCHW": Conv(layout="NCHW"),
    "NCHW, bias as add": Conv(layout="NCHW", bias_as_add=True),
    "NCHW, explicit pad": Conv(layout="NCHW", padding=(0, 0, 0, 0), explicit_pad=(0, 1, 1, 0)),
    "dead channel": Conv(filters=2, scales=(1e-12, 0.01)),
    "dead channel, bias as add": Conv(filters=2, scales=(1e-12, 0.01), bias_as_add=True),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_takes_the_whole_form(form):
    layer = accepted(form.module(), COMPOSITE)
    assert type(layer) is Conv2d
    assert layer.ifm.shape == (1, form.height, form.width, form.channels)
    assert layer.groups == (form.channels if form.depthwise else form.groups or 1)
    assert layer.weights.shape == (form.total_filters, *form.kernel, form.channels // layer.groups)
    assert (layer.bias is not None) == form.bias
    assert len(layer.accumulator.scale) == (form.total_filters if form.per_channel else 1)
    assert layer.strides == form.strides
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


def test_reads_zero_points_scales_and_weights():
    conv = Conv(ifm_zero_point=11, weight_zero_point=-7, ofm_zero_point=-128, filters=3, scales=(0.5, 0.25, 0.125))
    conv.weights = np.arange(3 * 3 * 3 * 4).reshape(3, 3, 3, 4).astype("int8")
    conv.bias_values = np.asarray([1, -2, 3], "int32")
    layer = accepted(conv.module(), COMPOSITE)
    assert layer.ifm.quantization.zero_point == (11,)
    assert layer.weights.quantization.zero_point == (-7,)
    assert layer.weights.quantization.scale == (0.5, 0.25, 0.125)
    assert layer.ofm.quantization.zero_point == (-128,)
    assert layer.ofm.quantization.scale == (float(np.float32(0.4)),)
    assert layer.accumulator.scale == tuple(float(np.float32(scale) * np.float32(0.05)) for scale in (0.5, 0.25, 0.125))
    assert layer.accumulator.axis == -1
    np.testing.assert_array_equal(layer.weights.data, conv.weights)
    np.testing.assert_array_equal(layer.bias.data, conv.bias_values)


def test_nchw_reads_as_the_same_layer_between_transposes():
    nhwc, nchw = (accepted(Conv(width=6, layout=layout).module(), COMPOSITE) for layout in ("NHWC", "NCHW"))
    np.testing.assert_array_equal(nchw.weights.data, nhwc.weights.data)
    assert (nchw.ifm.shape, nchw.ofm.shape, nchw.padding) == (nhwc.ifm.shape, nhwc.ofm.shape, nhwc.padding)
    assert nchw.source == nhwc.source
    (graph,) = graphs(partitioned(Conv(width=6, layout="NCHW").module()))
    assert [type(layer) for layer in graph.layers] == [Transpose, Conv2d, Transpose]
    assert [layer.axes for layer in graph.layers if isinstance(layer, Transpose)] == [(0, 2, 3, 1), (0, 3, 1, 2)]


def test_nchw_of_one_channel_needs_no_transpose():
    (graph,) = graphs(partitioned(Conv(channels=1, filters=1, layout="NCHW").module()))
    assert [type(layer) for layer in graph.layers] == [Reshape, Conv2d, Reshape]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_absorbs_a_pad_by_the_zero_point(layout):
    conv = Conv(padding=(1, 0, 0, 1), explicit_pad=(0, 1, 2, 1), layout=layout)
    layer = accepted(conv.module(), COMPOSITE)
    assert layer.padding == (1, 1, 2, 2)
    assert "nn.pad_1" in layer.source


def test_a_window_over_the_whole_input_has_no_stride():
    layer = accepted(Conv(kernel=(8, 8), padding=(0, 0, 0, 0), strides=(8, 3)).module(), COMPOSITE)
    assert layer.strides == (1, 1)


def test_an_empty_clip_gives_its_minimum():
    layer = accepted(Conv(clip=(10.0, 3.0)).module(), COMPOSITE)
    assert (layer.act_min, layer.act_max) == (10, 10)


def test_two_convolutions_are_one_region():
    first, second = Conv(filters=4), Conv(seed=7)
    x = variable(first.ifm_shape)
    mod = partitioned(module(second.expr(first.expr(x)), x))
    (graph,) = graphs(mod)
    assert [layer.name for layer in computing(graph)] == ["qnn.conv2d_1", "qnn.conv2d_2"]


# ---------------------------------------------------------------- declined


DECLINED = {
    "stride 3": (Conv(strides=(3, 3)), "stride is one of 1, 2: got 3"),
    "strides 1 and 3": (Conv(strides=(1, 3)), "stride is one of 1, 2: got 1 x 3"),
    "kernel": (
        Conv(kernel=(1, 256), width=256, padding=(0, 0, 0, 0)),
        "kernel is at most 255 x 255, in parts of at most 11 x 11: got 1 x 256",
    ),
    "batch": (Conv(batch=2), "batch is 1: got 2"),
    "int16": (Conv(dtype="int16"), "activation type is int8: got int16"),
    "padding beyond a byte": (Conv(padding=(256, 0, 0, 0)), "padding is at most 255: got 256"),
    "layout": (Conv(layout="HWCN", kernel_layout="HWIO"), "data layout is NHWC or NCHW: got HWCN"),
    "weight zero points": (
        Conv(filters=3, weight_zero_point=(0, 1, 2)),
        "one weight zero point for the whole tensor: got 3 different ones",
    ),
    "requantize axis": (
        Conv(height=8, filters=8, requantize_axis=1),
        "requantize's scales lie along axis 3, the output channels: got 1",
    ),
    "requantize of an offset sum": (Conv(sum_zero_point=4), "requantize's input zero point is 0: got 4"),
    "rounding": (Conv(rounding="TONEAREST"), "requantize rounds UPWARD: got TONEAREST"),
    "requantize in float": (Conv(compute_dtype="float32"), "requantize computes in int64: got float32"),
    "int16 sums": (Conv(bias=False, sum_dtype="int16"), "sums are int32: got int16"),
    "bias along height": (
        Conv(bias_axis=1),
        "bias lies along the output channels: got shape (1, 8, 1, 1)",
    ),
    "sums beyond 32 bits": (
        Conv(bias_values=np.full(8, 2**31 - 1, "int32")),
        "sums, before and after they are scaled, fit in 32 bits: got 33 bits",
    ),
    "scaled sums beyond 32 bits": (
        Conv(scales=(80000.0,) * 8, bias=False),
        "sums, before and after they are scaled, fit in 32 bits: got 34 bits",
    ),
}


@pytest.mark.parametrize(("conv", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(conv, reason):
    declined(conv.module(), f"qnn_conv2d: {reason}")


def test_declines_padding_beyond_the_kernel_where_the_hardware_lacks_it():
    limits = {**REFERENCE.limits, "conv2d": replace(REFERENCE.limits["conv2d"], wide_padding=False)}
    narrow = replace(REFERENCE, label="NARROW", limits=limits)
    rule = "qnn_conv2d: padding is smaller than each part of the kernel: got"
    declined(Conv(padding=(3, 0, 0, 0)).module(), f"{rule} (3, 0, 0, 0) for 3 x 3", accelerator=narrow)
    long = Conv(kernel=(15, 1), padding=(7, 0, 6, 0))
    accepted(long.module(), COMPOSITE, accelerator=narrow)
    declined(replace(long, padding=(7, 0, 7, 0)).module(), f"{rule} (7, 0, 7, 0) for 7 x 1", accelerator=narrow)


def test_declines_a_long_kernel_where_the_hardware_takes_no_parts():
    long = Conv(kernel=(1, 12), width=20, padding=(0, 0, 0, 0))
    declined(long.module(), "qnn_conv2d: kernel is at most 11 x 11: got 1 x 12", accelerator=DIANA_DIGITAL)


def test_declines_a_dilation_that_the_hardware_lacks_and_takes_no_parts_for():
    dilated = Conv(dilation=(2, 2)).module()
    declined(dilated, "qnn_conv2d: dilation is 1: got 2", accelerator=DIANA_DIGITAL)
    accepted(dilated, COMPOSITE, accelerator=SMALL)


def test_declines_groups_that_the_hardware_lacks():
    limits = {**REFERENCE.limits, "conv2d": replace(REFERENCE.limits["conv2d"], groups=False)}
    plain = replace(REFERENCE, label="PLAIN", limits=limits)
    declined(Conv(groups=2).module(), "qnn_conv2d: groups are 1: got 2", accelerator=plain)
    declined(
        Conv(depthwise=True, multiplier=2).module(),
        "qnn_depthwise_conv2d: channel multiplier is 1: got 2",
        "qnn_conv2d: groups are 1: got 4",
        accelerator=plain,
    )


def test_names_every_broken_rule():
    conv = Conv(batch=2, strides=(3, 3), dtype="int16")
    declined(
        conv.module(),
        "qnn_conv2d: batch is 1: got 2; stride is one of 1, 2: got 3; activation type is int8: got int16",
    )


NEAR_MISSES = {
    "weights from outside": (
        Conv(constant_weights=False),
        "qnn.conv2d: weight is the input w, not a constant",
    ),
    "bias from outside": (
        Conv(constant_bias=False),
        "matched to qnn.conv2d; nn.bias_add: bias is the input b, not a constant",
    ),
    "no requantize": (
        Conv(requantized=False),
        "matched to nn.bias_add; expected qnn.requantize, found the model's output",
    ),
    "no requantize but a clip": (
        Conv(requantized=False, bias=False, clip=(0.0, 6.0)),
        "matched to qnn.conv2d; expected qnn.requantize or nn.bias_add or add, found clip",
    ),
}


@pytest.mark.parametrize(("conv", "reason"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_says_how_far_the_match_got(conv, reason):
    declined(conv.module(), f"qnn_depthwise_conv2d or qnn_conv2d: {reason}")


def test_names_the_company_that_a_bias_and_a_requantize_need():
    assert reasons(partitioned(Conv(constant_weights=False).module()))[1:] == [
        "nn.bias_add is offloaded only together with qnn.conv2d, qnn.dense",
        "qnn.requantize is offloaded only together with max, mean, qnn.batch_matmul, qnn.conv2d, qnn.dense, sum",
    ]


def test_declines_a_sum_that_is_used_elsewhere_too():
    conv = Conv(requantized=False, bias=False)
    x = variable(conv.ifm_shape)
    total = conv.expr(x)
    out = relay.qnn.op.requantize(
        total, const(0.001, "float32"), const(0, "int32"), const(0.4, "float32"), const(0, "int32"), out_dtype="int8"
    )
    declined(
        module(relay.Tuple([out, total]), x),
        "qnn_depthwise_conv2d or qnn_conv2d: matched to qnn.requantize; the result of qnn.conv2d is used elsewhere too",
    )


PADS = {
    "wrong value": Conv(pad_value=0.0),
    "channels": Conv(pad_channels=(0, 1)),
    "too wide": Conv(padding=(255, 0, 0, 0)),
}


@pytest.mark.parametrize("conv", PADS.values(), ids=PADS)
def test_a_pad_that_it_cannot_absorb_is_a_layer_of_its_own(conv):
    conv.explicit_pad = (1, 1, 1, 1)
    after = partitioned(conv.module())
    assert set(composites(after)) == {"pad", COMPOSITE}
    (graph,) = graphs(after)
    assert [layer.padding for layer in computing(graph) if layer.kind == "conv2d"] == [conv.padding]


def test_leaves_a_pad_of_another_mode_on_the_host():
    conv = Conv(pad_mode="reflect", explicit_pad=(1, 1, 1, 1))
    after = partitioned(conv.module())
    mode = "nn.pad's mode is constant: got reflect"
    assert reasons(after) == [f"qnn_conv2d: {mode}", f"pad: {mode}"]
    assert [outcome.name for outcome in byoc_hw.explain(after).host] == ["nn.pad_1"]


def test_a_pad_with_a_second_reader_is_a_layer_of_its_own():
    conv = Conv(padding=(0, 0, 0, 0), explicit_pad=(1, 1, 1, 1))
    x = variable(conv.ifm_shape)
    out = conv.expr(x)
    pad = calls_in_order(out)[0]
    after = partitioned(module(relay.Tuple([out, pad]), x))
    assert set(composites(after)) == {"pad", COMPOSITE}


@pytest.mark.parametrize("name", ["qnn_conv2d", "qnn.conv2d_1"])
def test_deny_keeps_it_on_the_host(name):
    declined(Conv().module(), f"qnn_conv2d: kept on the host by deny={name!r}", deny=[name])


# ---------------------------------------------------------------- code and results


def test_generated_c_reads_as_the_golden_file():
    conv = Conv(height=5, width=6, channels=3, filters=4, padding=(0, 0, 0, 0), explicit_pad=(0, 1, 1, 0))
    check_golden(COMPOSITE, conv.module())


@st.composite
def convolutions(draw):
    channels = draw(st.sampled_from((1, 2, 3, 5, 17)))
    filters = draw(st.sampled_from((1, 3, 8, 16, 19)))
    groups = draw(st.sampled_from((1, 1, 2, 3) if channels * filters > 1 else (1,)))  # else it is a depthwise one
    channels, filters = channels * groups, filters * groups
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    if channels == 1:
        kernel = draw(st.sampled_from((kernel, (11, 1), (1, 11), (5, 7))))
    return Conv(
        channels=channels,
        filters=filters,
        groups=groups,
        **convolution_knobs(draw, kernel, filters, least_exponents=(-14, -2)),
        weights=draw(weight_values((filters, *kernel, channels // groups))),
        seed=draw(SEEDS),
    )


@settings(max_examples=4)
@given(st.lists(convolutions(), min_size=3, max_size=3), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)


EDGES = {
    "one pixel": Conv(height=1, width=1, kernel=(1, 1), padding=(0, 0, 0, 0)),
    "one pixel amid padding": Conv(height=1, width=1),
    "window over the whole input": Conv(kernel=(8, 8), padding=(0, 0, 0, 0), strides=(8, 3)),
    "largest kernel": Conv(kernel=(11, 11), padding=(5, 5, 5, 5), channels=2),
    "dead channels": Conv(filters=3, scales=(1e-12, 2e-10, 0.01), bias_as_add=True),
    "dead tensor": Conv(per_channel=False, scales=(1e-12,)),
    "all at the rails": Conv(
        ifm_zero_point=127,
        weight_zero_point=127,
        ofm_zero_point=-128,
        weights=np.full((8, 3, 3, 4), -128, "int8"),
        scales=(0.5,) * 8,
    ),
    "scaled up": Conv(scales=(100.0,) * 8, kernel=(1, 1), padding=(0, 0, 0, 0)),
    "empty clip": Conv(clip=(10.0, 3.0)),
    "dilation": Conv(dilation=(2, 2), padding=(2, 2, 2, 2)),
    "padding wider than the kernel": Conv(padding=(3, 7, 9, 4), height=1, width=2),
    "pointwise amid padding": Conv(kernel=(1, 1), strides=(2, 1), padding=(2, 3, 0, 1), explicit_pad=(1, 0, 5, 0)),
    "dilation and stride": Conv(dilation=(1, 2), strides=(2, 1), kernel=(2, 4), groups=2, layout="NCHW"),
    "filters on each channel": Conv(depthwise=True, channels=5, multiplier=17, strides=(2, 1)),
    "dead filters on each channel": Conv(depthwise=True, multiplier=2, scales=(1e-12, 2e-10, *(0.01,) * 6)),
    "pointwise groups": Conv(kernel=(1, 1), padding=(0, 0, 0, 0), groups=4, channels=12),
    "two filters on one channel": Conv(depthwise=True, channels=1, multiplier=2),
    "kernel in dilated parts": Conv(kernel=(13, 12), dilation=(2, 1), padding=(12, 5, 12, 6), channels=2, filters=3),
}


@pytest.mark.slow
def test_gives_tvms_results_in_the_corners():
    check_bit_exact(list(EDGES.values()), COMPOSITE)


IN_PARTS = {
    "wide": Conv(kernel=(1, 15), padding=(0, 7, 0, 7)),
    "tall, strided": Conv(kernel=(15, 1), height=16, strides=(2, 1), padding=(7, 0, 7, 0), groups=2, layout="NCHW"),
    "both ways": Conv(kernel=(9, 9), channels=3, padding=(4, 4, 4, 4), strides=(1, 2)),
    "padding beyond a part": Conv(kernel=(15, 4), padding=(20, 3, 0, 9), height=2, width=3),
    "dilated in time": Conv(kernel=(1, 5), dilation=(1, 8), height=1, width=20, padding=(0, 16, 0, 16)),
    "dilated both ways": Conv(kernel=(3, 3), dilation=(5, 2), padding=(5, 2, 5, 2), strides=(1, 2), filters=5),
}


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", [REFERENCE, SMALL, NARROW], ids=lambda one: one.label)
def test_gives_tvms_results_with_kernels_in_parts(accelerator):
    check_bit_exact(list(IN_PARTS.values()), COMPOSITE, accelerator)
