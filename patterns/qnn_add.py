"""int8 addition of two tensors -> Add.

%0 = qnn.add(%x, %y)                 int8, each with its own quantization; of one shape, or one of them is broadcast
%1 = clip(%0)                        [optional]

In Relax:

%0 = add(dequantize(%x), dequantize(%y))
%1 = nn.relu(%0)                     [optional; or clip]
%2 = quantize(%1)                    int8
%3 = clip(%2)                        [optional]
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Add
from byoc_hw.pattern import Form, register_pattern

DOCUMENT = "int8 addition of two tensors, with its clip; either may be one value by channel, or one in all"

if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def to_add(match: Match) -> Add:
        """The layer of a matched addition."""
        read.check_no_table(match["qnn.add"])
        return Add(**read.pairwise(match, match["qnn.add"]))

    register_pattern(
        "qnn_add",
        Form(read.clipped(is_op("qnn.add")(wildcard(), wildcard(), *read.constants(6))), anchor="qnn.add"),
        parse=to_add,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import sum_forms
    from byoc_hw.frontend.relax.qdq_match import QdqMatch

    def add_of(match: QdqMatch) -> Add:
        """The layer of a matched addition."""
        return Add(**match.pairwise("add"))

    register_pattern(
        "qnn_add",
        sum_forms("add"),
        parse=add_of,
        document=DOCUMENT,
    )
