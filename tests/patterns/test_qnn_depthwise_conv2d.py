"""qnn_depthwise_conv2d: which convolutions it takes, as what layer, what it declines and why, and what it computes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    ACCELERATORS,
    NARROW,
    SEEDS,
    WITHOUT_PAD,
    accepted,
    check_bit_exact,
    check_golden,
    compare,
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
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.graph import Conv2d, DepthwiseConv2d, Transpose

COMPOSITE = "qnn_depthwise_conv2d"


def depthwise(**knobs):
    return Conv(**{"depthwise": True, "channels": 6, **knobs})


FORMS = {
    "plain": depthwise(),
    "without bias": depthwise(bias=False),
    "bias as add": depthwise(bias_as_add=True),  # what layout conversion makes of a bias_add
    "clip": depthwise(clip=(-100.0, 50.0)),
    "one scale": depthwise(per_channel=False),
    "zero points": depthwise(ifm_zero_point=-128, weight_zero_point=9, ofm_zero_point=127),
    "asymmetric padding": depthwise(padding=(0, 1, 2, 0)),
    "stride 2": depthwise(strides=(2, 2), padding=(0, 0, 1, 1)),
    "strides that differ": depthwise(strides=(2, 1)),
    "largest kernel": depthwise(kernel=(11, 11), padding=(5, 5, 5, 5)),
    "1x1": depthwise(kernel=(1, 1), padding=(0, 0, 0, 0)),
    "two channels": depthwise(channels=2),
    "kernel layout OHWI": depthwise(kernel_layout="OHWI"),
    "NCHW": depthwise(layout="NCHW"),
    "NCHW, bias as add": depthwise(layout="NCHW", bias_as_add=True),
    "NCHW, explicit pad": depthwise(layout="NCHW", padding=(0, 0, 0, 0), explicit_pad=(0, 1, 1, 0)),
    "dead channel": depthwise(channels=2, scales=(1e-12, 0.01)),
    "dead channel, bias as add": depthwise(channels=2, scales=(1e-12, 0.01), bias_as_add=True),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_takes_the_whole_form(form):
    layer = accepted(form.module(), COMPOSITE)
    assert type(layer) is DepthwiseConv2d
    assert layer.ifm.shape == (1, form.height, form.width, form.channels)
    assert layer.weights.shape == (form.channels, *form.kernel, 1)
    assert (layer.bias is not None) == form.bias
    assert len(layer.accumulator.scale) == (form.channels if form.per_channel else 1)
    assert layer.strides == form.strides
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_reads_one_filter_for_each_channel(layout):
    conv = depthwise(channels=2, kernel=(2, 3), layout=layout, weights=np.arange(12).reshape(2, 2, 3, 1).astype("int8"))
    layer = accepted(conv.module(), COMPOSITE)
    np.testing.assert_array_equal(layer.weights.data, conv.weights)
    assert layer.macs == layer.ofm.elements * 6


def test_nchw_reads_as_the_same_layer_between_transposes():
    (graph,) = graphs(partitioned(depthwise(width=5, layout="NCHW").module()))
    assert [type(layer) for layer in graph.layers] == [Transpose, DepthwiseConv2d, Transpose]
    assert graph.layers[1].ifm.shape == (1, 8, 5, 6)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_absorbs_a_pad_by_the_zero_point(layout):
    conv = depthwise(padding=(1, 0, 0, 1), explicit_pad=(0, 1, 2, 1), layout=layout)
    layer = accepted(conv.module(), COMPOSITE)
    assert layer.padding == (1, 1, 2, 2)
    assert "nn.pad_1" in layer.source


def test_a_window_over_the_whole_input_has_no_stride():
    layer = accepted(depthwise(kernel=(8, 8), padding=(0, 0, 0, 0), strides=(8, 3)).module(), COMPOSITE)
    assert layer.strides == (1, 1)


def test_a_separable_convolution_is_one_region_of_two_composites():
    first, second = depthwise(), Conv(channels=6, kernel=(1, 1), padding=(0, 0, 0, 0), seed=5)
    x = variable(first.ifm_shape)
    mod = partitioned(module(second.expr(first.expr(x)), x))
    (graph,) = graphs(mod)
    assert [type(layer) for layer in computing(graph)] == [DepthwiseConv2d, Conv2d]
    assert list(dict.fromkeys(composites(mod))) == ["qnn_depthwise_conv2d", "qnn_conv2d"]


# ---------------------------------------------------------------- declined


DECLINED = {
    "stride 3": (depthwise(strides=(3, 3)), "stride is one of 1, 2: got 3"),
    "kernel": (
        depthwise(kernel=(256, 1), height=256, padding=(0, 0, 0, 0)),
        "kernel is at most 255 x 255, in parts of at most 11 x 11: got 256 x 1",
    ),
    "batch": (depthwise(batch=2), "batch is 1: got 2"),
    "int16": (depthwise(dtype="int16"), "activation type is int8: got int16"),
    "padding beyond a byte": (depthwise(padding=(0, 0, 0, 256)), "padding is at most 255: got 256"),
    "weight zero points": (
        depthwise(channels=3, weight_zero_point=(0, 1, 2)),
        "one weight zero point for the whole tensor: got 3 different ones",
    ),
    "requantize axis": (
        depthwise(channels=8, requantize_axis=2),
        "requantize's scales lie along axis 3, the output channels: got 2",
    ),
    "rounding": (depthwise(rounding="TONEAREST"), "requantize rounds UPWARD: got TONEAREST"),
    "sums beyond 32 bits": (
        depthwise(bias_values=np.full(6, -(2**31) + 1, "int32")),
        "sums, before and after they are scaled, fit in 32 bits: got 33 bits",
    ),
}


@pytest.mark.parametrize(("conv", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(conv, reason):
    declined(conv.module(), f"qnn_depthwise_conv2d: {reason}")


def test_declines_a_long_kernel_where_the_hardware_takes_no_parts():
    long = depthwise(kernel=(12, 1), height=20, padding=(0, 0, 0, 0))
    declined(long.module(), "qnn_depthwise_conv2d: kernel is at most 11 x 11: got 12 x 1", accelerator=DIANA_DIGITAL)


NEAR_MISSES = {
    "weights from outside": (
        depthwise(constant_weights=False),
        "qnn.conv2d: weight is the input w, not a constant",
    ),
    "bias from outside": (
        depthwise(constant_bias=False),
        "matched to qnn.conv2d; nn.bias_add: bias is the input b, not a constant",
    ),
    "no requantize": (
        depthwise(requantized=False, bias_as_add=True),
        "matched to add; expected qnn.requantize, found the model's output",
    ),
}


@pytest.mark.parametrize(("conv", "reason"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_says_how_far_the_match_got(conv, reason):
    declined(conv.module(), f"qnn_depthwise_conv2d or qnn_conv2d: {reason}")


def test_declines_a_sum_that_is_used_elsewhere_too():
    conv = depthwise(requantized=False)
    x = variable(conv.ifm_shape)
    total = conv.expr(x)
    out = relay.qnn.op.requantize(
        total, const(0.001, "float32"), const(0, "int32"), const(0.4, "float32"), const(0, "int32"), out_dtype="int8"
    )
    declined(
        module(relay.Tuple([out, total]), x),
        "qnn_depthwise_conv2d or qnn_conv2d: matched to qnn.requantize; "
        "the result of nn.bias_add is used elsewhere too",
    )


PADS = {
    "wrong value": (depthwise(pad_value=0.0), "nn.pad fills with the input's zero point, -3: got 0.0"),
    "edge": (depthwise(pad_mode="edge"), "nn.pad's mode is constant: got edge"),
}


@pytest.mark.parametrize(("conv", "reason"), PADS.values(), ids=PADS)
def test_leaves_a_pad_that_it_cannot_absorb_on_the_host(conv, reason):
    conv.explicit_pad = (1, 1, 1, 1)
    after = partitioned(conv.module(), accelerator=WITHOUT_PAD)
    assert reasons(after)[0] == f"qnn_depthwise_conv2d: {reason}"
    assert [outcome.name for outcome in byoc_hw.explain(after).host] == ["nn.pad_1"]
    assert set(composites(after)) == {COMPOSITE}


@pytest.mark.parametrize("name", ["qnn_depthwise_conv2d", "qnn.requantize_1"])
def test_deny_keeps_it_on_the_host(name):
    """And it does not become a qnn_conv2d instead."""
    declined(depthwise().module(), f"qnn_depthwise_conv2d: kept on the host by deny={name!r}", deny=[name])


# ---------------------------------------------------------------- code and results


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, depthwise(height=5, width=6, channels=3, strides=(2, 1), clip=(-128.0, 100.0)).module())


@st.composite
def convolutions(draw):
    channels = draw(st.sampled_from((2, 3, 7, 16, 17, 33)))
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    if channels <= 3:
        kernel = draw(st.sampled_from((kernel, (11, 1), (1, 11), (5, 7))))
    return depthwise(
        channels=channels,
        **convolution_knobs(draw, kernel, channels, least_exponents=(-12, 0)),
        weights=draw(weight_values((channels, *kernel, 1))),
        seed=draw(SEEDS),
    )


@settings(max_examples=4)
@given(st.lists(convolutions(), min_size=3, max_size=3), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)


EDGES = {
    "one pixel": depthwise(height=1, width=1, kernel=(1, 1), padding=(0, 0, 0, 0)),
    "one pixel amid padding": depthwise(height=1, width=1),
    "dilation": depthwise(dilation=(2, 1), padding=(2, 1, 1, 0)),
    "padding wider than the kernel": depthwise(padding=(3, 7, 9, 4), height=1, width=2),
    "window over the whole input": depthwise(kernel=(8, 8), padding=(0, 0, 0, 0), strides=(8, 3)),
    "largest kernel": depthwise(kernel=(11, 11), padding=(5, 5, 5, 5), channels=2),
    "dead channels": depthwise(channels=3, scales=(1e-12, 2e-10, 0.01), bias_as_add=True),
    "dead channels in NCHW": depthwise(channels=3, scales=(1e-12, 2e-10, 0.01), layout="NCHW"),
    "all at the rails": depthwise(
        ifm_zero_point=127,
        weight_zero_point=127,
        ofm_zero_point=-128,
        weights=np.full((6, 3, 3, 1), -128, "int8"),
        scales=(0.5,) * 6,
    ),
    "kernel in dilated parts": depthwise(kernel=(3, 15), dilation=(2, 2), padding=(2, 14, 2, 14)),
}


@pytest.mark.slow
def test_gives_tvms_results_in_the_corners():
    check_bit_exact(list(EDGES.values()), COMPOSITE)


IN_PARTS = {
    "wide": depthwise(kernel=(1, 15), padding=(0, 7, 0, 7)),
    "tall": depthwise(kernel=(15, 1), height=20, padding=(0, 0, 0, 0), channels=33),
    "both ways, strided": depthwise(kernel=(9, 9), padding=(4, 4, 4, 4), strides=(2, 1), layout="NCHW"),
    "padding beyond a part": depthwise(kernel=(4, 15), padding=(3, 20, 9, 0), height=3, width=2),
    "dilated": depthwise(kernel=(3, 2), dilation=(4, 3), padding=(4, 1, 4, 2), layout="NCHW"),
}


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", [REFERENCE, SMALL, NARROW], ids=lambda one: one.label)
def test_gives_tvms_results_with_kernels_in_parts(accelerator):
    check_bit_exact(list(IN_PARTS.values()), COMPOSITE, accelerator)


# ---------------------------------------------------------------- a network


def test_a_streaming_network_of_long_kernels_is_one_region():
    """As a wake-word model has them: each step adds a row to the rows before it, which a 15 x 1 kernel sums over."""
    x = variable((1, 1, 1, 16))
    states = [variable((1, 14, 1, 16), name=f"state{number}") for number in range(2)]
    out, kept = x, []
    for number, state in enumerate(states):
        rows = relay.concatenate([state, out], axis=1)
        kept.append(relay.strided_slice(rows, [0, 1, 0, 0], [1, 15, 1, 16]))
        long = depthwise(channels=16, height=15, width=1, kernel=(15, 1), padding=(0, 0, 0, 0), seed=number)
        short = Conv(channels=16, filters=16, kernel=(1, 1), padding=(0, 0, 0, 0), seed=number)
        out = short.expr(long.expr(rows))
    mod = module(relay.Tuple([out, *kept]), x, *states)
    after = partitioned(mod)
    assert not byoc_hw.explain(after).host
    (graph,) = graphs(after)
    assert [layer.kernel for layer in graph.layers if isinstance(layer, DepthwiseConv2d)] == [(15, 1)] * 2
    compare(mod, byoc_hw.build(after), Reference(mod))
