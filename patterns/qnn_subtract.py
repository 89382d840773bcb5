"""int8 subtraction of two tensors -> Add.

%0 = qnn.subtract(%x, %y)            int8, each with its own quantization; of one shape, or one of them is broadcast
%1 = clip(%0)                        [optional]

In Relax:

%0 = subtract(dequantize(%x), dequantize(%y))
%1 = nn.relu(%0)                     [optional; or clip]
%2 = quantize(%1)                    int8
%3 = clip(%2)                        [optional]
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Add
from byoc_hw.pattern import Form, register_pattern

DOCUMENT = "int8 subtraction of two tensors, with its clip; either may be one value by channel, or one in all"

if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def to_subtraction(match: Match) -> Add:
        """The layer of a matched subtraction. Its first input is the larger operand, whichever is subtracted."""
        call = match["qnn.subtract"]
        read.check_no_table(call)
        fields = read.pairwise(match, call)
        return Add(**fields, subtract=read.subtrahend(match, call))

    register_pattern(
        "qnn_subtract",
        Form(read.clipped(is_op("qnn.subtract")(wildcard(), wildcard(), *read.constants(6))), anchor="qnn.subtract"),
        parse=to_subtraction,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import sum_forms
    from byoc_hw.frontend.relax.qdq_match import QdqMatch

    def subtraction_of(match: QdqMatch) -> Add:
        """The layer of a matched subtraction. Its first input is the larger operand, whichever is subtracted."""
        fields = match.pairwise("subtract")
        subtracted = match.stored(match["subtract"].args[1]).expr
        return Add(**fields, subtract="ifm2" if match.inputs[1].same_as(subtracted) else "ifm")

    register_pattern(
        "qnn_subtract",
        sum_forms("subtract"),
        parse=subtraction_of,
        document=DOCUMENT,
    )
