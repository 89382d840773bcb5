"""Compiles the host side of a Relax module: C functions for what is left, and the calls of one inference in order.

What functions of ours compute is matched first, with the same table as for an accelerator. The rest becomes loops of
TVM: tables and moves of integers, and what is float between dequantize and quantize. All buffers are placed in our
arena.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.model_ends import Ends
from byoc_hw.frontend.relax.bindings import names_in, returned_by, steps_of
from byoc_hw.frontend.relax.host_loops import (
    Loops,
    c_constant,
    c_function,
    loop_type,
    lowered_loops,
    short_symbol,
)
from byoc_hw.frontend.relax.host_works import HostLayer, Kernels, with_works
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of, is_call, name_of, type_of
from byoc_hw.frontend.seam import CompiledHost, FixedPoint, Placer
from byoc_hw.graph import Graph, Softmax
from byoc_hw.names import distinct
from byoc_hw.program import Buffer, Call, CopyCall, HostCall, Program, RegionCall
from byoc_hw.tensor import Array

_INCLUDES = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n"


def compiled_host(
    mod: tvm.IRModule,
    mod_name: str,
    numerics: str,
    ends: Ends,
    names: Sequence[str],
    graphs: Mapping[str, Graph],
    place: Placer,
    kernel: Kernels,
    by: FixedPoint,
) -> CompiledHost:
    """Compile everything in a partitioned module but its regions. `names` are those of inputs and outputs.

    `place` is called once, when all buffers are known. `Unsupported` for an operator that C alone cannot compute.
    """
    mod, works = with_works(mod, numerics, kernel, by)
    lowered = _lowered(mod)
    program, source, nbytes = _Host(lowered, mod_name, graphs, works, ends, names).compiled()
    place(program, ())
    return CompiledHost(program, source, nbytes, sum(buffer.nbytes for buffer in _intermediates(program)))


def _intermediates(program: Program) -> list[Buffer]:
    buffers = (buffer for call in program.calls if isinstance(call, HostCall | RegionCall) for buffer in call.arguments)
    return list(dict.fromkeys(buffer for buffer in buffers if buffer.role == "intermediate"))


# ---------------------------------------------------------------- what TVM computes


def _lowered(mod: tvm.IRModule) -> tvm.IRModule:
    """The module as calls of low-level functions. Constants are folded now that the layers are read."""
    transform = relax.transform
    passes = [
        transform.FoldConstant(),
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(["main"]),
    ]
    named = _names_by_operator(mod["main"])
    with tvm.transform.PassContext(opt_level=3):
        lowered = tvm.transform.Sequential(passes)(mod)
    for _, value in steps_of(lowered["main"]):
        if isinstance(value, relax.Call) and name_of(value) not in ("call_tir", "call_dps_packed"):
            operator = name_of(value)
            raise Unsupported(f"{named.get(operator, operator)} on the host: TVM has no loops for it")
    return lowered


def _names_by_operator(main: Any) -> dict[str, str]:
    """An operator with the names that the model has for it, as messages say them."""
    found: dict[str, dict[str, None]] = {}
    for _, value in steps_of(main):
        if isinstance(value, relax.Call):
            found.setdefault(name_of(value), {}).update(dict.fromkeys(names_in(value.span)))
    return {operator: f"{operator} ({', '.join(names)})" if names else operator for operator, names in found.items()}


@dataclass
class _Host:
    """One pass over the calls of a lowered main."""

    mod: tvm.IRModule
    mod_name: str
    graphs: Mapping[str, Graph]
    works: Mapping[str, HostLayer]
    ends: Ends
    names: Sequence[str]
    buffers: dict[Any, tuple[Buffer, ...]] = field(default_factory=dict)
    parts: dict[tuple[Any, int], Buffer] = field(default_factory=dict)
    """The outputs of the model that are parts of tuples."""
    calls: list[Call] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    constant_bytes: int = 0

    def compiled(self) -> tuple[Program, str, int]:
        """The program, the C source and the bytes of its constants."""
        main = self.mod["main"]
        steps = steps_of(main)
        inputs = tuple(
            self._end(value, name, "input", end.quantization)
            for value, name, end in zip(main.params, self.names, self.ends.inputs, strict=False)
        )
        self.buffers |= {parameter: (buffer,) for parameter, buffer in zip(main.params, inputs, strict=True)}
        results = [self._first_name(result, steps) for result in returned_by(self._result(main, steps))]
        names = _output_names(self.names[len(inputs) :])
        outputs = tuple(
            self._end(value, name, "output", end.quantization)
            for value, name, end in zip(results, names, self.ends.outputs, strict=True)
        )
        last: list[CopyCall] = []
        for result, buffer in zip(results, outputs, strict=True):
            if result in self.buffers:  # an input, or an output for the second time
                last.append(CopyCall(self.buffers[result][0], buffer))
            else:
                self.buffers[result] = (buffer,)
        for variable, value in steps:
            if isinstance(value, relax.TupleGetItem) and variable in self.buffers:
                self.parts.setdefault((value.tuple_value, value.index), self.buffers[variable][0])
        loops = self._loops(steps)
        for number, (variable, value) in enumerate(steps):
            self._step(variable, value, number, loops)
        self._check_written(outputs, last)
        program = Program(self.mod_name, inputs, outputs, (*self.calls, *last))
        source = "\n".join([_INCLUDES, *self.texts]) if self.texts else ""
        return program, source, self.constant_bytes

    def _end(self, value: Any, name: str, role: Any, quantization: Any) -> Buffer:
        shape, dtype = extents_of(value), dtype_of(value)
        if isinstance(value, Literal):
            raise Unsupported(f"an output is computed from the inputs: {name} is a constant")
        return Buffer(name, _bytes_of(shape, dtype), role, shape, dtype, quantization)

    def _result(self, main: Any, steps: Sequence[tuple[Any, Any]]) -> Any:
        value = dict(steps).get(main.body.body)
        return value if isinstance(value, relax.Tuple) else main.body.body

    def _first_name(self, variable: Any, steps: Sequence[tuple[Any, Any]]) -> Any:
        values = dict(steps)
        while isinstance(values.get(variable), relax.Var):
            variable = values[variable]
        return variable

    def _loops(self, steps: Sequence[tuple[Any, Any]]) -> dict[str, Loops]:
        """The C of the low-level functions that are called."""
        found: dict[str, tuple[Any, int]] = {}
        operators = {}
        for _, value in steps:
            if is_call(value, "call_tir"):
                variable = value.args[0]
                found[variable.name_hint] = self.mod[variable], len(_types(type_of(value)))
                operators[variable.name_hint] = variable.name_hint.removeprefix("fused_")
        return lowered_loops(found, operators)

    def _step(self, variable: Any, value: Any, number: int, loops: Mapping[str, Loops]) -> None:
        if isinstance(value, relax.Var):
            self.buffers.setdefault(variable, self.buffers[value])
        elif isinstance(value, relax.TupleGetItem):
            self._field(variable, value)
        elif isinstance(value, relax.Call):
            operands = list(value.args[1].fields)
            outputs = self._outputs(variable, value, number)
            if name_of(value) == "call_tir":
                self._loop_call(value.args[0].name_hint, loops, operands, outputs, number)
            else:
                self._symbol_call(str(value.args[0].global_symbol), operands, outputs, number)

    def _field(self, variable: Any, value: Any) -> None:
        made = self.buffers[value.tuple_value][value.index]
        if variable not in self.buffers:
            self.buffers[variable] = (made,)
        elif self.buffers[variable][0] != made:  # two outputs of the model are one part
            self.calls.append(CopyCall(made, self.buffers[variable][0]))

    def _outputs(self, variable: Any, value: Any, number: int) -> tuple[Buffer, ...]:
        if variable not in self.buffers:
            self.buffers[variable] = tuple(
                self.parts.get((variable, place))
                or self._intermediate(f"sid_{number}_{place}" if place else f"sid_{number}", of)
                for place, of in enumerate(_types(type_of(value)))
            )
        return self.buffers[variable]

    def _intermediate(self, name: str, of: Any) -> Buffer:
        shape, dtype = tuple(int(extent) for extent in of.shape.values), str(of.dtype)
        return Buffer(name, _bytes_of(shape, dtype), shape=shape, dtype=dtype)

    def _symbol_call(self, symbol: str, operands: Sequence[Any], outputs: tuple[Buffer, ...], number: int) -> None:
        if symbol in self.graphs:
            graph = self.graphs[symbol]
            arguments = [
                self._written(f"{symbol}_in{place}", operand, number)
                if isinstance(operand, Literal)
                else self.buffers[operand][0]
                for place, operand in enumerate(operands)
            ]
            self.calls.append(RegionCall(graph, (*arguments, *outputs)))
            return
        work = self.works[symbol]
        inputs: list[Buffer] = []
        read = []
        for place, one in enumerate(work.inputs):
            if isinstance(one, int) and isinstance(operands[one], Literal):
                read.append(self._constant(f"{symbol}_in{place}", array_of(operands[one])))
            elif isinstance(one, int):
                read.append(f"in{len(inputs)}")
                inputs.append(self.buffers[operands[one]][0])
            else:
                read.append(self._constant(f"{symbol}_in{place}", one))
        name = f"tvmgen_{self.mod_name}_{symbol}"
        own: tuple[Buffer, ...] = ()
        if work.made is None:
            assert isinstance(work.layer, Softmax), "the one layer without a function of TFLite's arithmetic"
            *outer, columns = work.layer.ofm.shape
            own = (Buffer(f"{symbol}_{number}_own", 4 * columns, shape=(columns,), dtype="uint32"),)
            body = _softmax_body(work.layer, prod(outer), columns)
        else:
            constants = [self._constant(f"{symbol}_c{place}", one) for place, one in enumerate(work.made.constants)]
            if work.made.workspace:
                own = (Buffer(f"{symbol}_{number}_own", 4 * work.made.workspace, dtype="int32"),)
            arguments_of = [*read, *constants, *(["own"] if own else [])]
            body = f"  {work.made.function}({', '.join([*arguments_of, 'out'])});\n"
        parameters = [(f"{loop_type(one.dtype)}*", f"in{place}") for place, one in enumerate(inputs)]
        parameters += [(f"{loop_type(one.dtype)}*", "own") for one in own]
        parameters += [(f"{loop_type(outputs[0].dtype)}*", "out")]
        self.texts.append(c_function(name, parameters, body))
        self.calls.append(HostCall(name, (*inputs, *own, *outputs)))

    def _written(self, name: str, constant: Any, number: int) -> Buffer:
        """The buffer that a constant is written to in each inference, for a region that reads it: it was computed."""
        buffer = self._intermediate(f"sid_{number}_{name}", type_of(constant))
        symbol = f"tvmgen_{self.mod_name}_{number}_{name}"
        values = self._constant(f"{symbol}_values", array_of(constant))
        body = f"  memcpy(out, {values}, {buffer.nbytes});\n"
        self.texts.append(c_function(symbol, [(f"{loop_type(buffer.dtype)}*", "out")], body))
        self.calls.append(HostCall(symbol, (buffer,)))
        return buffer

    def _loop_call(
        self,
        function: str,
        loops: Mapping[str, Loops],
        operands: Sequence[Any],
        outputs: tuple[Buffer, ...],
        number: int,
    ) -> None:
        found = loops[function]
        symbol = f"tvmgen_{self.mod_name}_{number}_{short_symbol(function)}"
        own = tuple(
            Buffer(f"sid_{number}_own{place}", _bytes_of(shape, dtype), shape=shape, dtype=dtype)
            for place, (dtype, shape) in enumerate(found.own)
        )
        first = len(found.parameters) - found.results - len(own)
        parameters, body, arguments = [], found.body, []
        for place, (of, name) in enumerate(found.parameters):
            operand = operands[place] if place < first else None
            if isinstance(operand, Literal):
                constant = self._constant(f"{symbol}_{name}", array_of(operand))
                body = re.sub(rf"\b{name}\b", constant, body)
            else:
                parameters.append((of, name))
                if operand is not None:
                    arguments.append(self.buffers[operand][0])
        self.texts.append(c_function(symbol, parameters, body))
        self.calls.append(HostCall(symbol, (*arguments, *own, *outputs), results=found.results))

    def _constant(self, name: str, values: Array) -> str:
        self.texts.append(c_constant(name, values))
        self.constant_bytes += values.nbytes
        return name

    def _check_written(self, outputs: Sequence[Buffer], last: Sequence[CopyCall]) -> None:
        written = {
            buffer for call in self.calls if isinstance(call, HostCall | RegionCall) for buffer in call.arguments
        }
        written |= {call.target for call in (*self.calls, *last) if isinstance(call, CopyCall)}
        assert written.issuperset(outputs), "every output is written by a call"


def _output_names(names: Sequence[str]) -> list[str]:
    """Names of outputs as the Relay path has them, where TVM makes C identifiers of them."""
    return distinct(re.sub(r"\W", "_", name) for name in names)


def _types(of: Any) -> list[Any]:
    return list(of.fields) if isinstance(of, relax.TupleType) else [of]


def _bytes_of(shape: Sequence[int], dtype: str) -> int:
    return prod(shape) * (1 if dtype == "bool" else np.dtype(dtype).itemsize)


def _softmax_body(layer: Softmax, rows: int, columns: int) -> str:
    quantization = layer.ifm.quantization
    assert quantization is not None, "`_is_integer_softmax` has read it"
    bits = int(np.float32(quantization.scale[0]).view(np.int32))
    numbers = f"{rows}, {columns}, {quantization.zero_point[0]}, {bits}"
    return f"  softmax_int8(in0, out, own, {numbers});\n"
