"""The seam: what a front end and the compiler owe each other. Nothing here knows which TVM there is.

A front end reads modules of one TVM. It owes a build two things: the graphs of the regions, and the compiled
host. It is given a `Backend`: it asks that of the rooms behind it, and imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer
from byoc_hw.pattern import Outcome
from byoc_hw.program import Program, Workspace
from byoc_hw.tensor import Array

Placer = Callable[[Program, Sequence[Workspace]], Mapping[str, int]]
"""Offsets in the arena for a program's intermediate buffers and its host functions' workspaces, by name."""


@dataclass(frozen=True)
class Backend:
    """What a front end asks of the rooms behind it.

    `why_no_plan` says what keeps a layer from being planned by itself, or None: a pattern then leaves the layer to
    the host. `region_source` is the C of a region by itself, for TVM's own build.
    """

    why_no_plan: Callable[[Layer, Accelerator], str | None]
    region_source: Callable[[Graph, Accelerator], str]


@dataclass(frozen=True)
class Partitioned:
    """What a partitioned module says of itself.

    `label` is the accelerator's, `numerics` the arithmetic of its layers, `outcomes` say what became of each
    operator of the model file.
    """

    mod_name: str
    label: str
    numerics: str
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class CompiledHost:
    """What stays on the host: the calls of one inference, and the C source of its functions.

    `constant_bytes` is the constant data in that source, `tvm_arena` the bytes that TVM's own planner
    would have taken for the same tensors and workspaces.
    """

    program: Program
    source: str
    constant_bytes: int
    tvm_arena: int


class Model(Protocol):
    """A module that was opened for a build.

    `accelerator` is the one that it was partitioned for; None, with `numerics`, for a module that was not
    partitioned, which has no regions. `outcomes` say what became of each operator of the model file. `versions`
    are those of what the front end used, by name.
    """

    @property
    def mod_name(self) -> str: ...
    @property
    def accelerator(self) -> Accelerator | None: ...
    @property
    def numerics(self) -> str | None: ...
    @property
    def outcomes(self) -> tuple[Outcome, ...]: ...
    @property
    def versions(self) -> Mapping[str, str]: ...

    def graphs(self) -> dict[str, Graph]:
        """The graphs of the regions, verified, by C symbol in the order of the model."""

    def compile_host(self, graphs: Mapping[str, Graph], place: Placer) -> CompiledHost:
        """Compile what is left on the host. `place` is called once, when all buffers and workspaces are known."""


class LayerReference(Protocol):
    """What a project is compared with: the same model, run by something else."""

    def run(self, inputs: Any) -> list[Array]:
        """Outputs of one inference, in model order."""

    def layers(self) -> dict[str, Array]:
        """Outputs of the last run's layers, by "region:layer" or by the layer's name."""


class FrontEnd(Protocol):
    """The functions of one front end."""

    def register(self, compiler: str, backend: Backend) -> None:
        """Make a compiler name known to TVM, so that its own build calls `backend`."""

    def load_tflite(self, path: str | Path) -> tuple[Any, dict[str, Any]]:
        """A module and its weights by name, from a TFLite file."""

    def partition(
        self,
        mod: Any,
        params: Mapping[str, Any] | None,
        mod_name: str,
        *,
        accelerator: Accelerator,
        numerics: str,
        deny: Iterable[str],
        backend: Backend,
    ) -> Any:
        """The module with what the accelerator takes in regions."""

    def partitioned(self, mod: Any) -> Partitioned | None:
        """What a module that `partition` made says of itself; None for another one, `InvalidInput` for no module."""

    def open_model(self, mod: Any, params: Mapping[str, Any] | None, mod_name: str | None) -> Model:
        """A module, partitioned or not, for a build. `InvalidInput` names what is wrong with it."""

    def reference(self, mod: Any) -> LayerReference:
        """TVM's own answer for a partitioned module, layer by layer."""

    def operator_module(self, operator: Any) -> Any:
        """A module of one expression or function, or the module itself."""

    def pattern_table(self, compiler: str) -> Sequence[tuple[str, Any, Callable[[Any], bool]]]:
        """The live pattern table of a compiler name."""
