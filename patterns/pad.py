"""An int8 tensor with a constant around it -> Pad.

    %0 = nn.pad(%x, value)               in any dimension

A convolution behind it that pads with its zero point takes it in (`qnn_conv2d`).
"""

from tvm.relay.dataflow_pattern import is_constant, is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Pad
from byoc_hw.pattern import Form, NotALayer, register_pattern


def to_pad(match: Match) -> Pad:
    """The layer of a matched pad."""
    call, name = match["nn.pad"], read.layer_name(match.root)
    if str(call.attrs.pad_mode) != "constant":
        raise NotALayer("nn.pad's mode is constant", call.attrs.pad_mode)
    widths = [[int(extent) for extent in axis] for axis in call.attrs.pad_width]
    if min((extent for axis in widths for extent in axis), default=0) < 0:
        raise NotALayer("nn.pad's widths are not negative", widths)
    value = read.constant(call.args[1]).flat[0]
    if not -128 <= value <= 127 or value != int(value):
        raise NotALayer("nn.pad's value is a whole number from -128 to 127", value)
    ifm, ofm = read.activation(match.inputs[0], f"{name}_ifm"), read.activation(match.root, name)
    return Pad(name, match.sources, ifm, ofm, before=tuple(before for before, _ in widths), value=int(value))


register_pattern(
    "pad",
    Form(is_op("nn.pad")(wildcard(), is_constant())),
    parse=to_pad,
    document="int8 pad with a constant, in any dimension",
)
