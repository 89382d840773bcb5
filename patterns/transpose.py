"""int8 dimensions in another order -> Transpose.

    %0 = transpose(%x)                   a Reshape where only dimensions of 1 move

nn.depth_to_space and nn.space_to_depth are rewritten to it before (`rewrite/moves.py`).

In Relax:

    %0 = permute_dims(%x)
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Reshape, Transpose
from byoc_hw.pattern import Form, register_pattern
from byoc_hw.tensor import Tensor

DOCUMENT = "int8 transposition, depth_to_space and space_to_depth"


def transpose_layer(
    name: str, sources: tuple[str, ...], ifm: Tensor, ofm: Tensor, axes: tuple[int, ...]
) -> Transpose | Reshape:
    """The layer that moves the dimensions of one tensor to those of another."""
    moved = [axis for axis in axes if ifm.shape[axis] > 1]
    if moved == sorted(moved):  # the bytes keep their order
        return Reshape(name, sources, ifm, ofm)
    return Transpose(name, sources, ifm, ofm, axes=axes)


if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def to_transpose(match: Match) -> Transpose | Reshape:
        """The layer of a matched transposition."""
        name = read.layer_name(match.root)
        ifm, ofm = read.activation(match.inputs[0], f"{name}_ifm"), read.activation(match.root, name)
        return transpose_layer(name, match.sources, ifm, ofm, read.transposed_axes(match["transpose"]))

    register_pattern(
        "transpose",
        Form(is_op("transpose")(wildcard())),
        parse=to_transpose,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import any_value, operator
    from byoc_hw.frontend.relax.qdq_match import QdqMatch

    def transpose_of(match: QdqMatch) -> Transpose | Reshape | None:
        """The layer of a matched transposition; None for one of real values."""
        if match.is_real:
            return None
        name, given = match.name, match.root.attrs.axes
        ifm, ofm = match.activation(match.inputs[0], f"{name}_ifm"), match.activation(match.root, name)
        rank = len(ifm.shape)
        axes = tuple(range(rank))[::-1] if given is None else tuple(int(axis) % rank for axis in given)
        return transpose_layer(name, match.sources, ifm, ofm, axes)

    register_pattern(
        "transpose",
        Form(operator("permute_dims", any_value()), anchor="permute_dims"),
        parse=transpose_of,
        document=DOCUMENT,
    )
