"""Random operators that a form of a pattern matches: its calls, with shapes, attributes and constants at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay import dataflow_pattern as dfp

from byoc_hw.authoring.knobs import Knobs
from byoc_hw.authoring.testing import const
from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.match import pattern_operator
from byoc_hw.tensor import Array

Dimensions = tuple[int, ...]
Attributes = dict[str, Any]


@dataclass
class Maker:
    """Makes one operator.

    `magnitude` is about the largest value of the last sum, `axis` where its channels lie; `filling` is what a pad fills
    with, None for any value, and `layout` the letters of what it pads. `used` are the knobs that the operator has.
    """

    rng: np.random.Generator
    knobs: Knobs
    depthwise: bool = False
    magnitude: float = 128
    axis: int = -1
    filling: float | None = None
    layout: str = ""
    made: int = 0
    used: set[str] = field(default_factory=set)

    def knob(self, name: str) -> Any:
        """The value of a knob, which the operator then has."""
        self.used.add(name)
        return getattr(self.knobs, name)

    # ------------------------------------------------ values

    def one_of(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def scale(self) -> float:
        return float(np.float32(self.rng.uniform(0.02, 0.2)))

    def zero_point(self) -> relay.Constant:
        point = self.knob("zero_point")
        return const(self.one_of(-128, 0, 127, self.between(-128, 127)) if point is None else point, "int32")

    def quantization(self) -> tuple[relay.Constant, relay.Constant]:
        return const(self.scale(), "float32"), self.zero_point()

    def weights(self, shape: Dimensions) -> relay.Constant:
        """Weights that need as many bits as the knobs say."""
        if self.knob("weight_dtype") != "int8":
            return const(self.rng.integers(0, 100, shape), self.knob("weight_dtype"))
        if self.knob("sums") != "small":
            return const(np.full(shape, -128), "int8")
        end = 1 << (min(self.knob("weight_bits"), 8) - 1)
        values: Array = self.rng.integers(-end, end, shape)
        values.flat[0] = -end
        return const(values, "int8")

    def shape(self, rank: int | None = None) -> Dimensions:
        """Of an activation: NHWC, or fewer dimensions."""
        rank = self.one_of(4, 4, 2) if rank is None else rank
        inner = tuple(self.between(1, 9) for _ in range(rank - 2))
        channels = self.one_of(2, 3, 8, 16, 17)
        return (self.knob("batch"), *inner, channels) if rank > 1 else (self.between(1, 300),)

    # ------------------------------------------------ expressions

    def expr(
        self,
        pattern: dfp.DFPattern,
        shape: Dimensions = (),
        dtype: str | None = None,
        attributes: Attributes | None = None,
    ) -> relay.Expr:
        """What a pattern matches: an input of this shape, of any one without, or a call over such an input."""
        if isinstance(pattern, dfp.AltPattern):
            return self.expr(self.one_of(pattern.left, pattern.right), shape, dtype, attributes)
        if isinstance(pattern, dfp.AttrPattern):
            asked = {name: _plain(value) for name, value in pattern.attrs.items()}
            return self.expr(pattern.pattern, shape, dtype, (attributes or {}) | asked)
        if isinstance(pattern, dfp.DataTypePattern):
            return self.expr(pattern.pattern, shape, str(pattern.dtype), attributes)
        if isinstance(pattern, dfp.TupleGetItemPattern):
            return relay.TupleGetItem(
                self.expr(pattern.tuple, shape, dtype, {"return_indices": True}), max(pattern.index, 0)
            )
        if isinstance(pattern, dfp.TuplePattern):
            fields = pattern.fields or [dfp.wildcard() for _ in range(self.between(2, 4))]
            return relay.Tuple([self.expr(one, shape, dtype) for one in fields])
        if isinstance(pattern, dfp.CallPattern):
            return self._call(pattern, shape, attributes or {})
        if isinstance(pattern, dfp.ConstantPattern):
            return const(self.rng.integers(-100, 100, shape), dtype or self.knob("dtype"))
        self.made += 1
        return relay.var(f"x{self.made}", shape=shape or self.shape(), dtype=dtype or self.knob("dtype"))

    def _call(self, pattern: dfp.CallPattern, shape: Dimensions, attributes: Attributes) -> relay.Expr:
        name = pattern_operator(pattern)
        make = _MAKERS.get(name)
        if make is None:
            raise Unsupported(
                f"no random {name} is known: give the pattern samples of its own, register_pattern(..., samples=...)"
            )
        return make(self, list(pattern.args or ()), shape, attributes)

    def typed(self, expr: relay.Expr) -> tuple[Dimensions, str]:
        """Dimensions and type of what was made."""
        found = relay.transform.InferTypeLocal(expr)
        return tuple(int(extent) for extent in found.shape), str(found.dtype)


def _plain(value: Any) -> Any:
    return getattr(value, "value", value) if not isinstance(value, str) else str(value)


Make = Callable[[Maker, Sequence[dfp.DFPattern], Dimensions, Attributes], relay.Expr]
_MAKERS: dict[str, Make] = {}


def _makes(*names: str) -> Callable[[Make], Make]:
    def decorate(make: Make) -> Make:
        _MAKERS.update(dict.fromkeys(names, make))
        return make

    return decorate


def known_operators() -> frozenset[str]:
    """The operators that random ones can be made of."""
    return frozenset(_MAKERS)


# ---------------------------------------------------------------- windows


def _window(maker: Maker, most: int = 3) -> tuple[Dimensions, dict[str, Any]]:
    """The height and width of an input, and the attributes of a window that moves in it at least once."""
    kernel = maker.knob("kernel") or (maker.between(1, most), maker.between(1, most))
    strides = maker.knob("strides") or (maker.between(1, 2), maker.between(1, 2))
    spans = [(extent - 1) * step + 1 for extent, step in zip(kernel, maker.knob("dilation"), strict=True)]
    padding = maker.between(0, min(kernel) - 1) if maker.knob("padding") is None else maker.knob("padding")
    extents = [span + stride + maker.between(0, 3) for span, stride in zip(spans, strides, strict=True)]
    return tuple(extents), {
        "strides": strides,
        "padding": (padding,) * 4,
        "dilation": maker.knob("dilation"),
        "kernel": kernel,
    }


@_makes("qnn.conv2d")
def _conv2d(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    (height, width), window = _window(maker)
    layout = maker.one_of("NHWC", "NHWC", "NCHW")
    depthwise = maker.depthwise
    groups = 1 if depthwise else maker.knob("groups")
    channels = maker.one_of(2, 3, 8, 17) if depthwise else maker.one_of(1, 3, 16) * groups
    filters = channels * maker.knob("multiplier") if depthwise else maker.one_of(2, 8, 17) * groups
    by_letter = {"N": maker.knob("batch"), "H": height, "W": width, "C": channels}
    zero_point = maker.zero_point()
    maker.filling, maker.layout = float(zero_point.data.numpy()), layout
    ifm = maker.expr(args[0], tuple(by_letter[letter] for letter in layout))
    kernel, taken = window.pop("kernel"), {"O": filters, "I": 1 if depthwise else channels // groups}
    taken |= {"H": kernel[0], "W": kernel[1]}
    order = "OIHW" if layout == "NCHW" else "HWIO"
    if depthwise and layout == "NHWC":
        order, taken = "HWOI", taken | {"O": channels, "I": maker.knob("multiplier")}
    maker.axis = layout.index("C")
    maker.magnitude = (
        128.0 * 2 ** (maker.knob("weight_bits") - 1) * (kernel[0] * kernel[1] * (channels // groups)) ** 0.5
    )
    return relay.qnn.op.conv2d(
        ifm,
        maker.weights(tuple(taken[letter] for letter in order)),
        zero_point,
        const(0, "int32"),
        const(maker.scale(), "float32"),
        const(maker.scale(), "float32"),
        kernel_size=kernel,
        channels=filters,
        groups=channels if depthwise else groups,
        data_layout=layout,
        kernel_layout=order,
        out_dtype="int32",
        **window,
    )


def _pooled(maker: Maker, pattern: dfp.DFPattern, name: str) -> relay.Expr:
    counted = {"count_include_pad": maker.one_of(True, False)} if "avg" in name else {}
    if name.endswith("1d"):
        return getattr(relay.nn, name)(
            maker.expr(pattern, _line(maker)), layout="NWC", **_line_window(maker), **counted
        )
    (height, width), window = _window(maker)
    layout = maker.one_of("NHWC", "NHWC", "NCHW")
    by_letter = {"N": maker.knob("batch"), "H": height, "W": width, "C": maker.one_of(1, 3, 16, 17)}
    ifm = maker.expr(pattern, tuple(by_letter[letter] for letter in layout))
    return getattr(relay.nn, name)(ifm, layout=layout, pool_size=window.pop("kernel"), **window, **counted)


def _line(maker: Maker) -> Dimensions:
    return maker.between(1, 3), maker.between(8, 20), maker.one_of(1, 3, 17)


def _line_window(maker: Maker) -> dict[str, Any]:
    """A window along one dimension: limits of windows over two are not its own."""
    size = maker.between(1, 4)
    left, right = maker.between(0, size - 1), maker.between(0, size - 1)
    return {"pool_size": (size,), "strides": (maker.between(1, 2),), "padding": (left, right)}


def _registers_pools() -> None:
    for name in ("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d"):

        def make(
            maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, given: Attributes, of: str = name
        ) -> Any:
            return _pooled(maker, args[0], of)

        _MAKERS[f"nn.{name}"] = make


_registers_pools()


@_makes("nn.global_avg_pool2d")
def _global_average(
    maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes
) -> relay.Expr:
    return relay.nn.global_avg_pool2d(maker.expr(args[0], _area(maker)), layout="NHWC")


@_makes("nn.global_max_pool2d")
def _global_maximum(
    maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes
) -> relay.Expr:
    return relay.nn.global_max_pool2d(maker.expr(args[0], _area(maker)), layout="NHWC")


@_makes("mean")
def _mean(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.mean(maker.expr(args[0], _reduced(maker)), axis=(1, 2), keepdims=maker.one_of(True, False))


@_makes("max")
def _maximum(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.max(maker.expr(args[0], _reduced(maker)), axis=(1, 2), keepdims=maker.one_of(True, False))


@_makes("sum")
def _sum(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    area = _reduced(maker)
    maker.magnitude = 128.0 * prod(area[1:3])
    return relay.sum(maker.expr(args[0], area), axis=(1, 2), keepdims=maker.one_of(True, False))


def _reduced(maker: Maker) -> Dimensions:
    """As `_area`, of one item: several are rows of a reduction, and no batch."""
    height, width = maker.knob("kernel") or (maker.between(1, 9), maker.between(1, 9))
    return 1, height, width, maker.one_of(2, 3, 16, 17)


def _area(maker: Maker) -> Dimensions:
    """An input whose rows and columns are the window."""
    height, width = maker.knob("kernel") or (maker.between(1, 9), maker.between(1, 9))
    return maker.knob("batch"), height, width, maker.one_of(2, 3, 16, 17)


# ---------------------------------------------------------------- products and pairs


@_makes("qnn.dense")
def _dense(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    inputs, units = maker.one_of(3, 24, 130), maker.one_of(1, 10, 33)
    ifm = maker.expr(args[0], (maker.knob("batch"), inputs))
    computed = isinstance(args[1], dfp.WildcardPattern) and maker.one_of(True, False)
    weights = maker.expr(args[1], (units, inputs)) if computed else maker.weights((units, inputs))
    maker.magnitude, maker.axis = 128.0 * 2 ** (maker.knob("weight_bits") - 1) * inputs**0.5, -1
    point, own = (maker.zero_point() for _ in range(2)) if computed else (maker.zero_point(), const(0, "int32"))
    scales = (const(maker.scale(), "float32") for _ in range(2))
    return relay.qnn.op.dense(ifm, weights, point, own, *scales, units=units, out_dtype="int32")


@_makes("qnn.batch_matmul")
def _batch_matmul(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    items, rows, columns = (maker.between(1, 5) for _ in range(3))
    depth = {"small": maker.one_of(1, 7, 33), "large": 33000, "beyond": 33100}[maker.knob("sums")]
    if maker.knob("sums") != "small":
        items = rows = columns = 1
    one, other = maker.expr(args[0], (items, rows, depth)), maker.expr(args[1], (items, columns, depth))
    maker.magnitude = 128.0 * 64 * depth**0.5
    points, scales = (maker.zero_point() for _ in range(2)), (const(maker.scale(), "float32") for _ in range(2))
    return relay.qnn.op.batch_matmul(one, other, *points, *scales)


def _pair(maker: Maker, args: Sequence[dfp.DFPattern], operator: Callable[..., relay.Expr]) -> relay.Expr:
    shape = maker.shape()
    small = maker.one_of((1,) * (len(shape) - 1) + shape[-1:], shape[-1:], (1,))
    one = maker.expr(args[0], shape)
    other = maker.expr(args[1], small if maker.knob("broadcast") else shape)
    scales = [maker.scale() for _ in range(3)]
    if maker.knob("sums") == "beyond":
        scales[2] = 1e-9
    quantized = [(const(np.float32(scale), "float32"), maker.zero_point()) for scale in scales]
    return operator(one, other, *(value for one_of in quantized for value in one_of))


@_makes("qnn.add")
def _add(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return _pair(maker, args, relay.qnn.op.add)


@_makes("qnn.subtract")
def _subtract(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return _pair(maker, args, relay.qnn.op.subtract)


@_makes("qnn.mul")
def _mul(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return _pair(maker, args, relay.qnn.op.mul)


# ---------------------------------------------------------------- behind a sum


@_makes("nn.bias_add")
def _bias_add(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    total = maker.expr(args[0], shape)
    return relay.nn.bias_add(total, _bias(maker, total), axis=maker.axis)


@_makes("add")
def _plus(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    """A bias behind a sum of channels; else one value."""
    total = maker.expr(args[0], shape)
    extents, dtype = maker.typed(total)
    if not isinstance(total, relay.Call) or total.op.name == "cast":
        return relay.add(total, const(128, dtype))
    bias = _bias(maker, total).data.numpy()
    behind = len(extents) - 1 - maker.axis % len(extents)
    return relay.add(total, const(bias.reshape(bias.shape + (1,) * behind), dtype))


def _bias(maker: Maker, total: relay.Expr) -> relay.Constant:
    extents, dtype = maker.typed(total)
    most = 1 << 30 if maker.knob("sums") == "large" else 2000
    return const(maker.rng.integers(-most, most, extents[maker.axis], endpoint=True), dtype)


@_makes("qnn.requantize")
def _requantize(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    total = maker.expr(args[0], shape)
    operators = _operators(total)
    summed = any(name in _SUMS for name in operators)
    axis = maker.axis if any(name in _SUMS[:2] for name in operators) and maker.one_of(True, False) else None
    ratios = maker.rng.uniform(0.25, 4, 1 if axis is None else maker.typed(total)[0][axis]) * 64 / maker.magnitude
    points = (const(0, "int32") if summed else maker.zero_point()), maker.zero_point()
    if "max" in operators:  # it keeps its scale and zero point
        ratios, points = np.ones(1), (points[1], points[1])
    if maker.knob("sums") == "beyond":
        ratios = ratios / ratios * 2.0**40
    scale = maker.scale()
    return relay.qnn.op.requantize(
        total,
        const(np.squeeze(ratios * scale), "float32"),
        points[0],
        const(scale, "float32"),
        points[1],
        axis=-1 if axis is None else axis,
        out_dtype=maker.knob("dtype") if maker.knob("dtype") in ("int8", "int16", "int32") else "int8",
    )


_SUMS = ("qnn.conv2d", "qnn.dense", "qnn.batch_matmul")


def _operators(expr: relay.Expr) -> list[str]:
    found: list[str] = []
    relay.analysis.post_order_visit(
        expr, lambda one: found.append(one.op.name) if isinstance(one, relay.Call) else None
    )
    return found


@_makes("clip")
def _clip(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    low = maker.one_of(-128, maker.between(-128, 60))
    return relay.clip(maker.expr(args[0], shape), float(low), float(maker.between(low, 127)))


@_makes("nn.relu")
def _relu(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.nn.relu(maker.expr(args[0], shape))


@_makes("cast")
def _cast(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.cast(maker.expr(args[0], shape), attributes.get("dtype", "int32"))


@_makes("take")
def _take(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    table = const(maker.rng.integers(-128, 128, 256), "int8")
    return relay.take(table, maker.expr(args[1], maker.shape()), mode=maker.one_of("clip", "wrap"))


@_makes("right_shift")
def _right_shift(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    ifm = maker.expr(args[0], maker.shape())
    return relay.right_shift(ifm, const(maker.between(0, 8), maker.knob("dtype")))


# ---------------------------------------------------------------- floats between integers


@_makes("qnn.dequantize")
def _dequantize(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.qnn.op.dequantize(maker.expr(args[0], maker.shape()), *maker.quantization())


@_makes("nn.softmax")
def _softmax(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.nn.softmax(maker.expr(args[0], shape), axis=-1)


@_makes("qnn.quantize")
def _quantize(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    ends = const(1 / 256, "float32"), const(-128, "int32")
    return relay.qnn.op.quantize(maker.expr(args[0], shape), *ends, out_dtype="int8")


# ---------------------------------------------------------------- moved elements


@_makes("nn.pad")
def _pad(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    filling = maker.between(-128, 127) if maker.filling is None else maker.filling
    if maker.filling is None:
        maker.filling, shape = filling, shape or maker.shape()
        maker.layout = "".join(maker.one_of("H", "N") for _ in shape)
    inner = [
        max(1, extent - 1) if letter in "HW" else extent for extent, letter in zip(shape, maker.layout, strict=True)
    ]
    rest = [extent - smaller for extent, smaller in zip(shape, inner, strict=True)]
    widths = [maker.one_of((0, more), (more, 0)) for more in rest]
    return relay.nn.pad(maker.expr(args[0], tuple(inner)), widths, float(filling))


@_makes("contrib_reverse_reshape")
def _reverse(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    extents = maker.shape()
    return relay.reverse_reshape(maker.expr(args[0], extents), (-1, extents[-1]))


@_makes("reshape")
def _reshape(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.reshape(maker.expr(args[0], maker.shape()), (-1,))


@_makes("nn.batch_flatten")
def _flatten(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.nn.batch_flatten(maker.expr(args[0], maker.shape(4)))


@_makes("squeeze")
def _squeeze(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.squeeze(maker.expr(args[0], (1, *maker.shape(2))), axis=[0])


@_makes("expand_dims")
def _expand(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.expand_dims(maker.expr(args[0], maker.shape(2)), axis=maker.between(0, 2))


@_makes("transpose")
def _transpose(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.transpose(maker.expr(args[0], maker.shape(4)), tuple(map(int, maker.rng.permutation(4))))


@_makes("layout_transform")
def _layout(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    before, after = maker.one_of(("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NHWC", "NWHC"))
    return relay.layout_transform(maker.expr(args[0], maker.shape(4)), before, after)


@_makes("strided_slice")
def _slice(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    extents = maker.shape()
    begin = [maker.between(0, extent - 1) for extent in extents]
    end = [maker.between(first + 1, extent) for first, extent in zip(begin, extents, strict=True)]
    return relay.strided_slice(maker.expr(args[0], extents), begin, end, [maker.between(1, 2) for _ in extents])


@_makes("slice_like")
def _slice_like(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    extents = maker.shape()
    like = tuple(maker.between(1, extent) for extent in extents)
    return relay.slice_like(maker.expr(args[0], extents), const(np.zeros(like), "int8"))


@_makes("concatenate")
def _concatenate(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    extents = maker.shape()
    return relay.concatenate(maker.expr(args[0], extents), axis=maker.between(0, len(extents) - 1))


@_makes("tile")
def _tile(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    extents = maker.shape()
    times = [1] * len(extents)
    times[maker.between(0, len(extents) - 1)] = maker.between(2, 4)
    return relay.tile(maker.expr(args[0], extents), times)


@_makes("repeat")
def _repeat(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.repeat(maker.expr(args[0], maker.shape(4)), maker.between(1, 4), 1)


@_makes("image.resize2d")
def _resize(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    size = (maker.between(2, 12), maker.between(2, 12))
    coordinates, rounding = maker.one_of(("asymmetric", "floor"), ("half_pixel", "round"), ("align_corners", "round"))
    return relay.image.resize2d(
        maker.expr(args[0], maker.shape(4)), size, None, "NHWC", "nearest_neighbor", coordinates, rounding
    )


# ---------------------------------------------------------------- orders


def _ordered(maker: Maker) -> str:
    """The type of what is ordered: TVM itself orders no int8."""
    dtype: str = maker.knob("dtype")
    return maker.one_of("float32", "int32") if dtype == "int8" else dtype


@_makes("argsort")
def _argsort(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    ifm = maker.expr(args[0], maker.shape(2), _ordered(maker))
    return relay.argsort(ifm, axis=maker.between(0, 1), is_ascend=maker.one_of(True, False), dtype="int32")


@_makes("sort")
def _sort(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    return relay.sort(maker.expr(args[0], maker.shape(2), _ordered(maker)), axis=maker.between(0, 1))


@_makes("topk")
def _topk(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    ifm = maker.expr(args[0], (maker.between(1, 4), maker.between(5, 30)), _ordered(maker))
    return relay.topk(ifm, k=maker.between(1, 5), axis=1, ret_type="indices", dtype="int32")


@_makes("gather")
def _gather(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    extents = (maker.between(1, 4), maker.between(5, 30))
    ifm = maker.expr(args[0], extents)
    places = relay.clip(maker.expr(args[1], (extents[0], 3), "int32"), 0.0, float(extents[1] - 1))
    return relay.gather(ifm, 1, places)


@_makes("vision.non_max_suppression")
def _suppression(maker: Maker, args: Sequence[dfp.DFPattern], shape: Dimensions, attributes: Attributes) -> relay.Expr:
    items, boxes, places = 1, maker.between(2, 12), bool(attributes.get("return_indices"))
    found = relay.vision.non_max_suppression(
        maker.expr(args[0], (items, boxes, 6), "float32"),
        const([boxes] * items, "int32"),
        const(np.arange(items * boxes).reshape(items, boxes), "int32"),
        const(maker.between(1, boxes), "int32"),
        const(0.5, "float32"),
        top_k=-1,
        coord_start=2,
        score_index=1,
        id_index=0,
        return_indices=places,
        invalid_to_bottom=not places,
    )
    return found.astuple() if isinstance(found, relay.TupleWrapper) else found
