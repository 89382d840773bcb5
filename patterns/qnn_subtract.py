"""int8 subtraction of two tensors of one shape -> Add. Its second input is subtracted.

%0 = qnn.subtract(%x, %y)            int8, each with its own quantization
%1 = clip(%0)                        [optional]
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Add
from byoc_hw.pattern import Form, register_pattern


def to_subtraction(match: Match) -> Add:
    """The layer of a matched subtraction."""
    return Add(**read.pairwise(match, match["qnn.subtract"]), subtract=True)


register_pattern(
    "qnn_subtract",
    Form(read.clipped(is_op("qnn.subtract")(wildcard(), wildcard(), *read.constants(6))), anchor="qnn.subtract"),
    parse=to_subtraction,
    document="int8 subtraction of two tensors of one shape, with its clip",
)
