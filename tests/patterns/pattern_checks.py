"""What the tests of `patterns/` share: accepted, declined, golden C, bit-exact.

`BYOC_HW_UPDATE_GOLDEN=1 pytest tests/patterns` writes the golden C files anew; read the difference
before it is committed.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import tvm
from hypothesis import strategies as st
from relay_samples import side_by_side

import byoc_hw
from byoc_hw import DIANA_DIGITAL, REFERENCE, SMALL
from byoc_hw.frontend.relay.lower import lower_region
from byoc_hw.frontend.relay.partition import folding, prepare
from byoc_hw.frontend.relay.record import numerics_of, regions
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.graph import Reshape, Transpose

GOLDEN = Path(__file__).parent / "golden"
UPDATE_GOLDEN = "BYOC_HW_UPDATE_GOLDEN"

TINY = replace(REFERENCE, label="TINY", activation_memory=2048, weight_memory=1024)

NARROW = replace(
    REFERENCE,
    label="NARROW",
    limits=REFERENCE.limits
    | {kind: replace(REFERENCE.limits[kind], max_kernel=(3, 3)) for kind in ("conv2d", "depthwise_conv2d")},
    activation_memory=4096,
    weight_memory=2048,
)
"""With kernels of at most 3 x 3: longer ones are in parts."""
"""Memories so small that every layer falls into tiles."""

WITHOUT_PAD = replace(
    REFERENCE, label="WITHOUT_PAD", limits={kind: limits for kind, limits in REFERENCE.limits.items() if kind != "pad"}
)
"""A pad that is not part of a convolution stays on the host."""

ACCELERATORS = st.sampled_from((REFERENCE, SMALL, TINY, DIANA_DIGITAL))
BROADCASTING = st.sampled_from((REFERENCE, SMALL, TINY))
"""Those whose element-wise layers take inputs of two shapes."""

FAST_BUILD = "-O1"
"""The compiler takes longer than the programs run."""


COMPANY = " is offloaded only together with "
"""What the report says of each operator that its anchor left behind."""


# ---------------------------------------------------------------- what goes where


def partitioned(mod, **options):
    return byoc_hw.partition_for_hwlib(mod, **options)


def graphs(mod):
    """The lowered graph of each region of a partitioned module."""
    found = [
        lower_region(function, variable.name_hint, numerics_of(function)) for variable, function in regions(mod).items()
    ]
    for graph in found:
        graph.verify()
    return found


def computing(graph):
    """The layers of a graph that compute something: no change of shape or layout."""
    return [layer for layer in graph.layers if not isinstance(layer, (Reshape, Transpose))]


def composites(mod):
    """The composites of a partitioned module, in the order of its operators, as the report has them."""
    return [composite for outcome in byoc_hw.explain(mod).outcomes for composite in outcome.composites]


def accepted(mod, composite, **options):
    """The one layer of the one region that takes the whole model, as this composite."""
    mod = partitioned(mod, **options)
    report = byoc_hw.explain(mod)
    assert [outcome for outcome in report.outcomes if outcome.placement not in ("accelerator", "folded")] == []
    assert set(composites(mod)) == {composite}
    (graph,) = graphs(mod)
    (layer,) = computing(graph)
    return layer


def reasons(mod):
    """Every reason of a partitioned module's report, each once, as text."""
    texts = (str(rejection) for outcome in byoc_hw.explain(mod).outcomes for rejection in outcome.rejections)
    return list(dict.fromkeys(texts))


def declined(mod, *expected, **options):
    """Nothing is offloaded, for exactly these reasons, and the model is as it would be without partitioning."""
    after = partitioned(mod, **options)
    assert [text for text in reasons(after) if COMPANY not in text] == list(expected)
    assert all(text in str(byoc_hw.explain(after)) for text in expected)
    assert not regions(after)
    untouched = tvm.transform.Sequential(folding())(prepare(mod, None))
    same = tvm.ir.structural_equal(after["main"], untouched["main"])
    assert same, "the model is as it would be without partitioning"


# ---------------------------------------------------------------- golden C


def check_golden(composite, mod, accelerator=REFERENCE, inferences=None):
    """The region's C is the golden file's; it compiles without a warning and computes what TVM does."""
    project = byoc_hw.build(partitioned(mod, mod_name=composite, accelerator=accelerator))
    source = (project.directory / "src" / f"{composite}_{accelerator.name}.c").read_text()
    source = source.replace(byoc_hw.__version__, "VERSION")
    golden = GOLDEN / f"{composite}.c"
    if os.environ.get(UPDATE_GOLDEN):
        golden.write_text(source)
    assert golden.exists(), f"{golden.name} is missing: run the test with {UPDATE_GOLDEN}=1 to write it"
    assert source == golden.read_text(), f"{golden.name} differs: {UPDATE_GOLDEN}=1 writes it anew"
    compare(mod, project, Reference(mod), inferences=inferences)


# ---------------------------------------------------------------- bit for bit


def check_bit_exact(samples, composite, accelerator=REFERENCE, seed=0):
    """Each sample is offloaded as the composite and gives TVM's own results, element by element."""
    mod = side_by_side(samples)
    after = partitioned(mod, accelerator=accelerator)
    kinds = [layer for graph in graphs(after) for layer in computing(graph)]
    assert len(kinds) == len(samples), str(byoc_hw.explain(after))
    assert set(composites(after)) == {composite}
    compare(mod, byoc_hw.build(after), Reference(mod), seed)


def compare(mod, project, reference, seed=0, inferences=None):
    inferences = inputs_of(mod, seed) if inferences is None else inferences
    results = project.run_batch(inferences, toolchain=byoc_hw.Toolchain(cflags=FAST_BUILD))
    for number, (inputs, result) in enumerate(zip(inferences, results, strict=True)):
        expected = reference.run(inputs)
        assert len(result.outputs) == len(expected)
        for index, (got, want) in enumerate(zip(result.outputs, expected, strict=True)):
            np.testing.assert_array_equal(got, want, err_msg=f"inference {number}, output {index}", strict=True)


def inputs_of(mod, seed=0):
    """Several inferences: random values, and the extremes that sums can reach."""
    rng = np.random.default_rng(seed)
    types = [parameter.checked_type for parameter in mod["main"].params]
    rails = np.asarray((-128, 127), np.int8)
    fills = [
        lambda shape: rng.integers(-128, 128, shape).astype(np.int8),
        lambda shape: rng.integers(-128, 128, shape).astype(np.int8),
        lambda shape: np.full(shape, -128, np.int8),
        lambda shape: np.full(shape, 127, np.int8),
        lambda shape: rng.choice(rails, shape),
        lambda shape: np.zeros(shape, np.int8),
    ]
    return [[fill(tuple(map(int, of.shape))).view(of.dtype) for of in types] for fill in fills]


# ---------------------------------------------------------------- random values

ZERO_POINTS = st.one_of(st.sampled_from((-128, 127, 0)), st.integers(-128, 127))
SEEDS = st.integers(0, 2**16)
PAIRWISE_SHAPES = st.one_of(
    st.tuples(st.sampled_from((1, 1, 3)), st.integers(1, 9), st.integers(1, 9), st.sampled_from((1, 3, 16, 17))),
    st.tuples(st.just(1), st.integers(1, 3000)),
    st.tuples(st.integers(2, 20), st.integers(1, 150)),
)
BROADCAST = {  # shapes of the two operands, and of the layer's two inputs
    "a vector by channel": ((1, 6, 5, 7), (1, 1, 1, 7), (1, 6, 5, 7), (1, 1, 1, 7)),
    "a vector by channel of a lower rank": ((1, 6, 5, 7), (7,), (1, 6, 5, 7), (7,)),
    "one element": ((1, 6, 5, 7), (1, 1), (1, 6, 5, 7), (1, 1)),
    "a scalar": ((1, 40), (), (1, 40), ()),
    "by channel in NCHW": ((1, 7, 6, 5), (1, 7, 1, 1), (1, 6, 5, 7), (1, 1, 1, 7)),
    "by channel in NCHW, of a lower rank": ((1, 7, 6, 5), (7, 1, 1), (1, 6, 5, 7), (1, 1, 1, 7)),
    "an input of a lower rank": ((6, 5, 7), (1, 1, 1, 7), (1, 6, 5, 7), (1, 1, 1, 7)),
}
NOT_BROADCAST = {  # shapes of the two operands, and what is said of them
    "by column": ((1, 6, 5, 7), (1, 1, 5, 7), "(1, 6, 5, 7) and (1, 1, 5, 7) to (1, 6, 5, 7)"),
    "by pixel": ((1, 6, 5, 7), (1, 6, 5, 1), "(1, 6, 5, 7) and (1, 6, 5, 1) to (1, 6, 5, 7)"),
    "each along another dimension": ((1, 6, 1, 7), (1, 1, 5, 7), "(1, 6, 1, 7) and (1, 1, 5, 7) to (1, 6, 5, 7)"),
}
SHAPES_RULE = "inputs and output have one shape, or one input has a value for each channel, or one in all"


@st.composite
def pairwise_shapes(draw):
    """Shapes of two operands, equal or either one broadcast, as the fields `shape` and `other` of a sample."""
    shape = draw(PAIRWISE_SHAPES)
    small = [None, None, (1,) * (len(shape) - 1) + shape[-1:], shape[-1:], (1,), ()]
    if len(shape) == 4:
        small.append((1, shape[1], 1, 1))
    other = draw(st.sampled_from(small))
    first = other is not None and draw(st.booleans())
    return {"shape": other if first else shape, "other": shape if first else other}


CLIPS = st.one_of(
    st.none(),
    st.tuples(st.integers(-128, 127), st.integers(-128, 127)).map(lambda ends: tuple(map(float, sorted(ends)))),
)
# Ratios to the output on both sides of 1, and so wide that whole channels saturate.
SCALES = st.floats(2.0**-12, 2.0, width=32)


def convolution_knobs(draw, kernel, filters, *, least_exponents):
    """What a convolution of a drawn kernel has besides its channels and weights.

    The input is no smaller than the padded window; scales spread over a few powers of two, from one
    with an exponent in `least_exponents` on.
    """
    around = [draw(st.integers(0, min(extent - 1, 3))) for extent in (*kernel, *kernel)]
    explicit = [draw(st.integers(0, width)) for width in around] if draw(st.booleans()) else None
    padding = around if explicit is None else [width - own for width, own in zip(around, explicit, strict=True)]
    smallest = [max(1, kernel[axis] - around[axis] - around[axis + 2]) for axis in (0, 1)]
    height, width = (extent + draw(st.sampled_from((0, 0, 1, 5, 14))) for extent in smallest)
    per_channel = draw(st.booleans())
    least, powers = draw(st.tuples(st.integers(*least_exponents), st.integers(0, 6)))
    scales = np.random.default_rng(draw(SEEDS)).uniform(2.0**least, 2.0 ** (least + powers), filters)
    return {
        "height": height,
        "width": width,
        "kernel": kernel,
        "strides": draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        "padding": tuple(padding),
        "explicit_pad": None if explicit is None else tuple(explicit),
        "layout": draw(st.sampled_from(("NHWC", "NHWC", "NCHW"))),
        "bias": draw(st.booleans()),
        "bias_as_add": draw(st.booleans()),
        "clip": draw(CLIPS),
        "per_channel": per_channel,
        "scales": tuple(scales if per_channel else scales[:1]),
        "ifm_zero_point": draw(ZERO_POINTS),
        "weight_zero_point": draw(st.one_of(st.just(0), ZERO_POINTS)),
        "ofm_zero_point": draw(ZERO_POINTS),
    }


@st.composite
def weight_values(draw, shape):
    """Weights at random, or all at one rail, or at both."""
    rng = np.random.default_rng(draw(SEEDS))
    kind = draw(st.sampled_from(("random", "random", "low", "high", "rails")))
    if kind == "low":
        return np.full(shape, -128, np.int8)
    if kind == "high":
        return np.full(shape, 127, np.int8)
    if kind == "rails":
        return rng.choice(np.asarray((-128, 127), np.int8), shape)
    return rng.integers(-128, 128, shape).astype(np.int8)
