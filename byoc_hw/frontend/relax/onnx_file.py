"""Imports quantized ONNX files as Relax modules. Needs the package onnx."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.onnx_form import importable_form
from byoc_hw.frontend.onnx_models import Shapes, last_line, onnx_model
from byoc_hw.frontend.relax.bindings import with_names
from byoc_hw.frontend.relax.owners import owned
from byoc_hw.frontend.relax.versions import Literal, array_of


def load_qdq_onnx(path: str | Path, shapes: Shapes) -> tvm.IRModule:
    """Read an .onnx file in QDQ form: a Relax module, its weights inside.

    `shapes` has the shape of each input that the file leaves open. Raises `InvalidInput` for a file that cannot be read
    or is damaged, for shapes that are not static, and for operators that cannot be imported.
    """
    try:
        return _imported(importable_form(onnx_model(path, shapes)))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error.__cause__


def _imported(model: Any) -> tvm.IRModule:
    owners: dict[Any, str] = {}
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that onnx will drop
            mod = _Importer(owners).from_onnx(model.graph, opset)
    except Exception as error:  # the importer has no errors of its own: it raises whatever its code runs into
        raise InvalidInput(f"cannot be imported: {last_line(error)}") from error
    functions = {**mod.functions, mod.get_global_var("main"): with_names(mod["main"], owners.get)}
    return tvm.IRModule(functions, attrs=mod.attrs)


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer, with the name of the node that each call is of in `owners`."""

    def __init__(self, owners: dict[Any, str]) -> None:
        super().__init__({}, "float32")
        self._owners = owners

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        name = attrs["tvm_custom"]["name"]
        made = _clipped(inputs, attrs) if op_name == "Clip" else None
        if made is None:
            made = super()._convert_operator(op_name, inputs, attrs, opset)
        return owned(self.bb, self._owners, made, name)


def _clipped(inputs: Any, attrs: Any) -> Any | None:
    """A Clip with constant bounds, or None for another one: TVM's importer makes loops of it."""
    given = [one for one in inputs if one is not None]
    if not all(isinstance(one, Literal) for one in given[1:]):
        return None
    bounds = [attrs.get("min", -np.inf), attrs.get("max", np.inf)]
    for place in range(1, len(inputs)):
        if inputs[place] is not None:
            bounds[place - 1] = array_of(inputs[place]).item()
    return relax.op.clip(inputs[0], *map(float, bounds))
