"""int8 tensors one behind the other along any axis -> Concat.

    %0 = concatenate((%x, %y, ...))

qnn.concatenate, split and stack are rewritten to such operators before (`rewrite/moves.py`).

In Relax:

    %0 = concat((%x, %y, ...))

also between dequantize and quantize (`frontend/relax/qdq_moves.py`).
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Concat
from byoc_hw.pattern import Form, register_pattern

DOCUMENT = "int8 concatenation along any axis; inputs with another scale are requantized first"

if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_op, is_tuple

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def to_concat(match: Match) -> Concat:
        """The layer of a matched concatenation."""
        name, ofm = read.layer_name(match.root), read.activation(match.root, read.layer_name(match.root))
        first, *others = (read.activation(expr, f"{name}_ifm{index}") for index, expr in enumerate(match.inputs))
        axis = int(match["concatenate"].attrs.axis) % len(ofm.shape)
        return Concat(name, match.sources, first, ofm, others=tuple(others), axis=axis)

    register_pattern(
        "concatenate",
        Form(is_op("concatenate")(is_tuple(None))),
        parse=to_concat,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import any_value, operator
    from byoc_hw.frontend.relax.qdq_match import QdqMatch

    def concat_of(match: QdqMatch) -> Concat | None:
        """The layer of a matched concatenation; None for one of real values."""
        if match.is_real:
            return None
        name, ofm = match.name, match.activation(match.root, match.name)
        first, *others = (match.activation(expr, f"{name}_ifm{index}") for index, expr in enumerate(match.inputs))
        axis = int(match.root.attrs.axis) % len(ofm.shape)
        return Concat(name, match.sources, first, ofm, others=tuple(others), axis=axis)

    register_pattern(
        "concatenate",
        Form(operator("concat", any_value()), anchor="concat"),
        parse=concat_of,
        document=DOCUMENT,
    )
