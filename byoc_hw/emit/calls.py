"""Layer descriptors: the only code in `emit/` that depends on the layer kind."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from typing_extensions import assert_never

from byoc_hw.emit import c
from byoc_hw.graph import (
    Add,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Layer,
    Lookup,
    MatMul,
    Mul,
    Pad,
    Pool2d,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Tiled,
    Transpose,
    Weighted,
)
from byoc_hw.params.requantize import (
    Scale,
    add_scales,
    add_sum_scale,
    matmul_scale,
    mul_scale,
    pool_offset,
    pool_scale,
    pool_zero_points,
    softmax_scale,
    subtrahend_number,
    zero_point,
)
from byoc_hw.plan.steps import ARGUMENT, Address
from byoc_hw.tensor import Padding, Pair, Tensor

Value = str | Mapping[str, str]
Fields = dict[str, Value]

_SPACES = (
    "HWLIB_SPACE_ACTIVATIONS",
    "HWLIB_SPACE_WEIGHTS",
    "HWLIB_SPACE_FLASH",
    "HWLIB_SPACE_SCRATCH",
    "HWLIB_SPACE_ARGUMENT",
)

# ---------------------------------------------------------------- descriptors


def layer_head(layer: Layer, number: int) -> dict[str, str]:
    """The fields that every descriptor starts with; `number` is the layer's in the model."""
    rounding = f"HWLIB_ROUND_{layer.rounding.upper()}"
    return {"id": str(number), "kind": f"HWLIB_{layer.kind.upper()}", "rounding": rounding}


def _shape(tensor: Tensor) -> Value:
    """Height, width and channels of a tensor of any rank, as `hwlib_hal.h` has them: further dimensions are height,
    and pixels of a tensor without rows are one row."""
    *rows, width, channels = (1, 1, *tensor.shape)
    return {"height": str(prod(rows)), "width": str(width), "channels": str(channels)}


def _pair(name: str, values: Pair) -> Fields:
    return {f"{name}_h": str(values[0]), f"{name}_w": str(values[1])}


def _padding(values: Padding) -> Fields:
    return {f"pad_{side}": str(value) for side, value in zip(("top", "left", "bottom", "right"), values, strict=True)}


def _scale(scale: Scale) -> Value:
    return {"multiplier": str(scale.multiplier), "left": str(scale.left), "right": str(scale.right)}


def _clamp(layer: Any) -> Fields:
    return {"act_min": str(layer.act_min), "act_max": str(layer.act_max)}


def _weighted(layer: Weighted, strides: Pair, padding: Padding, dilation: Pair) -> Fields:
    return {
        "ifm": _shape(layer.ifm),
        "ofm": _shape(layer.ofm),
        **_pair("kernel", layer.filter),
        **_pair("stride", strides),
        **_pair("dilation", dilation),
        **_padding(padding),
        "weight_bits": str(layer.weights.bits),
        "ifm_zero_point": str(zero_point(layer, layer.ifm)),
        "weight_zero_point": str(zero_point(layer, layer.weights)),
        "ofm_zero_point": str(zero_point(layer, layer.ofm)),
        **_clamp(layer),
    }


def _add(layer: Add) -> Fields:
    first, second = add_scales(layer)
    return {
        "shape": _shape(layer.ofm),
        "ifm_scale": _scale(first),
        "ifm2_scale": _scale(second),
        "sum_scale": _scale(add_sum_scale(layer)),
        "ifm_zero_point": str(zero_point(layer, layer.ifm)),
        "ifm2_zero_point": str(zero_point(layer, layer.ifm2)),
        "ofm_zero_point": str(zero_point(layer, layer.ofm)),
        **_clamp(layer),
        "subtract": str(subtrahend_number(layer)),
        **_broadcast(layer),
    }


def _mul(layer: Mul) -> Fields:
    return {
        "shape": _shape(layer.ofm),
        "scale": _scale(mul_scale(layer)),
        "ifm_zero_point": str(zero_point(layer, layer.ifm)),
        "ifm2_zero_point": str(zero_point(layer, layer.ifm2)),
        "ofm_zero_point": str(zero_point(layer, layer.ofm)),
        **_clamp(layer),
        **_broadcast(layer),
    }


def _broadcast(layer: Add | Mul) -> Fields:
    return {"broadcast": "1"} if layer.broadcast else {}


def _pool2d(layer: Pool2d) -> Fields:
    before, after = pool_zero_points(layer)
    return {
        "ifm": _shape(layer.ifm),
        "ofm": _shape(layer.ofm),
        **_pair("kernel", layer.kernel),
        **_pair("stride", layer.strides),
        **_padding(layer.padding),
        "mode": f"HWLIB_POOL_{'SUM' if layer.scales_sum else layer.mode.upper()}",
        "count_include_pad": str(int(layer.count_include_pad)),
        "ifm_zero_point": str(before),
        "ofm_zero_point": str(after),
        "scale": _scale(pool_scale(layer)),
        **_clamp(layer),
        **({"offset": str(pool_offset(layer))} if layer.scales_sum else {}),
    }


def _matmul(layer: MatMul) -> Fields:
    return {
        "ifm": _shape(layer.ifm),
        "ifm2": _shape(layer.ifm2),
        "ofm": _shape(layer.ofm),
        "scale": _scale(matmul_scale(layer)),
        "ifm_zero_point": str(zero_point(layer, layer.ifm)),
        "ifm2_zero_point": str(zero_point(layer, layer.ifm2)),
        "ofm_zero_point": str(zero_point(layer, layer.ofm)),
        **_clamp(layer),
    }


def _softmax(layer: Softmax) -> Fields:
    scale, least = softmax_scale(layer)
    return {"shape": _shape(layer.ofm), "scale": _scale(scale), "diff_min": str(least)}


def _lookup(name: str, layer: Lookup) -> Fields:
    return {"shape": _shape(layer.ofm), "tables": _tables_name(name), "by_channel": str(int(layer.by_channel))}


def _tables_name(name: str) -> str:
    return f"{name}_tables"


def _descriptor(name: str, layer: Tiled) -> tuple[str, Fields]:
    """The type of a layer's descriptor, and its fields after the common head."""
    match layer:
        case Conv2d() | DepthwiseConv2d():
            return "hwlib_conv2d_t", _weighted(layer, layer.strides, layer.padding, layer.dilation)
        case Dense():
            return "hwlib_conv2d_t", _weighted(layer, (1, 1), (0, 0, 0, 0), (1, 1))
        case Add():
            return "hwlib_add_t", _add(layer)
        case Mul():
            return "hwlib_mul_t", _mul(layer)
        case Pool2d():
            return "hwlib_pool2d_t", _pool2d(layer)
        case MatMul():
            return "hwlib_matmul_t", _matmul(layer)
        case Softmax():
            return "hwlib_softmax_t", _softmax(layer)
        case Lookup():
            return "hwlib_lookup_t", _lookup(name, layer)
        case Reshape() | Transpose() | Concat() | Slice() | Pad() | Resize():
            return "hwlib_layer_t", {}
        case _:
            assert_never(layer)


def descriptor_fields(name: str, layer: Tiled, layer_id: int) -> tuple[str, str, list[str]]:
    """The tables that the descriptor of a layer points to, its C type, and the lines of its fields."""
    c_type, own = _descriptor(name, layer)
    head = layer_head(layer, layer_id)
    values: Mapping[str, Value] = {"layer": head, **own} if own else head
    tables = c.array(_tables_name(name), layer.tables) if isinstance(layer, Lookup) else ""
    return tables, c_type, list(c.fields(values))


def descriptor(name: str, layer: Tiled, layer_id: int) -> str:
    """The `static const` descriptor of a layer, after the tables that it points to."""
    tables, c_type, fields = descriptor_fields(name, layer, layer_id)
    text = "\n".join([f"static const {c_type} {name} = {{", *fields, "};\n"])
    return f"{tables}\n{text}" if tables else text


def address(place: Address) -> str:
    """The initialiser of a `hwlib_address_t`."""
    return f"{{{space(place.space)}, {place.offset}}}"


def space(number: int) -> str:
    """The name of an address space; the region's arguments are numbered after the last one."""
    return _SPACES[number] if number <= ARGUMENT else f"{_SPACES[ARGUMENT]} + {number - ARGUMENT}"
