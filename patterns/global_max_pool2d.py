"""int8 maximum over height and width -> Pool2d.

%0 = nn.global_max_pool2d(%x)        int8
%1 = clip(%0)                        [optional]
"""

from dataclasses import replace

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Pool2d
from byoc_hw.pattern import Form, register_pattern


def to_global_max_pool2d(match: Match) -> Pool2d:
    """The layer of a matched maximum: its window is the whole input."""
    return replace(read.global_pool2d(match, match["nn.global_max_pool2d"]), mode="max")


register_pattern(
    "global_max_pool2d",
    Form(read.clipped(is_op("nn.global_max_pool2d")(wildcard())), anchor="nn.global_max_pool2d"),
    parse=to_global_max_pool2d,
    document="int8 maximum over height and width",
)
