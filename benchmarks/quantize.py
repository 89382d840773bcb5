"""Float networks quantized to weights of 8, 4 and 2 bits: accuracy, bytes and cycles, against goals.

The keyword network and the digits are measured with labelled samples, each built to C and run. The other networks have
no labelled data here: their figures are agreement with the float network and the error of the outputs, on inputs like
pictures or spectra, beside rounding each weight to the nearest. Rows of cycles compare plans with weights of 8 and 4
bits. A share of bytes is of those at 8 bits. Calibration is on the first 200 keyword samples, without labels; others
are measured. `--data FILE.npz` replaces these: `features` int8, `labels`. `--check` exits 1 if a goal is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tables import MODELS, options, show

import byoc_hw
from byoc_hw import demo
from byoc_hw.compiler import front_end
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.quantization.layers import values_of
from byoc_hw.quantizer import Quantized, measured
from byoc_hw.tensor import Array

FLOAT = MODELS / "float"
DATA = MODELS.parent / "data" / "kws01_400.npz"
KEYWORDS = FLOAT / "kws_ref_model_float32.tflite"
KEYWORD_GRID = (0.5847029089927673, 83)
CALIBRATION = 200
MIXED = 0.46
SECONDS = 60.0
COLUMNS = (
    *("network", "weights", "weight bytes", "share", "flash", "RAM", "cycles"),
    *("figure", "value", "beside", "goal", "met", "seconds"),
)


@dataclass(frozen=True)
class Cost:
    """Bytes of packed weights; flash and RAM in bytes, and planned cycles, of the project for REFERENCE."""

    weights: int
    flash: int
    ram: int
    cycles: int


def cost_of(made: Quantized) -> Cost:
    found = measured(byoc_hw.partition_for_hwlib(made.mod))
    return Cost(sum(layer.nbytes for layer in made.layers), found["flash"], found["ram"], found["cycles"])


@dataclass(frozen=True)
class Measured:
    """One figure of a quantized network; `goal` says what it is to be, `met` whether it is, None without a goal."""

    network: str
    weights: str
    cost: Cost
    share: float
    figure: str
    value: str
    beside: str
    goal: str = ""
    met: bool | None = None
    seconds: float = 0.0

    def row(self) -> tuple[str, ...]:
        met = "" if self.met is None else "yes" if self.met else "no"
        cost = self.cost
        sizes = (f"{size:,}" for size in (cost.flash, cost.ram, cost.cycles))
        return (
            *(self.network, self.weights, f"{cost.weights:,}", f"{self.share:.2f}", *sizes, self.figure, self.value),
            *(self.beside, self.goal, met, f"{self.seconds:.0f}"),
        )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="labelled keyword features to measure with (%(default)s)"
    )
    given = parser.parse_args()
    missed: list[Measured] = []

    def rows() -> Iterator[tuple[str, ...]]:
        for one in chain(keywords(given.data), digits(), others(), cycles()):
            if one.met is False or one.seconds > SECONDS:
                missed.append(one)
            yield one.row()

    show("quantize", COLUMNS, rows(), into_document=given.update)
    for one in missed:
        print(f"missed: {one.network}, {one.weights}, {one.figure} {one.value}, goal {one.goal}, {one.seconds:.0f} s")
    if given.check and missed:
        sys.exit(1)


# ---------------------------------------------------------------- with labels


def keywords(data: Path) -> Iterator[Measured]:
    """The keyword network: four points, each by its generated C."""
    with np.load(DATA) as held:
        samples, rest, labels = (
            held["features"][:CALIBRATION],
            held["features"][CALIBRATION:],
            held["labels"][CALIBRATION:],
        )
    if data != DATA:
        with np.load(data) as held:
            rest, labels = held["features"], held["labels"]
    grid = {"input_1": KEYWORD_GRID}
    inputs = (rest.astype(np.float32) - KEYWORD_GRID[1]) * np.float32(KEYWORD_GRID[0])
    yield from labelled("kws_ref_model", KEYWORDS, samples, inputs, labels, grid, least=0.83)


def digits() -> Iterator[Measured]:
    """The digits that ship with the project."""
    held = demo.heldout()
    samples, pixels = demo.calibration(), held.pixels[..., None].astype(np.float32) / 16
    yield from labelled("digits", demo.float_path(), samples, pixels, held.labels, {}, least=None)


def labelled(
    network: str, path: Path, samples: Array, inputs: Array, labels: Array, grid: dict[str, Any], least: float | None
) -> Iterator[Measured]:
    """Accuracy with 8, 4, 2 and mixed bits. 4 bits are to be within half a point of 8, mixed within one of float."""

    def made(**how: Any) -> tuple[Quantized, float]:
        start = time.perf_counter()
        found = byoc_hw.quantize(path, samples, inputs=grid, progress=False, **how)
        found.mod  # noqa: B018
        return found, time.perf_counter() - start

    real = float_accuracy(path, inputs, labels)
    eight, seconds = made(bits=8)
    cost, base = cost_of(eight), accuracy(eight, inputs, labels)
    whole = cost.weights
    yield Measured(network, "8 bits", cost, 1.0, "accuracy", f"{base:.1%}", f"float {real:.1%}", seconds=seconds)
    nearest, _ = made(bits=4, rounding="nearest")
    four, seconds = made(bits=4)
    found, other = accuracy(four, inputs, labels), accuracy(nearest, inputs, labels)
    yield Measured(
        *(network, "4 bits", cost_of(four), cost_of(four).weights / whole, "accuracy", f"{found:.1%}"),
        *(f"nearest {other:.1%}", f"{base - 0.005:.1%}", found >= base - 0.005 - 1e-9, seconds),
    )
    nearest, _ = made(bits=2, rounding="nearest")
    two, seconds = made(bits=2)
    found, other = accuracy(two, inputs, labels), accuracy(nearest, inputs, labels)
    goal = {} if least is None else {"goal": f"{least:.1%}", "met": found >= least}
    yield Measured(
        *(network, "2 bits", cost_of(two), cost_of(two).weights / whole, "accuracy", f"{found:.1%}"),
        *(f"nearest {other:.1%}",),
        **goal,
        seconds=seconds,
    )
    start = time.perf_counter()
    point = max((one for one in eight.front if one.weight_bytes <= MIXED * whole), key=lambda one: one.weight_bytes)
    mixed = eight.at(point)
    mixed.mod  # noqa: B018
    seconds = time.perf_counter() - start
    found = accuracy(mixed, inputs, labels)
    yield Measured(
        *(network, "mixed", cost_of(mixed), cost_of(mixed).weights / whole, "accuracy", f"{found:.1%}"),
        *(f"float {real:.1%}", f"{real - 0.01:.1%}", found >= real - 0.01 - 1e-9, seconds),
    )


def accuracy(made: Quantized, inputs: Array, labels: Array) -> float:
    """The share of right answers of the generated C."""
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(made.mod))
    name = next(iter(made.inputs))
    stored = made.quantize_inputs(inputs)[name].reshape(len(inputs), *project.inputs[0].shape)
    answers = [result.outputs[0].argmax() for result in project.run_batch(list(stored), timeout=900.0)]
    return float(np.mean(np.array(answers) == labels))


def float_accuracy(path: Path, inputs: Array, labels: Array) -> float:
    """The share of right answers of the float network."""
    outputs = float_outputs(path, inputs)
    return float(np.mean(outputs.reshape(len(inputs), -1).argmax(axis=1) == labels))


def float_outputs(path: Path, inputs: Array) -> Array:
    network = front_end().float_model(*front_end().load_float_tflite(path)).network
    (number,) = network.inputs
    samples = inputs.reshape(len(inputs), *network.values[number].shape).astype(np.float32)
    (output,) = values_of(network, {number: samples}, None).values()
    return output


# ---------------------------------------------------------------- without labels

UNLABELLED = {"pretrainedResnet": "pretrainedResnet_quant", "vww_96_float": "vww_96_int8", "ad01_fp32": "ad01_int8"}
SAMPLES = 96


def others() -> Iterator[Measured]:
    """The networks without data here: what they share with the float network, and what rounding to the nearest does."""
    for name, twin in UNLABELLED.items():
        path = FLOAT / f"{name}.tflite"
        drawn = likely_inputs(MODELS / f"{twin}.tflite", 2 * SAMPLES)
        samples, inputs = drawn[:SAMPLES], drawn[SAMPLES:]
        real = float_outputs(path, inputs)
        whole = 0
        for bits in (8, 4, 2):
            start = time.perf_counter()
            made = byoc_hw.quantize(path, samples, bits=bits, progress=False)
            seconds = time.perf_counter() - start
            nearest = byoc_hw.quantize(path, samples, bits=bits, rounding="nearest", progress=False)
            cost = cost_of(made)
            whole = whole or cost.weights
            figure, value, other, better = likeness(made, nearest, inputs, real)
            goal = "better than nearest" if bits < 8 else ""
            share = cost.weights / whole
            yield Measured(
                *(name, f"{bits} bits", cost, share, figure, value, f"nearest {other}"),
                *(goal, better if bits < 8 else None, seconds),
            )


def likely_inputs(twin: Path, count: int) -> Array:
    """Smooth random inputs over the range that the int8 network of the same kind takes."""
    mod, params = byoc_hw.load_tflite(twin)
    (one,) = byoc_hw.build(mod, params).inputs
    low, high = (float(one.scale) * (end - one.zero_point) for end in (-128, 127))
    chance = np.random.default_rng(1)
    drawn = np.zeros((count, *one.shape[1:]), np.float32)
    axes = [axis for axis, extent in enumerate(one.shape[1:], 1) if extent > 3]
    for octave in range(4):
        coarse = [extent if axis not in axes else 2 + 2**octave for axis, extent in enumerate(one.shape[1:], 1)]
        noise = chance.normal(size=(count, *coarse)).astype(np.float32)
        for axis in axes:
            noise = stretched(noise, axis, drawn.shape[axis])
        drawn += noise / 2**octave
    drawn = (drawn - drawn.min()) / (drawn.max() - drawn.min())
    return np.asarray(low + (high - low) * drawn, np.float32)


def stretched(values: Array, axis: int, extent: int) -> Array:
    """Values between those along an axis, linear."""
    places = np.linspace(0, values.shape[axis] - 1, extent)
    first = np.minimum(places.astype(int), values.shape[axis] - 2)
    share = (places - first).reshape(*(extent if a == axis else 1 for a in range(values.ndim))).astype(np.float32)
    return values.take(first, axis) * (1 - share) + values.take(first + 1, axis) * share


def likeness(made: Quantized, nearest: Quantized, inputs: Array, real: Array) -> tuple[str, str, str, bool]:
    """The error of both against the float network's outputs, as a share of their variance; and the agreement."""
    errors, same = [], []
    flat = real.reshape(len(real), -1)
    for one in (made, nearest):
        found = one.outputs_for(inputs).reshape(len(real), -1)
        errors.append(float(np.square(found - flat).mean() / flat.var()))
        same.append(float(np.mean(found.argmax(axis=1) == flat.argmax(axis=1))))
    decides, pairs = made.agreement is not None, zip(errors, same, strict=True)
    texts = [f"{error:.2%}, same {share:.0%}" if decides else f"{error:.2%}" for error, share in pairs]
    return "error", texts[0], texts[1], errors[0] < errors[1]


# ---------------------------------------------------------------- cycles

FASTER = {"pretrainedResnet": ("pretrainedResnet_quant", 1.6), "vww_96_float": ("vww_96_int8", 1.4)}
NEAR = 1.02


def cycles() -> Iterator[Measured]:
    """Planned cycles with weights of 4 bits against 8, and each against its own bound."""
    for name, (twin, goal) in FASTER.items():
        samples = likely_inputs(MODELS / f"{twin}.tflite", 16)
        costs, bounds = {}, {}
        for bits in (8, 4):
            made = byoc_hw.quantize(FLOAT / f"{name}.tflite", samples, bits=bits, rounding="nearest", progress=False)
            found = front_end().partitioned(byoc_hw.partition_for_hwlib(made.mod))
            assert found is not None
            costs[bits] = cost_of(made)
            bounds[bits] = sum(cycles_bound(graph, byoc_hw.REFERENCE) for graph in found.graphs.values())
        ratio, share = costs[8].cycles / costs[4].cycles, costs[4].weights / costs[8].weights
        of_bounds = bounds[8] / bounds[4]
        yield Measured(
            *(name, "4 bits", costs[4], share, "faster", f"{ratio:.2f}"),
            *(f"of the bounds {of_bounds:.2f}", f"{goal}", ratio >= goal),
        )
        for bits in (8, 4):
            near = costs[bits].cycles / bounds[bits]
            yield Measured(
                *(name, f"{bits} bits", costs[bits], share if bits == 4 else 1.0, "plan / bound", f"{near:.3f}"),
                *(f"bound {bounds[bits]:,} cycles", f"{NEAR}", near <= NEAR),
            )


if __name__ == "__main__":
    main()
