"""Any function of one 8-bit value, as a table -> Lookup.

%0 = cast(%x, "int32")               %x is int8 or uint8
%1 = add(%0, c)                      [optional] where the table starts: for int8 128 behind its first entry
%2 = take(table, %1)                 int8 or uint8

With one constant for each channel in `c`, channels have tables of their own. The pass `tables` writes element-wise
operators like this.

In Relax, where `frontend/relax/qdq_tables.py` writes them:

%0 = astype(%x, "int32")
%1 = add(%0, c)                      [optional]
%2 = take(table, %1)
"""

import numpy as np

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Lookup
from byoc_hw.pattern import Form, NotALayer, register_pattern
from byoc_hw.tensor import Array, Tensor

DOCUMENT = "any function of one int8 or uint8 value, as a table, or one for each channel"


def check_types(ifm: Tensor, ofm: Tensor, index: str) -> None:
    """Raise `NotALayer` for a table of other types."""
    for what, dtype in (("input", ifm.dtype), ("output", ofm.dtype)):
        if dtype not in ("int8", "uint8"):
            raise NotALayer(f"{what} of a table is int8 or uint8", dtype)
    if index not in ("int32", "int64"):
        raise NotALayer("index of a table is int32 or int64", index)


def tables_by_byte(entries: Array, starts: Array, dtype: str, mode: str) -> Array:
    """The tables by the byte of an input of a type, uint8; they start at these of the entries, modulo 256 bytes."""
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.int64)
    indices = _limited(starts[:, np.newaxis] + values, len(entries), mode)
    tables = entries[indices].view(np.uint8)
    return np.ascontiguousarray(tables[:1] if (tables == tables[0]).all() else tables)


def starts_along(values: Array, shape: tuple[int, ...], own: tuple[int, ...]) -> Array:
    """The start of the table, or of each channel's, of an input of shape `own` for an index of `shape`."""
    if own != shape:
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


if HAS_RELAY:
    from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def _taken() -> DFPattern:
        index = is_op("cast")(wildcard())
        return is_op("take")(is_constant(), is_op("add")(index, is_constant()) | index)

    def to_lookup(match: Match) -> Lookup:
        """The layer of a matched table."""
        take, cast, add = match["take"], match["cast"], match.get("add")
        name = read.layer_name(take)
        ifm, ofm = read.activation(match.inputs[0], f"{name}_ifm"), read.activation(take, name)
        check_types(ifm, ofm, str(cast.attrs.dtype))
        if take.attrs.axis is not None:
            raise NotALayer("table is taken from as one vector", f"axis {take.attrs.axis}")
        starts = np.zeros(1, np.int64)
        if add is not None:
            starts = starts_along(read.constant(add.args[1]), read.shape_of(add), read.shape_of(add.args[0]))
        entries = read.constant(take.args[0]).reshape(-1)
        tables = tables_by_byte(entries, starts, ifm.dtype, str(take.attrs.mode))
        return Lookup(name, match.sources, ifm, ofm, tables=tables)

    register_pattern(
        "lookup",
        Form(_taken(), anchor="take"),
        parse=to_lookup,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from tvm.relax.dpl import is_const

    from byoc_hw.frontend.relax.qdq_forms import any_value, operator
    from byoc_hw.frontend.relax.qdq_match import QdqMatch
    from byoc_hw.frontend.relax.versions import array_of, dtype_of, extents_of

    def lookup_of(match: QdqMatch) -> Lookup:
        """The layer of a matched table."""
        take, index, add, name = match.root, match["astype"], match.get("add"), match.name
        ifm, ofm = match.activation(match.inputs[0], f"{name}_ifm"), match.activation(take, name)
        check_types(ifm, ofm, dtype_of(index))
        if take.attrs.axis is not None:
            raise NotALayer("table is taken from as one vector", f"axis {take.attrs.axis}")
        starts = np.zeros(1, np.int64)
        if add is not None:
            starts = starts_along(array_of(add.args[1]), extents_of(add), extents_of(add.args[0]))
        tables = tables_by_byte(array_of(take.args[0]).reshape(-1), starts, ifm.dtype, str(take.attrs.mode))
        return Lookup(name, match.sources, ifm, ofm, tables=tables)

    def _read_at(index: object) -> object:
        return operator("take", is_const(), index)

    register_pattern(
        "lookup",
        [
            Form(_read_at(operator("add", operator("astype", any_value()), is_const())), anchor="take"),
            Form(_read_at(operator("astype", any_value())), anchor="take"),
        ],
        parse=lookup_of,
        document=DOCUMENT,
    )
