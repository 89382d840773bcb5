"""Reads ONNX files: checked models with static shapes. Needs the package onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner

from byoc_hw.arguments import check_type, shown
from byoc_hw.errors import InvalidInput
from byoc_hw.names import distinct

Shapes = Mapping[str, Sequence[int]]


def onnx_model(path: str | Path, shapes: Shapes) -> Any:
    """The model of a file, with its functions inlined, a name for every node, and a static shape for every input.

    `InvalidInput` for a file that cannot be read or is damaged, and for shapes that are not static.
    """
    return _static(_read(path), shapes)


def _read(path: str | Path) -> Any:
    """The checked model, with functions of its own inlined, and a name of its own for every node."""
    try:
        model = onnx.load(str(path), format="protobuf")
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf's, and onnx's for data in other files
        raise InvalidInput(f"is no ONNX model: {last_line(error)}") from error
    try:
        onnx.checker.check_model(model)
        model = onnx.inliner.inline_local_functions(model)
    except Exception as error:  # the checker's own, and protobuf's for a model of 2 GiB
        raise InvalidInput(f"is a damaged ONNX model: {last_line(error)}") from error
    if not model.graph.node:
        raise InvalidInput("a model has operators: got none")
    plain = (node.name or f"{node.op_type}_{number}" for number, node in enumerate(model.graph.node))
    for node, name in zip(model.graph.node, distinct(plain), strict=True):
        node.name = name
    return model


def _static(model: Any, shapes: Shapes) -> Any:
    """The model with a static shape for every input."""
    check_type("shapes", shapes, Mapping, "a mapping of inputs to shapes")
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {info.name: info for info in model.graph.input if info.name not in weights}
    for name in shapes:
        if name not in inputs:
            raise InvalidInput(f"shapes are of inputs, {', '.join(inputs)}: got {shown(name)}")
    for name, info in inputs.items():
        _set_shape(name, info, shapes.get(name))
    del model.graph.value_info[:]  # what was inferred from open dimensions
    return model


def _set_shape(name: str, info: Any, given: Sequence[int] | None) -> None:
    kind = info.type.tensor_type
    if not kind.HasField("shape") and given is None:
        raise InvalidInput(f"input {name} has a static shape: got none; shapes={{{name!r}: (...)}} gives it one")
    stated = [dim.dim_value or None for dim in kind.shape.dim]
    if given is None:
        if None in stated:
            shape = ", ".join(dim.dim_param or str(dim.dim_value or "?") for dim in kind.shape.dim)
            example = ", ".join(str(extent or 1) for extent in stated) + ("," if len(stated) == 1 else "")
            raise InvalidInput(
                f"input {name} has a static shape: got ({shape}); shapes={{{name!r}: ({example})}} gives it one"
            )
        return
    extents = [int(extent) for extent in given]
    agrees = len(stated) == len(extents) and all(a in (None, b) for a, b in zip(stated, extents, strict=True))
    if kind.HasField("shape") and not agrees:
        raise InvalidInput(f"shape of input {name} is as the file has it: got {tuple(extents)} for {tuple(stated)}")
    if any(extent < 1 for extent in extents):
        raise InvalidInput(f"dimensions of input {name} are at least 1: got {tuple(extents)}")
    kind.shape.Clear()
    for extent in extents:
        kind.shape.dim.add().dim_value = extent


def last_line(error: Exception) -> str:
    """The last line with text: TVM's errors begin with a trace of its C++, those of onnx say the rule last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" .=")]
    return f"{type(error).__name__}: {lines[-1][:_LONGEST]}" if lines else type(error).__name__


_LONGEST = 300
