"""Reads a model file of any format: TFLite, ONNX, or a Relay module as text or JSON."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.checks import check_module
from byoc_hw.frontend.relay.failures import TvmFailed, tvm_errors
from byoc_hw.frontend.relay.qdq.integers import in_qdq_form, integer_form
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.frontend.relay.tflite import Imported, load_tflite
from byoc_hw.frontend.seam import NO_ONNX

RELAY = (".relay", ".txt", ".json")
FORMATS = (".tflite", ".onnx", *RELAY)


@serial
def load(path: str | Path, shapes: Mapping[str, Sequence[int]]) -> Imported:
    """Read a model file by its suffix: see `byoc_hw.load`."""
    suffix = Path(path).suffix.lower()
    if suffix == ".onnx":
        if importlib.util.find_spec("onnx") is None:
            raise InvalidInput(NO_ONNX.format(path))
        from byoc_hw.frontend.relay.onnx_file import load_onnx

        return load_onnx(path, shapes), {}
    if suffix not in FORMATS:
        raise InvalidInput(f"{path}: a model file ends in one of {', '.join(FORMATS)}: got {suffix or 'no suffix'}")
    if shapes:
        raise InvalidInput(f"{path}: shapes are of ONNX files, which may leave them open: got those of a {suffix} file")
    return load_tflite(path) if suffix == ".tflite" else (_relay(path, suffix), {})


def _relay(path: str | Path, suffix: str) -> tvm.IRModule:
    """A Relay module out of a file: of `mod.astext()`, or of `tvm.ir.save_json(mod)`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL in the path, bytes that are no UTF-8
        raise InvalidInput(f"{path}: cannot be read: {error}") from error
    try:
        with tvm_errors():
            mod: Any = tvm.ir.load_json(text) if suffix == ".json" else tvm.relay.fromtext(text)
            if isinstance(mod, relay.Expr):
                mod = tvm.IRModule.from_expr(mod)
    except TvmFailed as error:
        raise InvalidInput(f"{path}: is no Relay module: {error.said}") from error.__cause__
    try:
        check_module(mod)
        with tvm_errors():
            mod = relay.transform.InferType()(mod)
            return integer_form(mod) if in_qdq_form(mod) else mod
    except TvmFailed as error:
        raise InvalidInput(f"{path}: types of the model agree: {error.said}") from error.__cause__
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error
