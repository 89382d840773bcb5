"""int8 addition of two tensors of one shape -> Add.

%0 = qnn.add(%x, %y)                 int8, each with its own quantization
%1 = clip(%0)                        [optional]
"""

from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Add
from byoc_hw.pattern import Form, register_pattern


def to_add(match: Match) -> Add:
    """The layer of a matched addition."""
    lhs, rhs, lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point, scale, zero_point = match["qnn.add"].args
    name = read.layer_name(match["qnn.add"])
    act_min, act_max = read.clip_range(match)
    return Add(
        name=name,
        source=match.sources,
        ifm=read.activation(lhs, f"{name}_ifm", quantization=read.scalar_quantization(lhs_scale, lhs_zero_point)),
        ifm2=read.activation(rhs, f"{name}_ifm2", quantization=read.scalar_quantization(rhs_scale, rhs_zero_point)),
        ofm=read.activation(match.root, name, quantization=read.scalar_quantization(scale, zero_point)),
        act_min=act_min,
        act_max=act_max,
    )


register_pattern(
    "qnn_add",
    Form(read.clipped(is_op("qnn.add")(wildcard(), wildcard(), *read.constants(6))), anchor="qnn.add"),
    parse=to_add,
    document="int8 addition of two tensors of one shape, with its clip",
)
