"""TVM's own results: the golden semantics, compiled with LLVM for this machine.

All bit-exact comparisons are against these results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, inline_regions, rebuild_calls, rebuilt_values, without_composite
from byoc_hw.frontend.relay.golden import TARGET, golden_executor
from byoc_hw.frontend.relay.interface import output_values
from byoc_hw.frontend.relay.lower import layer_values
from byoc_hw.frontend.relay.partition import folding, prepare
from byoc_hw.frontend.relay.record import regions, without_bodies
from byoc_hw.frontend.relay.regrouping import regrouped
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.tensor import Array


class Reference:
    """A module compiled and run by TVM itself on this machine."""

    @serial
    def __init__(self, mod: tvm.IRModule, params: Mapping[str, Any] | None = None, *, layers: bool = False) -> None:
        """Compile; with `layers`, a partitioned module also returns the output of every offloaded layer."""
        self.layer_names: list[str] = []
        functions, left_out = regions(mod), None
        if functions:
            mod, left_out = _with_host_regrouped(mod)
        if layers:
            mod, self.layer_names = with_layers(mod)
        elif functions:
            mod = inline_regions(mod, regions(mod))
        mod = prepare(mod, params)
        self._executor = golden_executor(tvm.transform.Sequential(folding())(mod), left_out)
        self._names = [parameter.name_hint for parameter in mod["main"].params]

    @serial
    def run(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        """Outputs in model order for inputs by name, or in model order."""
        named = inputs if isinstance(inputs, Mapping) else dict(zip(self._names, inputs, strict=True))
        self._executor.run(**{name: tvm.nd.array(value) for name, value in named.items()})
        count = self._executor.get_num_outputs() - len(self.layer_names)
        return [self._executor.get_output(index).numpy() for index in range(count)]

    @serial
    def layers(self) -> dict[str, Array]:
        """Output of every offloaded layer of the last run, by the layer's name."""
        first = self._executor.get_num_outputs() - len(self.layer_names)
        return {name: self._executor.get_output(first + i).numpy() for i, name in enumerate(self.layer_names)}


def _with_host_regrouped(mod: tvm.IRModule) -> tuple[tvm.IRModule, list[str]]:
    """The module with the host's part `regrouped`: what its regions compute are whole numbers."""
    mod = relay.transform.InferType()(mod)
    host, left_out = regrouped(without_bodies(mod), TARGET)
    return tvm.IRModule({**host.functions, **regions(mod)}), left_out


def with_layers(mod: tvm.IRModule) -> tuple[tvm.IRModule, list[str]]:
    """The module without regions; its outputs are those of the model, then those of every layer."""
    values: dict[str, relay.Expr] = {}
    functions = {variable.name_hint: function for variable, function in regions(mod).items()}

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        if not isinstance(call.op, relay.GlobalVar):
            return called_with(call, arguments)
        region = functions[call.op.name_hint]
        new = rebuilt_values(region, arguments, without_composite)
        for name, value in layer_values(region).items():
            values[f"{call.op.name_hint}:{name}"] = new[value]
        return new[region.body]

    main = rebuild_calls(mod["main"], rebuild)
    shown = relay.Function(main.params, relay.Tuple([*output_values(main.body), *values.values()]))
    return relay.transform.InferType()(tvm.IRModule.from_expr(shown)), list(values)
