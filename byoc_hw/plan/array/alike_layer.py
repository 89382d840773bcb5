"""Which layers are alike: what is found out about the tiles of one is true of the others."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

import numpy as np

from byoc_hw.graph import BaseLayer, Layer
from byoc_hw.remembered import kept_in_first
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class AlikeLayer:
    """A layer without its values; those of the same sizes are equal. It may be remembered: it takes little memory."""

    layer: Layer = field(compare=False)
    sizes: Hashable

    @classmethod
    def of(cls, layer: Layer) -> AlikeLayer:
        """The layer with its sizes."""
        return cls(without_values(layer), layer_sizes(layer))


@kept_in_first
def layer_sizes(layer: Layer) -> Hashable:
    """A layer without its names and values: what its jobs and copies depend on."""
    inputs = layer.inputs
    same = tuple(map(inputs.index, inputs)) if len(inputs) > 1 else ()  # a tensor that is read twice is there once
    return (type(layer), same, *(_plain(getattr(layer, one.name)) for one in fields(layer) if one.name not in _ANY))


_ANY = ("name", "source", "axes_of_model", "act_min", "act_max")


def _plain(value: object) -> object:
    if isinstance(value, Tensor):
        return value.shape, value.dtype, value.bits, value.data is None
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value if isinstance(value, int | str | bool) else None


_Layer = TypeVar("_Layer", bound=BaseLayer)


@kept_in_first
def without_values(layer: _Layer) -> _Layer:
    """The layer with zeros for its constants, all of them one element: weights may be large."""
    bare: dict[Tensor, Tensor] = {}

    def stripped(tensor: Tensor) -> Tensor:
        if tensor.data is None or not any(tensor.data.strides):
            return tensor
        return bare.setdefault(tensor, replace(tensor, data=np.broadcast_to(tensor.data.dtype.type(0), tensor.shape)))

    changed = layer.with_tensors(stripped)
    return changed if bare else layer
