"""Elements at places along an axis -> Gather.

%0 = gather(%x, %places)             int32 places; elements are float32, int8, uint8 or int32

The pass `orders` writes the values of a sort or topk like this.
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Gather
from byoc_hw.pattern import Form, register_pattern


def to_gather(match: Match) -> Gather:
    """The layer of a matched gather."""
    call, name = match["gather"], read.layer_name(match.root)
    ifm, places = (read.activation(expr, f"{name}_in{index}") for index, expr in enumerate(match.inputs))
    axis = int(call.attrs.axis) % max(len(ifm.shape), 1)
    return Gather(name, match.sources, ifm, read.activation(call, name), places=places, axis=axis)


register_pattern(
    "gather",
    Form(is_op("gather")(wildcard(), wildcard())),
    parse=to_gather,
    document="elements at int32 places along an axis",
)
