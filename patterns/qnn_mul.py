"""int8 multiplication of two tensors -> Mul.

%0 = qnn.mul(%x, %y)                 int8, each with its own quantization; of one shape, or one of them is broadcast
%1 = clip(%0)                        [optional]
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Mul
from byoc_hw.pattern import Form, register_pattern


def to_mul(match: Match) -> Mul:
    """The layer of a matched multiplication."""
    read.check_no_table(match["qnn.mul"])
    return Mul(**read.pairwise(match, match["qnn.mul"]))


register_pattern(
    "qnn_mul",
    Form(read.clipped(is_op("qnn.mul")(wildcard(), wildcard(), *read.constants(6))), anchor="qnn.mul"),
    parse=to_mul,
    document="int8 multiplication of two tensors, with its clip; either may be one value by channel, or one in all",
)
