"""The tables of chains as TVM computes them: their own operators, compiled by TVM and run on all 256 values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relay

from byoc_hw.frontend.relay.compose import rebuilt_values
from byoc_hw.frontend.relay.golden import golden_values
from byoc_hw.frontend.relay.rewrite.chains import Chain
from byoc_hw.frontend.relay.sources import described, operator_name
from byoc_hw.tensor import Array


@dataclass(frozen=True)
class _Watched:
    """A real value inside a chain: its place among the outputs, the operator, and the range that it must keep."""

    output: int
    operator: relay.Call
    least: float
    most: float


def tvm_tables(found: Sequence[Chain]) -> list[Array | str]:
    """The tables of each chain, or why TVM does not define them. All are compiled as one function."""
    inputs: list[tuple[relay.Var, Array]] = []
    outputs: list[relay.Expr] = []
    watched: list[list[_Watched]] = []
    for number, chain in enumerate(found):
        values = every_value(chain)
        source = relay.var(f"x{number}", shape=values.shape, dtype=str(values.dtype))
        inputs.append((source, values))
        new = _computed(chain, source)
        outputs.append(new[chain.result])
        watched.append([])
        for call in chain.calls:
            for of, least, most in _ranges(call):
                if of in new and of != chain.source:
                    watched[-1].append(_Watched(len(outputs), of, least, most))
                    outputs.append(new[of])
    results = golden_values(outputs, inputs)
    tables: list[Array | str] = []
    place = 0
    for chain, of_chain in zip(found, watched, strict=True):
        problem = next((text for one in of_chain if (text := _problem(one, results[one.output]))), None)
        tables.append(problem or by_byte(results[place], chain.channels))
        place += 1 + len(of_chain)
    return tables


def every_value(chain: Chain) -> Array:
    """All 256 values along the first dimension, in the order of the bytes; along the last one, channels."""
    dtype = str(chain.source.checked_type.dtype)
    rank = len(chain.shape)
    shape = (256,) if rank < 2 else (256, *[1] * (rank - 2), chain.channels)
    values = np.arange(256, dtype=np.uint8).view(dtype)
    return np.ascontiguousarray(np.broadcast_to(values.reshape(256, *[1] * (len(shape) - 1)), shape))


def by_byte(results: Array, channels: int) -> Array:
    """Tables of what `every_value` gives: shape (channels, 256)."""
    return np.ascontiguousarray(results.reshape(256, channels).T).view(np.uint8)


def _computed(chain: Chain, source: relay.Var) -> dict[relay.Expr, relay.Expr]:
    """The new value of each of a chain's, as its operators compute them of `source`."""
    new: dict[relay.Expr, relay.Expr] = {chain.source: source}
    for call in chain.calls:
        arguments = [new.get(argument, argument) for argument in call.args]
        if isinstance(call.op, relay.Function):
            new[call] = rebuilt_values(call.op, arguments, _of_new_types)[call.op.body]
        else:
            new[call] = _of_new_types(call, arguments)
    return new


def _of_new_types(call: relay.Call, arguments: list[relay.Expr]) -> relay.Call:
    return relay.Call(call.op, arguments, call.attrs)


def _ranges(call: relay.Call) -> list[tuple[relay.Expr, float, float]]:
    """The real operands of a call, with the values that it is defined for: no NaN, and none that a cast cannot hold."""
    real = [one for one in call.args if isinstance(one, relay.Call) and "float" in str(one.checked_type.dtype)]
    if operator_name(call) == "cast" and "int" in str(call.attrs.dtype):
        limits = np.iinfo(str(call.attrs.dtype))
        return [(one, float(limits.min), float(limits.max)) for one in real]
    return [(one, -np.inf, np.inf) for one in real]


def _problem(one: _Watched, values: Array) -> str:
    wrong = ~((values >= one.least) & (values <= one.most))
    if not wrong.any():
        return ""
    rule = "numbers" if np.isnan(values[wrong]).any() else "in the range of the integers that they become"
    return f"{described(one.operator)}: values of all 256 inputs are {rule}: got {values[wrong].flat[0]:g}"
