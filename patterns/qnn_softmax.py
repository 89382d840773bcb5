"""int8 softmax over the last axis -> Softmax.

%0 = qnn.dequantize(%x)              float32
%1 = nn.softmax(%0)
%2 = qnn.quantize(%1)                int8, scale 1/256, zero point -128

TVM computes this in floating point, TFLite in fixed point: only the latter is an integer layer.

In Relax:

%0 = dequantize(%x)                  float32
%1 = nn.softmax(%0)
%2 = quantize(%1)                    int8, scale 1/256, zero point -128
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Softmax
from byoc_hw.pattern import Check, Form, NotALayer, limit, register_pattern

DOCUMENT = "int8 softmax over the last axis, with numerics='tflite'"


@limit("softmax is offloaded with numerics='tflite' only, for its integer arithmetic")
def tflite_rounding(softmax: Softmax) -> Check:
    """TVM computes softmax in floating point."""
    return Check(f"rounding {softmax.rounding}", softmax.rounding == "tflite")


if HAS_RELAY:
    from tvm.relay.dataflow_pattern import DFPattern, is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def _softmax() -> DFPattern:
        probabilities = is_op("nn.softmax")(is_op("qnn.dequantize")(wildcard(), *read.constants(2)))
        return is_op("qnn.quantize")(probabilities, *read.constants(2))

    def to_softmax(match: Match) -> Softmax:
        """The layer of a matched softmax."""
        softmax, dequantize, quantize = match["nn.softmax"], match["qnn.dequantize"], match["qnn.quantize"]
        name, rank = read.layer_name(softmax), len(read.shape_of(softmax))
        if int(softmax.attrs.axis) % rank != rank - 1:
            raise NotALayer("softmax goes over the last axis", softmax.attrs.axis)
        return Softmax(
            name=name,
            source=match.sources,
            ifm=read.activation(
                match.inputs[0], f"{name}_ifm", quantization=read.scalar_quantization(*dequantize.args[1:])
            ),
            ofm=read.activation(match.root, name, quantization=read.scalar_quantization(*quantize.args[1:])),
        )

    register_pattern(
        "qnn_softmax",
        Form(_softmax(), anchor="nn.softmax"),
        parse=to_softmax,
        limits=[tflite_rounding],
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import operator, real, stored_forms
    from byoc_hw.frontend.relax.qdq_match import QdqMatch
    from byoc_hw.frontend.relax.versions import extents_of

    def softmax_of(match: QdqMatch) -> Softmax:
        """The layer of a matched softmax."""
        call = match["nn.softmax"]
        rank = len(extents_of(call))
        if int(call.attrs.axis) % rank != rank - 1:
            raise NotALayer("softmax goes over the last axis", call.attrs.axis)
        stored = match.stored(call.args[0])
        return Softmax(
            name=match.name,
            source=match.sources,
            ifm=match.activation(stored.expr, f"{match.name}_ifm", stored.quantization),
            ofm=match.activation(match.root, match.name, match.output),
        )

    register_pattern(
        "qnn_softmax",
        stored_forms(lambda: operator("nn.softmax", real()), "nn.softmax")[1],
        parse=softmax_of,
        limits=[tflite_rounding],
        document=DOCUMENT,
    )
