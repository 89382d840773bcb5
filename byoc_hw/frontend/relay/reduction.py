"""Reads reductions as pooling."""

from __future__ import annotations

from tvm import relay

from byoc_hw.frontend.reduction import reduction
from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Pool2d, PoolMode


def reduced(match: Match, call: relay.Call, mode: PoolMode) -> Pool2d:
    """The layer of a matched reduction, with its requantize if the match has one."""
    requantize = match.get("qnn.requantize")
    ifm = ofm = None
    if requantize is not None:
        ifm, ofm = read.scalar_quantization(*requantize.args[1:3]), read.requantize_output(requantize)
    axes, nchw = read.reduced_axes(call), read.layout_of(call) == "NCHW"
    window, name = reduction(read.shape_of(call.args[0]), axes, nchw=nchw), read.layer_name(call)
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
