"""Random layers of every kind, and what their C functions execute on the host, counted under QEMU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log
from random import Random
from unittest.mock import patch

import numpy as np
from relay_samples import Add, Conv, Dense, Mul, Pool, Product, Quantized, Sample, const, side_by_side, variable
from tvm import relay

import byoc_hw
from byoc_hw import compiler
from byoc_hw.compiler import region_graphs
from byoc_hw.graph import Layer, Reshape
from byoc_hw.host_costs import OF_OURS
from byoc_hw.numerics import in_numerics
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.plan.region import plan_region

ALL_ON_THE_HOST = replace(byoc_hw.REFERENCE, label="HOST", limits={})
_WIDE = {
    kind: replace(limits, strides=limits.strides and (1, 2, 3))
    for kind, limits in {**byoc_hw.DSP.limits, **byoc_hw.REFERENCE.limits}.items()
}
ANY = byoc_hw.Soc((replace(byoc_hw.REFERENCE, label="ANY", limits=_WIDE, whole_cycles=byoc_hw.DSP.whole_cycles),))
"""A chip with an accelerator that takes the layers, to read them from their Relay."""

MOST_MACS = 150_000


@dataclass
class Operator(Sample):
    """One operator of inputs of one type."""

    shapes: list
    of: Callable
    dtype: str = "int8"

    def variables(self, prefix=""):
        return [variable(shape, self.dtype, f"{prefix}x{index}") for index, shape in enumerate(self.shapes)]

    def expr(self, *inputs):
        return self.of(*inputs)


def _extent(rng: Random, most: int) -> int:
    """Up to `most`; small ones as often as large ones."""
    return round(exp(rng.uniform(0, log(most))))


def _image(rng: Random, most: int = 48) -> tuple[int, ...]:
    return 1, _extent(rng, 20), _extent(rng, 20), _extent(rng, most)


def _conv(rng: Random, channels: int = 48, **given: object) -> Conv:
    kernel = rng.choice([(1, 1), (1, 1), (3, 3), (3, 3), (5, 5), (3, 1), (rng.randint(1, 6), rng.randint(1, 6))])
    _, height, width, _ = _image(rng)
    height, width = max(height, kernel[0]), max(width, kernel[1])
    top, left = ((extent - 1) // 2 if rng.random() < 0.7 else 0 for extent in kernel)
    sample = Conv(
        height,
        width,
        _extent(rng, channels),
        _extent(rng, channels),
        kernel,
        rng.choice([(1, 1), (1, 1), (2, 2)]),
        (top, left, top, left),
        per_channel=rng.random() < 0.7,
        clip=rng.choice([None, (-20, 90)]),
        ifm_zero_point=rng.choice([-128, -3, 0]),
        seed=rng.randrange(1000),
    )
    return replace(sample, **given)


def _small(rng: Random, make: Callable[[Random], Conv]) -> Conv:
    """One that the emulator is done with soon."""
    while True:
        sample = make(rng)
        inner = 1 if sample.depthwise else sample.channels // (sample.groups or 1)
        area = sample.height * sample.width // (sample.strides[0] * sample.strides[1])
        if area * sample.total_filters * inner * sample.kernel[0] * sample.kernel[1] < MOST_MACS:
            return sample


def _grouped(rng: Random) -> Conv:
    groups, each = rng.randint(2, 6), rng.randint(2, 8)
    return replace(_conv(rng), channels=groups * rng.randint(1, 8), filters=groups * each, groups=groups)


def _dense(rng: Random) -> Dense:
    return Dense(_extent(rng, 300), _extent(rng, 150), per_channel=rng.random() < 0.3, batch=rng.choice([1, 1, 3]))


def _pair(kind: type) -> Callable[[Random], Sample]:
    def make(rng: Random) -> Sample:
        scales = [Quantized(rng.uniform(0.02, 0.2), rng.randint(-9, 9)) for _ in range(3)]
        return kind(shape=_image(rng), lhs=scales[0], rhs=scales[1], out=scales[2])

    return make


def _pool(operator: str) -> Callable[[Random], Sample]:
    def make(rng: Random) -> Sample:
        shape = _image(rng, 24)
        window = rng.choice([(2, 2), (3, 3), shape[1:3], (rng.randint(1, 6), rng.randint(1, 6))])
        kernel = min(window[0], shape[1]), min(window[1], shape[2])
        pad = (kernel[0] - 1) // 2 * rng.randint(0, 1), (kernel[1] - 1) // 2 * rng.randint(0, 1)
        return Pool(operator, shape, kernel, rng.choice([(1, 1), (2, 2)]), (*pad, *pad))

    return make


def _lookup(rng: Random) -> Sample:
    entries = const(np.random.default_rng(rng.randrange(99)).integers(-128, 128, 256), "int8")
    index = lambda x: relay.add(relay.cast(x, "int32"), const(128, "int32"))  # noqa: E731
    return Operator([_image(rng)], lambda x: relay.take(entries, index(x), mode="clip"))


def _softmax(rng: Random) -> Sample:
    scale = rng.uniform(0.02, 0.3)

    def of(x: relay.Expr) -> relay.Expr:
        real = relay.qnn.op.dequantize(x, const(scale, "float32"), const(3, "int32"))
        return relay.qnn.op.quantize(
            relay.nn.softmax(real), const(1 / 256, "float32"), const(-128, "int32"), out_dtype="int8"
        )

    return Operator([(_extent(rng, 12), 1 + _extent(rng, 60))], of)


def _matmul(rng: Random) -> Sample:
    batch, rows, columns, depth = rng.randint(1, 4), _extent(rng, 24), _extent(rng, 24), _extent(rng, 48)
    return Product((batch, rows, depth), (batch, columns, depth))


def _concat(rng: Random) -> Sample:
    shape, axis = _image(rng, 24), rng.randint(1, 3)
    extents = [_extent(rng, 16) for _ in range(rng.randint(2, 3))]
    return Operator(
        [(*shape[:axis], extent, *shape[axis + 1 :]) for extent in extents],
        lambda *parts: relay.concatenate(parts, axis),
    )


def _slice(rng: Random) -> Sample:
    shape = tuple(extent + 1 for extent in _image(rng))
    begin = [rng.randint(0, extent // 3) for extent in shape]
    end = [rng.randint(first + 1, extent) for first, extent in zip(begin, shape, strict=True)]
    return Operator([(1, *shape[1:])], lambda x: relay.strided_slice(x, [0, *begin[1:]], [1, *end[1:]]))


def _pad(rng: Random) -> Sample:
    widths = [(0, 0), (rng.randint(0, 3), rng.randint(1, 3)), (rng.randint(0, 3), rng.randint(0, 3)), (0, 0)]
    return Operator([_image(rng)], lambda x: relay.nn.pad(x, widths, -7.0))


def _resize(rng: Random) -> Sample:
    shape, times = (*_image(rng)[:3], _extent(rng, 24) + rng.randint(0, 16)), rng.randint(1, 3)
    size = (shape[1] * times + rng.randint(0, 2), shape[2] * rng.randint(1, 3))
    return Operator(
        [shape], lambda x: relay.image.resize2d(x, size, None, "NHWC", "nearest_neighbor", "asymmetric", "floor")
    )


def _transpose(rng: Random) -> Sample:
    axes = rng.choice([(0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3), (0, 1, 3, 2)])
    return Operator([_image(rng)], lambda x: relay.transpose(x, axes))


def _order(rng: Random) -> Sample:
    shape, axis = (_extent(rng, 12), _extent(rng, 300), _extent(rng, 4)), rng.choice([1, 2])
    count, ascending = rng.randint(1, shape[axis]), rng.random() < 0.5
    return Operator([shape], lambda x: relay.topk(x, count, axis, "indices", ascending, "int32"), "float32")


def _gather(rng: Random) -> Sample:
    shape, axis = (_extent(rng, 20), _extent(rng, 40), _extent(rng, 12)), rng.choice([0, 1, 2])
    taken = (*shape[:axis], rng.randint(1, shape[axis]), *shape[axis + 1 :])
    places = np.random.default_rng(1).integers(0, shape[axis], taken)
    return Operator([shape], lambda x: relay.gather(x, axis, const(places, "int32")), "float32")


def _suppression(rng: Random) -> Sample:
    boxes, top_k, most = _extent(rng, 120), rng.choice([-1, 20, 60]), rng.choice([-1, 5, 20])
    count = const([boxes], "int32")

    def of(x: relay.Expr) -> relay.Expr:
        limits = {"max_output_size": most, "top_k": top_k, "return_indices": False}
        return relay.vision.non_max_suppression(x, count, count, **limits)

    return Operator([(1, boxes, 6)], of, "float32")


SAMPLES: dict[str, Callable[[Random], Sample]] = {
    "conv2d": lambda rng: _small(rng, _conv),
    "grouped_conv2d": lambda rng: _small(rng, _grouped),
    "depthwise_conv2d": lambda rng: _small(rng, lambda own: _conv(own, depthwise=True)),
    "dense": _dense,
    "matmul": _matmul,
    "add": _pair(Add),
    "mul": _pair(Mul),
    "avg_pool2d": _pool("nn.avg_pool2d"),
    "max_pool2d": _pool("nn.max_pool2d"),
    "sum_pool2d": lambda rng: Pool("sum", _image(rng, 24), axis=(1, 2)),
    "lookup": _lookup,
    "softmax": _softmax,
    "concat": _concat,
    "slice": _slice,
    "pad": _pad,
    "resize": _resize,
    "transpose": _transpose,
    "order": _order,
    "gather": _gather,
    "suppression": _suppression,
}
"""A random layer of each row of the table of costs."""

NUMERICS = {name: ("relay", "tflite") if name.removeprefix("grouped_") in OF_OURS else ("relay",) for name in SAMPLES}
"""The numerics in which a row has a C function of its own on the host."""


def layer_of(sample: Sample, numerics: str) -> Layer | None:
    """The layer that a sample is; None where it is none or several. Softmax is one in TFLite's arithmetic only."""
    for offloaded in (numerics, "tflite"):
        partitioned = byoc_hw.partition_for_hwlib(sample.module(), accelerator=ANY, numerics=offloaded)
        graphs = region_graphs(partitioned).values()
        layers = [layer for graph in graphs for layer in graph.layers if not isinstance(layer, Reshape)]
        if len(layers) == 1:
            return in_numerics(layers[0], numerics)
    return None


def layers_of(name: str, rng: Random, count: int, numerics: str) -> list[tuple[Sample, Layer]]:
    """So many random samples of a row of the table, with their layers."""
    found: list[tuple[Sample, Layer]] = []
    while len(found) < count:
        sample = SAMPLES[name](rng)
        layer = layer_of(sample, numerics)
        found += [] if layer is None else [(sample, layer)]
    return found


_CALL = re.compile(r"/\* \d+: host\s.*?\*/(.*?)(?=/\* \d+: host\s|\Z)", re.DOTALL)
_INPUT = re.compile(r"inputs->s(\d+)_")


def counts(samples: list[Sample], numerics: str) -> list[int]:
    """The instructions of the host's functions for each sample; they run sample after sample, in one program."""
    mod = side_by_side(samples)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=ALL_ON_THE_HOST, numerics=numerics))
    rng = np.random.default_rng(len(samples))
    inputs = [rng.integers(-128, 128, one.shape).astype(one.dtype) for one in project.inputs]
    result = project.run(inputs, on="riscv32", timeout=600)
    assert result.host_instructions is not None
    executed = [one.count for one in result.host_instructions.by_layer]
    calls = _CALL.findall((project.directory / "src" / "default_main.c").read_text())
    assert len(calls) == len(executed)
    found, current = [0] * len(samples), 0
    for text, count in zip(calls, executed, strict=True):
        named = _INPUT.search(text)
        current = int(named[1]) if named else current
        found[current] += count
    return found


# ---------------------------------------------------------------- regions


CHIP = byoc_hw.Soc((replace(byoc_hw.DIANA_DIGITAL, name="dla", label="DLA"), byoc_hw.DSP), label="DLA + DSP")


def chain(rng: Random) -> Operator:
    """A few layers one after the other, from tiny ones to such as the arrays work on for thousands of cycles."""
    side, channels = rng.randint(1, 20), rng.choice([1, 3, 8, 16, 24, 40])
    steps = [rng.choice(["conv", "pool", "add", "lookup"]) for _ in range(rng.randint(1, 6))]

    def of(x: relay.Expr) -> relay.Expr:
        for step in steps:
            if step == "conv":
                x = Conv(side, side, channels, channels, seed=len(steps)).expr(x)
            elif step == "pool":
                x = relay.nn.max_pool2d(x, (2, 2), (1, 1), padding=(0, 0, 1, 1), layout="NHWC")
            elif step == "add":
                x = Add().expr(x, x)
            else:
                x = _lookup(Random(1)).of(x)
        return x

    return Operator([(1, side, side, channels)], of)


def regions(samples: list[Sample], chip: byoc_hw.Accelerator | byoc_hw.Soc) -> list[tuple[PlannedRegion, int, int]]:
    """The plan of each sample's regions by themselves, the core's instructions, and the time from call to return in
    cycles."""
    partitioned = byoc_hw.partition_for_hwlib(side_by_side(samples), accelerator=chip)
    with patch.object(compiler, "with_copies_ahead", lambda program, regions, accelerator: regions):
        project = byoc_hw.build(partitioned)
    inputs = [np.ones(one.shape, one.dtype) for one in project.inputs]
    result = project.run(inputs, on="riscv32", timeout=600)
    assert result.host_instructions is not None
    assert result.end_to_end is not None
    core: Counter[str] = Counter()
    time: Counter[str] = Counter()
    shares = zip(project.layers, result.host_instructions.by_layer, result.end_to_end.by_layer, strict=True)
    for layer, executed, took in shares:
        core[layer["region"]] += executed.count
        time[layer["region"]] += took.count
    graphs = region_graphs(partitioned)
    return [(plan_region(graph, chip), core[name], time[name]) for name, graph in graphs.items()]
