"""Averages that count their padding, over images that are padded with the zero point: what is stored of 0.

    %0 = dequantize(%x)                                   %0 = nn.pad(%x, zero point)
    %1 = nn.avg_pool2d(%0, count_include_pad)             %1 = dequantize(%0)
                                                          %2 = nn.avg_pool2d(%1)

A layer pads what it counts with zeros, which are another value where the zero point is not 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from byoc_hw.frontend.relax.bindings import Assignment, call_on, returned_by, steps_of, with_steps, without_unused
from byoc_hw.frontend.relax.qdq_match import padding_of
from byoc_hw.frontend.relax.versions import array_of, dtype_of, extents_of, is_call


def with_counted_padding(function: Any) -> Any:
    """The function with such averages of int8 images in NHWC, where the zero point is not 0, in the second form."""
    values = dict(steps_of(function))
    steps: list[Assignment] = []
    for variable, value in values.items():
        if _counts_padding(value, values):
            value = _of_padded(variable, value, values[value.args[0]], steps)
        steps.append((variable, value))
    return with_steps(function, without_unused(steps, returned_by(function.body.body)))


def _counts_padding(call: Any, values: Mapping[Any, Any]) -> bool:
    if not is_call(call, "nn.avg_pool2d") or not is_call(values.get(call.args[0]), "dequantize"):
        return False
    attrs, dequantize = call.attrs, values[call.args[0]]
    zero_point = array_of(dequantize.args[2])
    counts = bool(attrs.count_include_pad) and any(padding_of(attrs.padding)) and not bool(attrs.ceil_mode)
    is_image = str(attrs.layout) == "NHWC" and dtype_of(dequantize.args[0]) == "int8"
    return counts and is_image and zero_point.size == 1 and bool(zero_point.any())


def _of_padded(variable: Any, pool: Any, dequantize: Any, steps: list[Assignment]) -> Any:
    """The average without padding of a padded image, which is added to the steps."""
    attrs, stored = pool.attrs, dequantize.args[0]
    top, left, bottom, right = padding_of(attrs.padding)
    widths = [0, 0, top, bottom, left, right, 0, 0]
    batch, height, width, channels = extents_of(stored)
    shape = (batch, height + top + bottom, width + left + right, channels)

    def bound(what: str, call: Any, dtype: str) -> Any:
        fresh = relax.DataflowVar(f"{variable.name}_{what}", relax.TensorType(shape, dtype))
        steps.append((fresh, call_on(call, call.args, fresh.ty, pool.span)))
        return fresh

    zero = float(array_of(dequantize.args[2]).item())
    around = bound("padded", relax.op.nn.pad(stored, widths, pad_value=zero), "int8")
    image = bound("real", call_on(dequantize, [around, *dequantize.args[1:]], None), dtype_of(dequantize))
    made = relax.op.nn.avg_pool2d(
        image, list(attrs.pool_size), list(attrs.strides), 0, list(attrs.dilation), False, False, "NHWC", "NHWC"
    )
    return call_on(made, made.args, variable.ty, pool.span)
