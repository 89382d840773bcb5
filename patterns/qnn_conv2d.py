"""int8 conv2d, requantized to int8 -> Conv2d.

%0 = nn.pad(%x, zero point)          [optional; constant, height and width]
%1 = qnn.conv2d(%0, W)               int32; of any groups
%2 = nn.bias_add(%1, b)              [optional; or add]
%3 = qnn.requantize(%2)              int8, per tensor or per channel
%4 = clip(%3)                        [optional]

An nn.conv2d of int8 with right_shift, clip and cast becomes this form before: `frontend/relay/rewrite/shifts.py`.

In Relax:

%0 = dequantize(%x)                  float32; %x may be nn.pad(%y) with the zero point
%1 = nn.conv2d(%0, dequantize(W))    of any groups
%2 = add(%1, dequantize(b))          [optional; b is int32]
%3 = nn.relu(%2)                     [optional; or clip]
%4 = quantize(%3)                    int8
%5 = clip(%4)                        [optional]
"""

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Conv2d
from byoc_hw.pattern import register_pattern

DOCUMENT = "int8 convolution, grouped too, with its padding, bias, requantize (or right_shift and cast) and clip"

if HAS_RELAY:
    from byoc_hw.frontend.relay.convolution import convolution_forms, filters, is_depthwise, read_convolution
    from byoc_hw.frontend.relay.match import Match

    def to_conv2d(match: Match) -> Conv2d | None:
        """The layer of a matched convolution; a depthwise one with a filter for each channel is another pattern's."""
        groups = int(match["qnn.conv2d"].attrs.groups)
        if is_depthwise(match) and filters(match) == groups:
            return None
        return Conv2d(**read_convolution(match), groups=groups)

    register_pattern(
        "qnn_conv2d",
        convolution_forms(),
        parse=to_conv2d,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import convolution_forms_of_real
    from byoc_hw.frontend.relax.qdq_windows import conv2d_of

    register_pattern(
        "qnn_conv2d",
        convolution_forms_of_real(),
        parse=conv2d_of,
        document=DOCUMENT,
    )
