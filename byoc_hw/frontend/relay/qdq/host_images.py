"""Images that the host computes with floats between regions, in NHWC: regions have them so.

    %0 = qnn.dequantize(%x)                     %0 = transpose(%x, axes=[0, 2, 3, 1])
    %1 = image.resize2d(%0), NCHW               %1 = qnn.dequantize(%0)
    %2 = qnn.quantize(%1)                       %2 = image.resize2d(%1), NHWC
                                                %3 = qnn.quantize(%2)
                                                %4 = transpose(%3, axes=[0, 3, 1, 2])

The transpositions and those of the regions' own cancel out.
"""

from __future__ import annotations

from tvm import relay

from byoc_hw.frontend.relay.compose import called_with
from byoc_hw.frontend.relay.sources import operator_name, with_span


def resized_in_nhwc(quantize: relay.Call) -> relay.Expr:
    """The second form of a quantize, or the call if it is none."""
    resize = quantize.args[0]
    if not _is(resize, "image.resize2d") or str(resize.attrs.layout) != "NCHW":
        return quantize
    real = resize.args[0]
    if not _is(real, "qnn.dequantize") or not all(map(_is_one_number, real.args[1:])):
        return quantize
    attrs, span = resize.attrs, resize.span
    stored = with_span(relay.transpose(real.args[0], (0, 2, 3, 1)), span)
    image = called_with(real, [stored, *real.args[1:]])
    made = relay.image.resize2d(
        image,
        [int(extent) for extent in attrs.size],
        [float(number) for number in attrs.roi],
        "NHWC",
        str(attrs.method),
        str(attrs.coordinate_transformation_mode),
        str(attrs.rounding_method),
        float(attrs.cubic_alpha),
        int(attrs.cubic_exclude),
        float(attrs.extrapolation_value),
    )
    result = called_with(quantize, [with_span(made, span), *quantize.args[1:]])
    return with_span(relay.transpose(result, (0, 3, 1, 2)), span)


def _is_one_number(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Constant) and not expr.data.shape


def _is(expr: relay.Expr, name: str) -> bool:
    return isinstance(expr, relay.Call) and operator_name(expr) == name
