"""int8 addition of two tensors -> Add.

%0 = qnn.add(%x, %y)                 int8, each with its own quantization; of one shape, or one of them is broadcast
%1 = clip(%0)                        [optional]
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Add
from byoc_hw.pattern import Form, register_pattern


def to_add(match: Match) -> Add:
    """The layer of a matched addition."""
    read.check_no_table(match["qnn.add"])
    return Add(**read.pairwise(match, match["qnn.add"]))


register_pattern(
    "qnn_add",
    Form(read.clipped(is_op("qnn.add")(wildcard(), wildcard(), *read.constants(6))), anchor="qnn.add"),
    parse=to_add,
    document="int8 addition of two tensors, with its clip; either may be one value by channel, or one in all",
)
