"""int8 sum over neighbouring axes, requantized to int8 -> Pool2d.

%0 = cast(%x, int32)
%1 = sum(%0)
%2 = qnn.requantize(%1)              int8
%3 = clip(%2)                        [optional]

TFLite's own kernel is not taken: that of 2.14 reads int8 as uint8.
"""

from tvm.relay.dataflow_pattern import is_op

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.frontend.relay.reduction import reduced
from byoc_hw.graph import Pool2d
from byoc_hw.pattern import Check, Form, limit, register_pattern


def to_reduce_sum(match: Match) -> Pool2d:
    """The layer of a matched sum, with its requantize."""
    return reduced(match, match["sum"], "sum")


@limit("a sum is rounded upward: TFLite's kernel takes int8 for uint8")
def upward_sum(pool: Pool2d) -> Check:
    """There is nothing in TFLite that a sum could equal."""
    return Check(pool.rounding, pool.rounding == "upward")


register_pattern(
    "reduce_sum",
    Form(read.rescaled(is_op("sum")(read.widened())), anchor="sum"),
    parse=to_reduce_sum,
    limits=[upward_sum],
    document="int8 sum over neighbouring axes, with its requantize",
)
