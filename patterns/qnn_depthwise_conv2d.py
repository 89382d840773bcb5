"""int8 depthwise conv2d, requantized to int8 -> DepthwiseConv2d.

%0 = nn.pad(%x, zero point)          [optional; constant, height and width]
%1 = qnn.conv2d(%0, W, groups=C)     int32, one filter for each channel
%2 = nn.bias_add(%1, b)              [optional; or add]
%3 = qnn.requantize(%2)              int8, per tensor or per channel
%4 = clip(%3)                        [optional]

An nn.conv2d of int8 with right_shift, clip and cast becomes this form before: `frontend/relay/rewrite/shifts.py`.

In Relax:

%0 = dequantize(%x)                  float32; %x may be nn.pad(%y) with the zero point
%1 = nn.conv2d(%0, dequantize(W))    one filter for each channel; dequantize(W) may be reshaped
%2 = add(%1, dequantize(b))          [optional; b is int32]
%3 = nn.relu(%2)                     [optional; or clip]
%4 = quantize(%3)                    int8
%5 = clip(%4)                        [optional]
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import DepthwiseConv2d
from byoc_hw.pattern import register_pattern

DOCUMENT = "int8 depthwise convolution, with its padding, bias, requantize (or right_shift and cast) and clip"

if HAS_RELAY:
    from byoc_hw.frontend.relay.convolution import convolution_forms, is_depthwise, read_convolution
    from byoc_hw.frontend.relay.match import Match

    def to_depthwise_conv2d(match: Match) -> DepthwiseConv2d | None:
        """The layer of a matched depthwise convolution; any other is qnn_conv2d's."""
        return DepthwiseConv2d(**read_convolution(match)) if is_depthwise(match) else None

    register_pattern(
        "qnn_depthwise_conv2d",
        convolution_forms(),
        parse=to_depthwise_conv2d,
        before=("qnn_conv2d",),
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import convolution_forms_of_real
    from byoc_hw.frontend.relax.qdq_windows import depthwise_of

    register_pattern(
        "qnn_depthwise_conv2d",
        convolution_forms_of_real(),
        parse=depthwise_of,
        before=("qnn_conv2d",),
        document=DOCUMENT,
    )
