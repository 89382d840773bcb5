"""The result of an inference: outputs, accelerator cycles, instructions of the host core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from byoc_hw.html_tables import table_html
from byoc_hw.tensor import Array


@dataclass(frozen=True)
class LayerCycles:
    """One layer's share of the accelerator cycles, and its jobs and copies.

    `id` and `name` are those in the generated code. `array_cycles` and `dma_cycles` are the cycles in
    which array and DMA work for it, `jobs` and `copies` are numbers. A function of the host takes no
    accelerator cycles.
    """

    id: int
    name: str
    kind: str
    cycles: int
    array_cycles: int = 0
    dma_cycles: int = 0
    dma_bytes: int = 0
    jobs: int = 0
    copies: int = 0


@dataclass(frozen=True)
class Cycles:
    """Accelerator cycles of one inference. Those of the layers, in order, add up to the total."""

    total: int
    by_layer: tuple[LayerCycles, ...]

    def __repr__(self) -> str:
        return f"<Cycles: {self.total:,} in {len(self.by_layer)} layers>"

    def _repr_html_(self) -> str:
        rows = [
            (one.name, one.kind, one.cycles, one.array_cycles, one.dma_cycles, one.dma_bytes) for one in self.by_layer
        ]
        headings = ("layer", "kind", "cycles", "array", "DMA", "DMA bytes")
        return table_html(f"{self.total:,} accelerator cycles", headings, rows)


@dataclass(frozen=True)
class LayerCount:
    """One layer's share of a count; `id`, `name` and `kind` as in `LayerCycles`."""

    id: int
    name: str
    kind: str
    count: int


@dataclass(frozen=True)
class HostInstructions:
    """Instructions that the host core executed in one inference: exact, and the same in every run.

    `regions` are the instructions of regions, with HWlib or the vendor's library; `host_operators` those
    of the functions that TVM made; `main` those between the calls. The simulator's are not counted: in the HAL they are
    the accelerator's `hal_instructions`.
    """

    total: int
    regions: int
    host_operators: int
    main: int
    by_layer: tuple[LayerCount, ...]

    def __repr__(self) -> str:
        parts = f"regions {self.regions:,}, host operators {self.host_operators:,}, main {self.main:,}"
        return f"<HostInstructions: {self.total:,} ({parts})>"


@dataclass(frozen=True)
class EndToEnd:
    """An estimate of one inference's cycles, with host and accelerator working at the same time.

    The host takes one cycle for each instruction, in the HAL for those of `hal_instructions`. The engines start an
    operation when the host has given it to them, and a wait lasts until the operation is done. `main`
    and the layers, in order, add up to `total`. A layer's share is what it costs: the core's instructions in it, and of
    the waits in its region as large a part as its accelerator cycles are of the region's, wherever the core waited.
    """

    total: int
    main: int
    by_layer: tuple[LayerCount, ...]

    def __repr__(self) -> str:
        return f"<EndToEnd: {self.total:,} cycles in {len(self.by_layer)} layers and main>"


@dataclass(frozen=True)
class Polls:
    """How an inference of a model that was built with `poll` was carried out.

    `count` are the calls of start and poll. `longest` are the instructions of the longest of them, and so the longest
    time between two returns; `layer` is what the most of them were for: the name of a layer, or "main". Both are None
    for a run on the host, which cannot count them.
    """

    count: int
    longest: int | None = None
    layer: str | None = None

    def __repr__(self) -> str:
        return f"<Polls: {self}>"

    def __str__(self) -> str:
        longest = "" if self.longest is None else f"{self.longest:,} instructions (in {self.layer})"
        return f"{self.count:,} polls{longest and f', longest time between two returns: {longest}'}"


@dataclass(frozen=True, eq=False)
class Result:
    """One inference: `outputs` in the model's order, and what was measured.

    `cycles` is None if no accelerator was simulated. `trace` has each layer's output bytes by the
    layer's number; it is None if the run was not traced. `host_instructions` and `end_to_end` are None
    for a run on the host, which cannot count them; `end_to_end` is also None with your own HAL. `polls` is None for a
    model that was not built with `poll`. `changed` has the files of the project that were not as `build` wrote them, as
    `Project.changed`. `computed` says of layers that a chip does not compute in full, by number, which bytes of the
    trace it does: the others nobody reads.
    """

    outputs: list[Array]
    cycles: Cycles | None = None
    trace: Mapping[int, bytes] | None = None
    host_instructions: HostInstructions | None = None
    end_to_end: EndToEnd | None = None
    polls: Polls | None = None
    changed: tuple[str, ...] = ()
    computed: Mapping[int, Array] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [f"{len(self.outputs)} output{'' if len(self.outputs) == 1 else 's'}"]
        if self.cycles is not None:
            parts.append(f"{self.cycles.total:,} accelerator cycles")
        if self.host_instructions is not None:
            parts.append(f"{self.host_instructions.total:,} host instructions")
        if self.polls is not None:
            parts.append(f"{self.polls.count:,} polls")
        if self.trace is not None:
            parts.append("traced")
        if self.changed:
            parts.append("of a changed project")
        return f"<Result: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        with np.printoptions(precision=4, threshold=8, edgeitems=4, linewidth=10**6):
            rows = [
                (f"output {index}", str(one.dtype), " x ".join(map(str, one.shape)), str(one.ravel()))
                for index, one in enumerate(self.outputs)
            ]
        return table_html(repr(self).strip("<>"), ("", "type", "shape", "values"), rows)
