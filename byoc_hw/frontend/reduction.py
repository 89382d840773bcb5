"""Reductions over any neighbouring axes as windows: pooling of the same bytes under another shape."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from byoc_hw.frontend.windows import sides, squarest
from byoc_hw.pattern import NotALayer
from byoc_hw.tensor import Pair


@dataclass(frozen=True)
class Reduction:
    """A reduction as a window: the input's shape (1, H, W, C), and the kernel, which covers its width or all of it."""

    ifm: tuple[int, int, int, int]
    kernel: Pair

    @property
    def ofm(self) -> tuple[int, int, int, int]:
        """The output's shape."""
        _, height, width, channels = self.ifm
        return 1, height // self.kernel[0], width // self.kernel[1], channels


def reduction(shape: tuple[int, ...], axes: Collection[int], *, nchw: bool = False) -> Reduction:
    """The window of a reduction over sorted axes; `NotALayer` unless they are neighbours. Axes of one element are
    anywhere."""
    if len(shape) == 4 and shape[0] == 1 and list(axes) == [1, 2]:
        return _whole(shape[1], shape[2], shape[3])
    if len(shape) == 4 and shape[0] == 1 and nchw:
        return _whole(shape[2], shape[3], shape[1])
    long = [axis for axis, extent in enumerate(shape) if extent > 1]
    over = [axis for axis in long if axis in axes]
    if not over:
        channels = shape[-1] if shape else 1
        return Reduction((1, 1, prod(shape) // channels, channels), (1, 1))
    if any(over[0] < axis < over[-1] for axis in long if axis not in over):
        raise NotALayer("a reduction goes over neighbouring axes", f"{axes} of {shape}")
    outer, inner = prod(shape[: over[0]]), prod(shape[over[-1] + 1 :])
    count = prod(shape[axis] for axis in over)
    if outer > 1:
        return Reduction((1, outer, count, inner), (1, count))
    kernel = squarest(count)
    return Reduction((1, *kernel, inner), kernel)


def _whole(height: int, width: int, channels: int) -> Reduction:
    kernel = sides(height, width)
    return Reduction((1, *kernel, channels), kernel)
