"""int8 maximum over a window -> Pool2d.

%0 = nn.max_pool2d(%x)               int8; or nn.max_pool1d
%1 = clip(%0)                        [optional]

In Relax:

%0 = nn.max_pool2d(%x)               int8
%1 = clip(%0)                        [optional]
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Pool2d
from byoc_hw.pattern import Form, register_pattern

DOCUMENT = "int8 maximum pooling, in one dimension too"

if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

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
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import any_value, clipped_forms, operator
    from byoc_hw.frontend.relax.qdq_match import QdqMatch
    from byoc_hw.frontend.relax.qdq_windows import pool2d_of

    def max_pool2d_of(match: QdqMatch) -> Pool2d:
        """The layer of a matched maximum."""
        return pool2d_of(match, "nn.max_pool2d", "max")

    register_pattern(
        "max_pool2d",
        clipped_forms(lambda: operator("nn.max_pool2d", any_value()), "nn.max_pool2d"),
        parse=max_pool2d_of,
        document=DOCUMENT,
    )
