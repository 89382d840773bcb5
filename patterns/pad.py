"""An int8 tensor with a constant around it -> Pad.

    %0 = nn.pad(%x, value)               in any dimension

A convolution behind it that pads with its zero point takes it in (`qnn_conv2d`). In Relax the same.
"""

from collections.abc import Sequence

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Pad
from byoc_hw.pattern import Form, NotALayer, register_pattern
from byoc_hw.tensor import Tensor

DOCUMENT = "int8 pad with a constant, in any dimension"


def pad_layer(
    name: str, sources: tuple[str, ...], tensors: tuple[Tensor, Tensor], widths: Sequence[Sequence[int]], value: float
) -> Pad:
    """The layer of a pad from one tensor to another."""
    if min((extent for axis in widths for extent in axis), default=0) < 0:
        raise NotALayer("nn.pad's widths are not negative", widths)
    if not -128 <= value <= 127 or value != int(value):
        raise NotALayer("nn.pad's value is a whole number from -128 to 127", value)
    return Pad(name, sources, *tensors, before=tuple(before for before, _ in widths), value=int(value))


def check_mode(mode: str) -> None:
    """Raise `NotALayer` for a pad with other than a constant."""
    if mode != "constant":
        raise NotALayer("nn.pad's mode is constant", mode)


if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_constant, is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def to_pad(match: Match) -> Pad:
        """The layer of a matched pad."""
        call, name = match["nn.pad"], read.layer_name(match.root)
        check_mode(str(call.attrs.pad_mode))
        widths = [[int(extent) for extent in axis] for axis in call.attrs.pad_width]
        tensors = read.activation(match.inputs[0], f"{name}_ifm"), read.activation(match.root, name)
        return pad_layer(name, match.sources, tensors, widths, read.constant(call.args[1]).flat[0])

    register_pattern(
        "pad",
        Form(is_op("nn.pad")(wildcard(), is_constant())),
        parse=to_pad,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import any_value, operator
    from byoc_hw.frontend.relax.qdq_match import QdqMatch
    from byoc_hw.frontend.relax.qdq_windows import pad_widths

    def pad_of(match: QdqMatch) -> Pad | None:
        """The layer of a matched pad; None for one of real values."""
        call, name = match.root, match.name
        if match.is_real:
            return None
        check_mode(str(call.attrs.pad_mode))
        tensors = match.activation(match.inputs[0], f"{name}_ifm"), match.activation(match.root, name)
        return pad_layer(name, match.sources, tensors, pad_widths(call), float(call.attrs.pad_value))

    register_pattern(
        "pad",
        Form(operator("nn.pad", any_value()), anchor="nn.pad"),
        parse=pad_of,
        document=DOCUMENT,
    )
