"""Places of the first elements along an axis, in their order -> Ordering.

%0 = topk(%x)                        int32 places; elements are float32, int8, uint8 or int32

The pass `orders` writes a topk of values, or of places of another type, like this.
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Ordering
from byoc_hw.pattern import Form, NotALayer, register_pattern


def to_order(match: Match) -> Ordering:
    """The layer of a matched topk."""
    call = match["topk"]
    if str(call.attrs.ret_type) != "indices":
        raise NotALayer(read.PLACES, "values" if str(call.attrs.ret_type) == "values" else "both")
    return read.places_in_order(match, call)


register_pattern(
    "topk",
    Form(is_op("topk")(wildcard())),
    parse=to_order,
    document="places of the first elements along an axis in their order, with their values by a gather",
)
