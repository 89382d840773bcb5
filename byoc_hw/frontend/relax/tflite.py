"""Imports TFLite files as Relax modules, in which operators are float between dequantize and quantize."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.tflite import from_tflite
from tvm.relax.frontend.tflite.tflite_frontend import ExprTable, OperatorConverter

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.model_ends import End, Ends, usable
from byoc_hw.frontend.relax.bias_scales import with_scales_of_biases
from byoc_hw.frontend.relax.bindings import each_its_own_dequantize, with_names
from byoc_hw.frontend.relax.owners import owned
from byoc_hw.frontend.relax.versions import extents_of
from byoc_hw.frontend.tflite_file import TfliteFile, read_tflite
from byoc_hw.frontend.tflite_import import FoundImport, TfliteImport
from byoc_hw.frontend.tflite_model import TfliteCut, TfliteModel
from byoc_hw.frontend.tflite_stops import (
    TfliteStop,
    importer_said,
    operator_kind,
)
from byoc_hw.pattern import BrokenRule, NotALayer, Outcome

_OF_STORED = ("CUMSUM", "PRELU", "SPACE_TO_BATCH_ND", "SQUARE")
"""Operators of which TVM's importer computes quantized ones of their stored values, as if these were real."""

STATED = "byoc_hw_stated"
"""The module's attribute with the ends that its file states."""


def load_tflite(path: str | Path) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Read a .tflite file: a Relax module, and no weights by name, as they are inside.

    Raises `InvalidInput` for a file that cannot be read, is damaged, or holds operators that TVM's importer does
    not support; the message names them all.
    """
    return _importing(path).whole(), {}


def importable_parts(
    path: str | Path,
) -> tuple[tuple[tvm.IRModule, dict[str, Any]] | None, tuple[str, ...], tuple[Outcome, ...]]:
    """What of a .tflite file can be imported: see `byoc_hw.frontend.tflite_import.TfliteImport.parts`."""
    mod, names, stops = _importing(path).parts()
    return None if mod is None else (mod, {}), names, stops


def _importing(path: str | Path) -> TfliteImport[tvm.IRModule]:
    file = read_tflite(path)
    supported = set(OperatorConverter(None, None, ExprTable(), None).convert_map)
    return TfliteImport(path, file, supported, partial(_import, path, file))


def _import(path: str | Path, file: TfliteFile, without: Mapping[int, TfliteStop]) -> FoundImport[tvm.IRModule]:
    """Import the file without some operators. An operator at which the importer fails is replaced by variables."""
    cut = TfliteCut(file, without)
    if without and not (cut.inputs and cut.outputs):
        return FoundImport(None, {})  # nothing is left
    stops: dict[int, TfliteStop] = {}
    owners: dict[Any, str] = {}
    try:
        mod = from_tflite(TfliteModel(cut), op_converter=partial(_Converter, file=file, stops=stops, owners=owners))
    except Exception as error:  # the importer has no errors of its own: it raises whatever its code runs into
        if not stops:
            raise InvalidInput(f"{path}: cannot be imported: {importer_said(error)}") from error
        return FoundImport(None, stops)  # what an operator left behind is not bound, and TVM says so at the end
    main = with_names(with_scales_of_biases(mod["main"].without_attr("params")), owners.get)
    main = each_its_own_dequantize(main)
    mod = relax.transform.CanonicalizeBindings()(tvm.IRModule({"main": main}))
    return FoundImport(mod.with_attr(STATED, json.dumps(_stated(cut))), stops)


def _stated(cut: TfliteCut) -> dict[str, Any]:
    """The names, types and shapes of inputs and outputs, and their scales in the file."""
    tensors = cut.file.tensors
    inputs, outputs = ([tensors[index] for index in numbers] for numbers in (cut.inputs, cut.outputs))
    types = [[list(one.shape), one.dtype] for one in (*inputs, *outputs)]
    ends = Ends(*(tuple(End(usable(one.quantization, one.dtype)) for one in each) for each in (inputs, outputs)))
    return {"names": [one.name for one in (*inputs, *outputs)], "types": types, "ends": asdict(ends)}


class _Converter(OperatorConverter):  # type: ignore[misc]
    """TVM's converter, with the operator of the file that each call is of in `owners`, and of failures in `stops`."""

    def __init__(
        self,
        *given: Any,
        file: TfliteFile,
        stops: dict[int, TfliteStop],
        owners: dict[Any, str],
    ) -> None:
        super().__init__(*given)
        self._file, self._stops, self._owners = file, stops, owners
        self._numbers = {operator.position: number for number, operator in enumerate(file.operators)}
        for kind in _OF_STORED:
            self.convert_map[kind] = partial(self._not_quantized, self.convert_map[kind])
        self.convert_map["ELU"] = partial(self._elu, self.convert_map["ELU"])
        self.convert_map["FULLY_CONNECTED"] = partial(self._of_rows, self.convert_map["FULLY_CONNECTED"])
        for kind, convert in self.convert_map.items():
            self.convert_map[kind] = partial(self._converted, convert)

    def check_unsupported_ops(self) -> None:
        """Nothing: `broken_operators` has refused them, each by name."""

    def _converted(self, convert: Callable[..., Any], op: Any) -> Any:
        number = self._numbers[op._tab.Pos]
        described = self._file.operators[number]
        try:
            return owned(self.bb, self._owners, convert(op=op), described.name)
        except NotALayer as error:
            self._stops[number] = TfliteStop(operator_kind(described), described.name, error.broken, error)
        except Exception as error:  # as in `_import`
            broken = BrokenRule("TVM's importer takes the operator", importer_said(error))
            self._stops[number] = TfliteStop(operator_kind(described), described.name, broken, error)
        states = {following for _, following in self._file.states}  # outputs of ours, not of the file's operator
        variables = [
            relax.Var(tensor.name, relax.TensorType(tensor.shape, tensor.dtype))
            for tensor in (self._file.tensors[index] for index in described.outputs if index not in states)
        ]
        return variables[0] if len(variables) == 1 else relax.Tuple(variables)

    def _not_quantized(self, convert: Callable[..., Any], op: Any) -> Any:
        described = self._file.operators[self._numbers[op._tab.Pos]]
        if self.is_quantized(op):
            raise NotALayer("type is not quantized", self._file.tensors[described.inputs[0]].dtype)
        return convert(op=op)

    def _elu(self, convert: Callable[..., Any], op: Any) -> Any:
        """ELU: TVM's converter computes it of stored values."""
        if not self.is_quantized(op):
            return convert(op=op)
        (x,), (output,) = self.get_input_tensors(op), self.get_output_tensors(op)
        real = self.dequantize(self.get_tensor_expr(x), x)
        below = relax.op.nn.relu(relax.op.subtract(relax.const(np.float32(1)), relax.op.exp(real)))
        return self.quantize(relax.op.subtract(relax.op.nn.relu(real), below), output)

    def _of_rows(self, convert: Callable[..., Any], op: Any) -> Any:
        """A matrix product of rows: TVM's converter takes an input of two dimensions only."""
        described = self._file.operators[self._numbers[op._tab.Pos]]
        x, weights = (self._file.tensors[index] for index in described.inputs[:2])
        of_bias = [self._file.tensors[index].dtype for index in described.inputs[2:] if index >= 0]
        if x.quantized and of_bias and of_bias[0] not in ("int32", "int64"):
            raise NotALayer("bias is int32 or int64", of_bias[0])
        if not x.quantized or len(x.shape) == 2 or len(weights.shape) != 2 or not weights.shape[1]:
            return convert(op=op)
        given = self.exp_tab.get_expr(x.name)
        rows = relax.op.reshape(given, (prod(x.shape) // weights.shape[1], weights.shape[1]))
        self.exp_tab.set_expr(x.name, self.bb.emit(rows), force_override=True)
        try:
            product = self.bb.normalize(convert(op=op))
        finally:
            self.exp_tab.set_expr(x.name, given, force_override=True)
        shape = self._file.tensors[described.outputs[0]].shape
        return product if extents_of(product) == shape else relax.op.reshape(product, shape)
