"""Compiles the host side with TVM: the host operators as C, and the calls of one inference in order.

TVM compiles the module with its `c` target and the AoT executor. A custom memory planning algorithm
places every buffer, so that host tensors, workspaces and regions share one arena. TVM's main is
dropped; main is generated from the same calls.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import tvm
from tvm import relay, tir
from tvm.ir.instrument import pass_instrument
from tvm.ir.memory_pools import WorkspaceMemoryPools, WorkspacePoolInfo
from tvm.tir.usmp.utils import BufferInfo, PoolAllocation

from byoc_hw.errors import InvalidInput, Unsupported
from byoc_hw.frontend.model_ends import End, Ends
from byoc_hw.frontend.relay.for_good import for_good
from byoc_hw.frontend.relay.host_check import check_functions, check_scales, check_source
from byoc_hw.frontend.relay.host_constants import MarkConstants, with_constants
from byoc_hw.frontend.relay.host_functions import LikeLLVM
from byoc_hw.frontend.relay.host_memory import Used, allocations, check_apart, loops, tvm_arena, with_moments
from byoc_hw.frontend.relay.host_outputs import (
    ConstantOutput,
    with_constant_outputs,
    with_functions,
    without_constant_outputs,
)
from byoc_hw.frontend.relay.host_softmax import integer_softmax
from byoc_hw.frontend.relay.host_source import bodies, host_source
from byoc_hw.frontend.relay.interface import output_names, output_values, with_numbered_ends
from byoc_hw.frontend.relay.record import without_bodies
from byoc_hw.frontend.relay.regrouping import regrouped
from byoc_hw.frontend.relay.semantics import golden_semantics
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.frontend.seam import CompiledHost, Placer
from byoc_hw.graph import Graph
from byoc_hw.names import distinct
from byoc_hw.program import ALIGNMENT, Buffer, Call, CopyCall, HostCall, Program, RegionCall


@serial
def compile_module(
    mod: tvm.IRModule,
    mod_name: str,
    graphs: Mapping[str, Graph],
    place: Placer,
    *,
    ends: Ends | None = None,
) -> CompiledHost:
    """Compile everything in a type-checked module but its regions, whose graphs are `graphs`, by symbol.

    `ends` is what is known of inputs and outputs. `place` is called once, when all buffers and workspaces are known.
    Raises `Unsupported` where TVM's main holds a statement that is not a call, and for a host operator that C alone
    cannot compute.
    """
    target = tvm.target.Target("c")
    pools = WorkspaceMemoryPools([WorkspacePoolInfo("arena", [target])])
    main = mod["main"]
    check_scales(mod["main"])
    mod, left_out = regrouped(_with_own_softmax(without_bodies(mod)), "c")
    mod, constants = without_constant_outputs(mod)
    check = partial(check_functions, main=main)
    planner = _Planner(mod, mod_name, graphs, place, ends or Ends(), constants, check)
    if not output_values(mod["main"].body):
        return CompiledHost(planner.finished(), *with_functions("", 0, mod_name, constants), 0)
    mod = with_numbered_ends(mod)
    executor = relay.backend.Executor(
        "aot", {"interface-api": "c", "unpacked-api": True, "workspace-byte-alignment": ALIGNMENT}
    )

    config = {
        "tir.add_lower_pass": [(3, LikeLLVM()), (3, MarkConstants())],
        "tir.disable_vectorize": True,  # C has no vector types
        "tir.usmp.enable": True,
        "tir.usmp.custom_algorithm": _ALGORITHM,
    }
    context = tvm.transform.PassContext(
        opt_level=3, config=config, instruments=[_BEFORE_PLANNING], disabled_pass=left_out
    )
    with quiet(), planner.called(), golden_semantics(), context:
        library = relay.build(
            mod,
            target,
            executor=executor,
            runtime=relay.backend.Runtime("crt"),
            mod_name=mod_name,
            workspace_memory_pools=pools,
        )
    program = planner.finished()
    source = with_constants(_c_source(library))
    check_source(bodies(source, mod_name), main)
    functions, nbytes = host_source(source, mod_name)
    return CompiledHost(program, *with_functions(functions, nbytes, mod_name, constants), planner.tvm_arena)


def _with_own_softmax(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with softmax in whole numbers, and equal outputs as one value."""
    passes = [
        relay.transform.EliminateCommonSubexpr(),
        relay.transform.InferType(),
        integer_softmax(),
        relay.transform.InferType(),
    ]
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(mod)


def _c_source(library: object) -> str:
    """The output of TVM's C target, including TVM's main; empty if nothing is left on the host."""
    sources = (module.get_source() for module in library.lib.imported_modules)  # type: ignore[attr-defined]
    return next((text for text in sources if "___tvm_main__(" in text), "")


def _with_ends(program: Program, names: Sequence[str], ends: Ends) -> Program:
    """The program with the model's input names, in place of the numbers that TVM compiled it with, and its ends."""
    before = ends.inputs or (End(),) * len(program.inputs)
    behind = ends.outputs or (End(),) * len(program.outputs)
    inputs = tuple(
        replace(buffer, name=name, quantization=end.quantization, state=end.state)
        for buffer, name, end in zip(program.inputs, names, before, strict=True)
    )
    free = distinct((buffer.name for buffer in program.outputs), taken=[end.name for end in behind if end.name])
    called = distinct(end.name or name for name, end in zip(free, behind, strict=True))
    outputs = tuple(
        replace(buffer, name=name, quantization=end.quantization)
        for buffer, name, end in zip(program.outputs, called, behind, strict=True)
    )
    new = dict(zip((*program.inputs, *program.outputs), (*inputs, *outputs), strict=True))

    def renamed(call: Call) -> Call:
        if isinstance(call, CopyCall):
            return CopyCall(new.get(call.source, call.source), new.get(call.target, call.target))
        return replace(call, arguments=tuple(new.get(buffer, buffer) for buffer in call.arguments))

    return replace(program, inputs=inputs, outputs=outputs, calls=tuple(map(renamed, program.calls)))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence TVM's warnings about untuned host operators, as the code is not for this machine, and about itself."""
    logger = logging.getLogger("te_compiler")
    level, silent = logger.level, tvm.autotvm.GLOBAL_SCOPE.silent
    logger.setLevel(logging.ERROR)
    tvm.autotvm.GLOBAL_SCOPE.silent = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python's own parser, by TVM's
            yield
    finally:
        logger.setLevel(level)
        tvm.autotvm.GLOBAL_SCOPE.silent = silent


# ---------------------------------------------------------------- memory planning


class _Planner:
    """The custom algorithm of TVM's memory planner, which runs inside `relay.build` of `mod`. `check` is called with
    the host's functions before."""

    def __init__(
        self,
        mod: tvm.IRModule,
        mod_name: str,
        graphs: Mapping[str, Graph],
        place: Placer,
        ends: Ends,
        constants: Sequence[ConstantOutput],
        check: Callable[[tvm.IRModule], None],
    ) -> None:
        self._check = check
        self.mod_name, self.graphs, self.place, self.ends = mod_name, graphs, place, ends
        self.inputs = [parameter.name_hint for parameter in mod["main"].params]
        self.outputs = output_names(mod["main"])
        self.repeats = _repeated_outputs(mod["main"])
        self.constants = constants
        self.program: Program | None = None
        if not output_values(mod["main"].body):  # which TVM does not compile
            inputs = (_input(parameter) for parameter in mod["main"].params)
            self._keep(Program(mod_name, tuple(inputs), (), ()))
        self.placed = False
        self.tvm_arena = 0
        self.allocations: dict[str, list[tuple[str, int]]] = {}
        self.loops: dict[str, list[frozenset[Used]]] = {}

    def read(self, mod: tvm.IRModule) -> None:
        """Read the calls of main while its buffers still have names."""
        self._check(mod)
        program = read_program(mod, self.mod_name, self.graphs, len(self.inputs), self.outputs)
        # Where several outputs are one value, TVM writes only the first.
        copies = [CopyCall(program.outputs[first], program.outputs[index]) for index, first in self.repeats.items()]
        self._keep(replace(program, calls=(*program.calls, *copies)))
        symbols = [constant.call(self.mod_name).symbol for constant in self.constants]
        self.allocations, self.loops = allocations(mod) | {symbol: [] for symbol in symbols}, loops(mod)

    def _keep(self, program: Program) -> None:
        # Rename before placement: blocks of the arena are looked up by name.
        self.program = _with_ends(with_constant_outputs(program, self.constants), self.inputs, self.ends)

    @contextmanager
    def called(self) -> Iterator[None]:
        """Makes this the planner that TVM calls, for the duration of one build."""
        _called.append(self)
        try:
            yield
        finally:
            _called.remove(self)

    def offsets(self, infos: Sequence[BufferInfo], pressure: object) -> dict[BufferInfo, PoolAllocation]:
        assert self.program is not None
        self.program, workspaces = with_moments(self.program, infos, self.allocations, self.loops, ALIGNMENT)
        self.tvm_arena = tvm_arena(infos, pressure)
        offsets = self.place(self.program, workspaces)
        check_apart(self.program, infos, offsets, self.allocations)
        self.placed = True
        return {info: PoolAllocation(info.pool_candidates[0], offsets[str(info.name_hint)]) for info in infos}

    def finished(self) -> Program:
        """The program, placed. TVM plans no memory for a module without buffers; its regions are placed here."""
        assert self.program is not None
        if not self.placed:
            self.place(self.program, ())
        return self.program


_called: list[_Planner] = []
"""The planner of the build that TVM is at, the last one: what TVM is given to call refers to no build."""


@pass_instrument
class _BeforePlanning:
    """Shows the planner the module before memory planning."""

    def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        if info.name == "tir.transform.UnifiedStaticMemoryPlanner":
            _called[-1].read(mod)


_BEFORE_PLANNING = for_good("before_planning", _BeforePlanning())
_ALGORITHM = "byoc_hw"


def _offsets(infos: Sequence[BufferInfo], pressure: object) -> dict[BufferInfo, PoolAllocation]:
    return _called[-1].offsets(infos, pressure)


tvm.register_func(f"tir.usmp.algo.{_ALGORITHM}", _offsets, override=True)


def _input(parameter: relay.Var) -> Buffer:
    shape, dtype = tuple(map(int, parameter.checked_type.shape)), str(parameter.checked_type.dtype)
    return Buffer(parameter.name_hint, _nbytes(parameter.checked_type.shape, dtype), "input", shape, dtype)


def _repeated_outputs(main: relay.Function) -> dict[int, int]:
    """Maps the index of each output that repeats an earlier value to the first output with that value."""
    values = [_value(field) for field in output_values(main.body)]
    return {index: values.index(value) for index, value in enumerate(values) if values.index(value) != index}


def _value(expr: relay.Expr) -> object:
    """The expression that an output's bytes come from: reshapes, and tuples around it, are skipped."""
    while True:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.get_attr("TReshapeOp"):
            expr = expr.args[0]
        elif isinstance(expr, relay.TupleGetItem) and isinstance(expr.tuple_value, relay.Tuple):
            expr = expr.tuple_value.fields[expr.index]
        else:
            return (expr.tuple_value, expr.index) if isinstance(expr, relay.TupleGetItem) else expr


# ---------------------------------------------------------------- reading TVM's main


def read_program(
    mod: tvm.IRModule, mod_name: str, graphs: Mapping[str, Graph], inputs: int, outputs: Sequence[str] | None = None
) -> Program:
    """TVM's main, before memory planning, as a `Program`; its first `inputs` parameters are inputs, and the others are
    called as `outputs` says, or as TVM does."""
    functions = {
        str(function.attrs["global_symbol"]): function
        for function in mod.functions.values()
        if "global_symbol" in (function.attrs or {})
    }
    main = next(
        function
        for variable, function in mod.functions.items()
        if variable.name_hint == "__tvm_main__" or str(variable.name_hint).endswith("___tvm_main__")
    )
    return _Main(main, functions, graphs).program(mod_name, inputs, outputs)


class _Main:
    """One pass over the statements of TVM's main."""

    def __init__(self, main: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], graphs: Mapping[str, Graph]) -> None:
        self.main, self.functions, self.graphs = main, functions, graphs
        self.sizes: dict[str, int] = {}
        self.interface = [main.buffer_map[parameter] for parameter in main.params if parameter in main.buffer_map]
        self.types: dict[str, str] = {}
        self.statements: list[tir.Stmt] = []

    def program(self, mod_name: str, inputs: int, outputs: Sequence[str] | None) -> Program:
        self._flatten(self.main.body)
        calls = [self._raw_call(statement) for statement in self.statements]
        buffers = {}
        for index, buffer in enumerate(self.interface):
            name = str(buffer.data.name)
            role = "input" if index < inputs else "output"
            shape = tuple(int(extent) for extent in buffer.shape)
            label = name.removesuffix("_buffer_var") if index < inputs or outputs is None else outputs[index - inputs]
            buffers[name] = Buffer(label, _nbytes(shape, buffer.dtype), role, shape, str(buffer.dtype))  # type: ignore[arg-type]
        for name, nbytes in self.sizes.items():
            buffers[name] = Buffer(name, nbytes, dtype=self.types.get(name, "int8"))
        interface = [buffers[str(buffer.data.name)] for buffer in self.interface]
        return Program(
            mod_name,
            tuple(buffer for buffer in interface if buffer.role == "input"),
            tuple(buffer for buffer in interface if buffer.role == "output"),
            tuple(self._call(symbol, [buffers[name] for name in names]) for symbol, names in calls),
        )

    def _flatten(self, statement: tir.Stmt) -> None:
        if isinstance(statement, tir.SeqStmt):
            for part in statement.seq:
                self._flatten(part)
        elif isinstance(statement, tir.Allocate):
            self.sizes[str(statement.buffer_var.name)] = _nbytes(statement.extents, statement.dtype)
            self._flatten(statement.body)
        elif isinstance(statement, (tir.AttrStmt, tir.DeclBuffer)):
            self._flatten(statement.body)
        elif isinstance(statement, tir.AllocateConst):
            found = f"{statement.dtype} of {tuple(map(int, statement.extents))}"
            raise Unsupported(
                f"what a region reads is constant when the module is partitioned, or computed: got {found} that are "
                "constant afterwards; params are given to partition_for_hwlib"
            )
        else:
            self.statements.append(statement)

    def _raw_call(self, statement: tir.Stmt) -> tuple[str, list[str]]:
        if isinstance(statement, tir.Evaluate):
            call = statement.value
            if isinstance(call, tir.Call) and call.op.name == "tir.tvm_check_return":
                call = call.args[2]
            if isinstance(call, tir.Call) and call.op.name == "tir.call_extern":
                symbol = str(call.args[0].value)
                names = [_variable(argument) for argument in call.args[1:]]
                self._note_types(symbol, names)
                return symbol, names
        copied = _copied(statement)
        if copied is None:
            raise Unsupported(f"TVM's main holds a statement that is neither a call nor a copy:\n{statement}")
        return "", list(copied)

    def _note_types(self, symbol: str, names: Sequence[str]) -> None:
        if symbol in self.graphs:
            graph = self.graphs[symbol]
            types = [tensor.dtype for tensor in (*graph.inputs, *graph.outputs)]
        else:
            function = self.functions[symbol]
            types = [str(function.buffer_map[p].dtype) for p in function.params if p in function.buffer_map]
        self.types.update(zip(names, types, strict=False))

    def _call(self, symbol: str, buffers: Sequence[Buffer]) -> Call:
        if not symbol:
            return CopyCall(*buffers)
        if symbol in self.graphs:
            return RegionCall(self.graphs[symbol], tuple(buffers))
        return HostCall(symbol, tuple(buffers), results=self._results(symbol))

    def _results(self, symbol: str) -> int:
        """How many of a call's arguments are written: always the last ones."""
        if symbol in self.graphs:
            return len(self.graphs[symbol].outputs)
        return _stored_parameters(self.functions[symbol]) if symbol else 1


def _stored_parameters(function: tir.PrimFunc) -> int:
    """How many of a host function's parameters are written, by itself or by a C function: its results come last."""
    stored = set()

    def visit(node: object) -> None:
        if isinstance(node, tir.BufferStore):
            stored.add(node.buffer.data)
        elif isinstance(node, tir.Call) and getattr(node.op, "name", "") == "tir.tvm_access_ptr":
            _, data, _, _, access = node.args
            if int(access) & _WRITES:
                stored.add(data)

    tir.stmt_functor.post_order_visit(function.body, visit)
    buffers = [function.buffer_map[name].data for name in function.params if name in function.buffer_map]
    return sum(buffer in stored for buffer in buffers)


_WRITES = 2
"""A bit of how `tvm_access_ptr` says that a buffer is accessed."""


def _variable(argument: tir.PrimExpr) -> str:
    if isinstance(argument, tir.Var):
        return str(argument.name)
    raise Unsupported(f"TVM's main passes {argument}, which is no buffer")


def _copied(statement: tir.Stmt) -> tuple[str, str] | None:
    """Source and target of a loop that copies a whole buffer."""
    loops = 0
    while isinstance(statement, tir.For):
        statement, loops = statement.body, loops + 1
    if not isinstance(statement, tir.BufferStore) or not isinstance(statement.value, tir.BufferLoad):
        return None
    if list(statement.indices) != list(statement.value.indices) and loops:
        return None
    return str(statement.value.buffer.data.name), str(statement.buffer.data.name)


def _nbytes(shape: Sequence[object], dtype: object) -> int:
    elements = 1
    for extent in shape:
        if not hasattr(extent, "value") and not isinstance(extent, int):
            raise InvalidInput(f"shapes are static: got {extent}")
        elements *= int(extent)  # type: ignore[call-overload]
    return elements * ((int(tvm.DataType(str(dtype)).bits) + 7) // 8)
