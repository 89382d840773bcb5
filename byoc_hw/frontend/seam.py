"""The interface between front ends and the compiler, independent of the TVM version.

A front end reads modules of one TVM. It provides a build with the graphs of the regions and the compiled host.
It uses the planner and the C emitter only through `Backend`, and imports neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from byoc_hw.graph import Add, Graph, Layer, Mul
from byoc_hw.pattern import Outcome
from byoc_hw.program import HostWork, KernelCall, Program, RegionEnd, Workspace
from byoc_hw.quantization.layers import QuantizedNetwork
from byoc_hw.quantization.network import Network
from byoc_hw.soc import Hardware
from byoc_hw.tensor import Array, Rounding

NO_ONNX = "{}: an ONNX file is read with the package onnx: pip install 'byoc-hw[onnx]'"
"""The message where that package is missing, for a path."""

Placer = Callable[[Program, Sequence[Workspace]], Mapping[str, int]]
"""Offsets in the arena for a program's intermediate buffers and its host functions' workspaces, by name."""


@dataclass(frozen=True)
class FixedPoint:
    """Fixed point on arrays of integers, for tables that are computed at compile time; all give int64.

    `rescaled(values, ratio, rounding)` are integers times a ratio; `pairwise(layer, ifm, ifm2)` is a layer's output
    with its rounding. `hard_swish` and `inverse_root` are TFLite's; they take an input without its zero point, its
    scale and the output's.
    """

    rescaled: Callable[[Array, float, Rounding], Array]
    pairwise: Callable[[Add | Mul, Array, Array], Array]
    hard_swish: Callable[[Array, float, float], Array]
    inverse_root: Callable[[Array, float, float], Array]


@dataclass(frozen=True)
class Backend:
    """The functions of the planner, the parameters and the C emitter that a front end calls.

    `why_no_plan` says why a layer by itself cannot be planned, or None if it can; a layer without a plan stays on
    the host. `region_source` is the self-contained C of a region, for a plain `relay.build`.
    """

    why_no_plan: Callable[[Layer, Hardware], str | None]
    region_source: Callable[[Graph, Hardware], str]
    arithmetic: FixedPoint


@dataclass(frozen=True)
class Partitioned:
    """The record of a partitioned module.

    `accelerator` is None if this process does not know it, `label` its label, `numerics` the arithmetic of its layers,
    `outcomes` the fate of each operator of the model file, `graphs` the regions by symbol, none for an accelerator that
    is not known.
    """

    mod_name: str
    accelerator: Hardware | None
    label: str
    numerics: str
    outcomes: tuple[Outcome, ...]
    graphs: Mapping[str, Graph]


@dataclass(frozen=True)
class CompiledHost:
    """The host side of a build: the calls of one inference, and the C source of the host functions.

    `constant_bytes` is the size of the constant data in that source, `tvm_arena` the arena that TVM's own
    planner needs for the same tensors and workspaces.
    """

    program: Program
    source: str
    constant_bytes: int
    tvm_arena: int


class Model(Protocol):
    """A module that was opened for a build.

    `accelerator` is the one that it was partitioned for. `accelerator` and `numerics` are None for a module that
    was not partitioned, which has no regions. `outcomes` has the outcome of each operator of the model file,
    `versions` the versions of the front end's dependencies, by name.
    """

    @property
    def mod_name(self) -> str: ...
    @property
    def accelerator(self) -> Hardware | None: ...
    @property
    def numerics(self) -> str | None: ...
    @property
    def outcomes(self) -> tuple[Outcome, ...]: ...
    @property
    def versions(self) -> Mapping[str, str]: ...

    def graphs(self) -> dict[str, Graph]:
        """The graphs of the regions, verified, by C symbol in the order of the model."""

    def passed_on(self) -> Mapping[RegionEnd, Sequence[RegionEnd]]:
        """The outputs of regions that only regions read, with the inputs that each of them is; without those that lie
        in the order of dimensions that regions have in any case."""

    def compile_host(
        self, graphs: Mapping[str, Graph], place: Placer, kernel: Callable[[Layer | HostWork], KernelCall]
    ) -> CompiledHost:
        """Compile what is left on the host. `place` is called once, when all buffers and workspaces are known.

        `kernel` has the C function that computes a layer with TFLite's arithmetic, or other work, on the host.
        """


class LayerReference(Protocol):
    """A reference implementation of the same model, which a project is compared with."""

    def run(self, inputs: Any) -> list[Array]:
        """Outputs of one inference, in model order."""

    def layers(self) -> dict[str, Array]:
        """Outputs of the last run's layers, by "region:layer", by the layer's name, or by the operator that it ends."""


class FloatModel(Protocol):
    """A float module that was read as a network of numpy."""

    @property
    def network(self) -> Network: ...

    def written(self, quantized: QuantizedNetwork, integer_ends: bool) -> Any:
        """The integer module of a quantized network; with `integer_ends` its inputs and outputs are int8 too."""


class FrontEnd(Protocol):
    """The functions of one front end."""

    def register(self, compiler: str, backend: Backend) -> None:
        """Register a compiler name with TVM, so that a plain `relay.build` uses `backend`."""

    def load(self, path: str | Path, shapes: Mapping[str, Sequence[int]]) -> tuple[Any, dict[str, Any]]:
        """A module and its weights by name, from a file of any format that the front end reads."""

    def to_integers(self, mod: Any, params: Mapping[str, Any] | None) -> Any:
        """The integer form of a module whose operators are between dequantize and quantize."""

    def load_tflite(self, path: str | Path) -> tuple[Any, dict[str, Any]]:
        """A module and its weights by name, from a TFLite file."""

    def load_float_tflite(self, path: str | Path) -> tuple[Any, dict[str, Any]]:
        """A float module and its float32 weights by name, from a TFLite file whose weights may have fewer bits."""

    def float_model(self, mod: Any, params: Mapping[str, Any] | None) -> FloatModel:
        """A float module, read for quantization. `InvalidInput` names what no network can be made of."""

    def importable_tflite(
        self, path: str | Path
    ) -> tuple[tuple[Any, dict[str, Any]] | None, tuple[str, ...], tuple[Outcome, ...]]:
        """A module and its weights of the operators that can be imported, the names of all, what stops the import."""

    def partition(
        self,
        mod: Any,
        params: Mapping[str, Any] | None,
        mod_name: str,
        *,
        accelerator: Hardware,
        numerics: str,
        deny: Iterable[str],
        backend: Backend,
    ) -> Any:
        """The module with the operators that the accelerator supports in regions."""

    def host_again(self, mod: Any, reasons: Mapping[str, Mapping[str, str]]) -> Any:
        """A partitioned module in which the host computes some layers. `reasons` says why, by region and layer."""

    def partitioned(self, mod: Any) -> Partitioned | None:
        """What a module that `partition` made records; None for another one, `InvalidInput` for no module."""

    def open_model(self, mod: Any, params: Mapping[str, Any] | None, mod_name: str | None) -> Model:
        """Open a module, partitioned or not, for a build. `InvalidInput` says what is wrong with it."""

    def reference(self, mod: Any) -> LayerReference:
        """TVM's own results for a partitioned module, layer by layer."""

    def json_of(self, mod: Any) -> str:
        """The text of a module that `load` reads from a .json file."""

    def operator_module(self, operator: Any) -> Any:
        """A module of one expression or function, or the module itself."""

    def pattern_table(self, compiler: str) -> Sequence[tuple[Any, ...]]:
        """The live pattern table of a compiler name."""
