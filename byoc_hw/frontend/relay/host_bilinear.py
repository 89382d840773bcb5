"""RESIZE_BILINEAR on the host in TFLite's integers, for a function of ours.

%0 = qnn.dequantize(%x)
%1 = image.resize2d(%0)              method linear, NHWC
%2 = qnn.quantize(%1)                with the scale and zero point of %x
"""

from __future__ import annotations

from tvm import relay

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.rewrite.tflite_functions import BetweenScales, between_scales
from byoc_hw.frontend.relay.sources import operator_name
from byoc_hw.pattern import NotALayer
from byoc_hw.program import Bilinear

_LARGEST = 1 << 20
"""Rows and columns are fewer: in 1/1024 of them they fit 32 bits."""


def bilinear(quantize: relay.Call) -> tuple[Bilinear, BetweenScales] | None:
    """The work of a resize that ends with a quantize, and its calls; None for anything else."""
    resize = quantize.args[0] if operator_name(quantize) == "qnn.quantize" else None
    if not isinstance(resize, relay.Call) or operator_name(resize) != "image.resize2d":
        return None
    try:
        found = between_scales(quantize)
        shapes = read.shape_of(resize.args[0]), read.shape_of(resize)
    except NotALayer:  # scales by channel, or a shape that is known at run time only
        return None
    types = {str(expr.checked_type.dtype) for expr in (quantize, *([] if found is None else [found.source]))}
    if found is None or found.real != resize.args[0] or found.scales.before != found.scales.after or types != {"int8"}:
        return None
    if (str(resize.attrs.method), str(resize.attrs.layout)) != ("linear", "NHWC"):
        return None
    mode = str(resize.attrs.coordinate_transformation_mode)
    axes = [_axis(shapes[0][axis], shapes[1][axis], mode) for axis in (1, 2)]
    if any(axis is None for axis in axes):
        return None
    steps, starts = zip(*(axis for axis in axes if axis is not None), strict=True)
    return Bilinear(*shapes, steps, starts), found  # type: ignore[arg-type]


def _axis(extent: int, target: int, mode: str) -> tuple[int, int] | None:
    """Step and start in 1/1024; None where there is no such mode, or TFLite reads beyond the last pixel."""
    if mode not in ("half_pixel", "align_corners", "asymmetric") or max(extent, target) >= _LARGEST:
        return None
    last = mode == "align_corners" and target > 1
    whole, parts = (extent - 1, target - 1) if last else (extent, target)
    step = (1024 * whole + parts // 2) // parts
    start = step // 2 - 512 if mode == "half_pixel" else 0
    return (step, start) if start + (target - 1) * step < 1024 * extent else None
