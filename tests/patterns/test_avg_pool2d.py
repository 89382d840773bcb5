"""avg_pool2d: which averages it takes, as what layer, what it declines and why, and what it computes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    ACCELERATORS,
    CLIPS,
    SEEDS,
    ZERO_POINTS,
    accepted,
    check_bit_exact,
    check_golden,
    compare,
    computing,
    declined,
    graphs,
    partitioned,
)
from relay_samples import Conv, Pool, Quantized, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.graph import Conv2d, Pool2d, Transpose

COMPOSITE = "avg_pool2d"


def global_pool(**knobs):
    return Pool(**{"operator": "nn.global_avg_pool2d", **knobs})


def mean(**knobs):
    return Pool(**{"operator": "mean", **knobs})


WINDOWS = {
    "plain": Pool(),
    "clip": Pool(clip=(-100.0, 50.0)),
    "stride 1": Pool(strides=(1, 1)),
    "strides that differ": Pool(strides=(1, 2)),
    "padding that does not count": Pool(padding=(1, 0, 1, 1)),
    "padding that counts": Pool(padding=(0, 1, 1, 0), count_include_pad=True),
    "largest window": Pool(shape=(1, 32, 40, 2), kernel=(32, 32), strides=(1, 2)),
    "1x1": Pool(kernel=(1, 1)),
    "NCHW": Pool(layout="NCHW"),
}


@pytest.mark.parametrize("form", WINDOWS.values(), ids=WINDOWS)
def test_takes_an_average_over_a_window(form):
    layer = accepted(form.module(), COMPOSITE)
    assert (layer.mode, layer.rescaled) == ("avg", False)
    assert (layer.kernel, layer.strides, layer.padding) == (form.kernel, form.strides, form.padding)
    assert layer.count_include_pad == form.count_include_pad
    assert layer.ifm.shape == tuple(form.shape[form.layout.index(letter)] for letter in "NHWC")
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


WHOLE = {
    "global": global_pool(),
    "global, clip": global_pool(clip=(-100.0, 50.0)),
    "global, NCHW": global_pool(shape=(1, 5, 8, 7), layout="NCHW"),
    "largest": global_pool(shape=(1, 32, 32, 2)),
    "longer than a window": global_pool(shape=(1, 64, 3, 5)),
    "longer than a window, NCHW": global_pool(shape=(1, 5, 2, 50), layout="NCHW"),
    "a window longer than one": Pool(shape=(1, 64, 1, 5), kernel=(64, 1)),
    "window as large as the input": Pool(kernel=(8, 7), strides=(8, 7)),  # its stride does not matter
}


@pytest.mark.parametrize("form", WHOLE.values(), ids=WHOLE)
def test_takes_an_average_over_the_whole_input(form):
    layer = accepted(form.module(), COMPOSITE)
    assert layer.kernel == layer.ifm.shape[1:3]
    assert layer.ofm.shape == (1, 1, 1, layer.ifm.shape[3])
    assert (layer.mode, layer.strides, layer.rescaled) == ("avg", (1, 1), False)
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


MEANS = {
    "plain": mean(),
    "keepdims": mean(keepdims=True),
    "clip": mean(clip=(-100.0, 50.0)),
    "negative axes": mean(axis=(-2, -3)),
    "all axes but two": mean(axis=(0, 3), exclude=True),
    "NCHW": mean(shape=(1, 5, 8, 7), axis=(2, 3)),
    "NCHW, keepdims": mean(shape=(1, 5, 8, 7), axis=(2, 3), keepdims=True),
    "zero points": mean(ifm=Quantized(0.1, 127), ofm=Quantized(0.2, -128)),
    "largest": mean(shape=(1, 32, 32, 2)),
    "longer than a window": mean(shape=(1, 3, 128, 2)),
    "longer than a window, NCHW": mean(shape=(1, 5, 64, 2), axis=(2, 3)),
}


@pytest.mark.parametrize("form", MEANS.values(), ids=MEANS)
def test_takes_a_mean_over_height_and_width(form):
    layer = accepted(form.module(), COMPOSITE)
    assert (layer.mode, layer.strides, layer.rescaled) == ("avg", (1, 1), True)
    assert layer.kernel == layer.ifm.shape[1:3]
    assert layer.ofm.shape == (1, 1, 1, layer.ifm.shape[3])
    assert layer.ifm.quantization.zero_point == (form.ifm.zero_point,)
    assert layer.ofm.quantization.zero_point == (form.ofm.zero_point,)
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


def test_what_is_longer_than_a_window_is_read_as_an_image_whose_sides_differ_least():
    """Of all pixels the order does not matter: the same bytes in other rows."""
    layer = accepted(global_pool(shape=(1, 64, 3, 5)).module(), COMPOSITE)
    assert (layer.ifm.shape, layer.kernel) == ((1, 12, 16, 5), (12, 16))


@pytest.mark.parametrize("make", [global_pool, mean])
def test_long_images_are_averaged_bit_for_bit(make):
    check_bit_exact([make(shape=(1, 100, 2, 5)), make(shape=(1, 1, 64, 17))], COMPOSITE, REFERENCE, 0)


@pytest.mark.parametrize("operator", ["nn.avg_pool2d", "nn.global_avg_pool2d", "mean"])
def test_nchw_behind_a_convolution_needs_no_transpose_between(operator):
    conv = Conv(width=6, layout="NCHW")
    pool = Pool(operator=operator, layout="NCHW", axis=(2, 3), keepdims=True, strides=(1, 1))
    x = variable(conv.ifm_shape)
    mod = module(pool.expr(conv.expr(x)), x)
    after = partitioned(mod)
    (graph,) = graphs(after)
    assert [type(layer) for layer in computing(graph)] == [Conv2d, Pool2d]
    inside = graph.layers[graph.layers.index(computing(graph)[0]) : graph.layers.index(computing(graph)[1])]
    assert not any(isinstance(layer, Transpose) for layer in inside)
    compare(mod, byoc_hw.build(after), Reference(mod))


# ---------------------------------------------------------------- declined


DECLINED = {
    "stride 3": (Pool(strides=(3, 3)), "stride is one of 1, 2: got 3"),
    "window": (Pool(kernel=(33, 2), shape=(1, 40, 7, 5)), "kernel is at most 32 x 32: got 33 x 2"),
    "dilation": (Pool(dilation=(2, 2)), "dilation is 1: got 2"),
    "ceil_mode beyond padding that counts": (
        Pool(ceil_mode=True, count_include_pad=True),
        "windows end with the padding where an average counts it: got 0 rows and 1 columns more",
    ),
    "batch": (Pool(shape=(2, 8, 7, 5)), "batch is 1: got 2"),
    "padding beyond a byte": (Pool(padding=(256, 0, 0, 0)), "padding is at most 255: got 256"),
    "layout": (Pool(layout="NWHC"), "data layout is NHWC or NCHW: got NWHC"),
    # Without padding and up to 11 x 11 it is a depthwise convolution: see tests/frontend/test_unsigned.py.
    "uint8": (Pool(dtype="uint8", padding=(1, 0, 0, 0)), "matched to nn.avg_pool2d; cast: dtype is uint8, not int8"),
    "float": (
        Pool(dtype="float32", widened=False),
        "nn.avg_pool2d: data is the input x, not the result of cast",
    ),
    # Sums in int8 wrap; that is what TVM gives, and not an average.
    "int8 sums": (Pool(widened=False), "nn.avg_pool2d: data is the input x, not the result of cast"),
    "global, batch": (global_pool(shape=(3, 8, 7, 5)), "batch is 1: got 3"),
    "global, window": (global_pool(shape=(1, 37, 7, 5)), "kernel is at most 32 x 32: got 37 x 7"),
    "global, layout": (global_pool(layout="NWHC"), "data layout is NHWC or NCHW: got NWHC"),
    "global, uint8": (
        global_pool(dtype="uint8", shape=(1, 12, 7, 5)),
        "matched to nn.global_avg_pool2d; cast: dtype is uint8, not int8",
    ),
    "global, float": (
        global_pool(dtype="float32", widened=False),
        "nn.global_avg_pool2d: data is the input x, not the result of cast",
    ),
    "mean over axes apart": (
        mean(axis=(1, 3)),
        "a reduction goes over neighbouring axes: got [1, 3] of (1, 8, 7, 5)",
    ),
    "mean, window": (mean(shape=(1, 37, 7, 5)), "kernel is at most 32 x 32: got 37 x 7"),
    "mean, batch": (mean(shape=(2, 8, 7, 5)), "kernel is at most 32 x 32: got 1 x 56"),
    "mean of uint8": (mean(dtype="uint8", shape=(1, 12, 7, 5)), "activation type is int8: got uint8 x int8"),
    "mean, rounding": (mean(rounding="TONEAREST"), "requantize rounds UPWARD: got TONEAREST"),
    "mean, requantize in float": (mean(compute_dtype="float32"), "requantize computes in int64: got float32"),
    "mean, a scale for each channel": (
        mean(ifm=Quantized((0.1, 0.2, 0.3, 0.4, 0.5))),
        "one scale for the whole tensor: got 5 different ones",
    ),
    "mean without requantize": (
        mean(requantized=False),
        "matched to mean; expected qnn.requantize, found the model's output",
    ),
    "mean of int8 sums": (mean(widened=False), "mean: data is the input x, not the result of cast"),
}


@pytest.mark.parametrize(("pool", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(pool, reason):
    declined(pool.module(), f"avg_pool2d: {reason}")


def test_declines_a_sum_that_is_used_elsewhere_too():
    pool = Pool()
    (x,) = pool.variables()
    wide = relay.nn.avg_pool2d(relay.cast(x, "int32"), pool_size=(2, 2), layout="NHWC")
    declined(
        module(relay.Tuple([relay.cast(wide, "int8"), wide]), x),
        "avg_pool2d: matched to cast; the result of nn.avg_pool2d is used elsewhere too",
    )


@pytest.mark.parametrize("name", ["avg_pool2d", "nn.avg_pool2d_1"])
def test_deny_keeps_it_on_the_host(name):
    declined(Pool().module(), f"avg_pool2d: kept on the host by deny={name!r}", deny=[name])


def test_declines_a_widened_input_that_is_used_elsewhere_too():
    (x,) = Pool().variables()
    wide = relay.cast(x, "int32")
    pools = [relay.cast(relay.nn.avg_pool2d(wide, pool_size=(size, 2), layout="NHWC"), "int8") for size in (2, 3)]
    declined(
        module(relay.Tuple(pools), x),
        "avg_pool2d: matched to nn.avg_pool2d; the result of cast is used elsewhere too",
    )


# ---------------------------------------------------------------- code and results


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, mean(shape=(1, 5, 4, 6), clip=(-100.0, 127.0)).module())


@st.composite
def pools(draw):
    operator = draw(st.sampled_from(("nn.avg_pool2d", "nn.avg_pool2d", "nn.global_avg_pool2d", "mean")))
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    if draw(st.integers(0, 5)) == 0:
        kernel = draw(st.sampled_from(((32, 1), (1, 32), (9, 13))))
    padding = tuple(draw(st.integers(0, min(extent - 1, 3))) for extent in (*kernel, *kernel))
    smallest = [max(1, kernel[axis] - padding[axis] - padding[axis + 2]) for axis in (0, 1)]
    height, width = (min(32, extent + draw(st.sampled_from((0, 0, 1, 5, 14)))) for extent in smallest)
    channels = draw(st.sampled_from((1, 2, 16, 17) if height * width > 100 else (1, 3, 16, 17, 33)))
    layout = draw(st.sampled_from(("NHWC", "NCHW")))
    extents = {"N": 1, "H": height, "W": width, "C": channels}
    return Pool(
        operator=operator,
        shape=tuple(extents[letter] for letter in layout),
        kernel=kernel,
        strides=draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        padding=padding,
        layout=layout,
        count_include_pad=draw(st.booleans()),
        clip=draw(CLIPS),
        axis=(layout.index("H"), layout.index("W")),
        keepdims=draw(st.booleans()),
        ifm=Quantized(draw(st.floats(2.0**-6, 2.0, width=32)), draw(ZERO_POINTS)),
        ofm=Quantized(draw(st.floats(2.0**-6, 2.0, width=32)), draw(ZERO_POINTS)),
    )


@settings(max_examples=4)
@given(st.lists(pools(), min_size=3, max_size=4), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)


LINE = {"operator": "nn.avg_pool1d", "kernel": (3,), "strides": (2,), "padding": (1, 1), "dilation": (1,)}

AXES = {
    "height": (mean(axis=(1,)), (2, 4), (1, 1, 1, 35)),
    "width": (mean(axis=(2,), keepdims=True), (1, 7), (1, 8, 1, 5)),
    "channels": (mean(axis=(-1,)), (1, 5), (1, 56, 1, 1)),
    "all": (mean(axis=(0, 1, 2, 3), keepdims=True), (14, 20), (1, 1, 1, 1)),
    "of a matrix": (mean(shape=(6, 8), axis=(1,)), (1, 8), (1, 6, 1, 1)),
    "of one element": (mean(shape=(6, 1, 4), axis=(1,)), (1, 1), (1, 1, 6, 4)),
    "batch": (mean(shape=(3, 2, 4, 5)), (1, 8), (1, 3, 1, 5)),
    "over an axis of one element between": (mean(shape=(2, 3, 1, 4), axis=(1, 3)), (1, 12), (1, 2, 1, 1)),
    "the rest": (mean(shape=(1, 8, 7, 1), axis=(1, 2), exclude=True), (1, 1), (1, 1, 56, 1)),
    "cast back": (mean(axis=(1,), requantized=False, cast=True, clip=(-9.0, 30.0)), (2, 4), (1, 1, 1, 35)),
}


@pytest.mark.parametrize(("form", "kernel", "shape"), AXES.values(), ids=AXES)
def test_takes_a_mean_over_other_axes_as_a_window_of_the_same_bytes(form, kernel, shape):
    layer = accepted(form.module(), COMPOSITE)
    assert (layer.kernel, layer.ofm.shape) == (kernel, shape)


def test_gives_tvms_means_over_other_axes():
    check_bit_exact([form for form, _, _ in AXES.values()], COMPOSITE)


EDGES = {
    "ceil_mode": Pool(shape=(1, 8, 7, 5), kernel=(3, 4), ceil_mode=True),
    "ceil_mode, padding": Pool(shape=(1, 6, 7, 5), kernel=(3, 3), padding=(1, 1, 1, 1), ceil_mode=True),
    "ceil_mode, padding that counts": Pool(
        shape=(1, 7, 7, 5), kernel=(3, 3), padding=(1, 1, 1, 1), ceil_mode=True, count_include_pad=True
    ),
    "1-D": Pool(**LINE, shape=(2, 9, 5), layout="NWC", count_include_pad=True),
    "1-D, channels first": Pool(**LINE, shape=(2, 3, 8), layout="NCW", ceil_mode=True),
    "1-D, batch": Pool(**LINE, shape=(4, 8, 3), layout="NWC", ceil_mode=True),
    "one pixel": Pool(shape=(1, 1, 1, 5), kernel=(1, 1)),
    "padding wider than the window": Pool(padding=(5, 2, 2, 4), shape=(1, 3, 2, 5)),
    "padding wider than the window, counted": Pool(padding=(5, 2, 2, 4), strides=(1, 2), count_include_pad=True),
    "one pixel, global": global_pool(shape=(1, 1, 1, 5)),
    "one pixel, mean": mean(shape=(1, 1, 1, 5)),
    "largest window": Pool(shape=(1, 32, 40, 2), kernel=(32, 32), strides=(1, 2)),
    "mean that saturates": mean(ifm=Quantized(1.0, -128), ofm=Quantized(0.1, 127)),
    "mean scaled to nothing": mean(ifm=Quantized(1e-9), ofm=Quantized(1.0, 7)),
    "mean, negative axes": mean(axis=(-2, -3)),
    "mean, all axes but two": mean(axis=(0, 3), exclude=True),
    "empty clip": Pool(clip=(10.0, 3.0)),
}


@pytest.mark.slow
def test_gives_tvms_results_in_the_corners():
    check_bit_exact(list(EDGES.values()), COMPOSITE)
