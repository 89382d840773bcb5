"""reshape: which changes of shape it takes into a region, what it declines and why, and what comes out."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    ACCELERATORS,
    SEEDS,
    check_golden,
    compare,
    composites,
    computing,
    declined,
    graphs,
    partitioned,
    reasons,
)
from relay_samples import Conv, Dense, Pool, Sample, module, side_by_side, variable
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.graph import Reshape, Transpose

COMPOSITE = "reshape"
ALONE = "reshape: matches, but a region of nothing but reshapes is not worth a call"

# From (1, 7, 6, 5), behind a maximum.
CHANGES = {
    "reshape": (lambda x: relay.reshape(x, (1, 42, 5)), (1, 42, 5)),
    "reshape to fewer, counted": (lambda x: relay.reshape(x, (0, -1)), (1, 210)),
    "reshape to a vector": (lambda x: relay.reshape(x, (-1,)), (210,)),
    "batch_flatten": (lambda x: relay.nn.batch_flatten(x), (1, 210)),
    "expand_dims": (lambda x: relay.expand_dims(x, 1, 2), (1, 1, 1, 7, 6, 5)),
    "squeeze": (lambda x: relay.squeeze(x, [0]), (7, 6, 5)),
    "squeeze of everything": (lambda x: relay.squeeze(x), (7, 6, 5)),
}


def maximum(x):
    return Pool(operator="nn.max_pool2d", shape=(1, 8, 7, 5), strides=(1, 1)).expr(x)


@pytest.mark.parametrize(("change", "shape"), CHANGES.values(), ids=CHANGES)
def test_takes_every_change_of_shape(change, shape):
    x = variable((1, 8, 7, 5))
    mod = module(change(maximum(x)), x)
    after = partitioned(mod)
    assert not byoc_hw.explain(after).host
    assert composites(after) == ["max_pool2d", COMPOSITE]
    (graph,) = graphs(after)
    layer = graph.layers[-1]
    assert isinstance(layer, Reshape)
    assert (layer.ifm.shape, layer.ofm.shape) == ((1, 7, 6, 5), shape)
    assert graph.outputs == (layer.ofm,)
    compare(mod, byoc_hw.build(after), Reference(mod))


def test_takes_an_input_of_any_batch():
    """It moves nothing, so that the limits of the array do not apply."""
    x = variable((2, 28, 5))
    after = partitioned(module(maximum(relay.reshape(x, (1, 8, 7, 5))), x))
    assert composites(after) == [COMPOSITE, "max_pool2d"]


def test_keeps_a_region_in_one_piece():
    conv, dense = Conv(), Dense(inputs=8 * 8 * 8)
    x = variable(conv.ifm_shape)
    (graph,) = graphs(partitioned(module(dense.expr(relay.reshape(conv.expr(x), (1, -1))), x)))
    assert [layer.kind for layer in graph.layers] == ["conv2d", "reshape", "dense"]


def test_flattens_nchw_in_the_models_order():
    conv, dense = Conv(layout="NCHW", width=6), Dense(inputs=8 * 8 * 6)
    x = variable(conv.ifm_shape)
    mod = module(dense.expr(relay.nn.batch_flatten(conv.expr(x))), x)
    after = partitioned(mod)
    (graph,) = graphs(after)
    assert [layer.kind for layer in graph.layers] == ["transpose", "conv2d", "transpose", "reshape", "dense"]
    compare(mod, byoc_hw.build(after), Reference(mod))


def test_flattens_one_pixel_of_nchw_without_a_transpose():
    pool = Pool(operator="nn.global_avg_pool2d", layout="NCHW")
    conv, dense = Conv(layout="NCHW"), Dense(inputs=8)
    x = variable(conv.ifm_shape)
    mod = module(dense.expr(relay.squeeze(pool.expr(conv.expr(x)), [2, 3])), x)
    after = partitioned(mod)
    (graph,) = graphs(after)
    assert [layer.kind for layer in computing(graph)] == ["conv2d", "pool2d", "dense"]
    assert [layer for layer in graph.layers[1:] if isinstance(layer, Transpose)] == []
    compare(mod, byoc_hw.build(after), Reference(mod))


def test_a_reshape_to_the_shape_that_is_there_is_no_layer():
    x = variable((1, 8, 7, 5))
    mod = module(relay.reshape(maximum(x), (1, 7, 6, 5)), x)
    after = partitioned(mod)
    (graph,) = graphs(after)
    assert [layer.kind for layer in graph.layers] == ["pool2d"]
    compare(mod, byoc_hw.build(after), Reference(mod))


# ---------------------------------------------------------------- declined


@pytest.mark.parametrize("change", [change for change, _ in CHANGES.values()], ids=CHANGES)
def test_a_region_of_nothing_but_reshapes_goes_back_to_the_host(change):
    x = variable((1, 7, 6, 5))
    declined(module(change(x), x), ALONE)


def test_a_region_of_several_reshapes_goes_back_to_the_host():
    x = variable((1, 7, 6, 5))
    declined(module(relay.expand_dims(relay.nn.batch_flatten(relay.reshape(x, (1, 42, 5))), 0), x), ALONE)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_declines_other_types(dtype):
    x = variable((1, 7, 6, 5), dtype)
    declined(module(relay.reshape(x, (1, -1)), x), f"reshape: activation type is int8: got {dtype}")


def test_a_reshape_behind_a_host_operator_stays_there():
    x = variable((1, 8, 7, 5))
    after = partitioned(module(relay.reshape(relay.reverse(maximum(x), axis=3), (1, -1)), x))
    assert composites(after) == ["max_pool2d"]
    assert reasons(after) == [ALONE]


@pytest.mark.parametrize("name", ["reshape", "reshape_1"])
def test_deny_keeps_it_on_the_host(name):
    x = variable((1, 8, 7, 5))
    after = partitioned(module(relay.reshape(maximum(x), (1, -1)), x), deny=[name])
    assert composites(after) == ["max_pool2d"]
    assert reasons(after) == [f"reshape: kept on the host by deny={name!r}"]


# ---------------------------------------------------------------- code and results


def test_generated_c_reads_as_the_golden_file():
    x = variable((1, 3, 4, 2))
    pool = Pool(operator="nn.max_pool2d", shape=(1, 3, 4, 2), kernel=(2, 1), strides=(1, 1))
    check_golden(COMPOSITE, module(Dense(inputs=16, outputs=3).expr(relay.nn.batch_flatten(pool.expr(x))), x))


@dataclass
class Reshaped(Sample):
    """A maximum, changes of shape one after another, and an average over what they give."""

    first: Pool
    changes: tuple
    shape: tuple

    def variables(self, prefix=""):
        return self.first.variables(prefix)

    def expr(self, x):
        x = self.first.expr(x)
        for change in self.changes:
            x = change(x)
        return Pool(kernel=(1, 1), strides=(1, 1)).expr(relay.reshape(x, self.shape))


STEPS = {
    "flatten": lambda x: relay.nn.batch_flatten(x),
    "vector": lambda x: relay.reshape(x, (-1,)),
    "matrix": lambda x: relay.reshape(x, (2, -1)),
    "grow": lambda x: relay.expand_dims(x, 0),
    "grow inside": lambda x: relay.expand_dims(x, 1, 2),
    "shrink": lambda x: relay.squeeze(x),
}


@st.composite
def reshaped(draw):
    height, width, channels = draw(st.sampled_from(((2, 3, 4), (1, 1, 6), (4, 4, 16), (5, 2, 17))))
    shapes = {"NHWC": (1, height, width, channels), "NCHW": (1, channels, height, width)}
    layout = draw(st.sampled_from(sorted(shapes)))
    first = Pool(
        operator="nn.max_pool2d",
        shape=shapes[layout],
        layout=layout,
        kernel=(3, 3),
        strides=(1, 1),
        padding=(1, 1, 1, 1),
    )
    steps = draw(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4))
    total = height * width * channels
    rows = draw(st.sampled_from([rows for rows in (1, 2, 3, 4) if total % rows == 0]))
    return Reshaped(first, tuple(STEPS[step] for step in steps), (1, rows, 1, total // rows))


@pytest.mark.slow
@settings(max_examples=5)
@given(st.lists(reshaped(), min_size=3, max_size=3), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    mod = side_by_side(samples)
    after = partitioned(mod, accelerator=accelerator)
    assert not byoc_hw.explain(after).host
    assert len(graphs(after)) == len(samples)
    compare(mod, byoc_hw.build(after), Reference(mod), seed)
