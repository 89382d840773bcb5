"""int8 maximum over a window -> Pool2d.

%0 = nn.max_pool2d(%x)               int8; or nn.max_pool1d
%1 = clip(%0)                        [optional]
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Pool2d
from byoc_hw.pattern import Form, register_pattern


def to_max_pool2d(match: Match) -> Pool2d:
    """The layer of a matched maximum."""
    line = match.get("nn.max_pool1d")
    return read.pool2d(match, match["nn.max_pool2d"], "max") if line is None else read.pool1d(match, line, "max")


register_pattern(
    "max_pool2d",
    [
        Form(read.clipped(is_op(operator)(wildcard())), anchor=operator)
        for operator in ("nn.max_pool2d", "nn.max_pool1d")
    ],
    parse=to_max_pool2d,
    document="int8 maximum pooling, in one dimension too",
)
