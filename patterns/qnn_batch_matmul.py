"""int8 matrix product of two activations, requantized to int8 -> MatMul.

%0 = qnn.batch_matmul(%x, %y)        int32: x (B, M, K), y (B, N, K)
%1 = reshape(%0)                     [optional]
%2 = qnn.requantize(%1)              int8
%3 = clip(%2)                        [optional]

%0 = qnn.dense(%x, %y)               int32, of weights that are computed: x (M, K), y (N, K)
%1 = qnn.requantize(%0)              int8
%2 = clip(%1)                        [optional]

In Relax, with the last two dimensions of %y exchanged:

%0 = matmul(dequantize(%x), dequantize(permute_dims(%y)))
%1 = quantize(%0)                    int8
%2 = clip(%1)                        [optional]
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import MatMul
from byoc_hw.pattern import Form, NotALayer, register_pattern
from byoc_hw.tensor import Quantization

DOCUMENT = "int8 matrix product of two activations, with its requantize and clip"

if HAS_RELAY:
    from tvm import relay
    from tvm.relay.dataflow_pattern import DFPattern, is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def _product(operator: str) -> DFPattern:
        return is_op(operator)(wildcard(), wildcard(), *read.constants(4))

    def to_matmul(match: Match) -> MatMul | None:
        """The layer of a matched product; None of one with constant weights, which is a dense layer's."""
        call, requantize = match.get("qnn.dense"), match["qnn.requantize"]
        if call is not None and isinstance(call.args[1], relay.Constant):
            return None
        call = call or match["qnn.batch_matmul"]
        name = read.layer_name(call)
        one, other, one_zero, other_zero, one_scale, other_scale = call.args
        items, rows, depth, vectors = _sizes(call)
        ifm = read.activation(one, f"{name}_ifm", quantization=read.scalar_quantization(one_scale, one_zero))
        ifm2 = read.activation(other, f"{name}_ifm2", quantization=read.scalar_quantization(other_scale, other_zero))
        ofm = read.activation(match.root, name, quantization=read.requantize_output(requantize))
        act_min, act_max = read.clip_range(match)
        return MatMul(
            name=name,
            source=match.sources,
            ifm=read.reshaped(ifm, (items, rows, 1, depth)),
            ifm2=read.reshaped(ifm2, (items, vectors, depth)),
            ofm=read.reshaped(ofm, (items, rows, 1, vectors)),
            accumulator=_one_scale(requantize),
            act_min=act_min,
            act_max=act_max,
        )

    def _sizes(call: relay.Call) -> tuple[int, int, int, int]:
        """Items, rows of the product, the length of each sum, columns."""
        one, other = read.shape_of(call.args[0]), read.shape_of(call.args[1])
        if len(one) == 2:
            return 1, one[0], one[1], other[0]
        if bool(call.attrs.transpose_a) or not bool(call.attrs.transpose_b):
            flags = f"{bool(call.attrs.transpose_a)} and {bool(call.attrs.transpose_b)}"
            raise NotALayer("a product has transpose_a off and transpose_b on", flags)
        if other[0] == 1:  # one second operand for all items: they are one item
            return 1, one[0] * one[1], one[2], other[1]
        if one[0] != other[0]:
            raise NotALayer("the second operand has one item, or as many as the first", f"{other[0]} for {one[0]}")
        return one[0], one[1], one[2], other[1]

    def _one_scale(requantize: relay.Call) -> Quantization:
        found = read.accumulator(requantize, channel_axis=-1)
        if len(found.scale) != 1:
            raise NotALayer("one scale for the whole product", f"{len(found.scale)} different ones")
        return found

    register_pattern(
        "qnn_batch_matmul",
        [
            Form(
                read.rescaled(is_op("reshape")(_product("qnn.batch_matmul")) | _product("qnn.batch_matmul")),
                anchor="qnn.batch_matmul",
            ),
            # How far a dense layer got is said by the pattern of dense layers.
            Form(read.rescaled(_product("qnn.dense")), anchor="qnn.batch_matmul"),
        ],
        parse=to_matmul,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import any_value, operator, real, stored_forms
    from byoc_hw.frontend.relax.qdq_products import matmul_of

    register_pattern(
        "qnn_batch_matmul",
        stored_forms(lambda: operator("matmul", real(), real(operator("permute_dims", any_value()))), "matmul"),
        parse=matmul_of,
        document=DOCUMENT,
    )
