"""The hardware description: the array, its memories, the limits of each layer kind, and costs.

All parameters of a chip are fields of an `Accelerator` value. The limit checks, the planner and the
generated configuration of the simulator read them. Another chip is another `Accelerator` value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from math import lcm
from pathlib import Path
from typing import Any, get_args

import numpy as np

from byoc_hw.arguments import (
    check_flag,
    check_number,
    check_one_of,
    check_type,
    check_whole,
    shown,
    with_plain_numbers,
)
from byoc_hw.errors import ByocHwError, InvalidInput
from byoc_hw.graph import (
    LAYER_KINDS,
    Add,
    Convolution,
    DepthwiseConv2d,
    Gather,
    Layer,
    MatMul,
    Mul,
    Ordering,
    Pool2d,
    Suppression,
    Weighted,
    Whole,
)
from byoc_hw.html_tables import table_html
from byoc_hw.integers import ceil_div, even_size
from byoc_hw.program import ORDERED_TYPES
from byoc_hw.ratios import is_shift, ratios
from byoc_hw.tensor import DTYPES, Array, Padding, Pair, Rounding

KIB = 1024

ROUNDINGS: Mapping[str, Rounding] = {"relay": "upward", "tflite": "tflite"}
"""The numerics that a model can be compiled with, and the hardware rounding that each needs.

"relay" is TVM's own golden semantics; with "tflite" offloaded layers follow TFLite's reference
integer kernels.
"""

# ---------------------------------------------------------------- limits


@dataclass(frozen=True)
class Check:
    """The result of one rule for one layer: the value found, and whether the rule allows it."""

    found: object
    allowed: bool


@dataclass(frozen=True)
class Rule:
    """A limit. `text` serves as error message and in the table of supported operators."""

    text: str
    check: Callable[[Any], Check]


WEIGHT_BITS = (8, 4, 2)
"""The widths that weights can have."""

MOST_KERNEL = 255
"""The most rows or columns of a kernel: the descriptors hold them as a byte."""


@dataclass(frozen=True)
class KernelPart:
    """What a job sums over of a kernel: `height` rows and `width` columns, from `row` and `column` on."""

    row: int
    column: int
    height: int
    width: int

    @property
    def size(self) -> Pair:
        """Its rows and columns, as a kernel of its own."""
        return self.height, self.width

    def padding(self, layer: Any) -> Padding:
        """A layer's padding around the windows of the part: below 0 for input that they do not see."""
        (height, width), (down, across) = layer.kernel, layer.dilation
        top, left, bottom, right = layer.padding
        return (
            top - self.row * down,
            left - self.column * across,
            bottom - (height - self.row - self.height) * down,
            right - (width - self.column - self.width) * across,
        )


@dataclass(frozen=True)
class Limits:
    """The hardware limits of one layer kind. A limit that is None does not apply to the kind.

    `batches` of a dense layer are the numbers of its rows; `groups` says whether a convolution may have several.
    With `wide_padding` a window may lie in padding only; with `broadcast` the second input of an element-wise layer
    may be one value for each channel, or one value. With `kernel_parts` several jobs, each over a part of a
    convolution's kernel, compute one of more than `max_kernel`: they add up their sums, of depthwise layers too.
    """

    max_kernel: tuple[int, int] | None = None
    """The most rows and columns of a kernel."""
    strides: tuple[int, ...] | None = None
    """The strides that it takes."""
    dilations: tuple[int, ...] | None = (1,)
    """The dilations that it takes."""
    batches: tuple[int, ...] | None = (1,)
    """The batch sizes; of a dense layer the numbers of its rows."""
    activation_types: tuple[str, ...] = ("int8",)
    """The types of inputs and output."""
    weight_bits: tuple[int, ...] | None = None
    """The widths in which weights can be packed."""
    accumulator_bits: int | None = None
    """Bits of a sum."""
    channel_multipliers: tuple[int, ...] | None = None
    """Of a depthwise layer, output channels for each input channel."""
    groups: bool = False
    """Whether a convolution may have several groups."""
    wide_padding: bool = False
    """Whether a window may lie in padding only."""
    broadcast: bool = False
    """Whether the second input of an element-wise layer may be one value for each channel, or one value."""
    kernel_parts: bool = False
    """Whether several jobs, each over a part of a kernel, compute a convolution of more than `max_kernel`."""

    def __post_init__(self) -> None:
        with_plain_numbers(self)

    def check(self, prefix: str) -> None:
        """Raise `InvalidInput` for a limit that is none: of the wrong type, empty, or a value that no layer has."""
        if self.max_kernel is not None:
            _check_numbers(f"{prefix} max_kernel", self.max_kernel, most=MOST_KERNEL)
            if len(self.max_kernel) != 2:
                raise InvalidInput(f"{prefix} max_kernel is rows and columns: got {self.max_kernel}")
        for what in ("strides", "dilations", "batches", "weight_bits", "channel_multipliers"):
            if getattr(self, what) is not None:
                _check_numbers(f"{prefix} {what}", getattr(self, what), most=255 if what in _BYTES else None)
        check_type(f"{prefix} activation_types", self.activation_types, tuple, "a tuple of strings")
        if not self.activation_types:
            raise InvalidInput(f"{prefix} activation_types has at least one type: got ()")
        for dtype in self.activation_types:
            check_one_of(f"{prefix} each of activation_types", dtype, DTYPES)
        for bits in self.weight_bits or ():
            check_one_of(f"{prefix} each of weight_bits", bits, WEIGHT_BITS)
        for what in ("groups", "wide_padding", "broadcast", "kernel_parts"):
            check_flag(f"{prefix} {what}", getattr(self, what))
        if self.accumulator_bits is not None:
            check_whole(f"{prefix} accumulator_bits", self.accumulator_bits, 1, 64)

    def rules(self) -> Iterator[Rule]:
        """The limits as rules for layers of the kind, in the order in which they are reported."""
        if self.batches is not None:
            yield _one_of("batch", self.batches, lambda layer: layer.ifm.shape[:1] or (1,))
        if self.max_kernel is not None:
            yield _kernel_at_most(self.max_kernel, self.kernel_parts)
            yield self._padding()
        if self.strides is not None:
            yield _one_of("stride", self.strides, lambda layer: layer.strides)
        if self.max_kernel is not None:
            yield from self._dilation()
        yield _one_of("activation type", self.activation_types, _activation_types)
        if self.weight_bits is not None:
            yield _one_of("weight type", ("int8",), lambda layer: (layer.weights.dtype,))
            yield _weights_fit(self.weight_bits)
        if self.channel_multipliers is not None:
            yield _one_of("channel multiplier", self.channel_multipliers, _channel_multiplier)
        if self.accumulator_bits is not None:
            yield _sums_fit(self.accumulator_bits)

    def further_rules(self, layer: Layer) -> Iterator[Rule]:
        """What hardware of which nothing is said lacks: rules that `rules` does not list for every kind."""
        if hasattr(layer, "padding") and self.max_kernel is None:
            yield self._padding()
            yield from self._dilation()
        if not self.groups:
            yield _ONE_GROUP
        if not self.broadcast:
            yield _ONE_SHAPE

    def parts(self, kernel: Pair) -> tuple[KernelPart, ...]:
        """The parts of a kernel that jobs are over, in order: as few as the array allows, of about the same size."""
        return _parts(kernel, self.max_kernel if self.kernel_parts and self.max_kernel is not None else kernel)

    def _padding(self) -> Rule:
        return _PADDING_FITS if self.wide_padding else _padding_within(self)

    def _dilation(self) -> Iterator[Rule]:
        if self.dilations is not None:
            yield _one_of("dilation", self.dilations, lambda layer: layer.dilation)


_BYTES = ("strides", "dilations")
"""Limits whose values are bytes of a descriptor."""

HAL_STEPS = tuple(range(1, 32))
"""The strides and dilations of a HAL: those that fit a mask."""

_WINDOWS, _WEIGHTED = (*get_args(Convolution), Pool2d), get_args(Weighted)

OF_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "max_kernel": (_WINDOWS, "layers with windows"),
    "strides": (_WINDOWS, "layers with windows"),
    "weight_bits": (_WEIGHTED, "layers with weights"),
    "accumulator_bits": ((*_WEIGHTED, Add, Mul, MatMul, Pool2d), "layers that add or multiply"),
    "channel_multipliers": ((DepthwiseConv2d,), "depthwise convolutions"),
    "kernel_parts": (get_args(Convolution), "convolutions"),
}
"""The limits that some layer kinds alone can have: their classes, and in words."""


def _check_numbers(what: str, values: object, most: int | None = None) -> None:
    if not isinstance(values, tuple) or not values:
        raise InvalidInput(f"{what} is a tuple of at least one number: got {shown(values)}")
    for value in values:
        check_whole(f"each of {what}", value, 1, most)


def _activation_types(layer: Layer) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tensor.dtype for tensor in (*layer.inputs, layer.ofm)))


@lru_cache(maxsize=1024)
def _parts(kernel: Pair, largest: Pair) -> tuple[KernelPart, ...]:
    rows, columns = (_pieces(extent, most) for extent, most in zip(kernel, largest, strict=True))
    return tuple(KernelPart(row, column, height, width) for row, height in rows for column, width in columns)


def _pieces(extent: int, most: int) -> list[tuple[int, int]]:
    step = even_size(extent, most)
    return [(first, min(step, extent - first)) for first in range(0, extent, step)]


def _padding_within(limits: Limits) -> Rule:
    """No window of a job lies in padding only."""

    def check(layer: Any) -> Check:
        for part in limits.parts(layer.kernel):
            height, width = ((extent - 1) * step + 1 for extent, step in zip(part.size, layer.dilation, strict=True))
            if any(pad >= (width if side % 2 else height) for side, pad in enumerate(part.padding(layer))):
                return Check(f"{layer.padding} for {height} x {width}", False)
        return Check("", True)

    return Rule(f"padding is smaller than {'each part of ' if limits.kernel_parts else ''}the kernel", check)


MOST_PADDING = 255
"""The most padding on a side: the descriptors hold it as a byte."""

_PADDING_FITS = Rule(
    f"padding is at most {MOST_PADDING}", lambda layer: Check(max(layer.padding), max(layer.padding) <= MOST_PADDING)
)


def _channel_multiplier(layer: Layer) -> tuple[float, ...]:
    outputs, inputs = layer.ofm.shape[-1], layer.ifm.shape[-1]
    return (outputs // inputs if outputs % inputs == 0 else outputs / inputs,)


def _sums_fit(bits: int) -> Rule:
    def check(layer: Any) -> Check:
        needed = layer.sum_bits
        return Check(f"{needed} bits", needed <= bits)

    return Rule(f"sums, before and after they are scaled, fit in {bits} bits", check)


def _zero_points(layer: Any) -> Check:
    tensors = [*layer.inputs, layer.ofm]
    if hasattr(layer, "weights"):
        tensors.append(layer.weights)
    points = [point for tensor in tensors if tensor.quantization for point in tensor.quantization.zero_point]
    outside = [point for point in points if not -128 <= point <= 127]
    return Check(outside[0] if outside else "", not outside)


_ZERO_POINTS = Rule("zero points are from -128 to 127", _zero_points)
"""Of every kind: the descriptors hold zero points as int8."""


def _powers_of_two(layer: Any) -> Check:
    others = [ratio for ratio in ratios(layer) if not is_shift(ratio)]
    return Check(f"{others[0]:g}" if others else "", not others)


_SHIFTS = Rule("ratios of scales are powers of two", _powers_of_two)
"""Of an array that has shifts alone."""


_UNSIGNED_TOO = ("lookup", "reshape", "transpose", "concat", "slice", "resize")
"""The layer kinds of which a HAL's jobs and copies take bytes as they are."""


def _types_of_tiles(layer: Layer) -> Check:
    types = ("int8", "uint8") if layer.kind in _UNSIGNED_TOO else ("int8",)
    others = [dtype for dtype in _activation_types(layer) if dtype not in types]
    return Check(others[0] if others else "", not others)


_TYPES_OF_TILES = Rule(
    "activation type of a HAL's tiles is int8, or uint8 where bytes are as they are", _types_of_tiles
)
"""Whatever the limits of the kind say: the descriptors have no type."""


def _adds(layer: Any) -> Check:
    subtracted = getattr(layer, "subtract", "")
    return Check(subtracted, not subtracted)


_SUM = Rule("its call subtracts no input", _adds)
"""Of the calls of a library that only add."""

_ONE_GROUP = Rule("groups are 1", lambda layer: Check(groups := getattr(layer, "groups", 1), groups == 1))


def _one_shape(layer: Any) -> Check:
    shapes = " and ".join(str(tensor.shape) for tensor in layer.inputs)
    return Check(shapes, not getattr(layer, "broadcast", False))


_ONE_SHAPE = Rule("both inputs have one shape", _one_shape)


def _one_of(what: str, allowed: Sequence[object], values: Callable[[Any], Sequence[object]]) -> Rule:
    choice = f"one of {', '.join(map(str, allowed))}" if len(allowed) > 1 else str(allowed[0])

    def check(layer: Layer) -> Check:
        found = values(layer)
        shown = found[0] if len(set(found)) == 1 else " x ".join(map(str, found))
        return Check(shown, all(value in allowed for value in found))

    return Rule(f"{what} is {choice}", check)


def _weights_fit(widths: Sequence[int]) -> Rule:
    text = _one_of("weight bits", widths, lambda layer: ()).text
    return Rule(text, lambda layer: Check(layer.weights.bits, layer.weights.bits <= max(widths)))


def _kernel_at_most(largest: Pair, parts: bool) -> Rule:
    rows, columns = (MOST_KERNEL, MOST_KERNEL) if parts else largest
    cut = f", in parts of at most {largest[0]} x {largest[1]}" if parts else ""

    def check(layer: Any) -> Check:
        height, width = layer.kernel
        return Check(f"{height} x {width}", height <= rows and width <= columns)

    return Rule(f"kernel is at most {rows} x {columns}{cut}", check)


# ---------------------------------------------------------------- a vendor library, layer by layer


@dataclass(frozen=True)
class Operands:
    """The C expressions of one call's operands, for `LibraryCall.arguments`.

    `inputs` and `output` are pointers to activations, `weights` to what `pack` returned (None for a
    layer without weights), `parameters` maps each name that `parameters` returned to its array,
    `workspace` is a pointer into the arena (None where no bytes were asked for).
    """

    inputs: tuple[str, ...]
    output: str
    weights: str | None
    parameters: Mapping[str, str]
    workspace: str | None


@dataclass(frozen=True)
class LibraryCall:
    """One layer kind on a vendor library: the C function and how to call it.

    `arguments` returns the C arguments for a layer and its operands, in the function's order;
    `pack(layer)` the weights in the library's layout, `parameters(layer)` constant arrays that depend
    on the weights, `workspace(layer)` the bytes of scratch, `cycles(layer)` the cycles that the call takes on the
    library's engine. All run at compile time. The C function returns 0, or a status of its own that is passed on to
    the caller. In a `Library` with `wait` it starts the layer, and has a `uint32_t *token` behind the `arguments`.
    """

    function: str
    """The C function."""
    arguments: Callable[[Any, Operands], Sequence[str]]
    """Of the layer and its operands: the C arguments, in the function's order."""
    pack: Callable[[Any], Array] | None = None
    """Of the layer: its weights in the library's layout."""
    parameters: Callable[[Any], Mapping[str, Array]] = field(default=lambda layer: {})
    """Of the layer: constant arrays that depend on its weights, by name."""
    workspace: Callable[[Any], int] = field(default=lambda layer: 0)
    """Of the layer: bytes of scratch."""
    cycles: Callable[[Any], int] | None = None
    """Of the layer: the cycles of the call on the library's engine."""
    subtracts: bool = False
    """Of `add`: whether it also subtracts the input that `layer.subtract` names."""

    def check(self, kind: str) -> None:
        """Raise `InvalidInput` for a field that none of a call of this layer kind can be."""
        if not _is_c_name(self.function):
            raise InvalidInput(f"library: function of {kind} is the name of a C function: got {shown(self.function)}")
        for what in ("arguments", "pack", "parameters", "workspace", "cycles"):
            function, optional = getattr(self, what), what in ("pack", "cycles")
            if not (callable(function) or (function is None and optional)):
                rule = f"library: {what} of {kind} is a function of the layer{', or None' * optional}"
                raise InvalidInput(f"{rule}: got {shown(function)}")
        check_flag(f"library: subtracts of {kind}", self.subtracts)

    def arguments_of(self, layer: Layer, operands: Operands) -> list[str]:
        """The C arguments for a layer. `InvalidInput` for what are none, as of the three below."""
        found = self._asked("arguments", layer, operands)
        if isinstance(found, str) or not isinstance(found, Sequence) or not all(isinstance(one, str) for one in found):
            raise InvalidInput(f"{_of(layer, 'arguments')} are texts of C expressions: got {shown(found)}")
        return list(found)

    def weights_of(self, layer: Layer) -> Array | None:
        """The weights of a layer as the library has them, None for one without."""
        weights = getattr(layer, "weights", None)
        if self.pack is None:
            return None if weights is None else weights.data
        found = self._asked("pack", layer)
        check_type(_of(layer, "pack"), found, np.ndarray, "an array")
        return found  # type: ignore[no-any-return]

    def parameters_of(self, layer: Layer) -> dict[str, Array]:
        """The constant arrays of a layer by name."""
        found = self._asked("parameters", layer)
        check_type(_of(layer, "parameters"), found, Mapping, "a mapping of names to arrays")
        for name in found:
            check_type(f"{_of(layer, 'parameters')}: each name", name, str, "a string")
        return {name: np.asarray(values) for name, values in found.items()}

    def workspace_of(self, layer: Layer) -> int:
        """The bytes of scratch of a layer."""
        found = self._asked("workspace", layer)
        check_whole(_of(layer, "workspace"), found, 0, _MOST)
        return int(found)

    def _asked(self, what: str, layer: Layer, *others: object) -> Any:
        return asked(_of(layer, what), getattr(self, what), layer, *others)


def _of(layer: Layer, what: str) -> str:
    return f"library: {what} of {layer.kind} {layer.name}"


def _is_c_name(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None


def asked(what: str, function: Callable[..., Any], *arguments: object) -> Any:
    """What a function of the caller's returns. `InvalidInput` with its error where it fails."""
    try:
        return function(*arguments)
    except ByocHwError:
        raise
    except Exception as error:
        raise InvalidInput(f"{what}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Library:
    """A vendor library of whole-layer calls: its header, its C sources and a call for each kind.

    `header` is included by name; it and `sources` are copied into the project.

    Without `wait` each call returns when its layer is done. With `wait` each one starts its layer, and writes a
    token, which is not 0, if it returns 0. Layers that were started run one after the other, so that one may read
    what an earlier one writes. `int32_t wait(uint32_t token)` returns when that layer is done, with all that were
    started before it: 0, or a status where any of them failed. `int32_t done(uint32_t token, uint8_t *done)` says
    without waiting whether that is so; with 1 in `*done` it was waited for. `wait` and `done` are names of C functions.
    """

    header: Path
    """The header, which is included by name."""
    sources: tuple[Path, ...]
    """The C sources, copied into the project with the header."""
    calls: Mapping[str, LibraryCall]
    """The call of each layer kind."""
    wait: str | None = None
    """The C function that waits for a layer that a call has started, or None."""
    done: str | None = None
    """The C function that says whether such a layer is done, or None."""

    def __post_init__(self) -> None:
        check_type("library: header", self.header, Path, "a Path")
        check_type("library: sources", self.sources, tuple, "a tuple of Paths")
        for source in self.sources:
            check_type("library: each of sources", source, Path, "a Path")
        check_type("library: calls", self.calls, Mapping, "a mapping of layer kinds to LibraryCalls")
        for kind, call in self.calls.items():
            if kind not in LAYER_KINDS:
                raise InvalidInput(f"library: calls are of layer kinds, {', '.join(LAYER_KINDS)}: got {shown(kind)}")
            check_type(f"library: call of {kind}", call, LibraryCall, "a LibraryCall")
            call.check(kind)
        for what in ("wait", "done"):
            name = getattr(self, what)
            if name is not None and not _is_c_name(name):
                raise InvalidInput(f"library: {what} is the name of a C function, or None: got {shown(name)}")
        if self.done is not None and self.wait is None:
            raise InvalidInput(f"library: done is of calls that are waited for: wait is None, done {self.done!r}")

    def cycles(self, layer: Layer) -> int:
        """The cycles of a layer's call; 0 for a layer without one. `InvalidInput` for a cost that is none."""
        call = self.calls.get(layer.kind)
        cycles = 0 if call is None or call.cycles is None else asked(_of(layer, "cycles"), call.cycles, layer)
        check_whole(_of(layer, "cycles"), cycles, 0, _MOST)
        return int(cycles)


# ---------------------------------------------------------------- tuning


@dataclass(frozen=True)
class TuningSpace:
    """The choices of the planner and the tuner. A vendor can narrow it to those that pay off on the hardware.

    Up to `longest_group` layers take turns, stripe by stripe; `stripes` lists the numbers of stripes.
    `weight_shares` lists how many of a layer's blocks of weights fit weight memory at once. The flags
    allow to swap height and width (`swap`), to hold tensors in local memory from one group to the next
    (`hold`), to overlap copies with the jobs of the stripe before (`overlap`), to keep weights for all
    stripes (`resident`), to tile a layer by itself along every axis (`tile`), and to compute groups of layers in
    patches of rows and columns and in slices of channels (`patches`), and to keep rows that two stripes share in main
    memory (`halos`), and to pack the rows of whole images (`pack`). A layer that fits in no other way is tiled in any
    case.
    """

    longest_group: int = 8
    """The most layers that take turns, stripe by stripe."""
    stripes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
    """The numbers of stripes that are tried."""
    weight_shares: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12)
    """How many of a layer's blocks of weights fit weight memory at once."""
    swap: bool = True
    """Whether height and width may be swapped."""
    hold: bool = True
    """Whether tensors may stay in local memory from one group to the next."""
    overlap: bool = True
    """Whether copies may overlap with the jobs of the stripe before."""
    resident: bool = True
    """Whether weights may be kept for all stripes."""
    tile: bool = True
    """Whether a layer may be tiled by itself along every axis."""
    patches: bool = True
    """Whether layers that take turns may be cut in columns and slices of channels, too."""
    halos: bool = True
    """Whether rows that two stripes share may be kept in main memory, not computed for both."""
    pack: bool = True
    """Whether images may have packed rows from layer to layer."""

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        check_whole("tuning space: longest_group", self.longest_group, 1)
        for what, values in (("stripes", self.stripes), ("weight_shares", self.weight_shares)):
            numbers = isinstance(values, tuple) and all(type(value) is int and value >= 1 for value in values)
            if not numbers or 1 not in values:
                raise InvalidInput(f"tuning space: {what} are numbers of at least 1, and 1 is one: got {values}")
        for what in ("swap", "hold", "overlap", "resident", "tile", "patches", "halos", "pack"):
            check_flag(f"tuning space: {what}", getattr(self, what))


# ---------------------------------------------------------------- the core that calls a HAL


@dataclass(frozen=True)
class HalInstructions:
    """Instructions of the core inside the functions of a HAL: to start a copy, `rows` more for one of several rows, to
    start a job, to wait for one of them or to ask whether it is done, to have an engine signal or await an event."""

    copy: int = 0
    """To start a copy."""
    rows: int = 0
    """More for a copy of several rows."""
    job: int = 0
    """To start a job."""
    wait: int = 0
    """To wait for one of them, or to ask whether it is done."""
    event: int = 0
    """To have an engine signal or await an event."""

    def __post_init__(self) -> None:
        with_plain_numbers(self)

    def check(self, prefix: str) -> None:
        """Raise `InvalidInput` for a number that none of them can be."""
        for what in ("copy", "rows", "job", "wait", "event"):
            check_whole(f"{prefix} {what}", getattr(self, what), 0, _MOST)


NO_INSTRUCTIONS = HalInstructions()
"""As if the HAL took the core no time."""

REGISTERS = HalInstructions(copy=28, rows=6, job=21, wait=14, event=40)
"""Of the HAL over memory-mapped registers (`hwlib/regs`) on rv32imc at -O2, as counted under QEMU by
`tests/hal_instructions.c`. A wait is counted without what it polls in vain."""

# ---------------------------------------------------------------- the accelerator

RESERVED_NAMES = ("default", "ccompiler")
"""Compiler names with a meaning of their own in TVM: the host itself, and TVM's example of a code generator."""

_LONGEST_NAME = 64

_WHOLE_KINDS = tuple(cls.kind for cls in get_args(Whole))

_MOST = 2**31 - 1
"""Of any number: generated C has it in 32 bits."""

_LEAST = {
    **dict.fromkeys(("array_rows", "array_columns", "depthwise_rows", "elementwise_width", "dma_width", "queue"), 1),
    **dict.fromkeys(("activation_memory", "weight_memory", "dma_alignment"), 1),
    **dict.fromkeys(("job_setup", "job_overhead", "dma_setup", "dma_row_setup", "ram", "flash"), 0),
    "local_alignment": 4,
}
"""The least value of each number of an accelerator."""

_MOST_OF = {
    **dict.fromkeys(("array_rows", "array_columns", "queue"), 1 << 16),
    **dict.fromkeys(("activation_memory", "weight_memory"), 1 << 28),
}
"""The most of numbers of which the simulator has as many bytes or places, or of which reports have products."""

_MOST_HOST_CYCLES = 1 << 20


def check_host_cycles(prefix: str, value: object) -> None:
    """Raise `InvalidInput` unless a value can be the accelerator cycles of an instruction of the core."""
    check_number(f"{prefix} host_cycles_per_instruction", value, positive=True, most=_MOST_HOST_CYCLES)


def check_compiler_name(name: object) -> None:
    """Raise `InvalidInput` unless a name can be an accelerator's: a C identifier that TVM does not use itself."""
    check_type("accelerator name", name, str, "a string")
    if not _is_c_name(name) or len(str(name)) > _LONGEST_NAME:
        rule = f"accelerator name is a C identifier of at most {_LONGEST_NAME} characters"
        raise InvalidInput(f"{rule}: got {shown(name)}")
    if name in RESERVED_NAMES:
        raise InvalidInput(f"accelerator name is none that TVM reserves, {', '.join(RESERVED_NAMES)}: got {name!r}")


@dataclass(frozen=True)
class Accelerator:
    """A neural accelerator that is controlled by a small host core.

    `name` is the compiler name (`relay.ext.<name>`) and the prefix of its composites; `label` is
    for reports. Sizes in bytes, costs in accelerator cycles. `limits` maps each layer kind that the
    hardware supports to its limits; all other kinds run on the host. With a `library` the accelerator
    is driven by whole-layer calls, and the array, local memories, DMA and `tuning` do not apply.

    `whole_cycles` are the kinds that a HAL takes as a whole, from main memory to main memory, as a job without a tile,
    each with the cycles that the array takes for a layer. They run beside other accelerators, on a `Soc`.
    """

    name: str = "hwlib"
    """The compiler's name (`relay.ext.<name>`), a C identifier, and the prefix of the composites."""
    label: str = "REFERENCE"
    """For reports."""
    limits: Mapping[str, Limits] = field(default_factory=lambda: DEFAULT_LIMITS, hash=False)
    """The limits of each layer kind that the hardware supports; all other kinds run on the host."""
    library: Library | None = field(default=None, hash=False)
    """Whole-layer calls that drive the accelerator in place of a HAL, or None."""
    whole_cycles: Mapping[str, Callable[[Any], int]] = field(default_factory=dict, hash=False)
    """The layer kinds that a HAL takes without tiles, each with a function of the layer for its cycles."""

    array_rows: int = 16
    """Output channels computed at a time."""
    array_columns: int = 16
    """Output columns computed at a time."""
    depthwise_rows: int = 16
    """Channels that a depthwise job computes at a time."""
    job_setup: int = 0
    """Cycles to start a job, before its groups; `whole_cycles` have their own."""
    job_overhead: int = 23
    """Cycles for each group of rows x columns in an output row."""
    elementwise_width: int = 16
    """Elements that element-wise layers and pooling read per cycle."""
    packed_rows: bool = False
    """Whether a job's input rows may overlap: it takes many rows of an image as one."""

    activation_memory: int = 256 * KIB
    """Bytes of local memory for activations."""
    weight_memory: int = 64 * KIB
    """Bytes of local memory for weights."""
    local_alignment: int = 4
    """Bytes, of a tensor in local memory; int32 sums and parameters need 4."""
    dma_alignment: int = 1
    """Bytes, of each address, length and stride of a copy."""
    dma_setup: int = 70
    """Cycles for each transfer."""
    dma_width: int = 16
    """Bytes per cycle, each row rounded up."""
    dma_row_setup: int = 0
    """Cycles for each further row of a strided transfer, as where it is a burst of its own."""
    dma_reads_flash: bool = True
    """Whether the DMA reads flash; else start-up code copies the constants of its regions to RAM."""
    queue: int = 64
    """Operations that each engine holds, running or waiting; starting one more waits for the oldest."""

    ram: int = 512 * KIB
    """Bytes of main memory for all that is written."""
    flash: int = 2048 * KIB
    """Bytes of main memory for constant data."""

    host_cycles_per_instruction: float = 1.0
    """Accelerator cycles for each instruction of the core beside it."""
    hal_instructions: HalInstructions = NO_INSTRUCTIONS
    """Instructions of that core in the HAL; `REGISTERS` for memory-mapped ones."""

    roundings: tuple[Rounding, ...] = ("upward",)
    """How the hardware rounds when it scales, see `ROUNDINGS`."""
    shift_only: bool = False
    """Whether the array scales by powers of two alone: it has shifts and no multiplier."""

    tuning: TuningSpace = field(default_factory=TuningSpace)
    """The choices of the planner and the tuner."""

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        check_compiler_name(self.name)
        prefix = f"accelerator {self.name}:"
        check_type(f"{prefix} label", self.label, str, "a string")
        if not self.label or not self.label.isprintable():
            raise InvalidInput(f"{prefix} label has at least one character, and can be printed: got {self.label!r}")
        for what, least in _LEAST.items():
            check_whole(f"{prefix} {what}", getattr(self, what), least, _MOST_OF.get(what, _MOST))
        for what in ("local_alignment", "dma_alignment"):
            alignment = getattr(self, what)
            if alignment & (alignment - 1):
                raise InvalidInput(f"{prefix} {what} is a power of two: got {alignment}")
        check_flag(f"{prefix} dma_reads_flash", self.dma_reads_flash)
        check_flag(f"{prefix} shift_only", self.shift_only)
        check_flag(f"{prefix} packed_rows", self.packed_rows)
        check_type(f"{prefix} hal_instructions", self.hal_instructions, HalInstructions, "a HalInstructions")
        self.hal_instructions.check(f"{prefix} hal_instructions:")
        check_host_cycles(prefix, self.host_cycles_per_instruction)
        check_type(f"{prefix} roundings", self.roundings, tuple, "a tuple of strings")
        if not self.roundings:
            raise InvalidInput(f"{prefix} roundings has at least one of {', '.join(ROUNDINGS.values())}: got ()")
        for rounding in self.roundings:
            check_one_of(f"{prefix} each of roundings", rounding, tuple(ROUNDINGS.values()))
        check_type(f"{prefix} tuning", self.tuning, TuningSpace, "a TuningSpace")
        check_type(f"{prefix} library", self.library, Library | None, "a Library or None")
        check_type(f"{prefix} limits", self.limits, Mapping, "a mapping of layer kinds to Limits")
        for kind, limits in self.limits.items():
            self._check_limits(prefix, kind, limits)
        self._check_whole(prefix)
        if self.library is not None:
            for kind in self.limits.keys() - {"reshape", "transpose"} - self.library.calls.keys():
                raise InvalidInput(f"{prefix} its library has a call for each layer kind: none for {kind}")

    def __repr__(self) -> str:
        if self.library is not None:
            return f"<Accelerator {self.name} ({self.label}): calls of {self.library.header.name}>"
        return (
            f"<Accelerator {self.name} ({self.label}): array {self.array_rows} x {self.array_columns}, local "
            f"{_size(self.activation_memory)} + {_size(self.weight_memory)}, DMA {self.dma_width} bytes a cycle>"
        )

    def _repr_html_(self) -> str:
        kinds = ", ".join(self.limits) or "none"
        return table_html(repr(self).strip("<>"), ("field", "value"), [*_plain_fields(self), ("layer kinds", kinds)])

    def _check_limits(self, prefix: str, kind: str, limits: Limits) -> None:
        if kind not in LAYER_KINDS:
            raise InvalidInput(f"{prefix} limits are of layer kinds, {', '.join(LAYER_KINDS)}: got {shown(kind)}")
        check_type(f"{prefix} limits of {kind}", limits, Limits, "a Limits")
        prefix = f"{prefix} limits of {kind}:"
        limits.check(prefix)
        for what, (classes, words) in OF_KINDS.items():
            value = getattr(limits, what)
            if value and not issubclass(LAYER_KINDS[kind], classes):
                raise InvalidInput(f"{prefix} {what} is for {words}: got {value}")
        for what in _BYTES if self.library is None else ():
            for step in getattr(limits, what) or ():
                check_whole(f"{prefix} each of {what}", step, 1, max(HAL_STEPS))

    def _check_whole(self, prefix: str) -> None:
        check_type(f"{prefix} whole_cycles", self.whole_cycles, Mapping, "a mapping of layer kinds to functions")
        for kind, cycles in self.whole_cycles.items():
            if kind not in _WHOLE_KINDS:
                raise InvalidInput(f"{prefix} whole_cycles are of {', '.join(_WHOLE_KINDS)}: got {shown(kind)}")
            if not callable(cycles):
                raise InvalidInput(f"{prefix} whole_cycles of {kind} is a function of the layer: got {shown(cycles)}")
        for kind in _WHOLE_KINDS if self.library is None else ():
            if kind in self.limits and kind not in self.whole_cycles:
                raise InvalidInput(f"{prefix} a kind without tiles has whole_cycles: none for {kind}")

    @property
    def has_whole(self) -> bool:
        """Whether its HAL takes layers without tiles."""
        return self.library is None and any(kind in self.limits for kind in _WHOLE_KINDS)

    def runs_whole(self, layer: Layer) -> bool:
        """Whether the layer is one call or job, from main memory to main memory."""
        return self.library is not None or isinstance(layer, Whole)

    def cycles_of_whole(self, layer: Layer) -> int:
        """The cycles of a layer that runs as a whole. `InvalidInput` for a cost that is none."""
        if self.library is not None:
            return self.library.cycles(layer)
        what = f"accelerator {self.name}: whole_cycles of {layer.kind} {layer.name}"
        cycles = asked(what, self.whole_cycles[layer.kind], layer)
        check_whole(what, cycles, 0, _MOST)
        return int(cycles)

    @cached_property
    def buffer_alignment(self) -> int:
        """Alignment in bytes of every buffer in local memory, valid for both the array and the DMA."""
        return lcm(self.local_alignment, self.dma_alignment)

    def whole_words(self, nbytes: int) -> int:
        """The bytes of a memory of this size that the DMA reaches: whole words of it."""
        return nbytes - nbytes % self.dma_alignment

    def check_numerics(self, numerics: str) -> None:
        """Raise `InvalidInput` for numerics that do not exist, or whose rounding the hardware lacks."""
        if not isinstance(numerics, str) or numerics not in ROUNDINGS:
            raise InvalidInput(f"numerics is one of {', '.join(ROUNDINGS)}: got {numerics!r}")
        if ROUNDINGS[numerics] not in self.roundings:
            raise InvalidInput(
                f"accelerator {self.name} ({self.label}): numerics {numerics!r} needs the rounding "
                f"{ROUNDINGS[numerics]!r}: its roundings are {', '.join(self.roundings) or 'none'}"
            )

    def weight_width(self, layer: Weighted) -> int:
        """Bits of each weight of a layer as it is packed for the array: the fewest that it has and that hold all."""
        limits = self.limits.get(layer.kind)
        return 8 if limits is None or limits.weight_bits is None else _width(limits.weight_bits, layer.weights.bits)

    def broken_rules(self, layer: Layer) -> Iterator[tuple[Rule, Check]]:
        """Each limit of the hardware that the layer breaks, with the value found."""
        limits = self.limits.get(layer.kind, _ALWAYS.get(layer.kind))
        if limits is None:
            kinds = ", ".join(self.limits)
            yield Rule(f"layer kind is one of {kinds}", _unknown_kind), _unknown_kind(layer)
            return
        calls: tuple[Rule, ...] = ()
        if self.library is not None:  # its calls are over whole kernels
            limits = replace(limits, kernel_parts=False)
            call = self.library.calls.get(layer.kind)
            calls = () if call is None or call.subtracts else (_SUM,)
        shifts = (_SHIFTS,) if self.shift_only else ()
        listed = set(_activation_types(layer)) <= set(limits.activation_types)
        types = (_TYPES_OF_TILES,) if listed and not self.runs_whole(layer) else ()
        for rule in (*limits.rules(), *limits.further_rules(layer), *calls, *types, _ZERO_POINTS, *shifts):
            check = rule.check(layer)
            if not check.allowed:
                yield rule, check


@lru_cache(maxsize=64)
def _width(widths: tuple[int, ...], least: int) -> int:
    return min((bits for bits in widths if bits >= least), default=8)


_ALWAYS = {"reshape": Limits(batches=None)}
"""The layer kinds that need no hardware: a reshape is its input's bytes, with or without limits of its own."""


def _plain_fields(accelerator: Accelerator) -> Iterator[tuple[str, object]]:
    """The fields that are a number, a text or several of them."""
    for one in fields(accelerator):
        value = getattr(accelerator, one.name)
        if isinstance(value, int | float | str | tuple):
            yield one.name, ", ".join(map(str, value)) if isinstance(value, tuple) else value


def _size(nbytes: int) -> str:
    return f"{nbytes // KIB} KiB" if nbytes % KIB == 0 else f"{nbytes} bytes"


def _unknown_kind(layer: Layer) -> Check:
    return Check(layer.kind, False)


DEFAULT_LIMITS: Mapping[str, Limits] = {
    "conv2d": Limits(
        max_kernel=(11, 11),
        strides=(1, 2),
        dilations=(1, 2),
        weight_bits=(8, 4, 2),
        accumulator_bits=32,
        groups=True,
        wide_padding=True,
        kernel_parts=True,
    ),
    "depthwise_conv2d": Limits(
        max_kernel=(11, 11),
        strides=(1, 2),
        dilations=(1, 2),
        weight_bits=(8, 4, 2),
        accumulator_bits=32,
        channel_multipliers=(1,),
        wide_padding=True,
        kernel_parts=True,
    ),
    "dense": Limits(batches=None, weight_bits=(8, 4, 2), accumulator_bits=32),
    "add": Limits(accumulator_bits=32, broadcast=True),
    "mul": Limits(accumulator_bits=32, broadcast=True),
    "matmul": Limits(batches=None, accumulator_bits=32),
    "pool2d": Limits(max_kernel=(32, 32), strides=(1, 2), accumulator_bits=32, wide_padding=True),
    "softmax": Limits(batches=None),
    "lookup": Limits(batches=None, activation_types=("int8", "uint8")),
    "reshape": Limits(batches=None),
    "transpose": Limits(batches=None),
    "concat": Limits(batches=None),
    "slice": Limits(batches=None),
    "pad": Limits(batches=None),
    "resize": Limits(),
}

REFERENCE = Accelerator(roundings=("upward", "tflite"), packed_rows=True)
"""The accelerator that the simulator implements by default, with DIANA's published figures.

What is published has one cost for each transfer and one for each group of a job. So starting a job costs nothing more
here (`job_setup`), nor does a further row of a strided transfer (`dma_row_setup`). A chip for which both were measured
sets them; on arrays with a descriptor to fetch a job takes 50 to 200 cycles to start. The core takes no time
in the HAL either (`hal_instructions`): its registers are the chip's.
"""

_UNDILATED: Mapping[str, Limits] = {
    kind: replace(limits, dilations=None if limits.dilations is None else (1,))
    for kind, limits in DEFAULT_LIMITS.items()
}

DIANA_DIGITAL = replace(
    REFERENCE,
    label="DIANA_DIGITAL",
    limits={kind: replace(limits, broadcast=False, kernel_parts=False) for kind, limits in _UNDILATED.items()},
    depthwise_rows=1,
    packed_rows=False,
)
"""As `REFERENCE`, but without dilation and packed rows, with whole kernels only, depthwise jobs compute one channel at
a time, and both inputs of an element-wise layer have one shape: what is published adds feature maps."""

SMALL = replace(
    REFERENCE, label="SMALL", limits=_UNDILATED, activation_memory=32 * KIB, weight_memory=16 * KIB, dma_width=4
)
"""As `REFERENCE`, but without dilation, with 32 KiB of activation memory, 16 KiB of weight memory and 4 DMA bytes per
cycle."""

_DSP_ELEMENTS = 4
"""Elements of layers without tiles that the DSP looks at in a cycle."""


def _ordered_cycles(rows: int, extent: int, count: int) -> int:
    """A heap of the first `count` elements of each row, through which all of its elements go."""
    return rows * ceil_div(extent * (count.bit_length() + 1), _DSP_ELEMENTS)


def order_cycles(layer: Ordering) -> int:
    """The cycles in which the DSP puts elements in order."""
    return _ordered_cycles(layer.rows, layer.extent, layer.ofm.shape[layer.axis])


def gather_cycles(layer: Gather) -> int:
    """The cycles in which the DSP gathers elements."""
    return ceil_div(layer.ofm.elements, _DSP_ELEMENTS)


def suppression_cycles(layer: Suppression) -> int:
    """The cycles of the DSP: the order of the boxes; then each of them is compared with those that are kept."""
    batches, boxes, values = layer.ifm.shape
    seen, kept = layer.seen_and_kept
    moved = ceil_div(layer.ofm.elements, _DSP_ELEMENTS)
    return _ordered_cycles(batches, boxes, boxes) + batches * ceil_div(seen * kept * values, _DSP_ELEMENTS) + moved


DSP = replace(
    REFERENCE,
    name="dsp",
    label="DSP",
    array_rows=8,
    array_columns=8,
    depthwise_rows=8,
    limits={
        **_UNDILATED,
        "order": Limits(batches=None, activation_types=ORDERED_TYPES),
        "gather": Limits(batches=None, activation_types=ORDERED_TYPES),
        "suppression": Limits(batches=None, activation_types=("float32", "int32")),
    },
    whole_cycles={"order": order_cycles, "gather": gather_cycles, "suppression": suppression_cycles},
    dma_width=8,
    packed_rows=False,
)
"""A vector unit beside an accelerator: a quarter of `REFERENCE`'s rate for convolutions and dense layers. What is put
in order, gathered and suppressed it takes as a whole, four elements a cycle."""
