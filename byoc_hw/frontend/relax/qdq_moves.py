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

from tvm import relax

from byoc_hw.frontend.relax.bindings import (
    Assignment,
    call_on,
    folded,
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

_MOVES_TEXT = "concat expand_dims image.resize2d nn.max_pool2d nn.pad permute_dims reshape squeeze strided_slice"
_MOVES = frozenset(_MOVES_TEXT.split())
_ON_THE_HOST = _MOVES | {"max", "min"}
"""With what the accelerator has of real values alone."""

_OF_ONE = ("expand_dims", "flatten", *_MOVES - {"concat", "image.resize2d"})
"""Those of one tensor: rounding keeps the order of values, so that they may be on either side of a quantize."""

_MOST_GRIDS = 8
"""Values are moved again for each scale that they are quantized with, up to this number."""


def moves_of_stored(function: Any) -> Any:
    """The function with such operators in front of a quantize on stored values.

    What is moved is quantized before; where it is quantized with several scales, it is moved once for each.
    """
    return _moved(_Moved(_moved_before(_with_slices(function)), _MOVES, of_any=True))


def host_moves_of_stored(function: Any) -> Any:
    """The function with each such operator between dequantize and quantize on stored values."""
    return _moved(_Moved(_moved_before(_with_slices(function)), _ON_THE_HOST, of_any=False))


def _moved(moved: _Moved) -> Any:
    for variable, value in steps_of(moved.function):
        moved.step(variable, value)
    result = with_operands(moved.function.body.body, moved.same)
    return with_steps(moved.function, without_unused(moved.steps, returned_by(result)), result)


def permutation_of(call: Any) -> list[int]:
    """The dimensions of a permute_dims in their new order."""
    axes = call.attrs.axes
    return list(range(len(extents_of(call))))[::-1] if axes is None else [int(axis) for axis in axes]


# ---------------------------------------------------------------- split


def _with_slices(function: Any) -> Any:
    """The function with a slice for each part of a split."""
    values = dict(steps_of(function))
    steps = []
    for variable, value in values.items():
        part = _part(variable, value, values) if isinstance(value, relax.TupleGetItem) else None
        steps.append((variable, value if part is None else part))
    return with_steps(function, without_unused(steps, returned_by(function.body.body)))


def _part(variable: Any, value: Any, values: Mapping[Any, Any]) -> Any | None:
    """The slice that a part of a split is, or None for a part of anything else."""
    call = values.get(value.tuple_value)
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


# ---------------------------------------------------------------- behind a dequantize


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


def _is_of_one(call: Any) -> bool:
    return is_call(call, *_OF_ONE) and _keeps_values(call)


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
    return _of_stored(value, operands, call, dtype_of(source)), call


# ---------------------------------------------------------------- in front of a quantize


class _Moved:
    """One pass over a function's bindings; `steps` are the new ones, `same` what is another value's name.

    `of_any` moves values of any origin, and not only those behind a dequantize.
    """

    def __init__(self, function: Any, moves: frozenset[str], of_any: bool) -> None:
        self.function, self._moves, self._of_any = function, moves, of_any
        self.same: dict[Any, Any] = {}
        self.steps: list[Assignment] = []
        self._values = dict(steps_of(function))
        self._users = users_of_values(function)
        self._grids: dict[Any, frozenset[_Grid] | None] = {}
        self._stored: dict[tuple[Any, _Grid | None], Any] = {}

    def step(self, variable: Any, value: Any) -> None:
        """Add a binding, or those that replace it."""
        if is_call(value, "quantize") and (self._is_moved(value.args[0]) or self._is_quantized_again(value)):
            self.same[variable] = self._stored_value(value.args[0], value, value)
            return
        self.steps.append((variable, with_operands(value, self.same)))

    def _is_quantized_again(self, quantize: Any) -> bool:
        """Whether stored values are only made real and stored as they were."""
        real = quantize.args[0]
        return self._is_dequantized(real) and _grid_of(self._values[real]) == _grid_of(quantize)

    def _is_dequantized(self, real: Any) -> bool:
        call = self._values.get(real)
        return is_call(call, "dequantize") and dtype_of(call.args[0]) == "int8" and _grid_of(call) is not None

    def _is_moved(self, real: Any) -> bool:
        """Whether a value is what an operator moves, and is only moved on and quantized."""
        call = self._values.get(real)
        if not is_call(call, *self._moves) or not _keeps_values(call):
            return False
        grids = self._grids_of(real)
        if grids is None or len(grids) > _MOST_GRIDS:
            return False
        return self._of_any or all(self._is_dequantized(one) or self._is_moved(one) for one in _tensors(call))

    def _grids_of(self, real: Any) -> frozenset[_Grid] | None:
        """The scales with which a value is quantized in the end, or None if others read it."""
        if real not in self._grids:
            grids: set[_Grid] = set()
            for user in self._users.get(real, ()):
                value = self._values.get(user)
                if is_call(value, "quantize"):
                    grid = _grid_of(value)
                    found = None if grid is None else frozenset([grid])
                else:
                    moves = is_call(value, *self._moves) and _keeps_values(value)
                    found = self._grids_of(user) if moves else None
                if found is None:
                    self._grids[real] = None
                    return None
                grids |= found
            self._grids[real] = frozenset(grids)
        return self._grids[real]

    def _stored_value(self, real: Any, quantize: Any, reader: Any) -> Any:
        """The variable with the values that a quantize gives for real ones; `reader` is what reads them."""
        grid, call = _grid_of(quantize), self._values.get(real)
        key = (real, grid)
        if isinstance(real, Literal):
            return relax.const(folded(call_on(quantize, [real, *quantize.args[1:]], None)))
        if key not in self._stored:
            if self._is_moved(real):
                by = {one: self._stored_value(one, quantize, call) for one in _tensors(call)}
                moved = _of_stored(call, with_operands(call, by).args, quantize, dtype_of(quantize))
                self._stored[key] = self._bound(moved, real)
            elif call is not None and self._is_dequantized(real) and _grid_of(call) == grid:
                self._stored[key] = with_operands(call.args[0], self.same)
            else:
                self._stored[key] = self._quantized(real, quantize, reader)
        return self._stored[key]

    def _quantized(self, real: Any, quantize: Any, reader: Any) -> Any:
        """The quantize of what is not moved; with a dequantize in front of it, both are of the operator that moves."""
        call, span = self._values.get(real), quantize.span
        if is_call(call, "dequantize") and reader is not quantize:
            call, span = with_operands(call, self.same), reader.span
            made = typed_as(named_call(call, names_in(span)[-1]), call.ty)
            real = relax.DataflowVar(f"{real.name}_again", made.ty)
            self.steps.append((real, made))
        of = relax.TensorType(extents_of(real), dtype_of(quantize))
        return self._bound(call_on(quantize, [real, *quantize.args[1:]], of, span), real)

    def _bound(self, value: Any, like: Any) -> Any:
        variable = relax.DataflowVar(f"{like.name}_stored", value.ty)
        self.steps.append((variable, value))
        return variable


_Grid = tuple[float, int, str]
"""Scale, zero point and type of stored values."""


def _grid_of(call: Any) -> _Grid | None:
    """What a quantize or a dequantize stores, or None for one with values for each channel, or computed ones."""
    constants = call.args[1:3]
    if not all(isinstance(one, Literal) and array_of(one).size == 1 for one in constants):
        return None
    scale, zero_point = (array_of(one).item() for one in constants)
    return scale, zero_point, dtype_of(call) if is_call(call, "quantize") else dtype_of(call.args[0])


def _of_stored(call: Any, operands: Any, by: Any, dtype: str) -> Any:
    """A move of values that a quantize stores, or a dequantize has."""
    made = call
    if name_of(call) == "nn.pad":
        zero = float(array_of(by.args[2]).item())
        made = relax.op.nn.pad(operands[0], list(call.attrs.pad_width), str(call.attrs.pad_mode), zero)
        operands = made.args
    return call_on(made, operands, relax.TensorType(extents_of(call), dtype), call.span)


def _keeps_values(call: Any) -> bool:
    """Whether a call gives values that it is given, and no others but zeros."""
    if name_of(call) == "image.resize2d":
        return str(call.attrs.method) == "nearest_neighbor"
    if name_of(call) == "nn.pad":
        return str(call.attrs.pad_mode) != "constant" or not call.attrs.pad_value
    return name_of(call) != "nn.max_pool2d" or not bool(call.attrs.ceil_mode)


def _tensors(call: Any) -> list[Any]:
    """The operands of a call that are tensors, also in a tuple."""
    return [one for one in operands_in(call) if dtype_of(one)]
