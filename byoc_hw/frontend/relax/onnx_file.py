"""Imports quantized ONNX files as Relax modules. Needs the package onnx."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import tvm
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.onnx_form import importable_form
from byoc_hw.frontend.onnx_models import Shapes, last_line, onnx_model
from byoc_hw.frontend.relax.bindings import with_names
from byoc_hw.frontend.relax.owners import owned


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
    return tvm.IRModule({"main": with_names(mod["main"], owners.get)}, attrs=mod.attrs)


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer, with the name of the node that each call is of in `owners`."""

    def __init__(self, owners: dict[Any, str]) -> None:
        super().__init__({}, "float32")
        self._owners = owners

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        name = attrs["tvm_custom"]["name"]
        return owned(self.bb, self._owners, super()._convert_operator(op_name, inputs, attrs, opset), name)
