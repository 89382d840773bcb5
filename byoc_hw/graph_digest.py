"""A digest of a graph: equal for graphs that differ in names alone."""

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


def graph_digest(graph: Graph) -> bytes:
    """A digest of all that plans and generated code of a graph depend on: layers, tensors, and the values of constants,
    without names."""
    found = hashlib.sha256()
    for part in _parts((graph.inputs, graph.outputs, graph.layers), {}):
        found.update(part)
    return found.digest()


def _parts(value: object, number: dict[Tensor, int]) -> Iterator[bytes]:
    """The bytes of a value; tensors have numbers, in the order of their first use."""
    if isinstance(value, tuple):
        yield b"(%d" % len(value)
        for one in value:
            yield from _parts(one, number)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Tensor):
        known = value in number
        yield b"%%%d" % number.setdefault(value, len(number))
        if not known:
            yield from _parts((value.shape, value.dtype, value.bits, value.quantization, value.data), number)
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        yield from _parts(tuple(getattr(value, one.name) for one in fields(value) if one.name not in _NAMES), number)
    else:
        yield repr(value).encode()
