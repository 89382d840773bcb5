"""Places of the elements along an axis, in their order -> Ordering.

%0 = argsort(%x)                     int32 places; elements are float32, int8, uint8 or int32

The pass `orders` writes sort, and argsort with places of another type, like this.
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Ordering
from byoc_hw.pattern import Form, NotALayer, register_pattern


def to_order(match: Match) -> Ordering:
    """The layer of a matched argsort."""
    if match.get("sort") is not None:
        raise NotALayer(read.PLACES, "values")
    return read.places_in_order(match, match["argsort"])


register_pattern(
    "argsort",
    [Form(is_op("argsort")(wildcard())), Form(is_op("sort")(wildcard()))],
    parse=to_order,
    document="places of the elements along an axis in their order, also of a sort",
)
