"""int8 maximum over neighbouring axes -> Pool2d.

%0 = max(%x)                         int8
%1 = clip(%0)                        [optional]

%0 = cast(%x, int32)
%1 = max(%0)
%2 = qnn.requantize(%1)              int8, to the quantization that it has; or cast
%3 = clip(%2)                        [optional]

In Relax:

%0 = max(dequantize(%x))             or max(%x) of int8, and no quantize
%1 = quantize(%0)                    int8, with the quantization of %x
%2 = clip(%1)                        [optional]
"""

from dataclasses import replace

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Pool2d
from byoc_hw.pattern import Form, NotALayer, register_pattern

DOCUMENT = "int8 maximum over neighbouring axes"


def with_one_scale(layer: Pool2d) -> Pool2d:
    """The layer of a maximum, which keeps its scale and zero point; `NotALayer` where it does not."""
    before, after = layer.ifm.quantization, layer.ofm.quantization
    if before is not None and after is not None and before != after:
        found = f"{before.scale[0]:g} and {before.zero_point[0]} to {after.scale[0]:g} and {after.zero_point[0]}"
        raise NotALayer("a maximum keeps its scale and zero point", found)
    return replace(layer, rescaled=False)


if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match
    from byoc_hw.frontend.relay.reduction import reduced

    def to_reduce_max(match: Match) -> Pool2d | None:
        """The layer of a matched maximum, whose requantize changes nothing."""
        maximum = match["max"]
        if match.get("cast") is None and str(maximum.checked_type.dtype) == "int32":
            return None  # widened: a larger form is about it
        return with_one_scale(reduced(match, maximum, "max"))

    _WIDENED = is_op("max")(read.widened())

    register_pattern(
        "reduce_max",
        [
            Form(read.rescaled(_WIDENED), anchor="max"),
            Form(read.clipped(is_op("cast")(_WIDENED).has_attr({"dtype": "int8"})), anchor="max"),
            Form(read.clipped(is_op("max")(wildcard())), anchor="max"),
        ],
        parse=to_reduce_max,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import any_value, clipped_forms, operator, real, stored_forms
    from byoc_hw.frontend.relax.qdq_match import QdqMatch
    from byoc_hw.frontend.relax.qdq_windows import reduced_of

    def reduce_max_of(match: QdqMatch) -> Pool2d | None:
        """The layer of a matched maximum, whose quantize changes nothing; None for one of real values."""
        return None if match.is_real else with_one_scale(reduced_of(match, "max", "max"))

    register_pattern(
        "reduce_max",
        [
            *stored_forms(lambda: operator("max", real()), "max"),
            *clipped_forms(lambda: operator("max", any_value()), "max"),
        ],
        parse=reduce_max_of,
        document=DOCUMENT,
    )
