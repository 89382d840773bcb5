"""Quantizes a float model: wires the numpy core to the front end, the cost model and the report."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.arguments import check_flag, check_number, check_one_of, check_type, check_whole, errors_of, shown
from byoc_hw.compiler import build, front_end, partition_for_hwlib
from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.seam import FloatModel
from byoc_hw.frontend.tflite_file import TfliteFile, read_tflite
from byoc_hw.frontend.tflite_integers import integers_of
from byoc_hw.frontend.tflite_quantized import integer_file
from byoc_hw.graph import Layer, Weighted
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.quantization.front import Choice, front, within
from byoc_hw.quantization.grids import RANGES, Int8Grid, Ranges
from byoc_hw.quantization.layers import QuantizedNetwork, Settings, quantized, values_of
from byoc_hw.quantization.network import Network
from byoc_hw.quantization.objective import COSTS, Goal, goal
from byoc_hw.quantization.sensitivity import agreement, divergence, losses
from byoc_hw.report.quantization import LAYERS, Front, FrontPoint, QuantizedLayer, as_html, as_text, layer_row
from byoc_hw.soc import Hardware, accelerators_of
from byoc_hw.tensor import Array
from byoc_hw.whole_file import check_file, write_whole

if TYPE_CHECKING:
    import tvm

WIDTHS = (8, 4, 2)
"""The widths that weights can have, in bits."""

TOLERANCE = 0.01
"""How much a narrower model may lose by default: a share of the answers, or of the mean square of the outputs."""


def quantize(
    model: str | Path | tvm.IRModule,
    calibration: Array | Mapping[str, Array],
    *,
    params: Mapping[str, Any] | None = None,
    accelerator: Hardware = REFERENCE,
    objective: str = "accuracy",
    bits: int | Mapping[str, int] | None = None,
    tolerance: float = TOLERANCE,
    activations: Ranges = "mse",
    rounding: Literal["compensated", "nearest"] = "compensated",
    inputs: Mapping[str, Int8Grid] | None = None,
    integer_ends: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> Quantized:
    """Quantize a float model after training: int8 activations, and weights of 8, 4 or 2 bits for each layer.

    `model` is a float .tflite file or a Relay module, whose batch normalisation is folded; `params` are the weights of
    a module. `calibration` has samples without labels, as float32 of shape (samples, *shape of the input), or
    (samples, *shape without a leading 1): one array, or one for each input by name. `inputs` gives inputs the scale
    and zero point of what a sensor delivers, by name; integer samples stand for real numbers by these.

    `bits` are widths that are wished: one for all layers, or some by layer, whose others have 8. Else `objective`
    decides: "accuracy" is 8 bits everywhere; "flash", "ram" and "cycles" are as little of it as costs at most
    `tolerance`; with a limit, as in "flash<=32KiB" or "cycles<=50000", it is the best model within. Costs are those of
    a project for `accelerator`, by its cost model, and layers have the widths that it has.

    `activations` says how ranges of activations are found: "mse", "percentile" or "minmax". `rounding` "compensated"
    lets weights make up for each other's errors, on what the layers before compute; "nearest" rounds each by itself.
    With `integer_ends` the model's inputs and outputs are int8, else float32. The same seed gives the same bytes.

    Raises `InvalidInput` for samples that do not fit, a module that is not of float operators, and what cannot be
    reached, with the nearest that can.
    """
    _check(bits, tolerance, activations, rounding, integer_ends, seed, progress)
    wanted = goal(objective)
    if wanted is not None and bits is not None:
        raise InvalidInput(f'objective is "accuracy" where bits are given: got {shown(objective)}')
    read = _read(model, params)
    source = read_tflite(model) if isinstance(model, str | Path) else None
    samples, given = _samples(read.network, calibration, inputs or {})
    settings = Settings(rounding == "compensated", activations, seed)
    work = _Work(read, source, samples, given, accelerator, settings, integer_ends, progress)
    widths = _named(work, bits)
    first = work.quantized(widths)
    return first if wanted is None else _within(first, wanted, tolerance)


def _check(
    bits: object, tolerance: object, activations: object, rounding: object, ends: object, seed: object, progress: object
) -> None:
    if bits is not None and not isinstance(bits, Mapping) and (isinstance(bits, bool) or bits not in WIDTHS):
        raise InvalidInput(
            f"bits is one of {', '.join(map(str, WIDTHS))}, or a mapping from layers to them: got {shown(bits)}"
        )
    check_number("tolerance", tolerance, positive=False)
    check_one_of("activations", activations, RANGES)
    if rounding not in ("compensated", "nearest"):
        raise InvalidInput(f"rounding is compensated or nearest: got {shown(rounding)}")
    check_flag("integer_ends", ends)
    check_whole("seed", seed)
    check_flag("progress", progress)


def _read(model: object, params: Mapping[str, Any] | None) -> FloatModel:
    if isinstance(model, str | Path):
        if params is not None:
            raise InvalidInput("params are the weights of a module: got some for a file, which has its own")
        return front_end().float_model(*front_end().load_float_tflite(model))
    return front_end().float_model(model, params)


def _samples(
    network: Network, calibration: object, inputs: Mapping[str, Int8Grid]
) -> tuple[dict[int, Array], dict[int, Int8Grid]]:
    """The samples of each input as real numbers, and the grids that are given."""
    names = [network.values[number].name for number in network.inputs]
    if not isinstance(calibration, Mapping):
        if len(names) != 1:
            raise InvalidInput(f"calibration has an array for each input, {', '.join(names)}: got {shown(calibration)}")
        calibration = {names[0]: calibration}
    for what, mapping in (("calibration", calibration), ("inputs", inputs)):
        check_type(what, mapping, Mapping, "a mapping from names of inputs")
        for name in mapping:
            if name not in names:
                raise InvalidInput(f"{what} names inputs of the model, {', '.join(names)}: got {shown(name)}")
    numbers = dict(zip(names, network.inputs, strict=True))
    given = {numbers[name]: _given(name, grid) for name, grid in inputs.items()}
    samples = {}
    for name, number in numbers.items():
        if name not in calibration:
            raise InvalidInput(f"calibration has samples of each input: none of {name}")
        samples[number] = _real(name, calibration[name], network.values[number].shape, given.get(number))
    counts = {len(values) for values in samples.values()}
    if len(counts) > 1:
        raise InvalidInput(f"calibration has as many samples of each input: got {', '.join(map(str, sorted(counts)))}")
    return samples, given


def _given(name: str, grid: object) -> Int8Grid:
    if not isinstance(grid, Sequence) or isinstance(grid, str) or len(grid) != 2:
        raise InvalidInput(f"inputs: {name} has a scale and a zero point: got {shown(grid)}")
    scale, zero_point = grid
    check_number(f"inputs: scale of {name}", scale, positive=True)
    check_whole(f"inputs: zero point of {name}", zero_point, -128, 127)
    return float(np.float32(scale)), int(zero_point)


def _real(name: str, values: object, shape: tuple[int, ...], grid: Int8Grid | None) -> Array:
    with errors_of(f"calibration of {name} is an array"):
        array = np.asarray(values)
    shapes = [shape, shape[1:]] if shape[:1] == (1,) else [shape]
    if array.ndim == 0 or array.shape[1:] not in shapes or len(array) == 0:
        wished = " or ".join(str(("samples", *one)).replace("'", "") for one in shapes)
        raise InvalidInput(f"calibration of {name} is {wished}, of at least one sample: got {array.shape}")
    if array.dtype.kind in "iu":
        if grid is None:
            raise InvalidInput(
                f"calibration of {name} is float32, or integers with their scale and zero point in inputs: "
                f"got {array.dtype} and no scale"
            )
        array = (array.astype(np.float32) - grid[1]) * np.float32(grid[0])
    elif array.dtype.kind != "f":
        raise InvalidInput(f"calibration of {name} is of numbers: got {array.dtype}")
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(array.reshape(len(array), *shape), dtype=np.float32)
    infinite = ~np.isfinite(single)
    if infinite.any():
        raise InvalidInput(f"calibration of {name} is finite: got {single[infinite][0]}")
    return single


# ---------------------------------------------------------------- the work


@dataclass(frozen=True, eq=False)
class _Work:
    """What a model is quantized with, for any widths. `source` is the .tflite file that it was read from."""

    read: FloatModel
    source: TfliteFile | None
    samples: Mapping[int, Array]
    given: Mapping[int, Int8Grid]
    accelerator: Hardware
    settings: Settings
    integer_ends: bool
    progress: bool

    @property
    def network(self) -> Network:
        """The float network."""
        return self.read.network

    def quantized(self, widths: Mapping[int, int]) -> Quantized:
        """The model with weights of these widths."""
        with self.bar("quantize", len(self.network.products)) as bar, threadpool_limits(1):
            made = quantized(self.network, self.samples, widths, self.settings, self.given, bar.update)
        return Quantized(self, made)

    def values(self, samples: Mapping[int, Array], made: QuantizedNetwork | None) -> dict[int, Array]:
        """The outputs for samples by number, of the float network or a quantized one."""
        with threadpool_limits(1):
            return values_of(self.network, samples, made)

    def bar(self, what: str, total: int) -> tqdm[Any]:
        """A progress bar on stderr."""
        return tqdm(total=total, desc=what, disable=not self.progress, file=sys.stderr, leave=False)

    @cached_property
    def answers(self) -> list[Array]:
        """The outputs of the float network."""
        return list(self.values(self.samples, None).values())


def _named(work: _Work, bits: int | Mapping[str, int] | None) -> dict[int, int]:
    """The width of each product."""
    network = work.network
    if not isinstance(bits, Mapping):
        return dict.fromkeys(network.products, 8 if bits is None else bits)
    names = {network.values[number].name: number for number in network.products}
    widths = dict.fromkeys(network.products, 8)
    for name, width in bits.items():
        if name not in names:
            raise InvalidInput(f"bits names layers with weights, {', '.join(names)}: got {shown(name)}")
        if isinstance(width, bool) or width not in WIDTHS:
            raise InvalidInput(f"bits of {name} is one of {', '.join(map(str, WIDTHS))}: got {shown(width)}")
        widths[names[name]] = width
    return widths


class Quantized:
    """A quantized model: `mod` is a Relay module of integers, for `partition_for_hwlib`, with its weights inside.

    Prints as a table of its layers; a notebook shows it too. `front` has the widths that lose least for their cost.
    """

    def __init__(self, work: _Work, made: QuantizedNetwork) -> None:
        self._work, self._made = work, made

    @cached_property
    def mod(self) -> tvm.IRModule:
        """The integer module."""
        return self._work.read.written(self._made, self._work.integer_ends)

    def to_json(self) -> str:
        """The integer module as a file's text, for `load` and the command line: .json."""
        return front_end().json_of(self.mod)

    @property
    def inputs(self) -> dict[str, Int8Grid]:
        """Scale and zero point of each input, by name: real = scale * (stored - zero_point)."""
        network = self._work.network
        return {network.values[number].name: self._made.grids[number] for number in network.inputs}

    @property
    def outputs(self) -> tuple[Int8Grid | None, ...]:
        """Scale and zero point of each output, in order; None for one of integers."""
        network = self._work.network
        places = (network.grid_at(number) for number in network.outputs)
        return tuple(None if place is None else self._made.grids[place] for place in places)

    def save_tflite(self, path: str | Path, *, packed: bool = False) -> None:
        """Write an int8 .tflite file with the operators, weights and scales of the model, which was given as one.

        Weights of 4 and 2 bits are int8 there, with fewer values; with `packed` they are INT4, two in a byte. Inputs
        and outputs are as in `mod`. Raises `InvalidInput` for a model that was given as a module, and for an operator
        that has no int8 form in TFLite.
        """
        check_type("path", path, str | Path, "the name of a file")
        check_flag("packed", packed)
        source = self._work.source
        if source is None:
            raise InvalidInput("save_tflite writes what was quantized from a .tflite file: got a module")
        integers = integers_of(source, self._work.network, self._made)
        data = integer_file(integers, integer_ends=self._work.integer_ends, packed=packed)
        check_file(Path(path))
        write_whole(Path(path), data)

    def quantize_inputs(self, values: Array | Mapping[str, Array]) -> dict[str, Array]:
        """Real values of inputs as the int8 that the model takes, by name: one array for a model of one input."""
        names = list(self.inputs)
        if not isinstance(values, Mapping):
            values = {names[0]: values}
        found = {}
        for name, real in values.items():
            scale, zero_point = self.inputs[name]
            levels = np.rint(np.asarray(real, np.float32) / np.float32(scale)) + zero_point
            found[name] = np.clip(levels, -128, 127).astype(np.int8)
        return found

    def outputs_for(self, values: Array | Mapping[str, Array]) -> Array:
        """The first output for real inputs, given as a calibration is: (samples, *shape). An estimate in float.

        Each value is on its grid; the integer module may differ by single steps, where it rounds a half otherwise.
        """
        samples, _ = _samples(self._work.network, values, {})
        found = self._work.values(samples, self._made)
        return found[self._work.network.outputs[0]]

    @cached_property
    def bits(self) -> dict[str, int]:
        """The width of each layer's weights, by the layer's name: what `quantize(..., bits=...)` takes."""
        values = self._work.network.values
        return {values[number].name: product.bits for number, product in self._made.products.items()}

    @cached_property
    def _found(self) -> list[Array]:
        return list(self._work.values(self._work.samples, self._made).values())

    @property
    def agreement(self) -> float | None:
        """The share of the samples to which the model gives the float model's answer; None without classes.

        The answer is the largest share of a softmax. Estimated in float, value by value on its grid.
        """
        return agreement(self._work.network, self._work.answers, self._found)

    @property
    def divergence(self) -> float:
        """How far the outputs are from the float model's: the mean Kullback-Leibler divergence of classes, in nats;
        without classes the mean squared error as a share of the variance."""
        return divergence(self._work.network, self._work.answers, self._found)

    @cached_property
    def layers(self) -> tuple[QuantizedLayer, ...]:
        """The layers with weights, in order."""
        costs = self._costs
        found = []
        for number, product in self._made.products.items():
            value = self._work.network.values[number]
            cycles = costs.cycles(number, product.bits)
            nbytes, count = costs.nbytes(number, product.bits), product.levels.size
            found.append(QuantizedLayer(value.name, value.kind, count, product.bits, nbytes, product.error, cycles))
        return tuple(found)

    @cached_property
    def _costs(self) -> _Costs:
        return _Costs(self._work, self.mod, {number: one.bits for number, one in self._made.products.items()})

    @cached_property
    def front(self) -> Front:
        """The widths that lose least for their flash, as points to pick from: `at(front[3])`."""
        return self.front_of("flash")

    def front_of(self, cost: str) -> Front:
        """The widths that lose least for a cost: "flash", "ram" or "cycles". RAM depends on them only where constants
        lie in RAM."""
        chosen = goal(cost)
        if chosen is None or chosen.most is not None:
            raise InvalidInput(f"cost is one of flash, ram, cycles: got {shown(cost)}")
        return Front(tuple(self._point(point.bits, point.loss) for point in front(self._choices(cost))), cost)

    def _choices(self, cost: str) -> dict[int, tuple[Choice, ...]]:
        costs = self._costs
        return {
            number: tuple(
                Choice(width, costs.of(cost, number, width), self._losses.get((number, width), 0.0))
                for width in costs.widths(number)
            )
            for number in self._work.network.products
        }

    @cached_property
    def _losses(self) -> dict[tuple[int, int], float]:
        work, costs = self._work, self._costs
        widths = {number: costs.widths(number)[1:] for number in work.network.products}
        wide = dict.fromkeys(work.network.products, 8)
        base = self._made if set(self.bits.values()) <= {8} else work.quantized(wide)._made
        with work.bar("sensitivity", sum(map(len, widths.values()))) as bar, threadpool_limits(1):
            return losses(work.network, work.samples, base, widths, work.settings, bar.update)

    def _point(self, widths: Mapping[int, int], loss: float) -> FrontPoint:
        costs, products = self._costs, self._work.network.products
        sums = {cost: costs.project(cost, sum(costs.of(cost, n, widths[n]) for n in products)) for cost in COSTS}
        weights = sum(costs.nbytes(number, widths[number]) for number in products)
        return FrontPoint(
            tuple(widths[number] for number in products), loss, sums["flash"], sums["ram"], sums["cycles"], weights
        )

    def at(self, point: FrontPoint) -> Quantized:
        """The model with the widths of a point of the front."""
        check_type("point", point, FrontPoint, "a point of a front")
        return self._work.quantized(dict(zip(self._work.network.products, point.bits, strict=True)))

    def __str__(self) -> str:
        return f"{self._headline()}\n{as_text(LAYERS, map(layer_row, self.layers))}"

    def __repr__(self) -> str:
        return f"<Quantized: {self._headline()}>"

    def _repr_html_(self) -> str:
        return f"<p>{self._headline()}</p>{as_html(LAYERS, map(layer_row, self.layers))}"

    def _headline(self) -> str:
        nbytes = sum(layer.nbytes for layer in self.layers)
        count = sum(layer.weights for layer in self.layers)
        same = self.agreement
        error = f"error of the outputs {self.divergence:.3%}"
        likeness = error if same is None else f"agreement with float {same:.1%}"
        return f"{len(self.layers)} layers, {count:,} weights in {nbytes:,} bytes, {likeness} on the calibration"


# ---------------------------------------------------------------- what widths cost


class _Costs:
    """What the width of each layer costs in a project for the accelerator, and what the project does."""

    def __init__(self, work: _Work, mod: tvm.IRModule, bits: dict[int, int]) -> None:
        partitioned = partition_for_hwlib(mod, accelerator=work.accelerator)
        self._work, self._bits = work, bits
        self._layers = _matched(work.network, front_end().partitioned(partitioned).graphs)  # type: ignore[union-attr]
        self._partitioned = partitioned

    @cached_property
    def _ends(self) -> tuple[dict[int, int], dict[int, int]]:
        """The widths of all layers, as narrow as they can be and 8."""
        products = self._work.network.products
        return {number: self.widths(number)[-1] for number in products}, dict.fromkeys(products, 8)

    @cached_property
    def _measured(self) -> tuple[dict[str, int], dict[str, int]]:
        """By cost: what the projects with these widths take."""
        narrowest, widest = self._ends
        wide = self._project(widest)
        return (wide if narrowest == widest else self._project(narrowest)), wide

    def _project(self, bits: dict[int, int]) -> dict[str, int]:
        if bits == self._bits:
            return measured(self._partitioned)
        return measured(partition_for_hwlib(self._work.quantized(bits).mod, accelerator=self._work.accelerator))

    def project(self, cost: str, layers: int) -> int:
        """What a project takes whose layers with weights take so much: by measure for the narrowest and the widest
        weights, and in proportion between them."""
        low, high = self._weighted(cost)
        narrow, wide = self.least(cost), self._measured[1][cost]
        return wide if low >= high else narrow + round((wide - narrow) * (layers - low) / (high - low))

    def room(self, cost: str, most: int) -> int:
        """What layers with weights may take in a project that takes so much."""
        low, high = self._weighted(cost)
        narrow, wide = self.least(cost), self._measured[1][cost]
        if low >= high or narrow >= wide:
            return high if most >= wide else low - 1
        return low + (most - narrow) * (high - low) // (wide - narrow)

    def least(self, cost: str) -> int:
        """What a project takes with the narrowest weights."""
        return self._measured[0][cost]

    def _weighted(self, cost: str) -> tuple[int, int]:
        """What the layers with weights take, as narrow as they can be and with 8 bits."""
        narrow, wide = (sum(self.of(cost, number, bits) for number, bits in widths.items()) for widths in self._ends)
        return narrow, wide

    def widths(self, number: int) -> tuple[int, ...]:
        """The widths that a layer can have, 8 first."""
        layer = self._layers.get(number)
        if layer is None:
            return (8,)
        narrow = {
            width
            for one in accelerators_of(self._work.accelerator)
            for width in (one.limits[layer.kind].weight_bits or () if layer.kind in one.limits else ())
        }
        return tuple(sorted({8, *narrow.intersection(WIDTHS)}, reverse=True))

    def of(self, cost: str, number: int, bits: int) -> int:
        """What a layer costs with weights of these bits."""
        if cost == "cycles":
            return self.cycles(number, bits) or 0
        in_ram = any(not one.dma_reads_flash for one in accelerators_of(self._work.accelerator))
        return self.nbytes(number, bits) if cost == "flash" or in_ram else 0

    def nbytes(self, number: int, bits: int) -> int:
        """The bytes of a layer's weights; on the host each is one."""
        product = self._work.network.values[number].product
        assert product is not None
        groups, outputs, inputs = product.matrix().shape
        packed = min(width for width in self.widths(number) if width >= bits)
        return int(groups * outputs * -(-inputs * packed // 8))

    def cycles(self, number: int, bits: int) -> int | None:
        """The cycles of a layer on the accelerator that takes least; None on the host, and on a library."""
        layer = self._layers.get(number)
        if layer is None:
            return None
        packed = replace(layer, weights=replace(layer.weights, bits=bits))
        found = [
            best_cycles(_packed(packed, one), one)
            for one in accelerators_of(self._work.accelerator)
            if one.library is None and layer.kind in one.limits
        ]
        return min(found, default=None)


def _packed(layer: Weighted, accelerator: Accelerator) -> Layer:
    return replace(layer, weights=replace(layer.weights, bits=accelerator.weight_width(layer)))


def _matched(network: Network, graphs: Mapping[str, Any]) -> dict[int, Weighted]:
    """The offloaded layer of each product, by the names of its operators."""
    weighted = [layer for graph in graphs.values() for layer in graph.layers if isinstance(layer, Weighted)]
    found: dict[int, Weighted] = {}
    for number in network.products:
        value = network.values[number]
        assert value.product is not None
        for layer in weighted:
            if set(value.sources) & set(layer.source) and layer.weights.elements == value.product.weights.size:
                found[number] = layer
                weighted.remove(layer)
                break
    return found


def measured(partitioned: tvm.IRModule) -> dict[str, int]:
    """Flash and RAM in bytes and cycles of a project, by cost."""
    project = build(partitioned)
    memory = project.memory
    return {"flash": memory.flash_bytes, "ram": memory.ram_bytes, "cycles": project.schedule.cycles}


# ---------------------------------------------------------------- a goal


def _within(first: Quantized, wanted: Goal, tolerance: float) -> Quantized:
    return _cheapest(first, wanted.cost, tolerance) if wanted.most is None else _best(first, wanted.cost, wanted.most)


_TRIES = 6


def _best(first: Quantized, cost: str, most: int) -> Quantized:
    """The model that loses least within a limit, of the whole project."""
    choices, costs = first._choices(cost), first._costs
    room = costs.room(cost, most)
    for _ in range(_TRIES):
        point = within(choices, room)
        if point is None:
            break
        found = first._work.quantized(point.bits)
        needed = measured(partition_for_hwlib(found.mod, accelerator=first._work.accelerator))[cost]
        if needed <= most:
            return found
        room = point.cost - max(needed - most, 1)
    least = costs.least(cost)
    raise InvalidInput(f"objective {cost}<={most}: the least that can be reached is about {least:,}: got {most:,}")


def _cheapest(first: Quantized, cost: str, tolerance: float) -> Quantized:
    """The cheapest point of the front that loses at most the tolerance: points are tried by halves."""
    points = first.front_of(cost)
    low, high, best = 0, len(points) - 1, first
    while low <= high:
        middle = (low + high) // 2
        found = first.at(points[middle])
        if _loses(first, found) <= tolerance:
            best, high = found, middle - 1
        else:
            low = middle + 1
    return best


def _loses(first: Quantized, found: Quantized) -> float:
    """A share of the answers, or of the variance of the outputs."""
    if first.agreement is not None and found.agreement is not None:
        return first.agreement - found.agreement
    return found.divergence - first.divergence
