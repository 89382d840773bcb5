"""int8 dense, requantized to int8 -> Dense.

%1 = qnn.dense(%x, W)                int32
%2 = nn.bias_add(%1, b)              [optional; or add]
%3 = qnn.requantize(%2)              int8, per tensor or per channel
%4 = clip(%3)                        [optional]

An nn.dense of int8 with right_shift, clip and cast becomes this form before: `frontend/relay/rewrite/shifts.py`.

In Relax:

%0 = dequantize(%x)                  float32
%1 = matmul(%0, dequantize(W))       W may be transposed by permute_dims
%2 = add(%1, dequantize(b))          [optional; b is int32]
%3 = nn.relu(%2)                     [optional; or clip]
%4 = quantize(%3)                    int8
%5 = clip(%4)                        [optional]
"""

import numpy as np

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Dense
from byoc_hw.pattern import Form, register_pattern
from byoc_hw.tensor import Quantization, Tensor

DOCUMENT = "int8 fully connected layer, with its bias, requantize (or right_shift and cast) and clip"

if HAS_RELAY:
    from tvm.relay.dataflow_pattern import is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def to_dense(match: Match) -> Dense:
        """The layer of a matched dense call."""
        dense, requantize = match["qnn.dense"], match["qnn.requantize"]
        name = read.layer_name(dense)
        _, weights, ifm_zero_point, zero_point, ifm_scale, scale = dense.args
        data = np.ascontiguousarray(read.constant(weights))
        act_min, act_max = read.clip_range(match)
        return Dense(
            name=name,
            source=match.sources,
            ifm=read.activation(
                match.inputs[0], f"{name}_ifm", quantization=read.scalar_quantization(ifm_scale, ifm_zero_point)
            ),
            ofm=read.activation(match.root, name, quantization=read.requantize_output(requantize)),
            weights=Tensor(
                f"{name}_weights",
                data.shape,
                str(data.dtype),
                quantization=Quantization(
                    tuple(map(float, read.constant(scale).ravel())), read.one_zero_point(zero_point), axis=0
                ),
                data=data,
            ),
            bias=read.bias(match, name, channel_axis=1),
            accumulator=read.accumulator(requantize, channel_axis=1),
            act_min=act_min,
            act_max=act_max,
        )

    register_pattern(
        "qnn_dense",
        Form(read.requantized(is_op("qnn.dense")(wildcard(), *read.constants(5))), anchor="qnn.dense"),
        parse=to_dense,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import product_forms
    from byoc_hw.frontend.relax.qdq_windows import dense_of

    register_pattern(
        "qnn_dense",
        product_forms("matmul"),
        parse=dense_of,
        document=DOCUMENT,
    )
