"""Imports quantized ONNX files as Relax modules. Needs the package onnx."""

from __future__ import annotations

import warnings
from pathlib import Path

import tvm
from tvm.relax.frontend.onnx import from_onnx

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.onnx_models import Shapes, last_line, onnx_model


def load_qdq_onnx(path: str | Path, shapes: Shapes) -> tvm.IRModule:
    """Read an .onnx file in QDQ form: a Relax module, its weights inside.

    `shapes` has the shape of each input that the file leaves open. Raises `InvalidInput` for a file that cannot be read
    or is damaged, for shapes that are not static, and for operators that cannot be imported.
    """
    try:
        return _imported(onnx_model(path, shapes))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error.__cause__


def _imported(model: object) -> tvm.IRModule:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that onnx will drop
            return from_onnx(model, keep_params_in_input=False)
    except Exception as error:  # the importer has no errors of its own: it raises whatever its code runs into
        raise InvalidInput(f"cannot be imported: {last_line(error)}") from error
