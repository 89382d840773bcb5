"""int8 multiplication of two tensors -> Mul.

%0 = qnn.mul(%x, %y)                 int8, each with its own quantization; of one shape, or one of them is broadcast
%1 = clip(%0)                        [optional]

In Relax:

%0 = multiply(dequantize(%x), dequantize(%y))
%1 = nn.relu(%0)                     [optional; or clip]
%2 = quantize(%1)                    int8
%3 = clip(%2)                        [optional]
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Mul
from byoc_hw.pattern import Form, register_pattern

DOCUMENT = "int8 multiplication of two tensors, with its clip; either may be one value by channel, or one in all"

if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def to_mul(match: Match) -> Mul:
        """The layer of a matched multiplication."""
        read.check_no_table(match["qnn.mul"])
        return Mul(**read.pairwise(match, match["qnn.mul"]))

    register_pattern(
        "qnn_mul",
        Form(read.clipped(is_op("qnn.mul")(wildcard(), wildcard(), *read.constants(6))), anchor="qnn.mul"),
        parse=to_mul,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import sum_forms
    from byoc_hw.frontend.relax.qdq_match import QdqMatch

    def mul_of(match: QdqMatch) -> Mul:
        """The layer of a matched product, element by element."""
        return Mul(**match.pairwise("multiply"))

    register_pattern(
        "qnn_mul",
        sum_forms("multiply"),
        parse=mul_of,
        document=DOCUMENT,
    )
