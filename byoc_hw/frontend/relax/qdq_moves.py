"""Operators that only move or compare values, of stored values in place of real ones.

    %0 = dequantize(%x)                  %0 = quantize(dequantize(%y))       where %y has another scale
    %1 = dequantize(%y)                  %1 = concat(%x, %0)
    %2 = concat(%0, %1)
    %3 = quantize(%2)

A split becomes slices. What is moved behind a dequantize is moved before it, and quantized again as it was is what it
was.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from tvm import relax

from byoc_hw.frontend.relax.bindings import (
    Assignment,
    call_on,
    named_call,
    names_in,
    operands_in,
    returned_by,
    steps_of,
    typed_as,
    users_of_values,
    with_operands,
    with_steps,
    without_unused,
)
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of, is_call, name_of

_MOVES_TEXT = "concat expand_dims image.resize2d nn.max_pool2d permute_dims reshape squeeze strided_slice"
_MOVES = frozenset(_MOVES_TEXT.split())
ON_THE_HOST = _MOVES | {"max", "min"}
"""With what the accelerator has of real values alone."""

_OF_ONE = ("expand_dims", "flatten", "nn.max_pool2d", "permute_dims", "reshape", "squeeze", "strided_slice")
"""Those of one tensor: rounding keeps the order of values, so that they may be on either side of a quantize."""


def moves_of_stored(function: Any, moves: frozenset[str] = _MOVES) -> Any:
    """The function with each such operator between dequantize and quantize on stored values."""
    moved = _Moved(_moved_before(function), moves)
    for variable, value in steps_of(moved.function):
        moved.step(variable, value)
    result = with_operands(function.body.body, moved.same)
    return with_steps(function, without_unused(moved.steps, returned_by(result)), result)


def moved_before_quantize(function: Any) -> Any:
    """The function with a quantize in front of each move or maximum of one tensor, in place of behind it."""
    values, users = dict(steps_of(function)), users_of_values(function)
    steps: list[Assignment] = []
    for variable, value in values.items():
        moves = []
        real = value.args[0] if is_call(value, "quantize") and array_of(value.args[1]).size == 1 else None
        while _is_of_one(values.get(real)) and len(users[real]) == 1:
            moves.append(real)
            real = values[real].args[0]
        if not moves or is_call(values.get(real), "dequantize"):
            steps.append((variable, value))
            continue
        stored = _with(value, [real, *value.args[1:]], real, value.span)
        for move in reversed(moves):
            early = relax.DataflowVar(f"{move.name}_stored", stored.ty)
            steps.append((early, stored))
            call = values[move]
            stored = call_on(call, [early, *call.args[1:]], relax.TensorType(extents_of(move), dtype_of(variable)))
        steps.append((variable, stored))
    results = returned_by(function.body.body)
    return with_steps(function, without_unused(steps, results))


def _is_of_one(call: Any) -> bool:
    return is_call(call, *_OF_ONE) and _keeps_values(call)


def permutation_of(call: Any) -> list[int]:
    """The dimensions of a permute_dims in their new order."""
    axes = call.attrs.axes
    return list(range(len(extents_of(call))))[::-1] if axes is None else [int(axis) for axis in axes]


def _moved_before(function: Any) -> Any:
    """The function with a dequantize behind each move of one tensor, in place of before it."""
    values: dict[Any, Any] = {}
    steps: list[Assignment] = []
    for variable, value in steps_of(function):
        moved = _behind(value, values) if _is_of_one(value) else None
        if moved is not None:
            stored, call = moved
            fresh = relax.DataflowVar(f"{variable.name}_stored", stored.ty)
            steps.append((fresh, stored))
            value = call_on(call, [fresh, *call.args[1:]], variable.ty, value.span)
        values[variable] = value
        steps.append((variable, value))
    return with_steps(function, steps)


def _behind(value: Any, values: Mapping[Any, Any]) -> tuple[Any, Any] | None:
    """A move of stored values, and a dequantize of what it gives, for a move of real ones."""
    call = values.get(value.args[0])
    if not is_call(call, "dequantize") or array_of(call.args[1]).size == 0:
        return None
    source, several = call.args[0], array_of(call.args[1]).size > 1
    if (several or isinstance(source, Literal)) and name_of(value) != "permute_dims":
        return None  # weights, in a form that the patterns have
    operands = [source, *value.args[1:]]
    if several:
        axes = permutation_of(value)
        axis = axes.index(int(call.attrs.axis) % len(axes))
        call = relax.op.dequantize(*call.args, axis=axis)
    return call_on(value, operands, relax.TensorType(extents_of(value), dtype_of(source))), call


class _Moved:
    """One pass over a function's bindings; `steps` are the new ones."""

    def __init__(self, function: Any, moves: frozenset[str]) -> None:
        self.function, self._moves = function, moves
        self.same: dict[Any, Any] = {}
        self._values = dict(steps_of(function))
        self._users = users_of_values(function)
        self.steps: list[Assignment] = []

    def step(self, variable: Any, value: Any) -> None:
        """Add a binding, or those that replace it."""
        value = with_operands(value, self.same)
        if is_call(value, "quantize") and self._is_dequantized(value.args[0]):
            call = self._values[value.args[0]]
            if _same_scale(call, value):
                self.same[variable] = with_operands(call.args[0], self.same)
                return
        if isinstance(value, relax.TupleGetItem):
            part = self._part(variable, value)
            value = value if part is None else part
        elif is_call(value, "quantize") and self._is_real_move(value.args[0]):
            value = self._stored(value.args[0], value)
        self.steps.append((variable, value))

    # ---------------------------------------------------------------- between dequantize and quantize

    def _is_real_move(self, real: Any) -> bool:
        """Whether a value is moved out of dequantized ones, and read once."""
        call = self._values.get(real)
        if not is_call(call, *self._moves) or len(self._users.get(real, ())) != 1 or not _keeps_values(call):
            return False
        return all(self._is_dequantized(one) or self._is_real_move(one) for one in _tensors(call))

    def _is_dequantized(self, real: Any) -> bool:
        call = self._values.get(real)
        return (
            is_call(call, "dequantize")
            and dtype_of(call.args[0]) == "int8"
            and all(isinstance(one, Literal) and array_of(one).size == 1 for one in call.args[1:])
        )

    def _stored(self, real: Any, quantize: Any) -> Any:
        """The call that gives the stored value of a move, or of what is moved."""
        call = self._values[real]
        if name_of(call) == "dequantize":
            return _with(quantize, (real, *quantize.args[1:]), real, call.span)
        return typed_as(with_operands(call, self._replaced(call, quantize)), _stored_type(call, quantize))

    def _replaced(self, call: Any, quantize: Any) -> dict[Any, Any]:
        """The stored value of each real operand of a move."""
        found = {}
        for operand in _tensors(call):
            inner = with_operands(self._values[operand], self.same)
            if name_of(inner) == "dequantize" and _same_scale(inner, quantize):
                found[operand] = inner.args[0]
                continue
            if name_of(inner) == "dequantize":  # the requantize is of the operator that moves
                inner = typed_as(named_call(inner, names_in(call.span)[-1]), inner.ty)
                real = self._bound(inner, operand)
                found[operand] = self._bound(_with(quantize, (real, *quantize.args[1:]), operand, call.span), operand)
            else:
                found[operand] = self._bound(self._stored(operand, quantize), operand)
        return found

    def _bound(self, value: Any, like: Any) -> Any:
        variable = relax.DataflowVar(f"{like.name}_stored", value.ty)
        self.steps.append((variable, value))
        return variable

    # ---------------------------------------------------------------- split

    def _part(self, variable: Any, value: Any) -> Any | None:
        """The slice that a part of a split is, or None for a part of anything else."""
        call = self._values.get(value.tuple_value)
        if not is_call(call, "split"):
            return None
        shape = extents_of(call.args[0])
        axis = int(call.attrs.axis) % len(shape)
        parts = call.attrs.indices_or_sections
        ends = list(map(int, parts)) if hasattr(parts, "__len__") else _even_ends(int(parts), shape[axis])
        begin, end = list(pairwise([0, *ends, shape[axis]]))[value.index]
        made = relax.op.strided_slice(call.args[0], axes=[axis], begin=[begin], end=[end], strides=[1])
        return call_on(made, made.args, variable.ty, call.span)


def _even_ends(sections: int, extent: int) -> list[int]:
    size = -(-extent // sections)
    return list(range(size, extent, size))


def _keeps_values(call: Any) -> bool:
    """Whether a call gives values that it is given, and no others."""
    if name_of(call) == "image.resize2d":
        return str(call.attrs.method) == "nearest_neighbor"
    return name_of(call) != "nn.max_pool2d" or not bool(call.attrs.ceil_mode)


def _tensors(call: Any) -> list[Any]:
    """The operands of a call that are tensors, also in a tuple."""
    return [one for one in operands_in(call) if dtype_of(one)]


def _same_scale(dequantize: Any, quantize: Any) -> bool:
    same = (
        np.array_equal(array_of(a), array_of(b)) for a, b in zip(dequantize.args[1:], quantize.args[1:], strict=True)
    )
    return dtype_of(quantize) == dtype_of(dequantize.args[0]) and all(same)


def _stored_type(call: Any, quantize: Any) -> Any:
    return relax.TensorType(extents_of(call), dtype_of(quantize))


def _with(quantize: Any, operands: Any, like: Any, span: Any) -> Any:
    """The quantize of another value."""
    return call_on(quantize, operands, _stored_type(like, quantize), span)
