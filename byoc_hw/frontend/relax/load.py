"""Reads a model file of any format: TFLite, ONNX, or a program of torch.export."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.installed import needs_relay
from byoc_hw.frontend.relax.tflite import load_tflite
from byoc_hw.frontend.seam import NO_ONNX

_FORMATS = (".tflite", ".onnx", ".pt2")
_NO_TORCH = "{}: a program of torch.export is read with the package torch: pip install torch"


def load_any(path: str | Path, shapes: Mapping[str, Sequence[int]]) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Read a model file by its suffix: see `byoc_hw.load`."""
    suffix = Path(path).suffix.lower()
    if suffix == ".onnx":
        _check_installed("onnx", NO_ONNX, path)
        from byoc_hw.frontend.relax.onnx_file import load_qdq_onnx

        return load_qdq_onnx(path, shapes), {}
    if suffix in (".relay", ".txt", ".json"):
        needs_relay(f"{path}: a {suffix} file")
    if suffix not in _FORMATS:
        raise InvalidInput(f"{path}: a model file ends in one of {', '.join(_FORMATS)}: got {suffix or 'no suffix'}")
    if shapes:
        raise InvalidInput(f"{path}: shapes are of ONNX files, which may leave them open: got those of a {suffix} file")
    if suffix == ".tflite":
        return load_tflite(path)
    _check_installed("torch", _NO_TORCH, path)
    from byoc_hw.frontend.relax.torch_program import load_torch

    return load_torch(path), {}


def _check_installed(package: str, message: str, path: str | Path) -> None:
    if importlib.util.find_spec(package) is None:
        raise InvalidInput(message.format(path))
