"""The same int8 bytes under another shape -> Reshape.

    %0 = reshape(%x)                     or nn.batch_flatten, squeeze, expand_dims

Costs nothing, and avoids splitting a region. A region of reshapes only goes back to the host.

In Relax:

%0 = reshape(%x, shape)              or squeeze, expand_dims
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Reshape
from byoc_hw.pattern import Form, register_pattern

DOCUMENT = "int8 reshape, flatten, squeeze and expand_dims, without a copy"

if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    OPERATORS = ("reshape", "nn.batch_flatten", "squeeze", "expand_dims")

    def to_reshape(match: Match) -> Reshape:
        """The layer of a matched change of shape."""
        name = read.layer_name(match.root)
        return Reshape(
            name=name,
            source=match.sources,
            ifm=read.activation(match.inputs[0], f"{name}_ifm"),
            ofm=read.activation(match.root, name),
        )

    register_pattern(
        "reshape",
        [Form(is_op(operator)(wildcard()), anchor=operator) for operator in OPERATORS],
        parse=to_reshape,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import any_value, operator
    from byoc_hw.frontend.relax.qdq_match import QdqMatch

    def reshape_of(match: QdqMatch) -> Reshape | None:
        """The layer of a matched change of shape; None for one of real values, which other patterns have inside."""
        if match.is_real:
            return None
        return Reshape(
            name=match.name,
            source=match.sources,
            ifm=match.activation(match.inputs[0], f"{match.name}_ifm"),
            ofm=match.activation(match.root, match.name),
        )

    register_pattern(
        "reshape",
        [
            Form(operator("reshape", any_value(), any_value()), anchor="reshape"),
            *(Form(operator(name, any_value()), anchor=name) for name in ("squeeze", "expand_dims", "flatten")),
        ],
        parse=reshape_of,
        document=DOCUMENT,
    )
