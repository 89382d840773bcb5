"""A vendor's library: a C function for each layer kind, which takes a layer as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from byoc_hw.arguments import asked, check_flag, check_type, check_whole, shown
from byoc_hw.errors import InvalidInput
from byoc_hw.graph import LAYER_KINDS, Layer
from byoc_hw.integers import LARGEST_INT32
from byoc_hw.names import is_c_name
from byoc_hw.tensor import Array


@dataclass(frozen=True)
class Operands:
    """The C expressions of one call's operands, for `LibraryCall.arguments`.

    `inputs` and `output` are pointers to activations, `weights` to what `pack` returned (None for a
    layer without weights), `parameters` maps each name that `parameters` returned to its array,
    `workspace` is a pointer into the arena (None where no bytes were asked for).
    """

    inputs: tuple[str, ...]
    output: str
    weights: str | None
    parameters: Mapping[str, str]
    workspace: str | None


@dataclass(frozen=True)
class LibraryCall:
    """One layer kind on a vendor library: the C function and how to call it.

    `arguments` returns the C arguments for a layer and its operands, in the function's order;
    `pack(layer)` the weights in the library's layout, `parameters(layer)` constant arrays that depend
    on the weights, `workspace(layer)` the bytes of scratch, `cycles(layer)` the cycles that the call takes on the
    library's engine. All run at compile time. The C function returns 0, or a status of its own that is passed on to
    the caller. In a `Library` with `wait` it starts the layer, and has a `uint32_t *token` behind the `arguments`.
    """

    function: str
    """The C function."""
    arguments: Callable[[Any, Operands], Sequence[str]]
    """Of the layer and its operands: the C arguments, in the function's order."""
    pack: Callable[[Any], Array] | None = None
    """Of the layer: its weights in the library's layout."""
    parameters: Callable[[Any], Mapping[str, Array]] = field(default=lambda layer: {})
    """Of the layer: constant arrays that depend on its weights, by name."""
    workspace: Callable[[Any], int] = field(default=lambda layer: 0)
    """Of the layer: bytes of scratch."""
    cycles: Callable[[Any], int] | None = None
    """Of the layer: the cycles of the call on the library's engine."""
    subtracts: bool = False
    """Of `add`: whether it also subtracts the input that `layer.subtract` names."""

    def check(self, kind: str) -> None:
        """Raise `InvalidInput` for a field that none of a call of this layer kind can be."""
        if not is_c_name(self.function):
            raise InvalidInput(f"library: function of {kind} is the name of a C function: got {shown(self.function)}")
        for what in ("arguments", "pack", "parameters", "workspace", "cycles"):
            function, optional = getattr(self, what), what in ("pack", "cycles")
            if not (callable(function) or (function is None and optional)):
                rule = f"library: {what} of {kind} is a function of the layer{', or None' * optional}"
                raise InvalidInput(f"{rule}: got {shown(function)}")
        check_flag(f"library: subtracts of {kind}", self.subtracts)

    def arguments_of(self, layer: Layer, operands: Operands) -> list[str]:
        """The C arguments for a layer. `InvalidInput` for what are none, as of the three below."""
        found = self._asked("arguments", layer, operands)
        if isinstance(found, str) or not isinstance(found, Sequence) or not all(isinstance(one, str) for one in found):
            raise InvalidInput(f"{_of(layer, 'arguments')} are texts of C expressions: got {shown(found)}")
        return list(found)

    def weights_of(self, layer: Layer) -> Array | None:
        """The weights of a layer as the library has them, None for one without."""
        weights = getattr(layer, "weights", None)
        if self.pack is None:
            return None if weights is None else weights.data
        found = self._asked("pack", layer)
        check_type(_of(layer, "pack"), found, np.ndarray, "an array")
        return found  # type: ignore[no-any-return]

    def parameters_of(self, layer: Layer) -> dict[str, Array]:
        """The constant arrays of a layer by name."""
        found = self._asked("parameters", layer)
        check_type(_of(layer, "parameters"), found, Mapping, "a mapping of names to arrays")
        for name in found:
            check_type(f"{_of(layer, 'parameters')}: each name", name, str, "a string")
        return {name: np.asarray(values) for name, values in found.items()}

    def workspace_of(self, layer: Layer) -> int:
        """The bytes of scratch of a layer."""
        found = self._asked("workspace", layer)
        check_whole(_of(layer, "workspace"), found, 0, LARGEST_INT32)
        return int(found)

    def _asked(self, what: str, layer: Layer, *others: object) -> Any:
        return asked(_of(layer, what), getattr(self, what), layer, *others)


def _of(layer: Layer, what: str) -> str:
    return f"library: {what} of {layer.kind} {layer.name}"


@dataclass(frozen=True)
class Library:
    """A vendor library of whole-layer calls: its header, its C sources and a call for each kind.

    `header` is included by name; it and `sources` are copied into the project.

    Without `wait` each call returns when its layer is done. With `wait` each one starts its layer, and writes a
    token, which is not 0, if it returns 0. Layers that were started run one after the other, so that one may read
    what an earlier one writes. `int32_t wait(uint32_t token)` returns when that layer is done, with all that were
    started before it: 0, or a status where any of them failed. `int32_t done(uint32_t token, uint8_t *done)` says
    without waiting whether that is so; with 1 in `*done` it was waited for. `wait` and `done` are names of C functions.
    """

    header: Path
    """The header, which is included by name."""
    sources: tuple[Path, ...]
    """The C sources, copied into the project with the header."""
    calls: Mapping[str, LibraryCall]
    """The call of each layer kind."""
    wait: str | None = None
    """The C function that waits for a layer that a call has started, or None."""
    done: str | None = None
    """The C function that says whether such a layer is done, or None."""

    def __post_init__(self) -> None:
        check_type("library: header", self.header, Path, "a Path")
        check_type("library: sources", self.sources, tuple, "a tuple of Paths")
        for source in self.sources:
            check_type("library: each of sources", source, Path, "a Path")
        check_type("library: calls", self.calls, Mapping, "a mapping of layer kinds to LibraryCalls")
        for kind, call in self.calls.items():
            if kind not in LAYER_KINDS:
                raise InvalidInput(f"library: calls are of layer kinds, {', '.join(LAYER_KINDS)}: got {shown(kind)}")
            check_type(f"library: call of {kind}", call, LibraryCall, "a LibraryCall")
            call.check(kind)
        for what in ("wait", "done"):
            name = getattr(self, what)
            if name is not None and not is_c_name(name):
                raise InvalidInput(f"library: {what} is the name of a C function, or None: got {shown(name)}")
        if self.done is not None and self.wait is None:
            raise InvalidInput(f"library: done is of calls that are waited for: wait is None, done {self.done!r}")

    def cycles(self, layer: Layer) -> int:
        """The cycles of a layer's call; 0 for a layer without one. `InvalidInput` for a cost that is none."""
        call = self.calls.get(layer.kind)
        cycles = 0 if call is None or call.cycles is None else asked(_of(layer, "cycles"), call.cycles, layer)
        check_whole(_of(layer, "cycles"), cycles, 0, LARGEST_INT32)
        return int(cycles)
