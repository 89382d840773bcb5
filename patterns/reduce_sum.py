"""int8 sum over neighbouring axes, requantized to int8 -> Pool2d.

%0 = cast(%x, int32)
%1 = sum(%0)
%2 = qnn.requantize(%1)              int8
%3 = clip(%2)                        [optional]

In Relax:

%0 = sum(dequantize(%x))
%1 = quantize(%0)                    int8
%2 = clip(%1)                        [optional]

TFLite's own kernel is not taken: that of 2.14 reads int8 as uint8.
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Pool2d
from byoc_hw.pattern import Check, Form, limit, register_pattern

DOCUMENT = "int8 sum over neighbouring axes, with its requantize"


@limit("a sum is rounded upward: TFLite's kernel takes int8 for uint8")
def upward_sum(pool: Pool2d) -> Check:
    """There is nothing in TFLite that a sum could equal."""
    return Check(pool.rounding, pool.rounding == "upward")


if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_op

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match
    from byoc_hw.frontend.relay.reduction import reduced

    def to_reduce_sum(match: Match) -> Pool2d:
        """The layer of a matched sum, with its requantize."""
        return reduced(match, match["sum"], "sum")

    register_pattern(
        "reduce_sum",
        Form(read.rescaled(is_op("sum")(read.widened())), anchor="sum"),
        parse=to_reduce_sum,
        limits=[upward_sum],
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import operator, real, stored_forms
    from byoc_hw.frontend.relax.qdq_match import QdqMatch
    from byoc_hw.frontend.relax.qdq_windows import reduced_of

    def reduce_sum_of(match: QdqMatch) -> Pool2d:
        """The layer of a matched sum of real values."""
        return reduced_of(match, "sum", "sum")

    register_pattern(
        "reduce_sum",
        stored_forms(lambda: operator("sum", real()), "sum"),
        parse=reduce_sum_of,
        limits=[upward_sum],
        document=DOCUMENT,
    )
