"""The Relax front end: implements `byoc_hw.frontend.seam.FrontEnd`.

What it does not have is refused in one sentence.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import InvalidInput, Unsupported
from byoc_hw.frontend.accelerators import by_digest, by_name, known
from byoc_hw.frontend.host_layers import HOST_FUNCTIONS
from byoc_hw.frontend.installed import needs_relay
from byoc_hw.frontend.relax.forms import LiveFusions
from byoc_hw.frontend.relax.load import load_any
from byoc_hw.frontend.relax.partition import check_relax_module, partition_relax, with_host_layers
from byoc_hw.frontend.relax.reference import VirtualMachineReference
from byoc_hw.frontend.relax.regions import ACCELERATOR_MARK, NUMERICS_MARK, QdqRecord, region_graph
from byoc_hw.frontend.relax.relax_model import RelaxModel, graphs_in
from byoc_hw.frontend.relax.tflite import importable_parts, load_tflite
from byoc_hw.frontend.relax.turns import one_at_a_time
from byoc_hw.frontend.seam import Backend, Partitioned
from byoc_hw.pattern import Outcome
from byoc_hw.soc import Hardware, Soc


class RelaxFrontEnd:
    """The functions of this front end: see `byoc_hw.frontend.seam.FrontEnd`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tables: dict[str, LiveFusions] = {}

    @one_at_a_time
    def register(self, compiler: str, backend: Backend) -> None:
        """Register a compiler name with TVM, for `relax.transform.RunCodegen`. `InvalidInput` for one that is taken."""
        hook = f"relax.ext.{compiler}"
        taken = tvm.get_global_func(hook, allow_missing=True) is not None
        if compiler not in self._tables and (taken or compiler == HOST_FUNCTIONS.name):
            raise InvalidInput(f"accelerator name is none that another compiler of TVM has: got {compiler!r}")
        self._tables[compiler] = LiveFusions(compiler, backend.why_no_plan)
        tvm.register_global_func(hook, functools.partial(_generated, compiler, backend), override=True)

    @one_at_a_time
    def load(self, path: str | Path, shapes: Mapping[str, Sequence[int]]) -> tuple[Any, dict[str, Any]]:
        """A module, and no weights by name, from a file: see `byoc_hw.load`."""
        return load_any(path, shapes)

    def to_integers(self, mod: Any, params: Mapping[str, Any] | None) -> Any:
        """Refused: modules stay in QDQ form here."""
        needs_relay("to_integers")

    @one_at_a_time
    def load_tflite(self, path: str | Path) -> tuple[Any, dict[str, Any]]:
        """A module, and no weights by name, from a TFLite file."""
        return load_tflite(path)

    def load_float_tflite(self, path: str | Path) -> tuple[Any, dict[str, Any]]:
        """Refused."""
        needs_relay("quantize")

    def float_model(self, mod: Any, params: Mapping[str, Any] | None) -> Any:
        """Refused."""
        needs_relay("quantize")

    @one_at_a_time
    def importable_tflite(
        self, path: str | Path
    ) -> tuple[tuple[Any, dict[str, Any]] | None, tuple[str, ...], tuple[Outcome, ...]]:
        """A module of the operators that can be imported, the names of all, what stops the import."""
        return importable_parts(path)

    @one_at_a_time
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
        if isinstance(accelerator, Accelerator | Soc):
            self.register(accelerator.name, backend)
        return partition_relax(
            mod, params, mod_name, accelerator=accelerator, numerics=numerics, deny=deny, backend=backend
        )

    @one_at_a_time
    def host_again(self, mod: Any, reasons: Mapping[str, Mapping[str, str]]) -> Any:
        """A partitioned module in which the host computes some layers, each with its operator of the model file."""
        return with_host_layers(mod, reasons, self._backend)

    @one_at_a_time
    def partitioned(self, mod: Any) -> Partitioned | None:
        """What a module that `partition` made records; None for another one."""
        check_relax_module(mod)
        record = QdqRecord.of(mod)
        if record is None:
            return None
        hardware = known(record.accelerator)
        graphs = {} if hardware is None else graphs_in(mod, record.numerics)
        return Partitioned(record.mod_name, hardware, record.label, record.numerics, record.outcomes, graphs)

    def open_model(self, mod: Any, params: Mapping[str, Any] | None, mod_name: str | None) -> RelaxModel:
        """Open a module for a build."""
        return RelaxModel(mod, params, mod_name, self._backend.arithmetic)

    def reference(self, mod: Any) -> VirtualMachineReference:
        """TVM's own results: of float operators between dequantize and quantize."""
        return VirtualMachineReference(mod)

    def json_of(self, mod: Any) -> str:
        """Refused: this TVM's `save_json` ends the process."""
        needs_relay("a module as JSON")

    def operator_module(self, operator: Any) -> Any:
        """The module itself."""
        if not isinstance(operator, tvm.IRModule):
            needs_relay("a check of one Relay expression")
        return operator

    def pattern_table(self, compiler: str) -> LiveFusions:
        """The live table of a compiler, for `relax.transform.FuseOpsByPattern`."""
        by_name(compiler)
        if compiler not in self._tables:
            raise InvalidInput(f"compiler {compiler!r} is registered: partition for its accelerator first")
        return self._tables[compiler]


def _generated(compiler: str, backend: Backend, functions: Any, options: Any, names: Any) -> list[Any]:
    """The C of the regions, in a plain `relax.transform.RunCodegen`."""
    made = []
    for function in functions:
        symbol = str(function.attrs["global_symbol"])
        if NUMERICS_MARK not in function.attrs:
            raise Unsupported(f"{symbol}: a region is one that partition_for_hwlib made: it records no numerics")
        accelerator = by_digest(str(function.attrs[ACCELERATOR_MARK]), compiler)
        graph = region_graph(function, symbol, str(function.attrs[NUMERICS_MARK]))
        source = backend.region_source(graph, accelerator)
        made.append(tvm.get_global_func("runtime.CSourceModuleCreate")(source, "c", [symbol], []))
    return made
