"""Imports TFLite files as Relay modules, whole or without the operators that stop TVM's importer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import relay
from tvm.relay.frontend.common import ExprTable, set_span
from tvm.relay.frontend.tflite import OperatorConverter

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.model_ends import End, Ends, usable
from byoc_hw.frontend.relay.ends import Stated
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
from byoc_hw.frontend.tflite_file import TfliteFile, read_tflite
from byoc_hw.frontend.tflite_float import with_float_weights
from byoc_hw.frontend.tflite_import import FoundImport, TfliteImport
from byoc_hw.frontend.tflite_model import TfliteCut, TfliteModel, TfliteSubGraph
from byoc_hw.frontend.tflite_stops import (
    TfliteStop,
    importer_said,
    operator_kind,
)
from byoc_hw.pattern import BrokenRule, Outcome

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
"""Operators that TVM's importer computes wrong where they are quantized, or does not take."""

_STATEFUL: dict[str, Callable[[Any, Any], tuple[relay.Expr, ...]]] = {
    "SVDF": convert_svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": convert_lstm,
}
"""Operators of int8 that TVM's importer lacks: the functions give the output and the next states."""

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
    return _importing(path, file).whole()


@serial
def importable_tflite(path: str | Path) -> tuple[Imported | None, tuple[str, ...], tuple[Outcome, ...]]:
    """What of a TFLite file can be imported: see `byoc_hw.frontend.tflite_import.TfliteImport.parts`."""
    return _importing(path, read_tflite(path)).parts()


def _importing(path: str | Path, file: TfliteFile) -> TfliteImport[Imported]:
    supported = {*OperatorConverter(None, None, ExprTable()).convert_map, *_OURS, *_STATEFUL}
    return TfliteImport(path, file, supported, partial(_import, path, file))


# ---------------------------------------------------------------- import


def _import(path: str | Path, file: TfliteFile, without: Mapping[int, TfliteStop]) -> FoundImport[Imported]:
    """Import the file without some operators. An operator at which the importer fails is replaced by variables."""
    cut = TfliteCut(file, without)
    if without and not (cut.inputs and cut.outputs):
        return FoundImport(None, {})  # nothing is left
    model = TfliteModel(cut)
    stops: dict[int, TfliteStop] = {}
    try:
        mod, params = relay.frontend.from_tflite(model, op_converter=partial(_Converter, file=file, stops=stops))
    except Exception as error:  # the importer has no errors of its own: it raises whatever its code runs into
        raise InvalidInput(f"{path}: cannot be imported: {importer_said(error)}") from error
    mod = _with_inputs(mod, file, cut)
    names = (parameter.name_hint for parameter in mod["main"].params)
    weights = {name: params[name] for name in names if name in params}  # those of operators for nothing are left out
    return FoundImport((_stated(file, cut).attach(mod), weights), stops)


def _with_inputs(mod: tvm.IRModule, file: TfliteFile, cut: TfliteCut) -> tvm.IRModule:
    """The module with all inputs in the file's order: TVM has those that are read, in the order of their first use."""
    main = mod["main"]
    known = {parameter.name_hint for parameter in main.params}
    tensors = (file.tensors[index] for index in cut.inputs)
    unread = [relay.var(one.name, shape=one.shape, dtype=one.dtype) for one in tensors if one.name not in known]
    place = {file.tensors[index].name: place for place, index in enumerate(file.inputs)}
    parameters = sorted([*main.params, *unread], key=lambda parameter: place.get(parameter.name_hint, len(place)))
    if list(main.params) == parameters:
        return mod
    mod["main"] = relay.Function(parameters, main.body, main.ret_type, main.type_params, main.attrs, main.span)
    return mod


def _stated(file: TfliteFile, cut: TfliteCut) -> Stated:
    """The scales that the file has for the inputs and outputs."""
    inputs, outputs = ([file.tensors[index] for index in numbers] for numbers in (cut.inputs, cut.outputs))
    types = [(tensor.name, str(relay.TensorType(tensor.shape, tensor.dtype))) for tensor in inputs]
    types += [("", str(relay.TensorType(tensor.shape, tensor.dtype))) for tensor in outputs]
    following = {file.tensors[state].name: file.tensors[next_].name for state, next_ in file.states}
    before = [End(usable(one.quantization, one.dtype), state=following.get(one.name, "")) for one in inputs]
    names = set(following.values())
    behind = [End(usable(one.quantization, one.dtype), one.name if one.name in names else "") for one in outputs]
    return Stated(tuple(types), Ends(tuple(before), tuple(behind)))


class _Converter(OperatorConverter):  # type: ignore[misc]
    """TVM's converter, with a record in `stops` of each operator that it fails at."""

    def __init__(
        self,
        model: TfliteModel,
        subgraph: TfliteSubGraph,
        exp_tab: ExprTable,
        *,
        file: TfliteFile,
        stops: dict[int, TfliteStop],
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
            self._stops[number] = TfliteStop(operator_kind(described), described.name, error.broken, error)
        except Exception as error:  # as in `_import`
            broken = BrokenRule("TVM's importer takes the operator", importer_said(error))
            self._stops[number] = TfliteStop(operator_kind(described), described.name, broken, error)
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
