"""The same int8 bytes under another shape -> Reshape.

    %0 = reshape(%x)                     or nn.batch_flatten, squeeze, expand_dims

Costs nothing, and avoids splitting a region. A region of reshapes only goes back to the host.
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Reshape
from byoc_hw.pattern import Form, register_pattern

OPERATORS = ("reshape", "nn.batch_flatten", "squeeze", "expand_dims")


def to_reshape(match: Match) -> Reshape:
    """The layer of a matched change of shape."""
    name = read.layer_name(match.root)
    return Reshape(
        name=name,
        source=match.sources,
        ifm=read.activation(match.inputs[0], f"{name}_ifm"),
        ofm=read.activation(match.root, name),
    )


register_pattern(
    "reshape",
    [Form(is_op(operator)(wildcard()), anchor=operator) for operator in OPERATORS],
    parse=to_reshape,
    document="int8 reshape, flatten, squeeze and expand_dims, without a copy",
)
