"""A Relay module opened for a build: lowers its regions and compiles its host."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relay

from byoc_hw.errors import ByocHwError, InvalidInput
from byoc_hw.frontend.accelerators import by_digest
from byoc_hw.frontend.relay.checks import check_module, check_values, module_of
from byoc_hw.frontend.relay.codegen import lowered
from byoc_hw.frontend.relay.compose import called_with, rebuild_calls, with_main
from byoc_hw.frontend.relay.ends import ends_of
from byoc_hw.frontend.relay.failures import TvmFailed
from byoc_hw.frontend.relay.host import compile_module
from byoc_hw.frontend.relay.host_operators import Kernel
from byoc_hw.frontend.relay.host_order import ordered
from byoc_hw.frontend.relay.host_suppress import suppressed
from byoc_hw.frontend.relay.host_tflite import with_kernels
from byoc_hw.frontend.relay.operator_work import operator_work
from byoc_hw.frontend.relay.partition import folding, prepare
from byoc_hw.frontend.relay.record import Record, record_of, regions
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.frontend.relay.sources import calls_in_order, described, operator_name, source_operators
from byoc_hw.frontend.seam import CompiledHost, Placer
from byoc_hw.graph import Graph
from byoc_hw.pattern import Outcome
from byoc_hw.program import RegionEnd, check_mod_name
from byoc_hw.soc import Hardware

DEFAULT_MOD_NAME = "default"


class RelayModel:
    """A module, partitioned or not. See `byoc_hw.frontend.seam.Model`."""

    @serial
    def __init__(self, mod: tvm.IRModule, params: Mapping[str, Any] | None, mod_name: str | None) -> None:
        check_module(mod)
        record = record_of(mod)
        self.mod_name = _mod_name(mod, record, mod_name)
        mod = prepare(mod, params, again=record is not None)
        check_values(mod["main"])
        self.versions = {"tvm": str(tvm.__version__)}
        self.accelerator: Hardware | None = None
        self.numerics: str | None = None
        self.outcomes: tuple[Outcome, ...]
        self._ends = ends_of(mod) if record is None else record.ends
        if record is None:
            operators, work = source_operators(mod["main"]), operator_work(mod["main"])
            self.outcomes = tuple(Outcome(one.name, one.relay, "host", **vars(work[one.name])) for one in operators)
            mod = tvm.transform.Sequential(folding())(mod)
        else:
            self.accelerator, self.numerics = by_digest(record.accelerator, record.label), record.numerics
            self.outcomes = record.outcomes
        self._mod = mod

    @serial
    def graphs(self) -> dict[str, Graph]:
        """The graphs of the regions that main calls. `Unsupported` for one that cannot be lowered."""
        return graphs_of(self._mod)

    @serial
    def passed_on(self) -> dict[RegionEnd, tuple[RegionEnd, ...]]:
        """The outputs of regions that only regions read, with the inputs that each of them is."""
        return passed_on(self._mod)

    @serial
    def compile_host(self, graphs: Mapping[str, Graph], place: Placer, kernel: Kernel) -> CompiledHost:
        """Compile main, with the operators that stay on the host, with TVM. `Unsupported` for one that TVM cannot.

        What `kernel` makes of other work does it in place of TVM's functions; with numerics "tflite" of layers, too.
        """
        try:
            mod = with_kernels(self._mod, kernel) if self.numerics == "tflite" else self._mod
            return compile_module(_without_runtime(mod, kernel), self.mod_name, graphs, place, ends=self._ends)
        except TvmFailed as error:
            raise TvmFailed(error.said, _first_that_fails(self._mod["main"], kernel)) from error.__cause__


def graphs_of(mod: tvm.IRModule) -> dict[str, Graph]:
    """The graphs of the regions that main of a type-checked module calls, by symbol. `Unsupported` for one that cannot
    be lowered."""
    called = {operator_name(call) for call in calls_in_order(mod["main"])}
    functions = (function for variable, function in regions(mod).items() if variable.name_hint in called)
    graphs = (lowered(function, str(function.attrs["Compiler"]))[0] for function in functions)
    return {graph.name: graph for graph in graphs}


def passed_on(mod: tvm.IRModule) -> dict[RegionEnd, tuple[RegionEnd, ...]]:
    """The outputs of regions that only other regions read, with the inputs that each of them is."""
    main = mod["main"]
    symbols = {variable.name_hint for variable in regions(mod)}
    calls = Counter(operator_name(call) for call in calls_in_order(main))
    read: dict[RegionEnd, list[RegionEnd | None]] = {}

    def note(values: Sequence[relay.Expr], reader: str | None) -> None:
        for index, value in enumerate(values):
            one_of_several = isinstance(value, relay.TupleGetItem)
            call = value.tuple_value if one_of_several else value
            symbol = operator_name(call) if isinstance(call, relay.Call) else ""
            if symbol not in symbols:
                continue
            whole = isinstance(value.checked_type, tvm.ir.TupleType)  # a tuple that is read as it is
            outputs = range(len(value.checked_type.fields)) if whole else [value.index if one_of_several else 0]
            for output in outputs:
                read.setdefault((symbol, output), []).append(None if reader is None or whole else (reader, index))

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.Call):
            symbol = operator_name(node)
            note(node.args, symbol if symbol in symbols and calls[symbol] == 1 else None)
        elif isinstance(node, relay.Tuple):
            note(node.fields, None)

    relay.analysis.post_order_visit(main.body, visit)
    note([main.body], None)
    return {
        border: tuple(reader for reader in readers if reader is not None)
        for border, readers in read.items()
        if None not in readers and calls[border[0]] == 1
    }


def _without_runtime(mod: tvm.IRModule, kernel: Kernel) -> tvm.IRModule:
    """A type-checked module in which functions of ours put in order and suppress, for which TVM has its runtime."""

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        for found in (ordered(call, arguments, kernel), suppressed(call, arguments, kernel)):
            if found is not None:
                return found
        return called_with(call, arguments)

    main = rebuild_calls(mod["main"], rebuild)
    return mod if main.same_as(mod["main"]) else with_main(mod, main)


_MOST_TRIED = 50
"""Operators that are compiled by themselves to find the one that TVM cannot compile; each takes part of a second."""


def _first_that_fails(main: relay.Function, kernel: Kernel) -> str:
    """The first of the operators that TVM cannot compile by itself; "" if it compiles all, or those that are tried."""
    tried: dict[int, relay.Call] = {}
    for call in calls_in_order(main):
        if isinstance(call.op, tvm.ir.Op):
            mod = relay.transform.InferType()(
                module_of(call, {argument: argument.checked_type for argument in call.args})
            )
            if tried.setdefault(tvm.ir.structural_hash(mod), call) is not call:
                continue
            if len(tried) > _MOST_TRIED:
                break
            try:
                compile_module(
                    _without_runtime(mod, kernel), DEFAULT_MOD_NAME, {}, lambda program, workspaces: defaultdict(int)
                )
            except TvmFailed:
                return described(call)
            except ByocHwError:
                continue  # it compiles; that nothing is placed does not matter
    return ""


def _mod_name(mod: tvm.IRModule, record: Record | None, mod_name: str | None) -> str:
    if mod_name is not None:
        check_mod_name(mod_name)
    if record is None:
        if regions(mod):
            raise InvalidInput("the module has external functions that partition_for_hwlib did not make")
        return mod_name or DEFAULT_MOD_NAME
    if mod_name not in (None, record.mod_name):
        raise InvalidInput(f"the module was partitioned with mod_name {record.mod_name!r}: got {mod_name!r}")
    return record.mod_name
