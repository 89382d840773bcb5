"""What a partitioned module records about itself, as attributes that survive TVM's passes."""

from __future__ import annotations

import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.base_record import BaseRecord, fields_in
from byoc_hw.frontend.relay.opaque import without_body

MODULE_ATTRIBUTE = "byoc_hw"
ACCELERATOR_ATTRIBUTE = "byoc_hw_accelerator"
NUMERICS_ATTRIBUTE = "byoc_hw_numerics"
PLANNED_ATTRIBUTE = "byoc_hw_planned"
"""Marks a region that is planned already, for which the codegen returns no source."""


class Record(BaseRecord):
    """The record of a Relay module."""

    def attach(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The module with this record; accelerator and numerics also as attributes of each region, for the codegen."""
        mod = mod.with_attr(MODULE_ATTRIBUTE, tvm.runtime.String(self.text))
        for variable, function in regions(mod).items():
            marks = {ACCELERATOR_ATTRIBUTE: self.accelerator, NUMERICS_ATTRIBUTE: self.numerics}
            for name, value in marks.items():
                function = function.with_attr(name, tvm.runtime.String(value))
            mod[variable] = function
        return mod


def record_of(mod: tvm.IRModule) -> Record | None:
    """The record of a partitioned module; None for a module that `partition_for_hwlib` has not made.

    Raises `InvalidInput` where a region records other numerics than the module: it comes from another module.
    """
    text = mod.attrs[MODULE_ATTRIBUTE] if mod.attrs and MODULE_ATTRIBUTE in mod.attrs else None
    if text is None:
        return None
    record = Record(**fields_in(str(text)))
    for variable, function in regions(mod).items():
        if numerics_of(function) != record.numerics:
            raise InvalidInput(
                f"region {variable.name_hint} follows numerics {record.numerics!r}, as the module: "
                f"got {numerics_of(function)!r}"
            )
    return record


def regions(mod: tvm.IRModule) -> dict[relay.GlobalVar, relay.Function]:
    """The external functions of a module, in the order of their symbols."""
    functions = {
        variable: function
        for variable, function in mod.functions.items()
        if isinstance(function, relay.Function) and function.attrs and "Compiler" in function.attrs
    }
    return dict(sorted(functions.items(), key=lambda item: _natural(item[0].name_hint)))


def without_bodies(mod: tvm.IRModule) -> tvm.IRModule:
    """A type-checked module for TVM to compile the host of: regions are marked as planned, and their bodies are zeros.

    TVM needs the types of a region only, and spends most of its time on the weights in a body.
    """
    planned = tvm.runtime.String("yes")
    functions = {
        variable: without_body(function).with_attr(PLANNED_ATTRIBUTE, planned)
        for variable, function in regions(mod).items()
    }
    return tvm.IRModule({**mod.functions, **functions}, mod.type_definitions, attrs=mod.attrs)


def numerics_of(region: relay.Function) -> str:
    """The numerics that a region records; "relay" for an external function without a record."""
    return str(region.attrs[NUMERICS_ATTRIBUTE]) if NUMERICS_ATTRIBUTE in region.attrs else "relay"


def _natural(symbol: str) -> tuple[str, int]:
    stem, _, number = symbol.rpartition("_")
    return (stem, int(number)) if number.isdigit() else (symbol, -1)
