"""Any function of one 8-bit value, as a table -> Lookup.

%0 = cast(%x, "int32")               %x is int8 or uint8
%1 = add(%0, c)                      [optional] where the table starts: for int8 128 behind its first entry
%2 = take(table, %1)                 int8 or uint8

With one constant for each channel in `c`, channels have tables of their own. The pass `tables` writes element-wise
operators like this.
"""

import numpy as np
from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Lookup
from byoc_hw.pattern import Form, NotALayer, register_pattern
from byoc_hw.tensor import Array


def _taken() -> DFPattern:
    index = is_op("cast")(wildcard())
    return is_op("take")(is_constant(), is_op("add")(index, is_constant()) | index)


def to_lookup(match: Match) -> Lookup:
    """The layer of a matched table."""
    take, cast, add = match["take"], match["cast"], match.get("add")
    name = read.layer_name(take)
    ifm, ofm = read.activation(match.inputs[0], f"{name}_ifm"), read.activation(take, name)
    for what, dtype in (("input", ifm.dtype), ("output", ofm.dtype)):
        if dtype not in ("int8", "uint8"):
            raise NotALayer(f"{what} of a table is int8 or uint8", dtype)
    if str(cast.attrs.dtype) not in ("int32", "int64"):
        raise NotALayer("index of a table is int32 or int64", cast.attrs.dtype)
    if take.attrs.axis is not None:
        raise NotALayer("table is taken from as one vector", f"axis {take.attrs.axis}")
    starts = np.zeros(1, np.int64) if add is None else _starts(add)
    entries = read.constant(take.args[0]).reshape(-1)
    values = np.arange(256, dtype=np.uint8).view(ifm.dtype).astype(np.int64)
    indices = _limited(starts[:, np.newaxis] + values, len(entries), str(take.attrs.mode))
    tables = entries[indices].view(np.uint8)
    tables = tables[:1] if (tables == tables[0]).all() else tables
    return Lookup(name, match.sources, ifm, ofm, tables=np.ascontiguousarray(tables))


def _starts(add: relay.Call) -> Array:
    """The start of the table, or of each channel's."""
    shape, values = read.shape_of(add), read.constant(add.args[1])
    if read.shape_of(add.args[0]) != shape:
        raise NotALayer("starts of tables have no more dimensions than the input", values.shape)
    if values.size > 1 and (values.shape[-1] != values.size or values.size != shape[-1]):
        raise NotALayer("tables are one, or one for each index of the last dimension", f"starts of {values.shape}")
    return values.reshape(-1).astype(np.int64)


def _limited(indices: Array, entries: int, mode: str) -> Array:
    """Indices into a table, as `take` limits them."""
    if mode == "clip":
        return np.clip(indices, 0, entries - 1)
    if mode == "fast" and (indices.min() < 0 or indices.max() >= entries):
        outside = indices.min() if indices.min() < 0 else indices.max()
        raise NotALayer(f"indices are from 0 to {entries - 1}", outside)
    return indices % entries


register_pattern(
    "lookup",
    Form(_taken(), anchor="take"),
    parse=to_lookup,
    document="any function of one int8 or uint8 value, as a table, or one for each channel",
)
