"""The layer graph: the input of checks, planning, packing and code generation.

Plain Python and numpy, independent of the front end. `Layer` is the closed union of all layer kinds:
with a `match` that ends in `assert_never`, mypy reports each place that lacks a new kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from byoc_hw.errors import GraphError
from byoc_hw.graph_text import graph_text
from byoc_hw.tensor import Array, Padding, Pair, Quantization, Rounding, Tensor, scale_ratio, signed_bits

Problem = tuple[str, str]
"""A rule that a layer breaks, and the value found."""


@dataclass(frozen=True, eq=False)
class BaseLayer:
    """The base of every layer. `source` names the operators of the model file that it came from.

    `rounding` is the arithmetic of the layer; kinds without rounding ignore it. Where the dimensions of `ofm` are not
    in the order of the model, `axes_of_model` says by dimension which one of the model's tensor it is.
    """

    kind: ClassVar[str]

    name: str
    source: tuple[str, ...]
    ifm: Tensor
    ofm: Tensor
    rounding: Rounding = field(default="upward", kw_only=True)
    axes_of_model: tuple[int, ...] = field(default=(), kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        """What a user may call it: its own name, an operator of the model, its kind."""
        return (self.name, *self.source, self.kind)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.ifm,)

    def on(self, inputs: Sequence[Tensor], ofm: Tensor) -> Self:
        """The same layer on other tensors, as many inputs as it has."""
        (ifm,) = inputs
        return replace(self, ifm=ifm, ofm=ofm)

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same layer with each of its tensors changed, its constants among them."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        changed: dict[str, Any] = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self.on([*map(change, self.inputs)], change(self.ofm)), **changed)

    @property
    def macs(self) -> int:
        """Multiply-accumulate operations of one inference."""
        return 0

    def problems(self) -> Iterator[Problem]:
        """Each consistency rule that the layer breaks. Without `unsound` numbers only."""
        yield from ()

    def unsound(self) -> Iterator[Problem]:
        """Each dimension, step, scale and range that is no such number: no other rule can be checked before these."""
        for steps in ("strides", "dilation"):
            if any(step < 1 for step in getattr(self, steps, ())):
                yield f"{steps} are at least 1", str(getattr(self, steps))
        low, high = getattr(self, "act_min", -128), getattr(self, "act_max", 127)
        if self.ofm.dtype == "int8" and not -128 <= low <= high <= 127:
            yield "the range of the output is one of int8", f"{low} to {high}"
        for entry in fields(self):
            value = getattr(self, entry.name)
            for operand in value if isinstance(value, tuple) else (value,):
                if isinstance(operand, Tensor) and any(extent < 1 for extent in operand.shape):
                    yield f"dimensions of {entry.name} are at least 1", str(operand.shape)
                quantization = operand.quantization if isinstance(operand, Tensor) else operand
                if isinstance(quantization, Quantization):
                    wrong = [scale for scale in quantization.scale if not (math.isfinite(scale) and scale > 0)]
                    if wrong:
                        yield f"scale of {entry.name} is finite and above 0", f"{wrong[0]:g}"


@dataclass(frozen=True, eq=False)
class BaseWeighted(BaseLayer):
    """A layer with weights: int32 sums, requantized and clamped to int8.

    `accumulator` is the quantization of the int32 sum as the model states it: its scale is the product
    of the input's and the weights' scales, rounded to float32. TFLite's rounding does not use it, but
    multiplies the raw scales without rounding.
    """

    weights: Tensor
    bias: Tensor | None
    accumulator: Quantization
    act_min: int
    act_max: int

    @property
    def filter(self) -> Pair:
        """Height and width of a filter; 1 x 1 for a dense layer."""
        return 1, 1

    @property
    def out_channels(self) -> int:
        return self.ofm.shape[-1]

    @property
    def groups(self) -> int:
        """Slices of the input channels, each read by as many output channels."""
        return 1

    @property
    def group_channels(self) -> int:
        """Output channels that sum over the same input channels."""
        return self.out_channels // self.groups

    @property
    def in_channels(self) -> int:
        """Input channels that one output channel sums over."""
        return self.weights.shape[-1]

    @property
    def macs(self) -> int:
        return self.ofm.elements * prod(self.filter) * self.in_channels

    @cached_property
    def sum_bits(self) -> int:
        """Bits, with the sign, of the largest value that the sum can reach for any input.

        Covers partial sums in any order, the input's zero point folded into the bias, and the sum
        after it is scaled to the output.
        """
        if self.weights.data is None or self.ofm.quantization is None:
            return 0
        zero_point = self.weights.quantization.zero_point[0] if self.weights.quantization else 0
        weights = np.abs(self.weights.data.astype(np.int32) - zero_point)
        bound = 256 * weights.reshape(weights.shape[0], -1).sum(axis=1, dtype=np.int64)
        if self.bias is not None and self.bias.data is not None:
            bound = bound + np.abs(self.bias.data.astype(np.int64))
        ratio = np.asarray(self.accumulator.scale, np.float64) / self.ofm.quantization.scale[0]
        return _scaled_bits(bound, ratio, self.rounding)

    def problems(self) -> Iterator[Problem]:
        if self.weights.data is None:
            yield "weights are constant", "computed at run time"
        if self.bias is not None and self.bias.shape != (self.out_channels,):
            yield f"bias has one value for each of {self.out_channels} output channels", f"shape {self.bias.shape}"
        if len(self.accumulator.scale) not in (1, self.out_channels):
            yield f"one scale, or one for each of {self.out_channels} output channels", f"{len(self.accumulator.scale)}"
        elif self.rounding == "tflite":
            yield from self._product_problems()

    def _product_problems(self) -> Iterator[Problem]:
        """Checks that `accumulator` is the product of the input's and weights' scales, as TFLite's rounding assumes."""
        if self.ifm.quantization is None or self.weights.quantization is None:
            yield "input and weights are quantized, as TFLite's rounding asks", "no scale"
            return
        product = np.broadcast_to(
            np.multiply(self.weights.quantization.scale, self.ifm.quantization.scale[0]), (self.out_channels,)
        )
        stated = np.broadcast_to(np.asarray(self.accumulator.scale), (self.out_channels,))
        wrong = ~np.isclose(stated, product, rtol=1e-5, atol=0) & ~self._silent()
        if wrong.any():
            first = int(np.argmax(wrong))
            rule = "requantize's scale is the product of input's and weights', as TFLite's rounding asks"
            yield rule, f"{stated[first]:g} for {product[first]:g}"

    def _silent(self) -> npt.NDArray[np.bool_]:
        """Output channels whose sum is always 0, and whose scale therefore does not matter."""
        data, quantization = self.weights.data, self.weights.quantization
        if data is None or quantization is None:
            return np.zeros(self.out_channels, bool)
        silent: npt.NDArray[np.bool_] = (data.reshape(len(data), -1) == quantization.zero_point[0]).all(axis=1)
        bias = None if self.bias is None else self.bias.data
        return silent if bias is None else silent & (bias == 0)


@dataclass(frozen=True, eq=False)
class BaseConvolution(BaseWeighted):
    """The base of all convolutions: a filter that moves over height and width.

    `padding` is filled with the input's zero point.
    """

    strides: Pair = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    @property
    def kernel(self) -> Pair:
        return self.weights.shape[1], self.weights.shape[2]

    @property
    def filter(self) -> Pair:
        return self.kernel

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        yield from _window_problems(self.ifm, self.ofm, self.kernel, self.strides, self.padding, self.dilation)


@dataclass(frozen=True, eq=False)
class Conv2d(BaseConvolution):
    """2-D convolution. ifm (1, H, W, C), weights (K, FY, FX, C / groups), ofm (1, OH, OW, K).

    Of each C / groups input channels in order, K / groups output channels are made.
    """

    kind: ClassVar[str] = "conv2d"

    groups: int = 1

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.ofm.shape[3] % self.groups:
            yield f"output channels are a multiple of {self.groups} groups", str(self.ofm.shape[3])
        if self.weights.shape[3] * self.groups != self.ifm.shape[3] or self.weights.shape[0] != self.ofm.shape[3]:
            yield f"weights join ifm {self.ifm.shape} to ofm {self.ofm.shape}", f"shape {self.weights.shape}"


@dataclass(frozen=True, eq=False)
class DepthwiseConv2d(BaseConvolution):
    """Depthwise convolution, one filter per channel. weights (C, FY, FX, 1)."""

    kind: ClassVar[str] = "depthwise_conv2d"

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        channels = (self.weights.shape[0], self.ifm.shape[3], self.ofm.shape[3])
        if len(set(channels)) != 1 or self.weights.shape[3] != 1:
            yield f"one filter for each channel of ifm {self.ifm.shape}", f"{self.weights.shape} to {self.ofm.shape}"


@dataclass(frozen=True, eq=False)
class Dense(BaseWeighted):
    """Fully connected, N rows by themselves. ifm (N, C), weights (K, C), ofm (N, K)."""

    kind: ClassVar[str] = "dense"

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if len(self.ifm.shape) != 2 or len(self.ofm.shape) != 2:
            yield "input and output are 2-D", f"{self.ifm.shape} and {self.ofm.shape}"
        elif self.ifm.shape[0] != self.ofm.shape[0]:
            yield "input and output have as many rows", f"{self.ifm.shape[0]} and {self.ofm.shape[0]}"
        elif self.weights.shape != (self.ofm.shape[-1], self.ifm.shape[-1]):
            yield f"weights join ifm {self.ifm.shape} to ofm {self.ofm.shape}", f"shape {self.weights.shape}"


@dataclass(frozen=True, eq=False)
class BasePair(BaseLayer):
    """The base of the layers of two activations, each with its own quantization."""

    ifm2: Tensor

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.ifm, self.ifm2)

    def on(self, inputs: Sequence[Tensor], ofm: Tensor) -> Self:
        ifm, ifm2 = inputs
        return replace(self, ifm=ifm, ifm2=ifm2, ofm=ofm)

    def problems(self) -> Iterator[Problem]:
        if None in (self.ifm.quantization, self.ifm2.quantization, self.ofm.quantization):
            yield "inputs and output are quantized", "no scale"


@dataclass(frozen=True, eq=False)
class BasePairwise(BasePair):
    """An element-wise layer of two tensors.

    `ifm2` has the shape of `ifm`, or is `broadcast`: one value for each index of the last dimension, or one value.
    """

    act_min: int = -128
    act_max: int = 127

    @property
    def broadcast(self) -> bool:
        """Whether the second input is read again for each pixel, or each element, of the first."""
        return self.ifm2.elements < self.ifm.elements

    def problems(self) -> Iterator[Problem]:
        one, other, ofm = self.ifm.shape, self.ifm2.shape, self.ofm.shape
        values = self.ifm2.elements
        repeats = len(other) <= len(one) and (values == 1 or other[-1:] == one[-1:] == (values,))
        if one != ofm or not (other == one or repeats):
            rule = "inputs and output have one shape, or one input has a value for each channel, or one in all"
            yield rule, f"{one} and {other} to {ofm}"
        yield from super().problems()


Subtrahend = Literal["", "ifm", "ifm2"]
"""Which input of an `Add` is subtracted from the other one, once it is scaled; none in a sum."""


@dataclass(frozen=True, eq=False)
class Add(BasePairwise):
    """Element-wise quantized addition, or subtraction of the input that `subtract` names."""

    kind: ClassVar[str] = "add"

    subtract: Subtrahend = ""

    @property
    def signs(self) -> Pair:
        """1 or -1 for each input: -1 for the one that is subtracted."""
        return -1 if self.subtract == "ifm" else 1, -1 if self.subtract == "ifm2" else 1

    @property
    def sum_bits(self) -> int:
        """Bits, with the sign, of the largest sum of the scaled inputs."""
        if self.rounding == "tflite":  # both inputs in units of twice the larger scale, with 20 more fraction bits
            return signed_bits(255 << 20)
        return signed_bits(255 * sum(scale_ratio(tensor, self.ofm) for tensor in self.inputs))

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.rounding == "tflite":
            ratio = max(scale_ratio(tensor, self.ofm) for tensor in self.inputs)
            if 2 * ratio >= 1 << 20:
                yield "an input's scale is less than 2^19 of the output's, as TFLite's rounding asks", f"{ratio:g}"


@dataclass(frozen=True, eq=False)
class Mul(BasePairwise):
    """Element-wise quantized multiplication."""

    kind: ClassVar[str] = "mul"

    @property
    def sum_bits(self) -> int:
        """Bits, with the sign, of the largest product, before and after it is scaled to the output."""
        if self.ifm2.quantization is None:
            return 0
        ratio = scale_ratio(self.ifm, self.ofm) * self.ifm2.quantization.scale[0]
        return _scaled_bits(255.0**2, ratio, self.rounding)


@dataclass(frozen=True, eq=False)
class MatMul(BasePair):
    """Product of two activations, item by item: ofm[b] = ifm[b] x ifm2[b] transposed.

    ifm (B, M, 1, K), ifm2 (B, N, K), ofm (B, M, 1, N): the rows of the product are rows of its tensors. The int32
    sums are requantized from `accumulator`, as those of a `BaseWeighted`.
    """

    kind: ClassVar[str] = "matmul"

    accumulator: Quantization
    act_min: int = -128
    act_max: int = 127

    @property
    def macs(self) -> int:
        return self.ofm.elements * self.ifm.shape[-1]

    @property
    def sum_bits(self) -> int:
        """Bits, with the sign, of the largest sum of products, before and after it is scaled to the output."""
        if self.ofm.quantization is None:
            return 0
        ratio = self.accumulator.scale[0] / self.ofm.quantization.scale[0]
        return _scaled_bits(self.ifm.shape[-1] * 255.0**2, ratio, self.rounding)

    def problems(self) -> Iterator[Problem]:
        one, other, product = self.ifm.shape, self.ifm2.shape, self.ofm.shape
        if len(one) != 4 or len(other) != 3 or one[2] != 1 or product != (*one[:3], *other[1:2]):
            yield "a product is B x M x 1 x K and B x N x K to B x M x 1 x N", f"{one} and {other} to {product}"
        elif (one[0], one[3]) != (other[0], other[2]):
            yield "both operands have as many items and columns", f"{one} and {other}"
        yield from super().problems()
        first, second = self.ifm.quantization, self.ifm2.quantization
        if first is None or second is None or self.rounding != "tflite":
            return
        if not math.isclose(self.accumulator.scale[0], first.scale[0] * second.scale[0], rel_tol=1e-5):
            rule = "requantize's scale is the product of the inputs', as TFLite's rounding asks"
            yield rule, f"{self.accumulator.scale[0]:g} for {first.scale[0] * second.scale[0]:g}"


PoolMode = Literal["avg", "max", "sum"]
"""What a `Pool2d` computes of a window."""


@dataclass(frozen=True, eq=False)
class Pool2d(BaseLayer):
    """Average, maximum or sum over a window. ifm (1, H, W, C), ofm (1, OH, OW, C).

    An average is the sum divided by the number of window elements (those inside the input, or all
    of them with `count_include_pad`), truncated towards zero; with TFLite's rounding it is rounded to
    the nearest integer, halves away from zero. With `rescaled` the average is then requantized from
    ifm's quantization to ofm's; with TFLite's rounding, or `in_one`, the division is part of that scale, and nothing
    is rounded before. A sum is requantized as well: less ifm's zero point, once, as TVM's requantize does.
    """

    kind: ClassVar[str] = "pool2d"

    mode: PoolMode = "avg"
    kernel: Pair = (1, 1)
    strides: Pair = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    count_include_pad: bool = False
    rescaled: bool = False
    in_one: bool = False
    act_min: int = -128
    act_max: int = 127

    @property
    def scales_sum(self) -> bool:
        """Whether the array scales the sum of a window: for sums, and for means whose scale divides."""
        return self.mode == "sum" or (self.rescaled and (self.in_one or self.rounding == "tflite"))

    @property
    def divisor(self) -> int:
        """What the scale of a sum divides by: the elements of the window for a mean, else 1."""
        return self.kernel[0] * self.kernel[1] if self.scales_sum and self.mode == "avg" else 1

    @property
    def sum_bits(self) -> int:
        """Bits, with the sign, of the largest sum of a window, and of what is scaled of it."""
        count = self.kernel[0] * self.kernel[1]
        window = 128 * count
        if self.mode == "sum" and self.rescaled:
            return _scaled_bits(window + 128, scale_ratio(self.ifm, self.ofm), self.rounding)
        if self.scales_sum and self.in_one:
            return _scaled_bits(255 * count, scale_ratio(self.ifm, self.ofm) / count, self.rounding)
        if self.scales_sum:
            shifted = scale_ratio(self.ifm, self.ofm) / 2 ** (count.bit_length() - 1)
            return _scaled_bits(255 * count, shifted, self.rounding)
        return signed_bits(max(window, 255 * scale_ratio(self.ifm, self.ofm)) if self.rescaled else window)

    def problems(self) -> Iterator[Problem]:
        yield from _window_problems(self.ifm, self.ofm, self.kernel, self.strides, self.padding, self.dilation)
        if self.ifm.shape[3] != self.ofm.shape[3]:
            yield "input and output have the same channels", f"{self.ifm.shape[3]} and {self.ofm.shape[3]}"
        if self.mode == "max" and self.rescaled:
            yield "a maximum keeps its input's quantization", "rescaled"
        if self.mode == "sum" and not self.rescaled:
            yield "a sum is requantized", "not rescaled"
        if self.rescaled and self.scales_sum and any(self.padding):
            yield "a sum or mean has no padding", str(self.padding)
        if self.rescaled and None in (self.ifm.quantization, self.ofm.quantization):
            yield "a rescaled average or sum has quantized input and output", "no scale"


@dataclass(frozen=True, eq=False)
class Softmax(BaseLayer):
    """Softmax over the last dimension, in TFLite's fixed point: output scale 1/256, zero point -128.

    `beta` multiplies the input's scale. There is no upward form: TVM computes in floating point.
    """

    kind: ClassVar[str] = "softmax"

    beta: float = 1.0

    @property
    def rows(self) -> int:
        """The number of vectors, each of which is normalized by itself."""
        return self.ifm.elements // self.ifm.shape[-1]

    def problems(self) -> Iterator[Problem]:
        if self.ifm.shape != self.ofm.shape:
            yield "input and output have one shape", f"{self.ifm.shape} and {self.ofm.shape}"
        if self.ifm.shape[-1] > _SOFTMAX_CHANNELS:
            yield f"at most {_SOFTMAX_CHANNELS} values are summed", str(self.ifm.shape[-1])
        if self.rounding != "tflite":
            yield "softmax follows TFLite's rounding", self.rounding
        if self.ifm.quantization is None or self.ofm.quantization is None:
            yield "input and output are quantized", "no scale"
            return
        if self.beta * self.ifm.quantization.scale[0] <= _SOFTMAX_SCALE:
            yield f"the input's scale is more than {_SOFTMAX_SCALE:g}", f"{self.ifm.quantization.scale[0]:g}"
        ofm = self.ofm.quantization.scale[0], self.ofm.quantization.zero_point[0]
        if ofm != (1 / 256, -128):
            yield "the output's scale is 1/256 and its zero point -128", f"{ofm[0]:g} and {ofm[1]}"


_SOFTMAX_SCALE = 2.0**-26
"""The unit of TFLite's fixed point for differences; `beta` times the input scale is larger."""

_SOFTMAX_CHANNELS = 4095
"""The most exponentials of up to 1 that TFLite's sum can hold: it has 12 integer bits."""


@dataclass(frozen=True, eq=False)
class Lookup(BaseLayer):
    """Any function of one 8-bit value: every output is an entry of a table.

    `tables` has the output's byte for each byte of the input, uint8: shape (1, 256), or (C, 256) with a table
    for each index of the last dimension. Input and output are int8 or uint8.
    """

    kind: ClassVar[str] = "lookup"

    tables: Array

    @property
    def by_channel(self) -> bool:
        """Whether channels have tables of their own."""
        return len(self.tables) > 1

    def problems(self) -> Iterator[Problem]:
        if self.ifm.shape != self.ofm.shape:
            yield "input and output have one shape", f"{self.ifm.shape} and {self.ofm.shape}"
        allowed = [(1, 256), (self.ofm.shape[-1] if self.ofm.shape else 1, 256)]
        if self.tables.shape not in allowed or self.tables.dtype != np.uint8:
            rule = "one table of 256 bytes, or one for each channel"
            yield rule, f"{self.tables.dtype} of shape {self.tables.shape}"


@dataclass(frozen=True, eq=False)
class Reshape(BaseLayer):
    """The same bytes under another shape, without a copy."""

    kind: ClassVar[str] = "reshape"

    def problems(self) -> Iterator[Problem]:
        if self.ifm.elements != self.ofm.elements:
            yield "input and output have as many elements", f"{self.ifm.shape} and {self.ofm.shape}"


@dataclass(frozen=True, eq=False)
class Transpose(BaseLayer):
    """Reordered dimensions: `ofm.shape[i] == ifm.shape[axes[i]]`. A layout change at the border of a region."""

    kind: ClassVar[str] = "transpose"

    axes: tuple[int, ...] = ()

    def problems(self) -> Iterator[Problem]:
        if sorted(self.axes) != list(range(len(self.ifm.shape))):
            yield f"axes permute the {len(self.ifm.shape)} dimensions of the input", str(self.axes)
        elif self.ofm.shape != tuple(self.ifm.shape[axis] for axis in self.axes):
            yield f"axes turn {self.ifm.shape} into {self.ofm.shape}", str(self.axes)


@dataclass(frozen=True, eq=False)
class Concat(BaseLayer):
    """`ifm` and `others`, one behind the other along dimension `axis`. Bytes are only moved: scales do not matter."""

    kind: ClassVar[str] = "concat"

    others: tuple[Tensor, ...] = ()
    axis: int = 0

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.ifm, *self.others)

    def on(self, inputs: Sequence[Tensor], ofm: Tensor) -> Self:
        return replace(self, ifm=inputs[0], others=tuple(inputs[1:]), ofm=ofm)

    def problems(self) -> Iterator[Problem]:
        rank = len(self.ofm.shape)
        if not 0 <= self.axis < rank:
            yield f"axis is one of the output's {rank} dimensions", str(self.axis)
            return
        joined = sum(tensor.shape[self.axis] for tensor in self.inputs if len(tensor.shape) == rank)
        for shape in (tensor.shape for tensor in self.inputs):
            whole = (*shape[: self.axis], joined, *shape[self.axis + 1 :])
            if len(shape) != rank or whole != self.ofm.shape:
                yield f"inputs make up the output {self.ofm.shape} along axis {self.axis}", str(shape)
                return


@dataclass(frozen=True, eq=False)
class Slice(BaseLayer):
    """By dimension: every `steps`-th index of the input from `begin` on, as many as the output has."""

    kind: ClassVar[str] = "slice"

    begin: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    def problems(self) -> Iterator[Problem]:
        ranks = {len(self.ifm.shape), len(self.ofm.shape), len(self.begin), len(self.steps)}
        if len(ranks) != 1:
            yield "begin and steps are given for each dimension", f"{self.begin} and {self.steps}"
        elif min(self.steps, default=1) < 1:
            yield "steps are at least 1", str(self.steps)
        elif any(
            first < 0 or first + (count - 1) * step >= extent
            for first, count, step, extent in zip(self.begin, self.ofm.shape, self.steps, self.ifm.shape, strict=True)
        ):
            yield f"the slice lies in the input {self.ifm.shape}", f"{self.ofm.shape} from {self.begin} on"


@dataclass(frozen=True, eq=False)
class Pad(BaseLayer):
    """The input with `value` around it: by dimension as many `before` as the output leaves room for behind them."""

    kind: ClassVar[str] = "pad"

    before: tuple[int, ...] = ()
    value: int = 0

    def problems(self) -> Iterator[Problem]:
        if len({len(self.ifm.shape), len(self.ofm.shape), len(self.before)}) != 1:
            yield "padding is given for each dimension", str(self.before)
        elif any(
            first < 0 or first + inner > outer
            for first, inner, outer in zip(self.before, self.ifm.shape, self.ofm.shape, strict=True)
        ):
            yield f"the input {self.ifm.shape} lies in the output {self.ofm.shape}", f"from {self.before} on"
        if not -128 <= self.value <= 127:
            yield "the value around it is from -128 to 127", str(self.value)


@dataclass(frozen=True, eq=False)
class Resize(BaseLayer):
    """Rows and columns repeated or left out. ifm (1, H, W, C), ofm (1, OH, OW, C).

    `rows` has the input row of each output row, `columns` the input column of each output column; `tflite` says
    that TFLite chooses the same ones.
    """

    kind: ClassVar[str] = "resize"

    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    tflite: bool = True

    def problems(self) -> Iterator[Problem]:
        if self.rounding == "tflite" and not self.tflite:
            yield "TFLite chooses the same rows and columns as TVM", "others"
        if len(self.ifm.shape) != 4 or len(self.ofm.shape) != 4:
            yield "input and output are 4-D", f"{self.ifm.shape} and {self.ofm.shape}"
            return
        (batch, height, width, channels) = self.ifm.shape
        if self.ofm.shape != (batch, len(self.rows), len(self.columns), channels):
            yield "output has a row and a column for each that is read", f"{self.ofm.shape}"
        for indices, extent in ((self.rows, height), (self.columns, width)):
            if any(not 0 <= index < extent for index in indices):
                yield f"indices are from 0 to {extent - 1}", f"{min(indices)} to {max(indices)}"


@dataclass(frozen=True, eq=False)
class Ordering(BaseLayer):
    """The places, int32, of the first elements of each row of the input along dimension `axis`, in their order.

    Equal elements are in the order of their places. The output is as long as there are places wanted, in the other
    dimensions as the input. Elements are float32, a NaN beyond the infinity of its sign, or whole numbers.
    """

    kind: ClassVar[str] = "order"

    axis: int = 0
    descending: bool = False

    def problems(self) -> Iterator[Problem]:
        rank = len(self.ifm.shape)
        if not 0 <= self.axis < rank:
            yield f"axis is one of the input's {rank} dimensions", str(self.axis)
        elif not _one_axis_differs(self.ifm, self.ofm, self.axis) or self.ofm.shape[self.axis] > self.extent:
            yield f"places are at most those of the input {self.ifm.shape} along axis {self.axis}", str(self.ofm.shape)
        if self.ofm.dtype != "int32":
            yield "places are int32", self.ofm.dtype

    @property
    def extent(self) -> int:
        """The elements of a row."""
        return self.ifm.shape[self.axis]

    @property
    def rows(self) -> int:
        """The number of rows, each of which is ordered by itself."""
        return self.ifm.elements // self.extent


@dataclass(frozen=True, eq=False)
class Gather(BaseLayer):
    """Elements of `ifm` along dimension `axis`: those at `places`, int32, which has the shape of the output.

    A place below 0 counts as the first element, one behind the last as the last.
    """

    kind: ClassVar[str] = "gather"

    places: Tensor
    axis: int = 0

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.ifm, self.places)

    def on(self, inputs: Sequence[Tensor], ofm: Tensor) -> Self:
        ifm, places = inputs
        return replace(self, ifm=ifm, places=places, ofm=ofm)

    def problems(self) -> Iterator[Problem]:
        rank = len(self.ifm.shape)
        if not 0 <= self.axis < rank:
            yield f"axis is one of the input's {rank} dimensions", str(self.axis)
        elif self.places.shape != self.ofm.shape or not _one_axis_differs(self.ifm, self.ofm, self.axis):
            rule = f"places and output are as the input {self.ifm.shape} in all dimensions but axis {self.axis}"
            yield rule, f"{self.places.shape} to {self.ofm.shape}"
        if self.places.dtype != "int32" or self.ifm.dtype != self.ofm.dtype:
            yield "places are int32, and the output is of the input's type", f"{self.places.dtype}, {self.ofm.dtype}"


def _one_axis_differs(ifm: Tensor, ofm: Tensor, axis: int) -> bool:
    one, other = ([*tensor.shape[:axis], *tensor.shape[axis + 1 :]] for tensor in (ifm, ofm))
    return len(ifm.shape) == len(ofm.shape) and one == other


@dataclass(frozen=True, eq=False)
class Suppression(BaseLayer):
    """Non-maximum suppression of boxes, as Relay's operator has it. ifm (B, N, V), valid_count (B,), ofm as ifm; with
    `indices`, int32 (B, N), ofm is int32 (B, N): what indices has for each box that is kept, in their order, then -1.

    In each batch the first `valid_count` of N boxes are there. Of the V values of a box four from `coord_start` are
    corners, `score_index` is the score, and boxes with different values at `id_index`, unless that is -1 or with
    `force_suppress`, do not concern one another. `top_k` boxes are looked at, `most` are kept: all, if that is not
    positive, or negative. What is not kept is -1; with `invalid_to_bottom` it lies behind what is.
    """

    kind: ClassVar[str] = "suppression"

    valid_count: Tensor
    indices: Tensor | None = None
    most: int = -1
    threshold: float = 0.5
    top_k: int = -1
    coord_start: int = 2
    score_index: int = 1
    id_index: int = 0
    force_suppress: bool = False
    invalid_to_bottom: bool = False

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.ifm, self.valid_count, *([] if self.indices is None else [self.indices]))

    def on(self, inputs: Sequence[Tensor], ofm: Tensor) -> Self:
        ifm, valid_count, *indices = inputs
        return replace(self, ifm=ifm, valid_count=valid_count, indices=indices[0] if indices else None, ofm=ofm)

    @property
    def seen_and_kept(self) -> Pair:
        """The most boxes of a batch that are looked at, and that are kept."""
        boxes = self.ifm.shape[1]
        seen = min(self.top_k, boxes) if self.top_k > 0 else boxes
        return seen, min(self.most, seen) if self.most >= 0 else seen

    def problems(self) -> Iterator[Problem]:
        if len(self.ifm.shape) != 3 or self.ofm.shape != self.ifm.shape[: 3 if self.indices is None else 2]:
            yield "boxes are B x N x V, and the output as they are, or B x N", f"{self.ifm.shape} and {self.ofm.shape}"
            return
        batches, boxes, values = self.ifm.shape
        if self.valid_count.shape != (batches,):
            yield f"a number of boxes for each of {batches} batches", str(self.valid_count.shape)
        if self.indices is not None and self.indices.shape != (batches, boxes):
            yield f"an index for each of {batches} x {boxes} boxes", str(self.indices.shape)
        whole = self.inputs[1:] if self.indices is None else (*self.inputs[1:], self.ofm)
        types = [self.ifm.dtype, *(tensor.dtype for tensor in whole)]
        if types != ["float32"] + ["int32"] * len(whole):
            yield "boxes are float32, numbers and indices int32", ", ".join(types)
        places = {
            "coord_start": (self.coord_start, 0, values - 4),
            "score_index": (self.score_index, 0, values - 1),
            "id_index": (self.id_index, -1, values - 1),
        }
        for name, (value, low, high) in places.items():
            if not low <= value <= high:
                yield f"{name} is from {low} to {high}, with {values} values a box", str(value)


def _scaled_bits(bound: Array | float, ratio: Array | float, rounding: Rounding) -> int:
    """Bits, with the sign, of values within +-bound, before and after they are scaled by a ratio."""
    # TFLite shifts left in 32 bits, by the power of two above the ratio, before it multiplies.
    grown = bound * (ratio if rounding == "upward" else 2.0 ** np.frexp(ratio)[1])
    return signed_bits(float(max(np.max(bound), np.max(grown))))


Convolution = Conv2d | DepthwiseConv2d
Weighted = Convolution | Dense
"""The layers with weights."""

Moving = Reshape | Transpose | Concat | Slice | Pad | Resize
"""The layers without jobs: they only move bytes."""

Tiled = Conv2d | DepthwiseConv2d | Dense | Add | Mul | MatMul | Pool2d | Softmax | Lookup | Moving
"""The layers that run on tiles in local memory, or are moved through it."""

Whole = Ordering | Gather | Suppression
"""The layers without tiles: an accelerator takes each as a whole, from main memory to main memory."""

Layer = Tiled | Whole
"""A layer of any kind. CONTRIBUTING.md lists the steps to add a kind."""

LAYER_KINDS: dict[str, type[Layer]] = {cls.kind: cls for cls in get_args(Layer)}
"""Every layer kind by its name."""


def output_extent(size: int, before: int, after: int, kernel: int, stride: int, dilation: int = 1) -> int:
    """Output rows (or columns) of a sliding window over `size` rows padded by `before` and `after`."""
    return (size + before + after - ((kernel - 1) * dilation + 1)) // stride + 1


def _window_problems(
    ifm: Tensor, ofm: Tensor, kernel: Pair, strides: Pair, padding: Padding, dilation: Pair
) -> Iterator[Problem]:
    if len(ifm.shape) != 4 or len(ofm.shape) != 4:
        yield "input and output are 4-D", f"{ifm.shape} and {ofm.shape}"
        return
    top, left, bottom, right = padding
    rows = output_extent(ifm.shape[1], top, bottom, kernel[0], strides[0], dilation[0])
    columns = output_extent(ifm.shape[2], left, right, kernel[1], strides[1], dilation[1])
    if (rows, columns) != ofm.shape[1:3]:
        yield f"output height and width are {rows} x {columns}", f"{ofm.shape[1]} x {ofm.shape[2]}"


@dataclass(frozen=True, eq=False)
class Graph:
    """One region: layers in execution order between `inputs` and `outputs`.

    `name` is the C symbol of the region. A tensor may be used by several layers and be an output
    as well; an input may also be an output.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    layers: tuple[Layer, ...]

    @classmethod
    def of_layer(cls, layer: Layer) -> Graph:
        """A layer by itself, from main memory to main memory."""
        inputs = dict.fromkeys(tensor for tensor in layer.inputs if tensor.data is None)
        return cls(layer.name, tuple(inputs), (layer.ofm,), (layer,))

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All activations: inputs, constants that layers read as activations, and layer outputs, in order."""
        ordered: dict[int, Tensor] = {id(tensor): tensor for tensor in self.inputs}
        for layer in self.layers:
            for tensor in (*layer.inputs, layer.ofm):
                ordered.setdefault(id(tensor), tensor)
        return tuple(ordered.values())

    @cached_property
    def made(self) -> dict[Tensor, int]:
        """What the layers make, with the index of the layer."""
        return {layer.ofm: index for index, layer in enumerate(self.layers)}

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.layers)} layers>"

    def __str__(self) -> str:
        return graph_text(self)

    def verify(self) -> None:
        """Raise `GraphError` with the layer and the rule that it breaks."""
        known = {id(tensor) for tensor in self.inputs}
        for layer in self.layers:
            for tensor in layer.inputs:
                if tensor.data is None and id(tensor) not in known:
                    raise GraphError(f"{self.name}: {layer.name}: reads {tensor.name}, which nothing before it writes")
            if id(layer.ofm) in known:
                raise GraphError(f"{self.name}: {layer.name}: writes {layer.ofm.name}, which is already written")
            known.add(id(layer.ofm))
            for rule, found in chain(layer.unsound(), layer.problems()):
                raise GraphError(f"{self.name}: {layer.name}: {rule}: got {found}")
        for tensor in self.outputs:
            if id(tensor) not in known:
                raise GraphError(f"{self.name}: output {tensor.name} is written by no layer")
