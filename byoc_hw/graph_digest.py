"""A digest of a graph: equal for graphs that differ in names alone, or in nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

import numpy as np

from byoc_hw.tensor import Tensor

if TYPE_CHECKING:
    from byoc_hw.graph import Graph

_NAMES = ("name", "source", "axes_of_model")


def graph_digest(graph: Graph, *, names: bool = False) -> bytes:
    """A digest of all that plans and generated code of a graph depend on: layers, tensors, and the values of constants,
    without names, unless it is of these as well."""
    found = hashlib.sha256(repr(graph.name).encode() if names else b"")
    for part in _parts((graph.inputs, graph.outputs, graph.layers), {}, names=names):
        found.update(part)
    return found.digest()


def _parts(value: object, number: dict[Tensor, int], *, names: bool) -> Iterator[bytes]:
    """The bytes of a value; tensors have numbers, in the order of their first use."""
    if isinstance(value, tuple):
        yield b"(%d" % len(value)
        for one in value:
            yield from _parts(one, number, names=names)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Tensor):
        known = value in number
        yield b"%%%d" % number.setdefault(value, len(number))
        if not known:
            name = (value.name,) if names else ()
            found = (*name, value.shape, value.dtype, value.bits, value.quantization, value.data)
            yield from _parts(found, number, names=names)
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        stated = [one.name for one in fields(value) if names or one.name not in _NAMES]
        yield from _parts(tuple(getattr(value, one) for one in stated), number, names=names)
    else:
        yield repr(value).encode()
