"""int8 subtraction of two tensors -> Add.

%0 = qnn.subtract(%x, %y)            int8, each with its own quantization; of one shape, or one of them is broadcast
%1 = clip(%0)                        [optional]
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Add
from byoc_hw.pattern import Form, register_pattern


def to_subtraction(match: Match) -> Add:
    """The layer of a matched subtraction. Its first input is the larger operand, whichever is subtracted."""
    call = match["qnn.subtract"]
    read.check_no_table(call)
    fields = read.pairwise(match, call)
    return Add(**fields, subtract=read.subtrahend(match, call))


register_pattern(
    "qnn_subtract",
    Form(read.clipped(is_op("qnn.subtract")(wildcard(), wildcard(), *read.constants(6))), anchor="qnn.subtract"),
    parse=to_subtraction,
    document="int8 subtraction of two tensors, with its clip; either may be one value by channel, or one in all",
)
