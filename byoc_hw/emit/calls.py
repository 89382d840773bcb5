"""Descriptors of the layers and the calls of their HWlib wrappers, one entry for each layer kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from byoc_hw.emit import c
from byoc_hw.errors import Unsupported
from byoc_hw.graph import (
    Add,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Layer,
    Padding,
    Pair,
    Pool2d,
    Reshape,
    Rounding,
    Softmax,
    Tensor,
    Transpose,
)
from byoc_hw.params.requantize import (
    Scale,
    add_scales,
    add_sum_scale,
    pool_scale,
    pool_zero_points,
    softmax_scale,
    zero_point,
)
from byoc_hw.plan.steps import ARGUMENT, Address

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


def _head(layer_id: int, kind: str, rounding: Rounding) -> dict[str, str]:
    return {"id": str(layer_id), "kind": kind, "rounding": f"HWLIB_ROUND_{rounding.upper()}"}


def _shape(tensor: Tensor) -> Value:
    """(batch, height, width, channels) or fewer dimensions, which then lack the outer ones."""
    height, width, channels = prod(tensor.shape[:-2]), *((1, *tensor.shape)[-2:])
    return {"height": str(height), "width": str(width), "channels": str(channels)}


def _pair(name: str, values: Pair) -> Fields:
    return {f"{name}_h": str(values[0]), f"{name}_w": str(values[1])}


def _padding(values: Padding) -> Fields:
    return {f"pad_{side}": str(value) for side, value in zip(("top", "left", "bottom", "right"), values, strict=True)}


def _scale(scale: Scale) -> Value:
    return {"multiplier": str(scale.multiplier), "left": str(scale.left), "right": str(scale.right)}


def _clamp(layer: Any) -> Fields:
    return {"act_min": str(layer.act_min), "act_max": str(layer.act_max)}


def _weighted(layer: Conv2d | Dense, kernel: Pair, strides: Pair, padding: Padding) -> Fields:
    return {
        "ifm": _shape(layer.ifm),
        "ofm": _shape(layer.ofm),
        **_pair("kernel", kernel),
        **_pair("stride", strides),
        **_padding(padding),
        "weight_bits": str(layer.weights.bits),
        "ifm_zero_point": str(zero_point(layer, layer.ifm)),
        "weight_zero_point": str(zero_point(layer, layer.weights)),
        "ofm_zero_point": str(zero_point(layer, layer.ofm)),
        **_clamp(layer),
    }


def _conv2d(layer: Conv2d) -> Fields:
    return _weighted(layer, layer.kernel, layer.strides, layer.padding)


def _dense(layer: Dense) -> Fields:
    return _weighted(layer, (1, 1), (1, 1), (0, 0, 0, 0))


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
    }


def _pool2d(layer: Pool2d) -> Fields:
    before, after = pool_zero_points(layer)
    return {
        "ifm": _shape(layer.ifm),
        "ofm": _shape(layer.ofm),
        **_pair("kernel", layer.kernel),
        **_pair("stride", layer.strides),
        **_padding(layer.padding),
        "mode": "HWLIB_POOL_AVG" if layer.mode == "avg" else "HWLIB_POOL_MAX",
        "count_include_pad": str(int(layer.count_include_pad)),
        "ifm_zero_point": str(before),
        "ofm_zero_point": str(after),
        "scale": _scale(pool_scale(layer)),
        **_clamp(layer),
    }


def _softmax(layer: Softmax) -> Fields:
    scale, least = softmax_scale(layer)
    return {"shape": _shape(layer.ofm), "scale": _scale(scale), "diff_min": str(least)}


def _bare(layer: Layer) -> Fields:
    return {}


# ---------------------------------------------------------------- calls


@dataclass(frozen=True)
class Wrapper:
    """How a layer kind reaches HWlib: the wrapper, its descriptor's type, kind and fields."""

    function: str
    type: str
    kind: str
    fields: Callable[[Any], Fields]


WRAPPERS: Mapping[str, Wrapper] = {
    Conv2d.kind: Wrapper("hwlib_conv2d", "hwlib_conv2d_t", "HWLIB_CONV2D", _conv2d),
    DepthwiseConv2d.kind: Wrapper("hwlib_depthwise_conv2d", "hwlib_conv2d_t", "HWLIB_DEPTHWISE_CONV2D", _conv2d),
    Dense.kind: Wrapper("hwlib_dense", "hwlib_conv2d_t", "HWLIB_DENSE", _dense),
    Add.kind: Wrapper("hwlib_add", "hwlib_add_t", "HWLIB_ADD", _add),
    Pool2d.kind: Wrapper("hwlib_pool2d", "hwlib_pool2d_t", "HWLIB_POOL2D", _pool2d),
    Softmax.kind: Wrapper("hwlib_softmax", "hwlib_softmax_t", "HWLIB_SOFTMAX", _softmax),
    Reshape.kind: Wrapper("hwlib_reshape", "hwlib_layer_t", "HWLIB_RESHAPE", _bare),
    Transpose.kind: Wrapper("hwlib_transpose", "hwlib_layer_t", "HWLIB_TRANSPOSE", _bare),
}


def wrapper(layer: Layer) -> Wrapper:
    """The wrapper of the layer's kind; `Unsupported` where HWlib has none."""
    if layer.kind not in WRAPPERS:
        raise Unsupported(f"{layer.name}: layer kind is one of {', '.join(WRAPPERS)}: got {layer.kind}")
    return WRAPPERS[layer.kind]


def descriptor(name: str, layer: Layer, layer_id: int) -> str:
    """The `static const` descriptor of a layer."""
    kind = wrapper(layer)
    head, own = _head(layer_id, kind.kind, layer.rounding), kind.fields(layer)
    values: Mapping[str, Value] = {"layer": head, **own} if own else head
    return "\n".join([f"static const {kind.type} {name} = {{", *c.fields(values), "};\n"])


def call(layer: Layer, running: str, descriptor_name: str, planned: tuple[int, int]) -> str:
    """The wrapper's call in a running region: an expression that gives its status."""
    return f"{wrapper(layer).function}({running}, &{descriptor_name}, {steps(planned)})"


def steps(planned: tuple[int, int]) -> str:
    """A range of steps: the first one and their number."""
    return f"(hwlib_steps_t){{{planned[0]}, {planned[1]}}}"


def address(place: Address) -> str:
    """The initialiser of a `hwlib_address_t`."""
    return f"{{{space(place.space)}, {place.offset}}}"


def space(number: int) -> str:
    """The name of an address space; arguments of the region follow the last one."""
    return _SPACES[number] if number <= ARGUMENT else f"{_SPACES[ARGUMENT]} + {number - ARGUMENT}"
