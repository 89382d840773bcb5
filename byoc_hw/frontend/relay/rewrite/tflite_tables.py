"""The tables of chains as TFLite's reference kernels compute them: each int8 operator of a file by its own arithmetic.

An operator that is int8 in the file arrives as dequantize, real operators and quantize under one name. The kernels are
those of tflite-runtime 2.14: tables of real functions for LOGISTIC, TANH and EXP, fixed point for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tvm import relay

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.frontend.relay.rewrite.chains import Chain
from byoc_hw.frontend.relay.rewrite.table_values import by_byte, every_value
from byoc_hw.frontend.relay.sources import described, operator_name, source_names
from byoc_hw.frontend.relay.table import parse_composite
from byoc_hw.frontend.seam import TFLiteArithmetic
from byoc_hw.graph import Add, Layer, Lookup, Mul
from byoc_hw.pattern import NotALayer
from byoc_hw.tensor import Array, Quantization

Values = dict[relay.Expr, Array]
"""The 8-bit values of a chain for all 256 inputs, as int64."""

_REAL: dict[str, Callable[[Array], Array]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "exp": np.exp,
}
"""The real functions of kernels that are tables themselves, in double precision."""


def tflite_tables(chain: Chain, by: TFLiteArithmetic) -> Array | str:
    """A chain's tables, or why it has none."""
    values: Values = {chain.source: every_value(chain).astype(np.int64)}
    for call in chain.calls:
        if str(call.checked_type.dtype) not in ("int8", "uint8"):
            continue
        try:
            found = _kernel(call, values, by)
        except NotALayer as error:
            return f"{described(call)}: {error.broken}"
        if found is None:
            return f"{described(call)}: its arithmetic in TFLite is not known"
        limits = np.iinfo(str(call.checked_type.dtype))
        values[call] = np.clip(found, limits.min, limits.max)
    return by_byte(values[chain.result].astype(str(chain.result.checked_type.dtype)), chain.channels)


def _kernel(call: relay.Call, values: Values, by: TFLiteArithmetic) -> Array | None:
    """The values of an 8-bit operator, or None."""
    if isinstance(call.op, relay.Function):
        parsed = parse_composite(str(call.op.attrs["Composite"]).partition(".")[2], call.op.body)
        if parsed is None:
            return None
        arguments = dict(zip(call.op.params, call.args, strict=True))
        return _layer(parsed[0], [_value(arguments.get(one, one), values) for one in parsed[1].inputs], by)
    name = operator_name(call)
    inputs = [_value(argument, values) for argument in list(call.args)[:2]]
    if name == "clip":
        return None if inputs[0] is None else np.clip(inputs[0], *read.clip_range(Match(call, [call])))
    if name in ("nn.relu", "maximum", "minimum"):
        return _limited(name, inputs)
    if name in ("qnn.add", "qnn.subtract", "qnn.mul"):
        match = Match(call, [call])
        fields = read.pairwise(match, call)
        less = read.subtrahend(match, call) if name == "qnn.subtract" else ""
        layer = Mul(**fields) if name == "qnn.mul" else Add(**fields, subtract=less)
        return _layer(layer, [_value(argument, values) for argument in match.inputs], by)
    if name == "qnn.requantize":
        return _requantize(call, values, by)
    return _real_function(call, values, by) if name == "qnn.quantize" else None


def _value(expr: relay.Expr, values: Values) -> Array | None:
    return read.constant(expr).astype(np.int64) if isinstance(expr, relay.Constant) else values.get(expr)


def _limited(name: str, inputs: list[Array | None]) -> Array | None:
    first, second = inputs[0], np.zeros(1, np.int64) if name == "nn.relu" else inputs[-1]
    if first is None or second is None:
        return None
    return np.minimum(first, second) if name == "minimum" else np.maximum(first, second)


def _layer(layer: Layer, inputs: list[Array | None], by: TFLiteArithmetic) -> Array | None:
    first, second = inputs[0], inputs[-1]
    if first is None or second is None:
        return None
    if isinstance(layer, Lookup):
        table = np.arange(len(layer.tables))
        entries: Array = layer.tables[table, first & 0xFF]
        return entries.view(layer.ofm.dtype).astype(np.int64)
    layer = replace(layer, rounding="tflite")
    return by.pairwise(layer, first, second) if isinstance(layer, Add | Mul) else None


# ---------------------------------------------------------------- QUANTIZE, and RELU with another output


def _requantize(call: relay.Call, values: Values, by: TFLiteArithmetic) -> Array | None:
    before, after = read.scalar_quantization(*call.args[1:3]), read.requantize_output(call)
    if call.args[0] not in values:
        return None

    def rescaled(ifm: Array) -> Array:
        return by.rescaled(ifm - before.zero_point[0], _ratio(before, after)) + after.zero_point[0]

    clip = call.args[0]
    if isinstance(clip, relay.Call) and isinstance(clip.op, relay.Function):
        clip = clip.op.body
    if not isinstance(clip, relay.Call) or operator_name(clip) != "clip":
        return rescaled(values[call.args[0]])
    if source_names(clip.span) != source_names(call.span):
        return rescaled(values[call.args[0]])
    # RELU and the like: TFLite limits the output, not the input.
    activation = rescaled(values[clip.args[0]]) if clip.args[0] in values else None
    bounds = read.clip_range(Match(clip, [clip]))
    found = [
        np.clip(activation, _quantized(low, after), _quantized(high, after))
        for low, high in ((0, np.inf), (0, 6), (-1, 1), (0, 1))
        if activation is not None and bounds == (_quantized(low, before), _quantized(high, before))
    ]
    if not found or any((other != found[0]).any() for other in found):
        raise NotALayer("bounds of clip are those of one of TFLite's activations", f"{bounds[0]} and {bounds[1]}")
    return found[0]


def _ratio(before: Quantization, after: Quantization, slope: float = 1.0) -> float:
    scale = np.float64(np.float32(before.scale[0])) * np.float64(slope)
    return float(scale / np.float64(np.float32(after.scale[0])))


def _quantized(real: float, by: Quantization) -> int:
    """A bound of an activation, in int8."""
    if np.isinf(real):
        return 127
    value = np.float32(real) / np.float32(by.scale[0])
    return int(np.clip(by.zero_point[0] + np.copysign(np.floor(np.abs(value) + np.float32(0.5)), value), -128, 127))


# ---------------------------------------------------------------- dequantize, real operators, quantize


def _real_function(call: relay.Call, values: Values, by: TFLiteArithmetic) -> Array | None:
    function = call.args[0]
    if not isinstance(function, relay.Call):
        return None
    dequantize = function.args[0]
    if not isinstance(dequantize, relay.Call) or operator_name(dequantize) != "qnn.dequantize":
        return None
    names = {source_names(one.span) for one in (call, function, dequantize)}
    if len(names) != 1 or dequantize.args[0] not in values:
        return None
    before, after = read.scalar_quantization(*dequantize.args[1:]), read.scalar_quantization(*call.args[1:])
    ifm = values[dequantize.args[0]] - before.zero_point[0]
    if operator_name(function) == "nn.leaky_relu":
        slope = _ratio(before, after, function.attrs.alpha)
        scaled = np.where(ifm >= 0, by.rescaled(ifm, _ratio(before, after)), by.rescaled(ifm, slope))
        return scaled + after.zero_point[0]
    real = _REAL.get(operator_name(function))
    if real is None:
        return None
    with np.errstate(over="ignore"):
        found = real((np.float32(before.scale[0]) * ifm.astype(np.float32)).astype(np.float64)).astype(np.float32)
        units = found * (np.float32(1) / np.float32(after.scale[0]))
    rounded = np.copysign(np.floor(np.abs(units.astype(np.float64)) + 0.5), units)
    if np.abs(rounded).max() >= 1 << 31:  # TFLite casts to int32 before it clamps
        raise NotALayer("values in units of the output are int32", f"{np.abs(rounded).max():g}")
    return np.clip(rounded + after.zero_point[0], -128, 127).astype(np.int64)
