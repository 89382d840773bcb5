"""The Relay front end: implements `byoc_hw.frontend.seam.FrontEnd`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.accelerators import known
from byoc_hw.frontend.relay.checks import check_module
from byoc_hw.frontend.relay.codegen import register
from byoc_hw.frontend.relay.floats.model import float_model
from byoc_hw.frontend.relay.host_again import host_again
from byoc_hw.frontend.relay.load import load
from byoc_hw.frontend.relay.model import RelayModel, graphs_of
from byoc_hw.frontend.relay.partition import partition, prepare
from byoc_hw.frontend.relay.qdq.integers import integer_form
from byoc_hw.frontend.relay.record import record_of
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.frontend.relay.table import pattern_table
from byoc_hw.frontend.relay.tflite import importable_tflite, load_float_tflite, load_tflite
from byoc_hw.frontend.seam import Partitioned

__all__ = [
    "float_model",
    "host_again",
    "importable_tflite",
    "json_of",
    "load",
    "load_float_tflite",
    "load_tflite",
    "open_model",
    "operator_module",
    "partition",
    "partitioned",
    "pattern_table",
    "reference",
    "register",
    "to_integers",
]


@serial
def partitioned(mod: Any) -> Partitioned | None:
    """What a module that `partition` made records; None for another one."""
    check_module(mod)
    record = record_of(mod)
    if record is None:
        return None
    hardware = known(record.accelerator)
    graphs = {} if hardware is None else graphs_of(relay.transform.InferType()(mod))
    return Partitioned(record.mod_name, hardware, record.label, record.numerics, record.outcomes, graphs)


@serial
def to_integers(mod: Any, params: Mapping[str, Any] | None) -> tvm.IRModule:
    """The integer form of a module in QDQ form."""
    check_module(mod)
    if record_of(mod) is not None:
        raise InvalidInput("the module is already partitioned: bring the original module to integers instead")
    return integer_form(prepare(mod, params))


def open_model(mod: Any, params: Mapping[str, Any] | None, mod_name: str | None) -> RelayModel:
    """Open a module for a build."""
    return RelayModel(mod, params, mod_name)


def reference(mod: Any) -> Reference:
    """TVM's own results, layer by layer."""
    return Reference(mod, layers=True)


@serial
def json_of(mod: tvm.IRModule) -> str:
    """The text of a module that `load` reads from a .json file."""
    return str(tvm.ir.save_json(mod))


@serial
def operator_module(operator: Any) -> tvm.IRModule:
    """A module of one Relay expression, whose free variables become inputs, or of one function."""
    if not isinstance(operator, relay.Expr | tvm.IRModule):
        raise InvalidInput(f"operator is a Relay expression, function or module: got {type(operator).__name__}")
    mod = operator if isinstance(operator, tvm.IRModule) else tvm.IRModule.from_expr(operator)
    return relay.transform.InferType()(mod)
