"""A Relax module opened for a build: lowers its regions and compiles its host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.accelerators import by_digest
from byoc_hw.frontend.relax.bindings import file_sources
from byoc_hw.frontend.relax.host_calls import compiled_host
from byoc_hw.frontend.relax.partition import check_relax_module, prepared, stated_ends, with_moves
from byoc_hw.frontend.relax.regions import QdqRecord, calls_of_regions, region_graph
from byoc_hw.frontend.relax.turns import one_at_a_time
from byoc_hw.frontend.relax.work import work_of
from byoc_hw.frontend.seam import CompiledHost, FixedPoint, Placer
from byoc_hw.graph import Graph, Layer
from byoc_hw.pattern import Outcome
from byoc_hw.program import HostWork, KernelCall, RegionEnd, check_mod_name
from byoc_hw.soc import Hardware


class RelaxModel:
    """A module, partitioned or not. See `byoc_hw.frontend.seam.Model`."""

    @one_at_a_time
    def __init__(self, mod: Any, params: Mapping[str, Any] | None, mod_name: str | None, by: FixedPoint) -> None:
        check_relax_module(mod)
        if mod_name is not None:
            check_mod_name(mod_name)
        self._by = by
        self.versions = {"tvm": str(tvm.__version__)}
        self.accelerator: Hardware | None = None
        self.numerics: str | None = None
        record = QdqRecord.of(mod)
        if record is None:
            self._mod = prepared(mod, params)
            self.mod_name = mod_name or "default"
            self._ends, self._names = stated_ends(self._mod)
            self.outcomes = _all_on_the_host(self._mod["main"])
            self._mod = with_moves(self._mod)
            return
        if mod_name not in (None, record.mod_name):
            raise InvalidInput(f"the module was partitioned with mod_name {record.mod_name!r}: got {mod_name!r}")
        if params:
            raise InvalidInput(f"a partitioned module holds its weights: got params {', '.join(map(str, params))}")
        self._mod, self.mod_name = mod, record.mod_name
        self.accelerator, self.numerics = by_digest(record.accelerator, record.label), record.numerics
        self.outcomes, self._ends, self._names = record.outcomes, record.ends, record.names

    @one_at_a_time
    def graphs(self) -> dict[str, Graph]:
        """The graphs of the regions that main calls. `Unsupported` for one that cannot be lowered."""
        return graphs_in(self._mod, self.numerics or "relay")

    def passed_on(self) -> dict[RegionEnd, tuple[RegionEnd, ...]]:
        """Empty: the whole module is in NHWC where it is partitioned."""
        return {}

    @one_at_a_time
    def compile_host(
        self, graphs: Mapping[str, Graph], place: Placer, kernel: Callable[[Layer | HostWork], KernelCall]
    ) -> CompiledHost:
        """Compile main, with the operators that stay on the host. `Unsupported` for one that C alone cannot compute."""
        numerics = self.numerics or "relay"
        ends, names = self._ends, self._names
        return compiled_host(self._mod, self.mod_name, numerics, ends, names, graphs, place, kernel, self._by)


def graphs_in(mod: tvm.IRModule, numerics: str) -> dict[str, Graph]:
    """The graphs of the regions that main of a partitioned module calls, by symbol, in order."""
    called = dict.fromkeys(calls_of_regions(mod))
    return {one.name_hint: region_graph(mod[one], one.name_hint, numerics) for one in called}


def _all_on_the_host(main: Any) -> tuple[Outcome, ...]:
    work = work_of(main)
    return tuple(Outcome(one.name, one.operators, "host", **vars(work[one.name])) for one in file_sources(main))
