"""int8 maximum over neighbouring axes -> Pool2d.

%0 = max(%x)                         int8
%1 = clip(%0)                        [optional]

%0 = cast(%x, int32)
%1 = max(%0)
%2 = qnn.requantize(%1)              int8, to the quantization that it has; or cast
%3 = clip(%2)                        [optional]
"""

from dataclasses import replace

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.frontend.relay.reduction import reduced
from byoc_hw.graph import Pool2d
from byoc_hw.pattern import Form, NotALayer, register_pattern


def to_reduce_max(match: Match) -> Pool2d | None:
    """The layer of a matched maximum, whose requantize changes nothing."""
    maximum = match["max"]
    if match.get("cast") is None and str(maximum.checked_type.dtype) == "int32":
        return None  # widened: a larger form is about it
    layer = reduced(match, maximum, "max")
    before, after = layer.ifm.quantization, layer.ofm.quantization
    if before is not None and after is not None and before != after:
        found = f"{before.scale[0]:g} and {before.zero_point[0]} to {after.scale[0]:g} and {after.zero_point[0]}"
        raise NotALayer("a maximum keeps its scale and zero point", found)
    return replace(layer, rescaled=False)


_WIDENED = is_op("max")(read.widened())

register_pattern(
    "reduce_max",
    [
        Form(read.rescaled(_WIDENED), anchor="max"),
        Form(read.clipped(is_op("cast")(_WIDENED).has_attr({"dtype": "int8"})), anchor="max"),
        Form(read.clipped(is_op("max")(wildcard())), anchor="max"),
    ],
    parse=to_reduce_max,
    document="int8 maximum over neighbouring axes",
)
