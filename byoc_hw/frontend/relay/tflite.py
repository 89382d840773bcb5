"""Imports TFLite files as Relay modules, whole or without the operators that stop TVM's importer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tflite
import tvm
from tvm import relay
from tvm.relay.frontend.common import ExprTable, set_span
from tvm.relay.frontend.tflite import OperatorConverter

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.ends import End, Ends, Stated, usable
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.frontend.relay.tflite_operators.batch_matmul import convert_batch_matmul
from byoc_hw.frontend.relay.tflite_operators.elementwise import (
    convert_broadcast_to,
    convert_comparison,
    convert_elu,
    convert_gelu,
    convert_log_softmax,
    convert_prelu,
    convert_square,
    refuse_quantized,
)
from byoc_hw.frontend.relay.tflite_operators.fixed_point import NotImported
from byoc_hw.frontend.relay.tflite_operators.fully_connected import convert_fully_connected
from byoc_hw.frontend.relay.tflite_operators.lstm import convert_lstm
from byoc_hw.frontend.relay.tflite_operators.svdf import convert_svdf
from byoc_hw.frontend.relay.tflite_operators.zero_points import convert_space_to_batch, convert_sum
from byoc_hw.frontend.tflite_file import FileOperator, FileTensor, TfliteFile, read_tflite
from byoc_hw.frontend.tflite_float import with_float_weights
from byoc_hw.pattern import BrokenRule, Outcome, Rejection
from byoc_hw.tensor import Array

_OPERATORS: dict[int, str] = {
    code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)
}
_DETECTION = "TFLite_Detection_PostProcess"
"""The one custom operator that TVM's importer knows."""
_Convert = Callable[[Any, Any], relay.Expr]

_OURS: dict[str, _Convert] = {
    "BROADCAST_TO": convert_broadcast_to,
    "GELU": convert_gelu,
    "LOG_SOFTMAX": convert_log_softmax,
}
"""Operators that TVM's importer lacks, or that it computes wrong."""

_COMPARISONS = ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")
_QUANTIZED: dict[str, _Convert] = {
    "BATCH_MATMUL": convert_batch_matmul,
    "DIV": refuse_quantized,
    "ELU": convert_elu,
    "FULLY_CONNECTED": convert_fully_connected,
    "PRELU": convert_prelu,
    "REDUCE_PROD": refuse_quantized,
    "SPACE_TO_BATCH_ND": convert_space_to_batch,
    "SQUARE": convert_square,
    "SUM": convert_sum,
    **{name.upper(): partial(convert_comparison, getattr(relay, name)) for name in _COMPARISONS},
}
"""Operators that TVM's importer computes wrong where they are quantized."""

_STATEFUL: dict[str, Callable[[Any, Any], tuple[relay.Expr, ...]]] = {
    "SVDF": convert_svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": convert_lstm,
}
"""Operators of int8 that TVM's importer lacks: the functions give the output and the next states."""

_OPTIONAL = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), 2),
    **{"TRANSPOSE_CONV": 3, "UNIDIRECTIONAL_SEQUENCE_LSTM": 1, "SVDF": 3},
}
"""The first input that may be left out."""

Imported = tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]


@serial
def load_tflite(path: str | Path) -> Imported:
    """Read a .tflite file: a Relay module and its weights by name.

    Raises `InvalidInput` for a file that cannot be read, is damaged, or holds operators that TVM's importer does
    not support; the message names them all.
    """
    return _whole(path, read_tflite(path))


@serial
def load_float_tflite(path: str | Path) -> Imported:
    """Read a .tflite file of a float model: a Relay module and its weights by name, all of them float32.

    Weights that are stored with fewer bits, of "dynamic range" operators or behind DEQUANTIZE, have the values that
    they stand for.

    Raises `InvalidInput` as `load_tflite` does, and for a model whose activations are quantized.
    """
    file = with_float_weights(read_tflite(path))
    constants = {index for index, tensor in enumerate(file.tensors) if tensor.constant}
    used = (index for operator in file.operators for index in (*operator.inputs, *operator.outputs) if index >= 0)
    for tensor in (file.tensors[index] for index in used if index not in constants):
        if tensor.quantized:
            raise InvalidInput(f"{path}: activations of a float model are not quantized: got {tensor.name}")
    return _whole(path, file)


def _whole(path: str | Path, file: TfliteFile) -> Imported:
    found = _importable(path, file)
    if found.stops:
        operators = "; ".join(str(stop) for stop in found.stops.values())
        raise InvalidInput(
            f"{path}: cannot be imported (explain says what of the rest would be offloaded): {operators}"
        ) from next((stop.cause for stop in found.stops.values() if stop.cause), None)
    assert found.imported is not None, "nothing stops the import"
    return found.imported


@serial
def importable_tflite(path: str | Path) -> tuple[Imported | None, tuple[str, ...], tuple[Outcome, ...]]:
    """What of a .tflite file can be imported.

    A module of the operators that TVM's importer supports and its weights, or None if there are none; the names of
    the file's operators, in order; and the outcomes of those that stop the importer. Where an operator is
    left out, its inputs are outputs of the module, and its outputs are inputs.
    """
    file = read_tflite(path)
    found = _importable(path, file)
    # Once more without those at which the importer failed: they left variables behind, and nothing that reads them.
    rest = _import(path, file, found.stops).imported if found.stops else found.imported
    names = tuple(operator.name for operator in file.operators)
    return rest, names, tuple(stop.outcome for stop in found.stops.values())


# ---------------------------------------------------------------- what stops the importer


@dataclass(frozen=True)
class _Stop:
    """An operator that cannot be imported, the rule and the value, and the importer's own error if it raised one."""

    kind: str
    name: str
    broken: BrokenRule
    cause: Exception | None = None

    def __str__(self) -> str:
        return f"{self.kind} ({self.name}): {self.broken}"

    @property
    def outcome(self) -> Outcome:
        """The operator in a report."""
        return Outcome(self.name, (), "stops", rejections=(Rejection(self.kind, (self.broken,)),))


@dataclass(frozen=True)
class _Found:
    """An import, and the operators that stop it, by number."""

    imported: Imported | None
    stops: dict[int, _Stop]


def _importable(path: str | Path, file: TfliteFile) -> _Found:
    """The import of a file with every operator that stops it: by its description, or because the importer fails."""
    _check_model(path, file)
    known = dict(_broken(file))
    found = _import(path, file, known)
    return _Found(found.imported, dict(sorted((found.stops | known).items())))


def _check_model(path: str | Path, file: TfliteFile) -> None:
    """`InvalidInput` for what no operator stands for."""
    control = {"WHILE", "IF", "CALL", "CALL_ONCE"}
    if file.subgraphs > 1 and not any(_kind(operator) in control for operator in file.operators):
        raise InvalidInput(f"{path}: cannot be imported: a model has one sub-graph: got {file.subgraphs}")
    computed = {*file.inputs, *(index for operator in file.operators for index in operator.outputs)}
    for index in file.outputs:
        if index not in computed:
            raise InvalidInput(f"{path}: cannot be imported: output {file.tensors[index].name} is computed: it is not")
    used = {index for operator in file.operators for index in (*operator.inputs, *operator.outputs)}
    for index in (*file.inputs, *file.outputs):
        broken = file.tensors[index].breaks
        if broken is not None and index not in used:
            raise InvalidInput(f"{path}: cannot be imported: {broken}")


def _kind(operator: FileOperator) -> str:
    return _OPERATORS.get(operator.code) or f"operator {operator.code}"


def _broken(file: TfliteFile) -> Iterator[tuple[int, _Stop]]:
    """The operators that break a rule, by number, with the first rule."""
    supported = {*OperatorConverter(None, None, ExprTable()).convert_map, *_OURS, *_STATEFUL}
    computed = set(file.inputs)
    for number, operator in enumerate(file.operators):
        rules = (*_operator_rules(operator, supported), *_tensor_rules(file, operator, computed))
        if rules:
            yield number, _Stop(_kind(operator), operator.name, rules[0])
        computed.update(operator.outputs)


def _operator_rules(operator: FileOperator, supported: set[str]) -> Iterator[BrokenRule]:
    """The rules that an operator breaks by itself."""
    kind = _kind(operator)
    if operator.code not in _OPERATORS:
        yield BrokenRule(f"operator is one of the schema, 0 to {max(_OPERATORS)}", f"{operator.code}, of a newer one")
    elif kind == "CUSTOM" and operator.custom != _DETECTION:
        yield BrokenRule(f"custom operator is {_DETECTION}", repr(operator.custom))
    elif kind not in supported and kind != "CUSTOM":
        yield BrokenRule("operator is one that TVM's TFLite importer has", f"code {operator.code}")
    if not operator.outputs:
        yield BrokenRule("operator has an output", "none")
    if operator.parts is not None and operator.parts != len(operator.outputs):
        yield BrokenRule(f"operator makes {len(operator.outputs)} tensors, its outputs", f"{operator.parts}")
    left_out = [number for number, index in enumerate(operator.inputs) if index < 0]
    if left_out and left_out[0] < _OPTIONAL.get(kind, len(operator.inputs)):
        yield BrokenRule(f"input {left_out[0]} is given", "none")


def _tensor_rules(file: TfliteFile, operator: FileOperator, computed: set[int]) -> Iterator[BrokenRule]:
    """The rules that an operator breaks with its tensors. `computed` are the numbers of those computed before."""
    inputs = [index for index in operator.inputs if index >= 0]
    for index in (*inputs, *operator.outputs):
        broken = file.tensors[index].breaks
        if broken is not None:
            yield broken
    for index in inputs:
        if index not in computed and not file.tensors[index].constant:
            # Variables that keep a value between inferences are such tensors too.
            yield BrokenRule(
                "operator reads inputs, constants and results of operators before it", file.tensors[index].name
            )
    for place, index in enumerate(operator.outputs):
        if index in computed or index in operator.outputs[:place]:
            yield BrokenRule("a tensor is computed once", f"{file.tensors[index].name} again")
    # The activations of such an operator are quantized at run time.
    quantized = [index for index in (*inputs, *operator.outputs) if file.tensors[index].quantized]
    if quantized and not {*inputs[:1], *operator.outputs}.intersection(quantized):
        weights = ", ".join(file.tensors[index].name for index in quantized)
        yield BrokenRule("activations are quantized if weights are", f"quantized {weights} alone")


# ---------------------------------------------------------------- import


def _import(path: str | Path, file: TfliteFile, without: Mapping[int, _Stop]) -> _Found:
    """Import the file without some operators. An operator at which the importer fails is replaced by variables."""
    cut = _Cut(file, without)
    if without and not (cut.inputs and cut.outputs):
        return _Found(None, {})  # nothing is left
    model = _Model(cut)
    stops: dict[int, _Stop] = {}
    try:
        mod, params = relay.frontend.from_tflite(model, op_converter=partial(_Converter, file=file, stops=stops))
    except Exception as error:  # the importer has no errors of its own: it raises whatever its code runs into
        raise InvalidInput(f"{path}: cannot be imported: {_said(error)}") from error
    return _Found((_stated(file, cut).attach(_in_order(mod, file)), params), stops)


def _said(error: Exception) -> str:
    """The last line with text of an error: TVM's begin with a trace of its C++."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def _in_order(mod: tvm.IRModule, file: TfliteFile) -> tvm.IRModule:
    """The module with its inputs in the file's order: TVM has them in the order of their first use."""
    main = mod["main"]
    place = {file.tensors[index].name: place for place, index in enumerate(file.inputs)}
    parameters = sorted(main.params, key=lambda parameter: place.get(parameter.name_hint, len(place)))
    if list(main.params) == parameters:
        return mod
    mod["main"] = relay.Function(parameters, main.body, main.ret_type, main.type_params, main.attrs, main.span)
    return mod


def _stated(file: TfliteFile, cut: _Cut) -> Stated:
    """The scales that the file has for the inputs and outputs."""
    inputs, outputs = ([file.tensors[index] for index in numbers] for numbers in (cut.inputs, cut.outputs))
    types = [(tensor.name, str(relay.TensorType(tensor.shape, tensor.dtype))) for tensor in inputs]
    types += [("", str(relay.TensorType(tensor.shape, tensor.dtype))) for tensor in outputs]
    following = {file.tensors[state].name: file.tensors[next_].name for state, next_ in file.states}
    before = [End(usable(one.quantization, one.dtype), state=following.get(one.name, "")) for one in inputs]
    names = set(following.values())
    behind = [End(usable(one.quantization, one.dtype), one.name if one.name in names else "") for one in outputs]
    return Stated(tuple(types), Ends(tuple(before), tuple(behind)))


class _Cut:
    """The main sub-graph without some operators: what they read is an output, what they compute is an input."""

    def __init__(self, file: TfliteFile, without: Mapping[int, _Stop]) -> None:
        self.file = file
        self.operators = [number for number in range(len(file.operators)) if number not in without]
        removed = [file.operators[number] for number in without]
        kept = [file.operators[number] for number in self.operators]
        self.inputs, self.outputs = list(file.inputs), list(file.outputs)
        if removed:
            computed = {index for operator in kept for index in operator.outputs}
            given = {*file.inputs, *(index for operator in removed for index in operator.outputs)} - computed
            asked = {*file.outputs, *(index for operator in removed for index in operator.inputs)} & computed
            self.inputs = [index for index in sorted(given) if file.tensors[index].breaks is None]
            self.outputs = sorted(asked)


class _Model(tflite.Model):  # type: ignore[misc]
    """A model as TVM's importer reads it, with the main sub-graph cut and the names made unique.

    The values of its constants are those of `TfliteFile`, whose types may be others than in the file. The buffer of a
    tensor with such values has the number of the tensor, behind the buffers of the file.
    """

    __slots__ = ("_cut",)

    def __init__(self, cut: _Cut) -> None:
        super().__init__()
        self._cut = cut
        self.Init(cut.file.data, int.from_bytes(cut.file.data[:4], "little"))

    def SubgraphsLength(self) -> int:  # noqa: N802
        return 1

    def Subgraphs(self, number: int) -> _SubGraph:  # noqa: N802
        return _SubGraph(self._cut, self.BuffersLength())

    def Buffers(self, number: int) -> Any:  # noqa: N802
        stored = self.BuffersLength()
        return super().Buffers(number) if number < stored else _Buffer(self._cut.file.tensors[number - stored])


class _Buffer:
    """The values of a constant."""

    def __init__(self, tensor: FileTensor) -> None:
        assert tensor.values is not None, "`_Tensor.Buffer` leads here"
        self._values = tensor.values

    def DataAsNumpy(self) -> Array:  # noqa: N802
        return np.ascontiguousarray(self._values).reshape(-1).view(np.uint8)


class _SubGraph(tflite.SubGraph):  # type: ignore[misc]
    __slots__ = ("_buffers", "_cut")

    def __init__(self, cut: _Cut, buffers: int) -> None:
        super().__init__()
        self._cut, self._buffers = cut, buffers
        self.Init(cut.file.data, cut.file.position)

    def InputsLength(self) -> int:  # noqa: N802
        return len(self._cut.inputs)

    def Inputs(self, number: int) -> int:  # noqa: N802
        return self._cut.inputs[number]

    def InputsAsNumpy(self) -> Array:  # noqa: N802
        return np.array(self._cut.inputs, np.int32)

    def OutputsAsNumpy(self) -> Array:  # noqa: N802
        return np.array(self._cut.outputs, np.int32)

    def OperatorsLength(self) -> int:  # noqa: N802
        return len(self._cut.operators)

    def Operators(self, number: int) -> Any:  # noqa: N802
        operator = tflite.Operator()
        operator.Init(self._cut.file.data, self._cut.file.operators[self._cut.operators[number]].position)
        return operator

    def Tensors(self, number: int) -> _Tensor:  # noqa: N802
        stored = {following: state for state, following in self._cut.file.states}.get(number, number)
        return _Tensor(super().Tensors(stored), self._cut.file.tensors[number], self._buffers + number)


class _Tensor(tflite.Tensor):  # type: ignore[misc]
    __slots__ = ("_buffer", "_described")

    def __init__(self, tensor: Any, described: FileTensor, buffer: int) -> None:
        super().__init__()
        self._described, self._buffer = described, buffer
        self.Init(tensor._tab.Bytes, tensor._tab.Pos)

    def Name(self) -> bytes:  # noqa: N802
        return self._described.name.encode()

    def Type(self) -> int:  # noqa: N802
        described = self._described
        return int(super().Type() if described.values is None else getattr(tflite.TensorType, described.dtype.upper()))

    def Buffer(self) -> int:  # noqa: N802
        return super().Buffer() if self._described.values is None else self._buffer

    def ShapeAsNumpy(self) -> Array:  # noqa: N802
        return super().ShapeAsNumpy() if self.ShapeLength() else np.zeros(0, np.int32)  # the base has 0 for no shape

    def Quantization(self) -> Any:  # noqa: N802
        return super().Quantization() if self._described.quantized else None


class _Converter(OperatorConverter):  # type: ignore[misc]
    """TVM's converter, with a record in `stops` of each operator that it fails at."""

    def __init__(
        self, model: _Model, subgraph: _SubGraph, exp_tab: ExprTable, *, file: TfliteFile, stops: dict[int, _Stop]
    ) -> None:
        super().__init__(model, subgraph, exp_tab)
        self._file, self._stops = file, stops
        self._numbers = {operator.position: number for number, operator in enumerate(file.operators)}
        for kind, ours in _QUANTIZED.items():
            self.convert_map[kind] = partial(self._quantized_or_not, ours, self.convert_map[kind])
        self.convert_map |= {kind: partial(ours, self) for kind, ours in _OURS.items()}
        for kind, convert in self.convert_map.items():
            self.convert_map[kind] = partial(self._converted, convert)
        for kind, stateful in _STATEFUL.items():
            self.convert_map[kind] = partial(self._converted, partial(self._with_state, stateful))

    def check_unsupported_ops(self) -> None:
        """Nothing: `_operator_rules` has refused them, each by name."""

    def _quantized_or_not(self, ours: _Convert, tvms: Callable[[Any], Any], operator: Any) -> Any:
        return ours(self, operator) if self.is_quantized(operator) else tvms(operator)

    def _with_state(self, convert: Callable[[Any, Any], tuple[relay.Expr, ...]], operator: Any) -> relay.Expr:
        """The output of an operator, whose next states become tensors of their own."""
        described = self._file.operators[self._numbers[operator._tab.Pos]]
        result = set_span(relay.Tuple(list(convert(self, operator))), described.name)
        for index, state in zip(described.outputs[1:], list(result.fields)[1:], strict=True):
            self.exp_tab.set_expr(self._file.tensors[index].name, state)
        return result.fields[0]

    def _converted(self, convert: Callable[[Any], Any], operator: Any) -> Any:
        number = self._numbers[operator._tab.Pos]
        described = self._file.operators[number]
        try:
            return convert(operator)
        except NotImported as error:
            self._stops[number] = _Stop(_kind(described), described.name, error.broken, error)
        except Exception as error:  # as in `_import`
            broken = BrokenRule("TVM's importer takes the operator", _said(error))
            self._stops[number] = _Stop(_kind(described), described.name, broken, error)
        states = {following for _, following in self._file.states}
        variables = []
        for index in described.outputs:
            tensor = self._file.tensors[index]
            variable = relay.var(tensor.name, shape=tensor.shape, dtype=tensor.dtype)
            if index in states:  # an output of ours, not of the file's operator
                self.exp_tab.set_expr(tensor.name, variable)
            else:
                variables.append(variable)
        return variables[0] if len(variables) == 1 else relay.Tuple(variables)
