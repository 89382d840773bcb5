"""What hardware can do of each layer kind, as limits and as the rules that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

from byoc_hw.arguments import check_flag, check_one_of, check_type, check_whole, shown, with_plain_numbers
from byoc_hw.errors import InvalidInput
from byoc_hw.graph import LAYER_KINDS, Add, Convolution, DepthwiseConv2d, Layer, MatMul, Mul, Pool2d, Weighted
from byoc_hw.integers import even_size
from byoc_hw.ratios import is_shift, ratios
from byoc_hw.tensor import DTYPES, Padding, Pair


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
    convolution's kernel, compute one of more than `max_kernel`, or of another dilation, an element at a time along that
    axis: they add up their sums, of depthwise layers too.
    """

    max_kernel: tuple[int, int] | None = None
    """The most rows and columns of a kernel."""
    strides: tuple[int, ...] | None = None
    """The strides that it takes."""
    dilations: tuple[int, ...] | None = (1,)
    """The dilations that a job takes."""
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
    """Whether several jobs, each over a part of a kernel, compute a convolution of more than `max_kernel`, or of a
    dilation that is none of `dilations`."""

    def __post_init__(self) -> None:
        with_plain_numbers(self)

    def check(self, prefix: str, kind: str, *, tiles: bool) -> None:
        """Raise `InvalidInput` for a limit that is none: of the wrong type, empty, a value that no layer has, or one
        that layers of the `kind` do not have. Descriptors of `tiles` hold strides and dilations in a mask."""
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
        for what, (classes, words) in OF_KINDS.items():
            value = getattr(self, what)
            if value and not issubclass(LAYER_KINDS[kind], classes):
                raise InvalidInput(f"{prefix} {what} is for {words}: got {value}")
        for what in _BYTES if tiles else ():
            for step in getattr(self, what) or ():
                check_whole(f"{prefix} each of {what}", step, 1, max(HAL_STEPS))

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

    def all_rules(self, layer: Layer, *, tiles: bool, adds: bool, shifts: bool) -> Iterator[Rule]:
        """The rules for a layer: the limits, and what hardware has to have beside them. It may be computed in `tiles`,
        by the call of a library that only `adds`, or by an array that scales by `shifts` alone."""
        yield from self.rules()
        yield from self.further_rules(layer)
        if adds:
            yield _SUM
        if tiles and set(_activation_types(layer)) <= set(self.activation_types):
            yield _TYPES_OF_TILES
        yield _ZERO_POINTS
        if shifts:
            yield _SHIFTS

    def parts(self, kernel: Pair, dilation: Pair) -> tuple[KernelPart, ...]:
        """The parts of a kernel that jobs are over, in order: as few as the array allows, of about the same size."""
        if not self.kernel_parts:
            return _parts(kernel, kernel)
        rows, columns = (
            most if self.dilations is None or step in self.dilations else 1
            for most, step in zip(self.max_kernel or kernel, dilation, strict=True)
        )
        return _parts(kernel, (rows, columns))

    def _padding(self) -> Rule:
        return _PADDING_FITS if self.wide_padding else _padding_within(self)

    def _dilation(self) -> Iterator[Rule]:
        if self.dilations is not None and not self.kernel_parts:
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
        for part in limits.parts(layer.kernel, layer.dilation):
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


DEFAULT_LIMITS: Mapping[str, Limits] = {
    "conv2d": Limits(
        max_kernel=(11, 11),
        strides=(1, 2),
        dilations=(1, 2),
        weight_bits=WEIGHT_BITS,
        accumulator_bits=32,
        groups=True,
        wide_padding=True,
        kernel_parts=True,
    ),
    "depthwise_conv2d": Limits(
        max_kernel=(11, 11),
        strides=(1, 2),
        dilations=(1, 2),
        weight_bits=WEIGHT_BITS,
        accumulator_bits=32,
        channel_multipliers=(1,),
        wide_padding=True,
        kernel_parts=True,
    ),
    "dense": Limits(batches=None, weight_bits=WEIGHT_BITS, accumulator_bits=32),
    "add": Limits(batches=None, accumulator_bits=32, broadcast=True),
    "mul": Limits(batches=None, accumulator_bits=32, broadcast=True),
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
