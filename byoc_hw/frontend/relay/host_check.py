"""What a host operator may need and a C project does not have: refused before anything is written.

TVM's operators may call functions of TVM's runtime (unique, searchsorted), which a project is free of, or shift by
more bits than a number has, which C does not define. TVM's C target writes both without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import tvm
from tvm import relay, tir

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.host_operators import PREFIXES
from byoc_hw.frontend.relay.read import constant
from byoc_hw.frontend.relay.sources import calls_in_order, described, operator_name
from byoc_hw.tensor import Array

_MATH = """
acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf exp exp2 fabs floor fmod hypot isnan ldexp log log10
log1p log2 nearbyint nextafter pow round sin sinh sqrt tan tanh trunc
"""
_OWN = {"softmax_int8", "exact_constant"}
_KNOWN = _OWN | {name + suffix for name in _MATH.split() for suffix in ("", "f")}
_PACKED = {f"tir.tvm_call_{kind}" for kind in ("packed", "packed_lowered", "cpacked", "cpacked_lowered")}
_EXTERNAL = {"tir.call_extern", "tir.call_pure_extern"}
_SHIFTS = {"tir.shift_left", "tir.shift_right"}
_LIMIT = 2.0**32
_LARGEST_ZERO_POINT = 2**16
_RUNTIME = re.compile(r"\bTVM(?:Backend|Func|Value)\w*")


# ---------------------------------------------------------------- scales, before TVM lowers them


def check_scales(main: relay.Function) -> None:
    """Raise `Unsupported` for a quantized operator whose scales or zero points TVM's own arithmetic cannot express."""
    for call in calls_in_order(main):
        for ratio in _ratios(call):
            if ratio != 0 and not 1 / _LIMIT < abs(ratio) < _LIMIT:  # 0: a dead channel, whose multiplier is 0
                raise Unsupported(
                    f"{described(call)} on the host: input scale over output scale is more than 2^-32 and less than "
                    f"2^32, where TVM's shifts are defined: got {ratio:g}"
                )
        for point in _zero_points(call):
            if abs(point) > _LARGEST_ZERO_POINT:
                raise Unsupported(
                    f"{described(call)} on the host: zero points are from -2^16 to 2^16, beyond which TVM's sums "
                    f"overflow: got {point}"
                )


def _zero_points(call: relay.Call) -> Iterator[int]:
    """Zero points are the int32 constants that a quantized operator reads."""
    if operator_name(call).startswith("qnn."):
        for argument in call.args[1:]:  # the first is the data
            if isinstance(argument, relay.Constant) and str(argument.data.dtype) == "int32":
                yield from np.ravel(constant(argument)).tolist()


def _ratios(call: relay.Call) -> Iterator[float]:
    """Input scale over output scale, of each requantization that TVM makes of a call."""
    name, scales = operator_name(call), _scales(call)
    if name == "qnn.requantize" and call.attrs.compute_dtype in ("None", "int64"):
        yield from _quotients(scales[1], scales[3])
    elif name in ("qnn.add", "qnn.subtract"):
        yield from _quotients(scales[2], scales[6])
        yield from _quotients(scales[4], scales[6])
    elif name == "qnn.mul":
        first, second, output = scales[2], scales[4], scales[6]
        if first is not None and second is not None:
            yield from _quotients(first * second, output)
    elif name == "qnn.concatenate" and isinstance(call.args[1], relay.Tuple):
        for scale in call.args[1].fields:
            yield from _quotients(_floats(scale), scales[3])


def _scales(call: relay.Call) -> list[Array | None]:
    return [_floats(argument) for argument in call.args]


def _floats(argument: relay.Expr) -> Array | None:
    if not isinstance(argument, relay.Constant) or not str(argument.data.dtype).startswith("float"):
        return None
    return constant(argument).astype(np.float32)


def _quotients(numerator: Array | None, denominator: Array | None) -> Iterator[float]:
    if numerator is None or denominator is None:
        return
    with np.errstate(all="ignore"):
        yield from np.ravel(numerator.astype(np.float64) / denominator.astype(np.float64)).tolist()


# ---------------------------------------------------------------- functions, after TVM lowered them


def check_functions(mod: tvm.IRModule, main: relay.Function) -> None:
    """Raise `Unsupported` for a host function of TVM's lowered module that a project cannot have; `main` has names."""
    for function in mod.functions.values():
        if not isinstance(function, tir.PrimFunc) or "global_symbol" not in (function.attrs or {}):
            continue
        symbol = str(function.attrs["global_symbol"])
        if symbol.endswith("__tvm_main__"):
            continue
        problem = next(_problems(function), None)
        if problem is not None:
            raise Unsupported(f"{_operators(symbol, main)} on the host: {problem}")


def _problems(function: tir.PrimFunc) -> Iterator[str]:
    calls: list[tir.Call] = []
    tir.stmt_functor.post_order_visit(
        function.body, lambda node: calls.append(node) if isinstance(node, tir.Call) else None
    )
    for call in calls:
        name = getattr(call.op, "name", "")
        if name in _PACKED:
            yield f"a C project has no TVM runtime: TVM calls {call.args[0].value}"
        elif name in _EXTERNAL and not _known(call.args[0].value):
            yield f"a C project calls the C library's mathematics only: TVM calls {call.args[0].value}"
        elif name in _SHIFTS and isinstance(call.args[1], tir.IntImm):
            bits, amount = tvm.DataType(call.dtype).bits, int(call.args[1])
            if not 0 <= amount < bits:
                yield f"a number of {bits} bits is shifted by 0 to {bits - 1}: got {amount}"


def _known(function: str) -> bool:
    return function in _KNOWN or function.startswith(PREFIXES)


def check_source(bodies: Mapping[str, str], main: relay.Function) -> None:
    """Raise `Unsupported` for a function of TVM's C, by symbol, that uses TVM's runtime."""
    for symbol, body in bodies.items():
        found = _RUNTIME.search(body)
        if found is not None:
            what = f"a C project has no TVM runtime: TVM uses {found[0]}"
            raise Unsupported(f"{_operators(symbol, main)} on the host: {what}")


def _operators(symbol: str, main: relay.Function) -> str:
    """The operators of a host function by their names in the model; its symbol where TVM renamed them."""
    parts = f"_{symbol.partition('_fused_')[2]}_"
    calls = [call for call in calls_in_order(main) if f"_{operator_name(call).replace('.', '_')}_" in parts]
    return ", ".join(dict.fromkeys(map(described, calls))) or symbol
