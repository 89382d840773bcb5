"""What an inference gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc_hw.tensor import Array


@dataclass(frozen=True)
class LayerCycles:
    """One layer's share of the total, and what it asked of the engines meanwhile.

    `id` and `name` are those of the generated code. A function of the host takes no accelerator
    cycles.
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
    """Accelerator cycles of one inference; the layers, in order, add up to the total."""

    total: int
    by_layer: tuple[LayerCycles, ...]

    def __repr__(self) -> str:
        return f"<Cycles: {self.total:,} in {len(self.by_layer)} layers>"


@dataclass(frozen=True)
class LayerCount:
    """One layer's share of a count; `id`, `name` and `kind` as in `LayerCycles`."""

    id: int
    name: str
    kind: str
    count: int


@dataclass(frozen=True)
class HostInstructions:
    """Instructions that the host core executed in one inference: exact, the same in every run.

    `regions` ran HWlib's wrappers (or the vendor's library), `host_operators` TVM's functions, `main`
    everything between the calls. Instructions of the simulator are in none of them.
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
    """An estimate of one inference's time in cycles, host and accelerator overlapping as they would.

    The host takes a cycle an instruction between its calls of the HAL, the engines start work when it
    was given to them, and a wait lasts until they are done. `main` and the layers, in order, add up to
    `total`: a layer's share is how long the host was in it, waits included.
    """

    total: int
    main: int
    by_layer: tuple[LayerCount, ...]

    def __repr__(self) -> str:
        return f"<EndToEnd: {self.total:,} cycles in {len(self.by_layer)} layers and main>"


@dataclass(frozen=True, eq=False)
class Result:
    """One inference: `outputs` in the model's order, and what was asked or could be had besides.

    `cycles` is None without a simulated accelerator, `trace` (each layer's output bytes by the
    layer's number) without a traced run, `host_instructions` and `end_to_end` where the runner cannot
    count them (on the host), `end_to_end` also with a HAL of the user's own.
    """

    outputs: list[Array]
    cycles: Cycles | None = None
    trace: Mapping[int, bytes] | None = None
    host_instructions: HostInstructions | None = None
    end_to_end: EndToEnd | None = None

    def __repr__(self) -> str:
        parts = [f"{len(self.outputs)} output{'' if len(self.outputs) == 1 else 's'}"]
        if self.cycles is not None:
            parts.append(f"{self.cycles.total:,} accelerator cycles")
        if self.host_instructions is not None:
            parts.append(f"{self.host_instructions.total:,} host instructions")
        if self.trace is not None:
            parts.append("traced")
        return f"<Result: {', '.join(parts)}>"
