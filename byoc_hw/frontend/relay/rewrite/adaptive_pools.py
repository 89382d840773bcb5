"""Adaptive pooling to one pixel is global pooling: the same values, and an operator that layout conversion knows."""

from __future__ import annotations

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, rebuild_calls
from byoc_hw.frontend.relay.sources import operator_name

_GLOBAL = {
    "nn.adaptive_avg_pool2d": relay.nn.global_avg_pool2d,
    "nn.adaptive_max_pool2d": relay.nn.global_max_pool2d,
}


@relay.transform.function_pass(opt_level=0, name="byoc_hw.GlobalPools")
class GlobalPools:
    """Replace each adaptive pooling whose output is one pixel by the global pooling that it is."""

    def transform_function(
        self, function: relay.Function, mod: tvm.IRModule, context: tvm.transform.PassContext
    ) -> relay.Function:
        """One function; see `tvm.relay.transform.function_pass`."""
        return rebuild_calls(function, _global)


def _global(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    name = operator_name(call)
    if name not in _GLOBAL or [int(extent) for extent in call.attrs.output_size] not in ([1], [1, 1]):
        return called_with(call, arguments)
    pool = _GLOBAL[name](arguments[0], call.attrs.layout)
    return relay.Call(pool.op, pool.args, pool.attrs, pool.type_args, call.span)
