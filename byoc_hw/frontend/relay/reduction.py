"""Reads reductions over any neighbouring axes: pooling of the same bytes under another shape."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod

from tvm import relay

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Pool2d, PoolMode
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


def reduction(call: relay.Call) -> Reduction:
    """The window of a reduction; `NotALayer` unless its axes are neighbours. Axes of one element are anywhere."""
    shape, axes = read.shape_of(call.args[0]), read.reduced_axes(call)
    if len(shape) == 4 and shape[0] == 1 and axes == [1, 2]:
        return _whole(shape[1], shape[2], shape[3])
    if len(shape) == 4 and shape[0] == 1 and read.layout_of(call) == "NCHW":
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
    return _squarest(count, inner) if outer == 1 else Reduction((1, outer, count, inner), (1, count))


def _whole(height: int, width: int, channels: int) -> Reduction:
    return Reduction((1, height, width, channels), (height, width))


def _squarest(count: int, channels: int) -> Reduction:
    """The elements of one long axis as a window whose sides differ least."""
    height = next(side for side in range(isqrt(count), 0, -1) if count % side == 0)
    return _whole(height, count // height, channels)


def reduced(match: Match, call: relay.Call, mode: PoolMode) -> Pool2d:
    """The layer of a matched reduction, with its requantize if the match has one."""
    requantize = match.get("qnn.requantize")
    ifm = ofm = None
    if requantize is not None:
        ifm, ofm = read.scalar_quantization(*requantize.args[1:3]), read.requantize_output(requantize)
    window, name = reduction(call), read.layer_name(call)
    act_min, act_max = read.clip_range(match)
    return Pool2d(
        name=name,
        source=match.sources,
        ifm=read.reshaped(read.activation(match.inputs[0], f"{name}_ifm", quantization=ifm), window.ifm),
        ofm=read.reshaped(read.activation(match.root, name, quantization=ofm), window.ofm),
        mode=mode,
        kernel=window.kernel,
        rescaled=requantize is not None,
        act_min=act_min,
        act_max=act_max,
    )
