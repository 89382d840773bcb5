"""Operators at the edges of the arithmetic: what the C computes, beside the formulas in whole numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from fuzz_case import QUICK, Case, Finding
from fuzz_oracle import expected
from relay_samples import Add, Conv, Dense, Mul, Pool, Product, Quantized, Subtract, side_by_side

import byoc_hw
from byoc_hw.accelerator import DIANA_DIGITAL, REFERENCE, SMALL

ZERO_POINTS = [0, 0, -128, 127, -1, 5]
CLIPS = [None, None, (-128, 126), (0, 0), (127, 127), (-128, -128), (-3, 40)]


def run(case: Case) -> None:
    samples = [
        case.rng.choice([conv, conv, dense, add, subtract, mul, product, average, largest, mean])(case)
        for _ in range(8)
    ]
    mod = side_by_side(samples)
    accelerator = case.rng.choice([REFERENCE, SMALL, DIANA_DIGITAL])
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=accelerator))
    shapes = [tuple(map(int, p.checked_type.shape)) for p in mod["main"].params]
    inferences = [[activations(case, shape) for shape in shapes] for _ in range(4)]
    for inputs, result in zip(inferences, project.run_batch(inferences, toolchain=QUICK), strict=True):
        left = list(inputs)
        for sample, found in zip(samples, result.outputs, strict=True):
            own = [left.pop(0) for _ in sample.variables("")]
            wanted, defined = expected(sample, *own)
            wrong = (found != wanted) & defined
            if wrong.any():
                where = tuple(np.argwhere(wrong)[0])
                raise Finding(
                    "wrong bits", type(sample).__name__, f"{sample}\nat {where}: {found[where]}, not {wanted[where]}"
                )
    case.tally["exact"] += len(samples)


# ---------------------------------------------------------------- operators


def activations(case: Case, shape: tuple[int, ...]) -> np.ndarray:
    kind = case.rng.randrange(4)
    if kind < 2:
        return np.full(shape, (-128, 127)[kind], np.int8)
    if kind == 2:
        return case.arrays.choice(np.array([-128, 127], np.int8), shape)
    return case.arrays.integers(-128, 128, shape).astype(np.int8)


def ratio(case: Case, low: int, high: int) -> float:
    """A scale whose significand or power of two is at an edge."""
    significand = case.rng.choice([0.5, 0.5000001, 0.99999994, 0.75, case.rng.uniform(0.5, 1)])
    return float(np.float32(math.ldexp(significand, case.rng.randint(low, high))))


def zero_point(case: Case) -> int:
    return case.rng.choice([*ZERO_POINTS, case.rng.randint(-128, 127)])


def weights(case: Case, shape: tuple[int, ...]) -> np.ndarray:
    kind = case.rng.randrange(4)
    if kind < 2:
        return np.full(shape, (-128, 127)[kind])
    bits = case.rng.choice([2, 4, 8, 8])
    return case.arrays.integers(-(1 << bits - 1), 1 << bits - 1, shape)


def biases(case: Case, kernels: np.ndarray, weight_zero_point: int, ifm_zero_point: int) -> np.ndarray:
    """Of some channels so large that sums come near to 2^31, or to the other end."""
    farthest = max(127 - ifm_zero_point, ifm_zero_point + 128)
    reach = np.abs(kernels.reshape(len(kernels), -1) - weight_zero_point).sum(1) * farthest
    near = 2**31 - 1 - reach - case.arrays.integers(0, 3, len(kernels))
    kinds = case.arrays.integers(0, 5, len(kernels))
    return np.choose(kinds, [near, -near, kinds * 0, near // 2, case.arrays.integers(-5000, 5000, len(kernels))])


def conv(case: Case) -> Conv:
    rng = case.rng
    height, width, channels = rng.randint(1, 7), rng.randint(1, 7), rng.choice([1, 2, 3, 8, 17])
    kernel = rng.randint(1, min(5, height)), rng.randint(1, min(5, width))
    depthwise = channels > 1 and rng.random() < 0.4
    filters = channels if depthwise else rng.choice([2, 3, 16, 17])
    kernels = weights(case, (filters, *kernel, 1 if depthwise else channels))
    ifm_zero_point, weight_zero_point = zero_point(case), rng.choice([0, 0, 0, 1, -128, 127])
    per_channel = rng.random() < 0.5
    low = rng.choice([-29, -20, -8, 0])
    return Conv(
        height,
        width,
        channels,
        filters,
        kernel,
        strides=(rng.randint(1, 2), rng.randint(1, 2)),
        padding=tuple(rng.randint(0, size - 1) for size in kernel * 2),
        depthwise=depthwise,
        per_channel=per_channel,
        scales=tuple(ratio(case, low, low + rng.randint(0, 8)) for _ in range(filters if per_channel else 1)),
        ifm_scale=ratio(case, -3, 2),
        ofm_scale=ratio(case, -3, 2),
        ifm_zero_point=ifm_zero_point,
        weight_zero_point=weight_zero_point,
        ofm_zero_point=zero_point(case),
        clip=rng.choice(CLIPS),
        weights=kernels,
        bias_values=biases(case, kernels, weight_zero_point, ifm_zero_point),
    )


def dense(case: Case) -> Dense:
    rng = case.rng
    inputs, outputs = rng.choice([1, 2, 24, 300, 5000]), rng.choice([1, 3, 17])
    kernels = weights(case, (outputs, inputs))
    ifm_zero_point, weight_zero_point = zero_point(case), rng.choice([0, 0, 1, -128, 127])
    per_channel, low = rng.random() < 0.5, rng.choice([-29, -20, -8, 0])
    return Dense(
        inputs,
        outputs,
        per_channel=per_channel,
        scales=tuple(ratio(case, low, low + 6) for _ in range(outputs if per_channel else 1)),
        ofm_scale=ratio(case, -3, 2),
        ifm_zero_point=ifm_zero_point,
        weight_zero_point=weight_zero_point,
        ofm_zero_point=zero_point(case),
        clip=rng.choice(CLIPS),
        weights=kernels,
        bias_values=biases(case, kernels, weight_zero_point, ifm_zero_point),
    )


def quantized(case: Case, low: int = -12, high: int = 12) -> Quantized:
    return Quantized(ratio(case, low, high), zero_point(case))


def pairwise(case: Case) -> dict[str, object]:
    shape = (1, case.rng.randint(1, 5), case.rng.randint(1, 5), case.rng.choice([1, 3, 16]))
    small = [(1, 1, 1, shape[3]), (shape[3],), (1,), (), (1, shape[1], 1, 1)]
    other = case.rng.choice(small) if case.rng.random() < 0.5 else None
    if other is not None and case.rng.random() < 0.5:
        shape, other = other, shape
    quantizations = {"lhs": quantized(case), "rhs": quantized(case), "out": quantized(case)}
    return {"shape": shape, "other": other, **quantizations, "clip": case.rng.choice(CLIPS)}


def add(case: Case) -> Add:
    return Add(**pairwise(case))


def subtract(case: Case) -> Subtract:
    return Subtract(**pairwise(case))


def mul(case: Case) -> Mul:
    return Mul(**pairwise(case))


def product(case: Case) -> Product:
    rng = case.rng
    items, rows, columns, depth = (
        rng.choice([1, 1, 3]),
        rng.randint(1, 20),
        rng.choice([1, 3, 17]),
        rng.choice([1, 8, 40]),
    )
    return Product(
        first=(items, rows, depth),
        second=(rng.choice([1, items]), columns, depth),
        ifm=quantized(case, -8, 2),
        ifm2=quantized(case, -8, 2),
        ofm=quantized(case, -8, 4),
        clip=rng.choice(CLIPS),
    )


def average(case: Case) -> Pool:
    rng = case.rng
    shape = (1, rng.randint(1, 9), rng.randint(1, 9), rng.choice([1, 5, 16]))
    kernel = rng.randint(1, min(5, shape[1])), rng.randint(1, min(5, shape[2]))
    return Pool(
        shape=shape,
        kernel=kernel,
        strides=(rng.randint(1, 2), rng.randint(1, 2)),
        padding=tuple(rng.randint(0, size // 2) for size in kernel * 2),
        count_include_pad=rng.random() < 0.5,
        clip=rng.choice(CLIPS),
    )


def largest(case: Case) -> Pool:
    return replace(average(case), operator="nn.max_pool2d", count_include_pad=False)


def mean(case: Case) -> Pool:
    shape = (1, case.rng.randint(1, 9), case.rng.randint(1, 9), case.rng.choice([1, 5, 16]))
    return Pool("mean", shape, ifm=quantized(case), ofm=quantized(case), clip=case.rng.choice(CLIPS))
