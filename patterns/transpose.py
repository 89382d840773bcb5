"""int8 dimensions in another order -> Transpose.

    %0 = transpose(%x)                   a Reshape where only dimensions of 1 move

nn.depth_to_space and nn.space_to_depth are rewritten to it before (`rewrite/moves.py`).
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Reshape, Transpose
from byoc_hw.pattern import Form, register_pattern


def to_transpose(match: Match) -> Transpose | Reshape:
    """The layer of a matched transposition."""
    name = read.layer_name(match.root)
    ifm, ofm = read.activation(match.inputs[0], f"{name}_ifm"), read.activation(match.root, name)
    axes = read.transposed_axes(match["transpose"])
    moved = [axis for axis in axes if ifm.shape[axis] > 1]
    if moved == sorted(moved):  # the bytes keep their order
        return Reshape(name, match.sources, ifm, ofm)
    return Transpose(name, match.sources, ifm, ofm, axes=axes)


register_pattern(
    "transpose",
    Form(is_op("transpose")(wildcard())),
    parse=to_transpose,
    document="int8 transposition, depth_to_space and space_to_depth",
)
