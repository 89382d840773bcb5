"""TVM's own results of a partitioned module, layer by layer, from Relax's virtual machine on this machine.

TVM computes float operators between dequantize and quantize: sums and scales are float32, and halves are rounded to the
even number. A value that lies near the middle of two steps may therefore be the other one of the two than the
integers of a layer give, and layers behind it follow.

Compiling takes longer than running, so LLVM does not optimize, but where it puts a product or a root in place of a
power.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from byoc_hw.arguments import shown
from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.linked import can_link, linked
from byoc_hw.frontend.relax.bindings import Assignment, returned_by, steps_of, with_operands, with_steps
from byoc_hw.frontend.relax.regions import QdqRecord, composites_of, external, layer_variables
from byoc_hw.frontend.relax.turns import one_at_a_time
from byoc_hw.frontend.relax.versions import create_shared, is_call
from byoc_hw.tensor import Array

_TARGET: dict[str, Any] = {"kind": "llvm"}


class VirtualMachineReference:
    """A partitioned module compiled and run by TVM itself."""

    @one_at_a_time
    def __init__(self, mod: tvm.IRModule) -> None:
        record = QdqRecord.of(mod)
        assert record is not None, "the caller has asked for a partitioned module"
        whole = _Inlined(mod)
        self._names = record.names[: len(mod["main"].params)]
        self._layers = list(whole.layers)
        self._outputs = len(whole.results)
        self._machine = _machine(whole.function)
        self._found: list[Array] = []

    @one_at_a_time
    def run(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        """Outputs in model order for inputs by name, or in model order, or as the array of the only one."""
        if not isinstance(inputs, Mapping):
            given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            inputs = dict(zip(self._names, given, strict=True))
        for name in self._names:
            if name not in inputs:
                raise InvalidInput(f"input {shown(name)} is given: got {', '.join(inputs) or 'nothing'}")
        found = self._machine["main"](*(tvm.runtime.tensor(np.ascontiguousarray(inputs[name])) for name in self._names))
        self._found = [np.asarray(one.numpy()) for one in found]
        return self._found[: self._outputs]

    def layers(self) -> dict[str, Array]:
        """The output of every offloaded layer of the last run, by "region:layer"."""
        return dict(zip(self._layers, self._found[self._outputs :], strict=True))


def _machine(function: relax.Function) -> relax.VirtualMachine:
    """A function compiled, and linked and loaded where there is a linker."""
    has_power = any(is_call(value, "power") for _, value in steps_of(function))
    target = tvm.target.Target(_TARGET if has_power else _TARGET | {"opt-level": 0})
    program = tvm.compile(tvm.IRModule({"main": function}), target=target).mod
    compiled = [one for one in program.imports if one.kind == "llvm"]
    if compiled and can_link():
        program.clear_imports()
        for one in compiled:
            save = functools.partial(one.write_to_file, fmt="o")
            program.import_module(linked(save, create_shared, tvm.runtime.load_module))
    return relax.VirtualMachine(program, tvm.cpu())


class _Inlined:
    """Main of a partitioned module without calls of functions: its results are those of the model, then the `layers`.

    Relax operators are in the place of regions and composites; `layers` has the variable of each by its name.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        main = mod["main"]
        self.layers: dict[str, Any] = {}
        self._steps: list[Assignment] = []
        self._regions = external(mod)
        values: dict[Any, Any] = {}
        for variable, value in steps_of(main):
            values[variable] = self._step(variable, with_operands(value, values))
        body = values.get(main.body.body, main.body.body)
        tuples = dict(self._steps)
        self.results = returned_by(with_operands(tuples.get(body, body), values))
        shown_values = relax.Tuple([*self.results, *self.layers.values()])
        plain = relax.Function(main.params, main.body, shown_values.ty, main.is_pure)
        self.function = with_steps(plain, self._steps, shown_values)

    def _step(self, variable: Any, value: Any) -> Any:
        """Add a binding, or those of the region that it calls; the variable that has its value."""
        if not (is_call(value) and value.op in self._regions):
            return self._bound(variable, value)
        region = self._regions[value.op]
        symbol, composites = value.op.name_hint, composites_of(region)
        inner = dict(zip(region.params, value.args, strict=True))
        for one, call in steps_of(region):
            if one in composites:
                continue
            call = with_operands(call, inner)
            inner[one] = self._composite(composites[call.op], call) if is_call(call) else self._bound(one, call)
        for name, one in layer_variables(region).items():
            self.layers[f"{symbol}:{name}"] = inner[one]
        result = with_operands(region.body.body, inner)
        return result if isinstance(result, relax.Var) else self._bound(variable, result)

    def _composite(self, composite: Any, call: Any) -> Any:
        values = dict(zip(composite.params, call.args, strict=True))
        for one, value in steps_of(composite):
            values[one] = self._bound(one, with_operands(value, values))
        return values[composite.body.body]

    def _bound(self, variable: Any, value: Any) -> Any:
        fresh = relax.DataflowVar(f"value_{len(self._steps)}", variable.ty)
        self._steps.append((fresh, value))
        return fresh
