"""How many of the int8 cases that TVM tests its CMSIS-NN back end with are offloaded, and are exact.

    python benchmarks/coverage.py --check

Each case is one operator with its activation, in the shapes and quantizations of those tests, made with weights of
our own. `cases` counts as those tests do, which run some of them for three cores. A case is `taken` if nothing of it
stays on the host but what is float or folds to a constant, and `wrong` if any output differs from TVM's own.
The rest of the table is the first reason of what was left. With `--check`, exits 1 naming the goals that are missed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tables import ROOT, show
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference

sys.path.insert(0, str(ROOT / "tests"))

from relay_samples import Add, Conv, Dense, Mul, Pairwise, Pool, Quantized, Sample, WithItself, const, module, variable

GOAL = 250 / 270
"""The share of the cases that are taken."""

COLUMNS = ("family", "cases", "taken", "wrong", "left, because")
CORES = 3
PER_TENSOR = ((10, 0.0128, (0.11,)), (-64, 0.0256, (1.37,)))
PER_CHANNEL = ((10, 0.0128, (0.11, 0.22)), (-64, 1.0, (1.0, 0.0256, 1.37)))
TWO_SCALES = ((0.256, 33, 0.256, 33), (0.0128, -64, 0.0128, -64), (0.0128, -64, 0.256, 33))
FULL_SIZE = ((1, 28, 28, 12), (1, 64, 100, 4))


@dataclass(frozen=True)
class Case:
    """One module. `times` is how often those tests run it."""

    family: str
    times: int
    mod: tvm.IRModule


# ---------------------------------------------------------------- cases


def cases() -> Iterator[Case]:
    """Every case, family by family."""
    yield from (Case("conv2d", times, sample.module()) for times, sample in convolutions())
    yield from (Case("conv2d behind nn.pad", 1, sample.module()) for sample in padded_convolutions())
    yield from (Case("depthwise_conv2d", times, sample.module()) for times, sample in depthwise_convolutions())
    yield from (Case("dense", CORES, sample.module()) for sample in dense_layers())
    yield from (Case("pooling, ceil_mode", CORES, mod) for mod in pools())
    yield from (Case("pooling behind a quantize", 1, mod) for mod in pools_of_floats())
    yield from (Case("add, mul", times, sample.module()) for times, sample in pairs())
    yield from (Case("add, mul with a constant", 1, mod) for mod in pairs_with_constants())
    yield from (Case("softmax", CORES, mod) for mod in softmaxes())


def convolutions() -> Iterator[tuple[int, Sample]]:
    for padding, bias in itertools.product(("SAME", "VALID"), (True, False)):
        yield 1, convolution((1, 64, 100, 4), (3, 3), (1, 1), padding, PER_CHANNEL[0], bias=bias, relu=True)
        for quantization in PER_CHANNEL:
            yield CORES, convolution((1, 64, 100, 4), (3, 3), (1, 1), padding, quantization, bias=bias, relu=True)
            for relu in (True, False):
                yield 1, convolution((1, 25, 25, 12), (5, 5), (2, 2), padding, quantization, bias=bias, relu=relu)
    for kernel, padding, relu in itertools.product(((3, 2), (1, 3)), ("SAME", "VALID"), (True, False)):
        yield 1, convolution((1, 55, 55, 3), kernel, (3, 2), padding, PER_CHANNEL[0], bias=True, relu=relu)


def padded_convolutions() -> Iterator[Sample]:
    """`nn.pad` first, then a convolution that pads as well."""
    for top, bottom, left, right in ((0, 1, 1, 2), (1, 1, 1, 1), (2, 2, 3, 4)) * 2 + ((0, 2, 1, 2), (2, 1, 3, 5)):
        yield convolution(
            (1, 25, 25, 12), (5, 5), (2, 2), "SAME", PER_CHANNEL[0], bias=True, pad=(top, left, bottom, right)
        )
    yield convolution((1, 25, 25, 12), (5, 5), (2, 2), "VALID", PER_CHANNEL[0], bias=True, pad=(1, 1, 3, 1))


def depthwise_convolutions() -> Iterator[tuple[int, Sample]]:
    for multiplier, padding, quantization in itertools.product((1, 3), ("SAME", "VALID"), PER_CHANNEL):
        for shape in FULL_SIZE:
            yield (
                CORES,
                convolution(shape, (3, 3), (1, 1), padding, quantization, bias=True, relu=True, multiplier=multiplier),
            )
        for relu in (True, False):
            yield (
                1,
                convolution(
                    (1, 24, 24, 1), (3, 3), (1, 1), padding, quantization, bias=True, relu=relu, multiplier=multiplier
                ),
            )


def convolution(
    shape: tuple[int, ...],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    padding: str,
    quantization: tuple[int, float, tuple[float, ...]],
    *,
    bias: bool,
    relu: bool = False,
    pad: tuple[int, ...] | None = None,
    multiplier: int | None = None,
) -> Conv:
    """A convolution to as many channels as there are scales; a depthwise one with a `multiplier`."""
    zero_point, scale, scales = quantization
    _, height, width, channels = shape
    filters = len(scales) if multiplier is None else channels * multiplier
    taps = kernel[0] * kernel[1] * (channels if multiplier is None else 1)
    return Conv(
        height,
        width,
        channels,
        filters,
        kernel,
        strides,
        same_padding((height, width), kernel, strides) if padding == "SAME" else (0, 0, 0, 0),
        explicit_pad=pad,
        depthwise=multiplier is not None,
        multiplier=multiplier or 1,
        bias=bias,
        clip=(5, 127) if relu else None,
        ifm_zero_point=zero_point,
        ifm_scale=scale,
        ofm_scale=lively(scale * max(scales), taps),
        scales=tuple(itertools.islice(itertools.cycle(scales), filters)),
    )


def same_padding(extents: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int]) -> tuple[int, ...]:
    """Top, left, bottom, right, so that the output is the input over the strides, rounded up."""
    before, after = [], []
    for extent, size, stride in zip(extents, kernel, strides, strict=True):
        total = max(0, (-(-extent // stride) - 1) * stride + size - extent)
        before.append(total // 2)
        after.append(total - total // 2)
    return (*before, *after)


def lively(scale: float, taps: int) -> float:
    """A scale of the output at which random sums spread over int8."""
    return scale * 74 * 74 * taps**0.5 / 40


def dense_layers() -> Iterator[Sample]:
    for (batch, inputs), outputs, bias, (zero_point, _, scales) in itertools.product(
        ((2, 28), (1, 64)), (12, 128), (True, False), PER_TENSOR
    ):
        ofm_scale = lively(0.05 * scales[0], inputs)
        yield Dense(inputs, outputs, bias, batch=batch, ifm_zero_point=zero_point, scales=scales, ofm_scale=ofm_scale)


def pools() -> Iterator[tvm.IRModule]:
    for shape, (kernel, strides, same), relu, operator in itertools.product(
        FULL_SIZE,
        (((3, 3), (2, 2), True), ((2, 2), (1, 1), False)),
        (True, False),
        ("nn.max_pool2d", "nn.avg_pool2d"),
    ):
        x = variable(shape)
        yield module(pooled(x, shape, operator, kernel, strides, same=same, relu=relu), x)


def pools_of_floats() -> Iterator[tvm.IRModule]:
    shape = (1, 28, 28, 12)
    for (kernel, strides, same), relu in itertools.product(
        (((3, 3), (2, 2), True), ((2, 2), (1, 1), False)), (True, False)
    ):
        x = variable(shape, "float32")
        quantized = relay.qnn.op.quantize(x + x, *Quantized(0.0256, -34).constants(), out_dtype="int8")
        yield module(pooled(quantized, shape, "nn.max_pool2d", kernel, strides, same=same, relu=relu), x)


def pooled(
    x: relay.Expr,
    shape: tuple[int, ...],
    operator: str,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    *,
    same: bool,
    relu: bool,
) -> relay.Expr:
    """Pooling with `ceil_mode`, padded twice as those tests do: by `nn.pad`, and by the operator."""
    around = same_padding((shape[1], shape[2]), kernel, strides) if same else (0, 0, 0, 0)
    top, left, bottom, right = around
    if same:
        x = relay.nn.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], -34.0)
    sample = Pool(operator, shape, kernel, strides, around, ceil_mode=True, clip=(-34, 127) if relu else None)
    return sample.expr(x)


def pairs() -> Iterator[tuple[int, Sample]]:
    kinds: tuple[type[Pairwise], ...] = (Add, Mul)
    for kind, relu in itertools.product(kinds, (True, False)):
        for one, one_zero, other, other_zero in TWO_SCALES:
            yield CORES, pair(kind, one, one_zero, other, other_zero, relu=relu)
        yield 1, WithItself(pair(kind, 0.256, 33, 0.256, 33, relu=relu))


def pair(kind: type[Pairwise], one: float, one_zero: int, other: float, other_zero: int, *, relu: bool) -> Pairwise:
    return kind(
        (1, 16, 16, 3),
        lhs=Quantized(one, one_zero),
        rhs=Quantized(other, other_zero),
        out=Quantized(1 / 256, -128),
        clip=(-128, 127) if relu else None,
    )


def pairs_with_constants() -> Iterator[tvm.IRModule]:
    """Of tensor, constant tensor and scalar, every two but two tensors or two scalars."""
    values = np.random.default_rng(12).integers(-128, 128, (1, 16, 16, 3))
    kinds: tuple[type[Pairwise], ...] = (Add, Mul)
    for kind in kinds:
        sample = pair(kind, 0.256, 33, 0.128, -24, relu=False)
        x = variable((1, 16, 16, 3))
        tensor, scalar = const(values, "int8"), const(-30, "int8")
        for operands in ((x, tensor), (tensor, x), (x, scalar), (scalar, x)):
            yield module(sample.expr(*operands), x)
        # Of constants alone nothing is left to compute: those tests have three of them as well.


def softmaxes() -> Iterator[tvm.IRModule]:
    for zero_point, scale in ((33, 0.256), (-64, 0.0128)):
        x = variable((1, 16, 16, 3))
        real = relay.nn.softmax(relay.qnn.op.dequantize(x, *Quantized(scale, zero_point).constants()))
        yield module(relay.qnn.op.quantize(real, *Quantized(1 / 256, -128).constants(), out_dtype="int8"), x)


# ---------------------------------------------------------------- measuring


@dataclass
class Count:
    """What became of a family's cases."""

    cases: int = 0
    taken: int = 0
    wrong: int = 0
    reasons: dict[str, None] | None = None

    def row(self, family: str) -> tuple[object, ...]:
        return family, self.cases, self.taken, self.wrong, next(iter(self.reasons or {}), "")


def counted() -> dict[str, Count]:
    """The counts by family."""
    found: dict[str, Count] = {}
    for case in cases():
        count = found.setdefault(case.family, Count(reasons={}))
        mod = byoc_hw.partition_for_hwlib(case.mod)
        left = reasons(mod)
        count.cases += case.times
        count.taken += 0 if left else case.times
        count.wrong += 0 if exact(case.mod, mod) else case.times
        assert count.reasons is not None
        count.reasons |= dict.fromkeys(left)
    return found


def reasons(mod: tvm.IRModule) -> list[str]:
    """Why int8 operators of a partitioned module stay on the host."""
    outcomes = byoc_hw.explain(mod).outcomes
    return [
        str(next(iter(outcome.rejections), outcome.name))
        for outcome in outcomes
        if outcome.placement in ("host", "split") and not (set(outcome.relay) <= {"add", "qnn.quantize"})
    ]


def exact(original: tvm.IRModule, partitioned: tvm.IRModule) -> bool:
    """Whether the generated C gives TVM's outputs, bit for bit, at the rails and for random inputs."""
    rng = np.random.default_rng(0)

    def filled(kind: str) -> list[Any]:
        arrays = []
        for parameter in original["main"].params:
            shape = [int(extent) for extent in parameter.checked_type.shape]
            if parameter.checked_type.dtype == "float32":
                arrays.append(rng.uniform(-2, 2, shape).astype("float32"))
            else:
                low, high = {"low": (-128, -127), "high": (127, 128)}.get(kind, (-128, 128))
                arrays.append(rng.integers(low, high, shape).astype("int8"))
        return arrays

    batch = [filled(kind) for kind in ("low", "high", "random", "random")]
    project, reference = byoc_hw.build(partitioned), Reference(original)
    results = project.run_batch(batch, toolchain=byoc_hw.Toolchain(cflags="-O1"))
    return all(
        np.array_equal(found, wanted)
        for arrays, result in zip(batch, results, strict=True)
        for found, wanted in zip(result.outputs, reference.run(arrays), strict=True)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    given = parser.parse_args()
    found = counted()
    total = Count(*(sum(getattr(count, what) for count in found.values()) for what in ("cases", "taken", "wrong")))
    rows = [count.row(family) for family, count in found.items()]
    show("coverage", COLUMNS, [*rows, total.row("all")], into_document=False)
    goals = {
        "taken": (f"{total.taken} of {total.cases}", f"at least {GOAL:.1%}", total.taken >= GOAL * total.cases),
        "wrong": (str(total.wrong), "0", total.wrong == 0),
    }
    for name, (figure, goal, met) in goals.items():
        print(f"{name}: {figure}; goal {goal}; {'met' if met else 'MISSED'}")
    return 1 if given.check and not all(met for _, _, met in goals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
