"""A convolution of any kind with what follows it to its int8 output: perhaps a bias, and a requantize."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relay

from byoc_hw.frontend.relay.sources import operator_name


@dataclass(frozen=True)
class RequantizedSum:
    """`conv`, perhaps `bias`, and `requantize`."""

    conv: relay.Call
    bias: relay.Call | None
    requantize: relay.Call

    @property
    def inside(self) -> list[relay.Call]:
        """The calls whose results must have no other reader."""
        return [self.conv] if self.bias is None else [self.bias, self.conv]

    @property
    def layout(self) -> str:
        """The order of the dimensions of its input and output."""
        return str(self.conv.attrs.data_layout)


def requantized_sum(call: relay.Call, operator: str) -> RequantizedSum | None:
    """The convolution by an operator of this name that a requantize ends; None for any other call."""
    if operator_name(call) != "qnn.requantize" or not isinstance(call.args[0], relay.Call):
        return None
    bias = call.args[0] if operator_name(call.args[0]) in ("nn.bias_add", "add") else None
    conv = call.args[0] if bias is None else bias.args[0]
    if not isinstance(conv, relay.Call) or operator_name(conv) != operator:
        return None
    return RequantizedSum(conv, bias, call)
