"""The tables of chains as TFLite's reference kernels compute them: each int8 operator of a file by its own arithmetic.

The kernels are those of tflite-runtime 2.14. Operators that arrive as dequantize, real operators and quantize are in
`tflite_functions.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relay

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.frontend.relay.rewrite.chains import Chain
from byoc_hw.frontend.relay.rewrite.table_values import by_byte, every_value
from byoc_hw.frontend.relay.rewrite.tflite_functions import between_scales, units_of_output
from byoc_hw.frontend.relay.sources import described, operator_name, source_names
from byoc_hw.frontend.relay.table import parse_composite
from byoc_hw.frontend.seam import FixedPoint
from byoc_hw.frontend.tflite_kernels import Scales, limited_between, quantized_again, step_of
from byoc_hw.graph import Add, Layer, Lookup, Mul
from byoc_hw.pattern import NotALayer
from byoc_hw.tensor import Array, Pair

Values = dict[relay.Expr, Array]
"""The 8-bit values of a chain for all 256 inputs, as int64."""


def tflite_tables(chain: Chain, by: FixedPoint) -> Array | str:
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


def _kernel(call: relay.Call, values: Values, by: FixedPoint) -> Array | None:
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
        if str(call.checked_type.dtype) != "int8":
            raise NotALayer("type of a clip is int8", call.checked_type.dtype)
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


def _layer(layer: Layer, inputs: list[Array | None], by: FixedPoint) -> Array | None:
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


def _requantize(call: relay.Call, values: Values, by: FixedPoint) -> Array | None:
    before, after = read.scalar_quantization(*call.args[1:3]), read.requantize_output(call)
    source, bounds = _activation(call)
    if source not in values:
        return None
    of, ifm = Scales(before, after), values[source] - before.zero_point[0]
    if bounds is None:
        return quantized_again(of, ifm, by) + after.zero_point[0]
    found = [
        limited_between(low, high)(of, ifm, by) + after.zero_point[0]
        for low, high in ((0, np.inf), (0, 6), (-1, 1), (0, 1))
        if bounds == (step_of(low, before), step_of(high, before))
    ]
    if not found or any((other != found[0]).any() for other in found):
        raise NotALayer("bounds of clip are those of one of TFLite's activations", f"{bounds[0]} and {bounds[1]}")
    return found[0]


def _activation(requantize: relay.Call) -> tuple[relay.Expr, Pair | None]:
    """What an operator of the file that ends with a requantize reads, and the bounds of its clip, if it has one."""
    clip = requantize.args[0]
    if isinstance(clip, relay.Call) and isinstance(clip.op, relay.Function):
        clip = clip.op.body
    named = isinstance(clip, relay.Call) and source_names(clip.span) == source_names(requantize.span)
    of_one_type = clip.checked_type.dtype == requantize.checked_type.dtype  # else it moves values to uint8, or back
    if not (named and of_one_type) or operator_name(clip) != "clip":
        return requantize.args[0], None
    return clip.args[0], read.clip_range(Match(clip, [clip]))


# ---------------------------------------------------------------- dequantize, real operators, quantize


def _real_function(call: relay.Call, values: Values, by: FixedPoint) -> Array | None:
    found = between_scales(call)
    if found is None or found.source not in values:
        return None
    ifm = values[found.source] - found.scales.before.zero_point[0]
    ofm = units_of_output(found, ifm, by)
    return None if ofm is None else ofm + found.scales.after.zero_point[0]
