"""Float values that have an integer form: stored integers, sums, and what can be computed of them.

Each kind of value is asked for one of two things. `quantized(grid)` is its integer form for a `qnn.quantize` to that
grid. `stored()` is the integers that the value is made of already, which a convolution can read, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from tvm import relay

from byoc_hw.frontend.relay.sources import span_of_all, with_span
from byoc_hw.tensor import Array

Build = Callable[[relay.Expr, "Grid"], relay.Expr]
"""Makes integers on a grid from other integers on the same grid."""


@dataclass(frozen=True)
class Grid:
    """The real numbers that integers of a type stand for: (integer - zero_point) * scale."""

    scale: np.float32
    zero_point: int
    dtype: str

    def level(self, real: float) -> int:
        """The integer that is nearest to a real number, the even one of two, within the type."""
        limits = np.iinfo(self.dtype)
        return int(
            np.clip(np.rint(np.float32(real) / np.float64(self.scale)) + self.zero_point, limits.min, limits.max)
        )

    def levels(self, real: Array) -> Array:
        """The integers that are nearest to real numbers, the even ones of two, within the type."""
        limits = np.iinfo(self.dtype)
        levels = np.rint(real.astype(np.float32) / self.scale) + self.zero_point
        return np.asarray(np.clip(levels, limits.min, limits.max).astype(self.dtype))

    @property
    def constants(self) -> tuple[relay.Constant, relay.Constant]:
        """Scale and zero point as operands of a qnn operator."""
        return relay.const(self.scale, "float32"), relay.const(self.zero_point, "int32")


class Quantizable(Protocol):
    """A float value that has an integer form."""

    def stored(self) -> Stored | None:
        """The integers that the value is made of; None where there are none before it is quantized."""

    def quantized(self, grid: Grid) -> relay.Expr:
        """The integers of this grid that are nearest to the value."""


@dataclass(frozen=True)
class Stored:
    """Integers with one scale, or one for each index of `axis`; all have one zero point."""

    expr: relay.Expr
    scale: Array
    zero_point: int
    dtype: str
    axis: int = 0
    span: object = None

    @property
    def grid(self) -> Grid | None:
        """The grid; None for several scales."""
        return None if self.scale.ndim else Grid(np.float32(self.scale), self.zero_point, self.dtype)

    def stored(self) -> Stored:
        """These integers."""
        return self

    def quantized(self, grid: Grid) -> relay.Expr:
        """These integers, or a requantize of them."""
        if self.grid == grid:
            return self.expr
        scale, zero_point = relay.const(self.scale, "float32"), relay.const(self.zero_point, "int32")
        return _requantized(self.expr, scale, zero_point, grid, self.axis, self.span)


@dataclass(frozen=True)
class Sum:
    """An int32 sum of products, with one scale, or one for each index of `axis`; its zero point is 0.

    `views` are changes of shape behind it, which `quantized` makes of the requantized sum: a requantize belongs to its
    sum.
    """

    expr: relay.Call
    scale: Array
    axis: int
    views: tuple[Build, ...] = ()

    def stored(self) -> None:
        """None: the sum is not on a grid before its requantize."""

    def quantized(self, grid: Grid) -> relay.Expr:
        """The requantized sum."""
        scale, zero_point = relay.const(self.scale, "float32"), relay.const(0, "int32")
        result = _requantized(self.expr, scale, zero_point, grid, self.axis, self.expr.span)
        for view in self.views:
            result = view(result, grid)
        return result


@dataclass(frozen=True)
class Mapped:
    """What `build` makes of a value on any grid: a maximum, a clip, a change of shape."""

    inner: Quantizable
    build: Build

    def stored(self) -> Stored | None:
        """The same of the integers that the value is made of."""
        inner = self.inner.stored()
        if inner is None or inner.grid is None:
            return None
        return replace(inner, expr=self.build(inner.expr, inner.grid))

    def quantized(self, grid: Grid) -> relay.Expr:
        """The same of the quantized value."""
        return self.build(self.inner.quantized(grid), grid)


@dataclass(frozen=True)
class Computed:
    """What is computed for a grid: an addition, an average."""

    compute: Callable[[Grid], relay.Expr]

    def stored(self) -> None:
        """None: it is computed when the grid is known."""

    def quantized(self, grid: Grid) -> relay.Expr:
        """The value on the grid."""
        return self.compute(grid)


@dataclass
class Real:
    """A float value that is quantized as it is, once for each grid."""

    expr: relay.Expr
    span: object
    _levels: dict[Grid, relay.Expr] = field(default_factory=dict)

    def stored(self) -> None:
        """None: it is float."""

    def quantized(self, grid: Grid) -> relay.Expr:
        """The quantize of it, done where it is constant."""
        if isinstance(self.expr, relay.Constant):
            return relay.const(grid.levels(self.expr.data.numpy()), grid.dtype)
        if grid not in self._levels:
            call = relay.qnn.op.quantize(self.expr, *grid.constants, out_dtype=grid.dtype)
            self._levels[grid] = with_span(call, self.span)
        return self._levels[grid]


@dataclass(frozen=True)
class Joined:
    """Stored integers behind one another; `join` makes them on a grid."""

    parts: tuple[Stored, ...]
    together: Callable[[tuple[relay.Expr, ...]], relay.Expr]
    join: Callable[[Grid], relay.Expr]

    def stored(self) -> Stored | None:
        """The integers behind one another, where all are on one grid."""
        first = self.parts[0]
        if first.grid is None or any(part.grid != first.grid for part in self.parts):
            return None
        return replace(first, expr=self.together(tuple(part.expr for part in self.parts)))

    def quantized(self, grid: Grid) -> relay.Expr:
        """The integers behind one another, each requantized to the grid."""
        return self.join(grid)


def _requantized(
    expr: relay.Expr, scale: relay.Constant, zero_point: relay.Constant, grid: Grid, axis: int, span: object
) -> relay.Expr:
    call = relay.qnn.op.requantize(expr, scale, zero_point, *grid.constants, axis=axis, out_dtype=grid.dtype)
    return with_span(call, span)


def also_named(expr: relay.Expr, span: object) -> relay.Expr:
    """An expression that stands for another operator too: a call has the names of both."""
    if not isinstance(expr, relay.Call) or span is None:
        return expr
    return with_span(expr, span_of_all((expr.span, span)))
