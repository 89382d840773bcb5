"""A part of an int8 tensor -> Slice.

%0 = strided_slice(%x)               every dimension with its own begin and stride
"""

from tvm import relay
from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Slice
from byoc_hw.pattern import Form, NotALayer, register_pattern


def to_slice(match: Match) -> Slice:
    """The layer of a matched slice."""
    call, name = match["strided_slice"], read.layer_name(match.root)
    ifm, ofm = read.activation(match.inputs[0], f"{name}_ifm"), read.activation(match.root, name)
    begin, steps = _begin_and_steps(call, ifm.shape)
    return Slice(name, match.sources, ifm, ofm, begin=begin, steps=steps)


def _begin_and_steps(call: relay.Call, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first index and the step of each dimension, as TVM reads the attributes."""
    first, strides = [0] * len(shape), [1] * len(shape)
    axes = range(len(call.attrs.begin)) if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]
    given = [] if str(call.attrs.slice_mode) == "size" else [int(step) for step in call.attrs.strides]
    for place, (axis, begin) in enumerate(zip(axes, map(int, call.attrs.begin), strict=True)):
        step = given[place] if place < len(given) else given[0] if len(given) == 1 else 1
        if step < 1:
            raise NotALayer("steps of a slice are at least 1", step)
        first[axis] = min(max(begin + shape[axis] if begin < 0 else begin, 0), shape[axis])
        strides[axis] = step
    return tuple(first), tuple(strides)


register_pattern(
    "strided_slice",
    Form(is_op("strided_slice")(wildcard())),
    parse=to_slice,
    document="int8 slice, with steps of 1 and more",
)
