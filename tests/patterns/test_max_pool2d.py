"""max_pool2d: which maxima it takes, as what layer, what it declines and why, and what it computes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    ACCELERATORS,
    CLIPS,
    SEEDS,
    accepted,
    check_bit_exact,
    check_golden,
    compare,
    composites,
    computing,
    declined,
    graphs,
    partitioned,
)
from relay_samples import Conv, Pool, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.graph import Conv2d, Pool2d, Transpose

COMPOSITE = "max_pool2d"


def pool(**knobs):
    return Pool(**{"operator": "nn.max_pool2d", **knobs})


FORMS = {
    "plain": pool(),
    "clip": pool(clip=(-100.0, 50.0)),
    "stride 1": pool(strides=(1, 1)),
    "strides that differ": pool(strides=(2, 1)),
    "asymmetric padding": pool(padding=(1, 0, 0, 1)),
    "largest window": pool(shape=(1, 32, 40, 2), kernel=(32, 32), strides=(1, 2)),
    "1x1": pool(kernel=(1, 1)),
    "NCHW": pool(layout="NCHW"),
    "ceil_mode without a remainder": pool(shape=(1, 8, 6, 5), ceil_mode=True),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_takes_the_whole_form(form):
    layer = accepted(form.module(), COMPOSITE)
    assert layer.mode == "max"
    assert (layer.kernel, layer.strides, layer.padding) == (form.kernel, form.strides, form.padding)
    assert layer.ifm.shape == tuple(form.shape[form.layout.index(letter)] for letter in "NHWC")
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


def test_a_window_over_the_whole_input_has_no_stride():
    layer = accepted(pool(kernel=(8, 7), strides=(8, 7)).module(), COMPOSITE)
    assert (layer.kernel, layer.strides, layer.ofm.shape) == ((8, 7), (1, 1), (1, 1, 1, 5))


def test_a_long_window_over_the_whole_input_is_one_whose_sides_differ_least():
    long = pool(shape=(1, 128, 1, 5), kernel=(128, 1))
    layer = accepted(long.module(), COMPOSITE)
    assert (layer.ifm.shape, layer.kernel) == ((1, 8, 16, 5), (8, 16))
    check_bit_exact([long], COMPOSITE, REFERENCE, 0)


def test_ceil_mode_pads_what_the_last_window_needs_more():
    layer = accepted(pool(shape=(1, 8, 7, 5), kernel=(3, 3), padding=(1, 0, 0, 0), ceil_mode=True).module(), COMPOSITE)
    assert (layer.padding, layer.ofm.shape) == ((1, 0, 0, 0), (1, 4, 3, 5))
    layer = accepted(pool(shape=(1, 8, 7, 5), kernel=(3, 4), ceil_mode=True).module(), COMPOSITE)
    assert (layer.padding, layer.ofm.shape) == ((0, 0, 1, 1), (1, 4, 3, 5))


LINES = {
    "NWC": (pool(operator="nn.max_pool1d", shape=(3, 7, 5), layout="NWC"), (1, 3, 7, 5)),
    "NCW": (pool(operator="nn.max_pool1d", shape=(3, 7, 5), layout="NCW"), (1, 21, 5, 1)),
}


@pytest.mark.parametrize(("line", "shape"), LINES.values(), ids=LINES)
def test_takes_a_pool_over_one_dimension_as_a_row(line, shape):
    line = replace(line, kernel=(3,), strides=(2,), padding=(1, 1), dilation=(1,))
    layer = accepted(line.module(), COMPOSITE)
    assert (layer.ifm.shape, layer.kernel, layer.padding) == (shape, (1, 3), (0, 1, 0, 1))


def test_nchw_behind_a_convolution_needs_no_transpose_between():
    conv, maximum = Conv(width=6, layout="NCHW"), pool(layout="NCHW")
    x = variable(conv.ifm_shape)
    mod = module(maximum.expr(conv.expr(x)), x)
    after = partitioned(mod)
    (graph,) = graphs(after)
    assert [type(layer) for layer in graph.layers] == [Transpose, Conv2d, Pool2d, Transpose]
    compare(mod, byoc_hw.build(after), Reference(mod))


# ---------------------------------------------------------------- declined


DECLINED = {
    "stride 3": (pool(strides=(3, 3)), "stride is one of 1, 2: got 3"),
    "window": (pool(kernel=(2, 33), shape=(1, 8, 40, 5)), "kernel is at most 32 x 32: got 2 x 33"),
    "dilation": (pool(dilation=(1, 2)), "dilation is 1: got 1 x 2"),
    "batch": (pool(shape=(2, 8, 7, 5)), "batch is 1: got 2"),
    "padding beyond a byte": (pool(padding=(0, 256, 0, 0)), "padding is at most 255: got 256"),
    "int16": (pool(dtype="int16"), "activation type is int8: got int16"),
    "float": (pool(dtype="float32"), "activation type is int8: got float32"),
    # The optimize hook brings NCHW to NHWC, and nothing else.
    "width before height": (pool(layout="NWHC"), "data layout is NHWC or NCHW: got NWHC"),
    "channels in blocks": (pool(shape=(1, 2, 8, 7, 4), layout="NCHW4c"), "data layout is NHWC or NCHW: got NCHW4c"),
    "every rule at once": (
        pool(shape=(2, 40, 7, 5), kernel=(33, 2), strides=(3, 3), dtype="float32"),
        "batch is 1: got 2; kernel is at most 32 x 32: got 33 x 2; stride is one of 1, 2: got 3; "
        "activation type is int8: got float32",
    ),
}


@pytest.mark.parametrize(("maximum", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(maximum, reason):
    declined(maximum.module(), f"max_pool2d: {reason}")


def test_a_clip_of_a_maximum_that_is_used_elsewhere_is_a_table():
    (x,) = pool().variables()
    maximum = pool().expr(x)
    after = partitioned(module(relay.Tuple([maximum, relay.clip(maximum, 0.0, 6.0)]), x))
    assert set(composites(after)) == {COMPOSITE, "lookup"}
    (graph,) = graphs(after)
    assert [layer.act_max for layer in computing(graph) if layer.kind == "pool2d"] == [127]


@pytest.mark.parametrize("name", ["max_pool2d", "nn.max_pool2d_1"])
def test_deny_keeps_it_on_the_host(name):
    declined(pool().module(), f"max_pool2d: kept on the host by deny={name!r}", deny=[name])


# ---------------------------------------------------------------- code and results


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, pool(shape=(1, 5, 6, 3), padding=(0, 1, 1, 0), clip=(-128.0, 100.0)).module())


@st.composite
def pools(draw):
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    if draw(st.integers(0, 5)) == 0:
        kernel = draw(st.sampled_from(((32, 1), (1, 32), (9, 13))))
    padding = tuple(draw(st.integers(0, min(extent - 1, 3))) for extent in (*kernel, *kernel))
    smallest = [max(1, kernel[axis] - padding[axis] - padding[axis + 2]) for axis in (0, 1)]
    height, width = (extent + draw(st.sampled_from((0, 0, 1, 5, 14))) for extent in smallest)
    channels = draw(st.sampled_from((1, 2, 16, 17) if height * width > 100 else (1, 3, 16, 17, 33)))
    layout = draw(st.sampled_from(("NHWC", "NCHW")))
    extents = {"N": 1, "H": height, "W": width, "C": channels}
    return pool(
        shape=tuple(extents[letter] for letter in layout),
        kernel=kernel,
        strides=draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        padding=padding,
        layout=layout,
        ceil_mode=draw(st.booleans()) and inside_in_ceil_mode(height, width, kernel, padding),
        clip=draw(CLIPS),
    )


def inside_in_ceil_mode(height, width, kernel, padding):
    """Whether with stride 2 every window begins before the input ends."""
    ends = zip((height, width), kernel, padding[:2], padding[2:], strict=True)
    return all(-(-(size + before + after - window) // 2) * 2 - before < size for size, window, before, after in ends)


@pytest.mark.slow
@settings(max_examples=5)
@given(st.lists(pools(), min_size=3, max_size=4), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)


EDGES = {
    "one pixel": pool(shape=(1, 1, 1, 5), kernel=(1, 1)),
    "a window that begins behind the input": pool(shape=(1, 3, 2, 5), kernel=(1, 1), ceil_mode=True),
    "padding wider than the window": pool(padding=(5, 2, 2, 4), shape=(1, 3, 2, 5)),
    "one pixel amid padding": pool(shape=(1, 1, 1, 5), kernel=(3, 3), padding=(1, 1, 1, 1)),
    "largest window": pool(shape=(1, 32, 40, 2), kernel=(32, 32), strides=(1, 2)),
    "empty clip": pool(clip=(10.0, 3.0)),
    "clip between integers": pool(clip=(-0.9, 6.7)),
    "ceil_mode": pool(shape=(1, 8, 7, 5), kernel=(3, 4), ceil_mode=True),
    "ceil_mode, one window": pool(shape=(1, 2, 3, 5), kernel=(3, 3), ceil_mode=True),
    "ceil_mode, padding": pool(shape=(1, 6, 7, 5), kernel=(3, 3), padding=(1, 1, 1, 1), ceil_mode=True),
    "1-D": pool(
        operator="nn.max_pool1d",
        shape=(2, 9, 5),
        kernel=(3,),
        strides=(2,),
        padding=(1, 1),
        dilation=(1,),
        layout="NWC",
        ceil_mode=True,
    ),
    "1-D, channels first": pool(
        operator="nn.max_pool1d",
        shape=(2, 3, 9),
        kernel=(2,),
        strides=(1,),
        padding=(0, 0),
        dilation=(1,),
        layout="NCW",
        clip=(-9.0, 90.0),
    ),
}


def test_gives_tvms_results_in_the_corners():
    check_bit_exact(list(EDGES.values()), COMPOSITE)
