"""Work on the host: the C functions of ours that do it, and what they read.

The arithmetic of layers is TFLite's or, in functions named "upward", TVM's, as the header of the HAL states both for
layers on the accelerator; a project has one of the two. What depends on the weights is computed here: the functions get
constant arrays. Scales are a multiplier and an exponent. Orders and suppressions are Relay's operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from byoc_hw.errors import Unsupported
from byoc_hw.graph import Add, Conv2d, Dense, DepthwiseConv2d, Layer, Mul, Pool2d, Softmax, Weighted
from byoc_hw.params.requantize import (
    FRACTION_BITS,
    Scale,
    add_scales,
    add_sum_scale,
    folded_bias,
    mul_scale,
    pool_offset,
    pool_scale,
    pool_zero_points,
    softmax_scale,
    subtrahend_number,
    sum_scales,
    weight_values,
    zero_point,
)
from byoc_hw.program import ORDERED_TYPES, Bilinear, HostWork, KernelCall, Quantize, Sort, Suppress
from byoc_hw.tensor import Array

# ---------------------------------------------------------------- the functions


@dataclass(frozen=True)
class HostKernel:
    """A C function: the templates that it needs, what it reads, and its numbers.

    Its parameters are pointers: `operands`, inputs and then constants, with their C types; `numbers`, one int32 for
    each of `fields`, which are the struct of this name, else the function's; `workspace`, int32; and the outputs.
    """

    parts: tuple[str, ...]
    operands: Mapping[str, str]
    fields: tuple[str, ...]
    outputs: Mapping[str, str] = field(default_factory=lambda: {"ofm": "int8_t"})
    workspace: str = ""
    struct: str = ""

    def prototype(self, name: str) -> str:
        """The C declaration under a name."""
        read = [f"const {of} *{operand}" for operand, of in self.operands.items()]
        own = [f"int32_t *{self.workspace}"] if self.workspace else []
        written = [f"{of} *{output}" for output, of in self.outputs.items()]
        return f"void {name}({', '.join([*read, 'const int32_t *numbers', *own, *written])});"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_CLAMP = "act_min act_max"
_EXTENTS = "batches ifm_height ifm_width"
_WINDOW = """
kernel_height kernel_width stride_height stride_width dilation_height dilation_width pad_top pad_left
"""
_PAIR = "elements ifm2_elements ifm_zero_point ifm2_zero_point ofm_zero_point multiplier exponent"

_ONE = {"ifm": "int8_t"}
_TWO = {"ifm": "int8_t", "ifm2": "int8_t"}
_BOXES = {"boxes": "float", "valid_count": "int32_t"}
_LIMITS = {"most": "int32_t", "threshold": "float"}
_SUPPRESS = _words("batches boxes values top_k coord_start score_index id_index force_suppress invalid_to_bottom")

_LAYERS: Mapping[str, HostKernel] = {
    "conv2d": HostKernel(
        ("clamp", "conv2d"),
        {**_ONE, "weights": "int8_t", "channels": "int32_t"},
        _words(f"""
        {_EXTENTS} ifm_channels ofm_height ofm_width ofm_channels depth filters_per_group {_WINDOW}
        ifm_zero_point weight_zero_point ofm_zero_point {_CLAMP}"""),
    ),
    "pool2d": HostKernel(
        ("clamp", "pool2d"),
        _ONE,
        _words(f"""
        {_EXTENTS} channels ofm_height ofm_width {_WINDOW} count_include_pad
        is_sum offset multiplier exponent ofm_zero_point {_CLAMP}"""),
    ),
    "add": HostKernel(
        ("clamp", "add"),
        _TWO,
        _words(f"{_PAIR} ifm_multiplier ifm_exponent ifm2_multiplier ifm2_exponent subtract {_CLAMP}"),
    ),
    "mul": HostKernel(("clamp", "mul"), _TWO, _words(f"{_PAIR} {_CLAMP}")),
}

_ROUNDED = {
    f"{rounding}_{name}": replace(kernel, parts=(scale, *kernel.parts))
    for rounding, scale in (("tflite", "scale"), ("upward", "scale_upward"))
    for name, kernel in _LAYERS.items()
}

KERNELS: Mapping[str, HostKernel] = {
    **_ROUNDED,
    "tflite_softmax": HostKernel(("scale", "softmax"), _ONE, _words("rows columns multiplier exponent diff_min")),
    "tflite_bilinear": HostKernel(
        ("bilinear",),
        _ONE,
        _words(f"{_EXTENTS} channels ofm_height ofm_width row_step column_step row_start column_start"),
    ),
    "tflite_quantize": HostKernel(("clamp", "quantize"), {"ifm": "float"}, _words("elements zero_point scale_bits")),
    "host_order": HostKernel(
        ("order", "order_rows"),
        {"data": "void"},
        _words("type before extent after count descending"),
        {"places": "int32_t"},
    ),
    "host_suppress": HostKernel(
        ("order", "suppress", "suppress_boxes"), {**_BOXES, **_LIMITS}, _SUPPRESS, {"kept": "float"}, "order"
    ),
    "host_suppress_places": HostKernel(
        ("order", "suppress", "suppress_places"),
        {**_BOXES, "indices": "int32_t", **_LIMITS},
        _SUPPRESS,
        {"places": "int32_t", "counts": "int32_t"},
        "order",
        struct="host_suppress",
    ),
}
"""Every function by its name, which in a project has the module's name in front."""

KERNEL_PARTS = (
    *_words("scale scale_upward clamp conv2d pool2d add mul softmax bilinear quantize"),
    *_words("order order_rows suppress suppress_boxes suppress_places"),
)
"""The templates, in the order in which they stand in a project's file."""

# ---------------------------------------------------------------- from a layer to a call


def kernel_call(layer: Layer | HostWork) -> KernelCall:
    """The call that computes a layer with its rounding, or other work, on the host.

    `Unsupported` for a layer without a function.
    """
    match layer:
        case Conv2d() | DepthwiseConv2d() | Dense():
            return _call(f"{layer.rounding}_conv2d", _weighted(layer), weight_values(layer), _channels(layer))
        case Pool2d(mode="avg"):
            return _call(f"{layer.rounding}_pool2d", _pool2d(layer))
        case Add():
            return _call(f"{layer.rounding}_add", _add(layer))
        case Mul():
            return _call(f"{layer.rounding}_mul", _pairwise(layer, mul_scale(layer)))
        case Softmax():
            return _call("tflite_softmax", _softmax(layer))
        case Quantize():
            return _call("tflite_quantize", _quantize(layer))
        case Bilinear():
            return _call("tflite_bilinear", _bilinear(layer))
        case Sort():
            return _call("host_order", _sort(layer))
        case Suppress():
            return replace(_call(_suppressing(layer), _suppress(layer)), workspace=layer.boxes)
        case _:
            raise Unsupported(f"{layer.name}: the host has a function for it: none for {layer.kind}")


def _call(name: str, values: Mapping[str, int], *constants: Array) -> KernelCall:
    kernel = KERNELS[name]
    if values.keys() != set(kernel.fields):
        raise AssertionError(f"{name}: fields {sorted(values.keys() ^ set(kernel.fields))}")
    numbers = np.array([values[entry] for entry in kernel.fields], np.int32)
    return KernelCall(name, (*map(np.ascontiguousarray, constants), numbers))


def _exponent(scale: Scale) -> int:
    return scale.left - (scale.right - FRACTION_BITS)


def _clamp(layer: Weighted | Add | Mul | Pool2d) -> dict[str, int]:
    return {"act_min": layer.act_min, "act_max": layer.act_max}


def _window(layer: Conv2d | DepthwiseConv2d | Pool2d) -> dict[str, int]:
    pairs = {"kernel": layer.kernel, "stride": layer.strides, "dilation": layer.dilation}
    extents = {
        f"{name}_{side}": value
        for name, pair in pairs.items()
        for side, value in zip(("height", "width"), pair, strict=True)
    }
    return {**extents, "pad_top": layer.padding[0], "pad_left": layer.padding[1]}


def _weighted(layer: Weighted) -> dict[str, int]:
    """A dense layer is a convolution of one pixel, its rows are batches. Depthwise filters have groups of their own."""
    ifm, ofm = layer.ifm.shape, layer.ofm.shape
    if isinstance(layer, Dense):
        ifm, ofm = (ifm[0], 1, 1, ifm[1]), (ofm[0], 1, 1, ofm[1])
        window = dict.fromkeys(_words(_WINDOW), 1) | {"pad_top": 0, "pad_left": 0}
    else:
        window = _window(layer)
    groups = ifm[3] // layer.in_channels
    return {
        **dict(zip(("batches", "ifm_height", "ifm_width", "ifm_channels"), ifm, strict=True)),
        **dict(zip(("ofm_height", "ofm_width", "ofm_channels"), ofm[1:], strict=True)),
        "depth": layer.in_channels,
        "filters_per_group": ofm[3] // groups,
        **window,
        "ifm_zero_point": zero_point(layer, layer.ifm),
        "weight_zero_point": zero_point(layer, layer.weights),
        "ofm_zero_point": zero_point(layer, layer.ofm),
        **_clamp(layer),
    }


def _channels(layer: Weighted) -> Array:
    """Bias, multiplier and exponent of each output channel: shape (K, 3)."""
    scales = sum_scales(layer)
    columns = (folded_bias(layer), [scale.multiplier for scale in scales], list(map(_exponent, scales)))
    return np.stack([np.asarray(column, np.int32) for column in columns], axis=1)


def _pool2d(layer: Pool2d) -> dict[str, int]:
    return {
        **dict(zip(("batches", "ifm_height", "ifm_width", "channels"), layer.ifm.shape, strict=True)),
        **dict(zip(("ofm_height", "ofm_width"), layer.ofm.shape[1:3], strict=True)),
        **_window(layer),
        "count_include_pad": int(layer.count_include_pad),
        **_sum(layer),
        **_clamp(layer),
    }


def _sum(layer: Pool2d) -> dict[str, int]:
    """How a sum is scaled to its mean, which divides, or an average to the output. TFLite's average is not scaled."""
    if not layer.scales_sum and layer.rounding == "tflite":
        return dict.fromkeys(("is_sum", "offset", "multiplier", "exponent", "ofm_zero_point"), 0)
    scale, (before, after) = pool_scale(layer), pool_zero_points(layer)
    return {
        "is_sum": int(layer.scales_sum),
        "offset": pool_offset(layer) if layer.scales_sum else -before,
        "multiplier": scale.multiplier,
        "exponent": _exponent(scale),
        "ofm_zero_point": after,
    }


def _pairwise(layer: Add | Mul, scale: Scale) -> dict[str, int]:
    return {
        "elements": layer.ofm.elements,
        "ifm2_elements": layer.ifm2.elements,
        "ifm_zero_point": zero_point(layer, layer.ifm),
        "ifm2_zero_point": zero_point(layer, layer.ifm2),
        "ofm_zero_point": zero_point(layer, layer.ofm),
        "multiplier": scale.multiplier,
        "exponent": _exponent(scale),
        **_clamp(layer),
    }


def _add(layer: Add) -> dict[str, int]:
    """TFLite's function itself shifts the inputs left: their exponents are those of the scales alone."""
    values = _pairwise(layer, add_sum_scale(layer)) | {"subtract": subtrahend_number(layer)}
    for name, scale in zip(("ifm", "ifm2"), add_scales(layer), strict=True):
        exponent = _exponent(scale) if layer.rounding == "upward" else FRACTION_BITS - scale.right
        values |= {f"{name}_multiplier": scale.multiplier, f"{name}_exponent": exponent}
    return values


def _softmax(layer: Softmax) -> dict[str, int]:
    scale, least = softmax_scale(layer)
    return {
        "rows": layer.rows,
        "columns": layer.ifm.shape[-1],
        "multiplier": scale.multiplier,
        "exponent": _exponent(scale),
        "diff_min": least,
    }


def _quantize(layer: Quantize) -> dict[str, int]:
    bits = np.float32(layer.scale).view(np.int32)
    return {"elements": layer.elements, "zero_point": layer.zero_point, "scale_bits": int(bits)}


def _bilinear(work: Bilinear) -> dict[str, int]:
    return {
        **dict(zip(("batches", "ifm_height", "ifm_width", "channels"), work.ifm, strict=True)),
        **dict(zip(("ofm_height", "ofm_width"), work.ofm[1:3], strict=True)),
        **dict(zip(("row_step", "column_step"), work.steps, strict=True)),
        **dict(zip(("row_start", "column_start"), work.starts, strict=True)),
    }


def _sort(layer: Sort) -> dict[str, int]:
    numbers = {name: int(value) for name, value in vars(layer).items() if name != "dtype"}
    return {"type": ORDERED_TYPES.index(layer.dtype), **numbers}


def _suppressing(layer: Suppress) -> str:
    return "host_suppress_places" if layer.places else "host_suppress"


def _suppress(layer: Suppress) -> dict[str, int]:
    return {name: int(value) for name, value in vars(layer).items() if name != "places"}
