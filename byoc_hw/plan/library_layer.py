"""A layer as a vendor library is called for it: the function, and the constant arrays that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc_hw.errors import Unsupported
from byoc_hw.graph import Layer, Reshape
from byoc_hw.library_calls import LibraryCall
from byoc_hw.tensor import Array


@dataclass(frozen=True)
class LibraryLayer:
    """A layer with the call that its library prepared at compile time. `call` is None for a reshape."""

    layer: Layer
    call: LibraryCall | None
    weights: Array | None
    parameters: Mapping[str, Array]
    workspace_bytes: int

    @property
    def flash_bytes(self) -> int:
        """Bytes of its weights and parameters."""
        arrays = [*self.parameters.values(), *([] if self.weights is None else [self.weights])]
        return sum(values.nbytes for values in arrays)


def library_layer(layer: Layer, calls: Mapping[str, LibraryCall]) -> LibraryLayer:
    """Ask the library for the call, constants and workspace of a layer. Raises `Unsupported` where it has no call."""
    call = calls.get(layer.kind)
    if call is None and isinstance(layer, Reshape):
        return LibraryLayer(layer, None, None, {}, 0)
    if call is None:
        raise Unsupported(f"{layer.name}: the library has a call for each layer kind: none for {layer.kind}")
    return LibraryLayer(layer, call, call.weights_of(layer), call.parameters_of(layer), call.workspace_of(layer))
