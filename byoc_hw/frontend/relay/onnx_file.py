"""Imports ONNX files as Relay modules in integers. Needs the package onnx."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx
import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.onnx_form import importable_form
from byoc_hw.frontend.onnx_graph import node_text
from byoc_hw.frontend.onnx_models import Shapes, last_line, onnx_model
from byoc_hw.frontend.relay.compose import called_with, rebuild_calls, with_main
from byoc_hw.frontend.relay.onnx_importer import quick_importer
from byoc_hw.frontend.relay.qdq.integers import integer_form
from byoc_hw.frontend.relay.sources import source_names, span_of


def load_onnx(path: str | Path, shapes: Shapes) -> tvm.IRModule:
    """Read an .onnx file: a Relay module in integers, its weights inside.

    `shapes` has the shape of each input that the file leaves open. Raises `InvalidInput` for a file that cannot be read
    or is damaged, for shapes that are not static, and for operators that cannot be imported; the message names all.
    """
    try:
        return integer_form(_imported(onnx_model(path, shapes)))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error.__cause__


def _imported(model: Any) -> tvm.IRModule:
    """The float module that TVM's importer makes of a model, its inputs in the file's order."""
    plain = importable_form(model)
    try:
        with warnings.catch_warnings(), quick_importer():
            warnings.simplefilter("ignore")  # of names that onnx will drop, and of what its checker says
            mod, _ = relay.frontend.from_onnx(plain, freeze_params=True)
        return _own_names(relay.transform.InferType()(mod))
    except tvm.error.OpNotImplemented as error:
        kinds = set(str(error).rpartition(": ")[2].replace(",", " ").split())
        stops = [node_text(node) for node in plain.graph.node if node.op_type in kinds]
        rule = "cannot be imported: operators are those that TVM's ONNX importer has"
        raise InvalidInput(f"{rule}: got {'; '.join(stops) or last_line(error)}") from error
    except Exception as error:  # the importer has no errors of its own: it raises whatever its code runs into
        raise InvalidInput(f"cannot be imported: {_at(error)}{last_line(error)}") from error


def _own_names(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the names of the file's nodes: the importer puts that of the output before the last ones."""

    def named(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        names = source_names(call.span)
        if not any("@@" in name for name in names):
            return called_with(call, arguments)
        span = span_of(names[0].partition("@@")[2])
        return relay.Call(call.op, arguments, call.attrs, call.type_args, span)

    return with_main(mod, rebuild_calls(mod["main"], named))


def _at(error: Exception) -> str:
    """The operator at which the importer failed: its errors do not say, but the loop over the operators knows."""
    place = error.__traceback__
    while place is not None:
        node = place.tb_frame.f_locals.get("node")
        if isinstance(node, onnx.NodeProto):
            return f"{node_text(node)}: "
        place = place.tb_next
    return ""
