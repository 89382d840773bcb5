"""Adaptive pooling to one pixel is global pooling: the same values, and an operator that layout conversion knows."""

from __future__ import annotations

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, each_call
from byoc_hw.frontend.relay.sources import operator_name, with_span

_GLOBAL = {
    "nn.adaptive_avg_pool2d": relay.nn.global_avg_pool2d,
    "nn.adaptive_max_pool2d": relay.nn.global_max_pool2d,
}


def global_pools() -> tvm.transform.Pass:
    """Replace each adaptive pooling whose output is one pixel by the global pooling that it is."""
    return each_call(_global, "GlobalPools")


def _global(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    name = operator_name(call)
    if name not in _GLOBAL or [int(extent) for extent in call.attrs.output_size] not in ([1], [1, 1]):
        return called_with(call, arguments)
    return with_span(_GLOBAL[name](arguments[0], call.attrs.layout), call.span)
