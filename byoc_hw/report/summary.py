"""One page on a project: what is offloaded, what it takes in time and memory, and which layers cost the most."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from byoc_hw.errors import InvalidInput
from byoc_hw.html_tables import table_html
from byoc_hw.objective import HOST
from byoc_hw.report.cycles import short_name
from byoc_hw.report.explain import Report
from byoc_hw.report.line import counted, line, share_of
from byoc_hw.report.schedule import Activity, Schedule, needs_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COSTLIEST = 5
"""The layers that the page names."""

_ROW = "  {:<36}  {:<16}  {:>12}  {:>11}  {:>9}  {:>9}  {:>5}  {:<6}"
_HEADINGS = ("layer", "kind", "cycles", "MACs", "bytes", "constants", "use", "bound")
_EIGHT = 8
_KIND = 16


@dataclass(frozen=True)
class LayerFigures:
    """One layer of a region, or one operator on the host, whose `id` is None.

    `cycles` are what it costs. On an accelerator they are those in which its jobs run, and those in which the array
    waits to begin them: all layers together take the cycles of the regions. On the host they are the estimate of
    `instructions`, times the accelerator's cycles for each; None where there is none. `nbytes` are moved by the copies
    that it starts, also those of what a later layer reads; on the host they are the bytes of its tensors. `constants`
    are its weights, parameters and tables in flash. `utilization` is the share of the array's multipliers that work in
    these cycles. `array_cycles` and `dma_cycles` are those of its jobs and of the copies that it starts, which may run
    at the same time. `bound` is "array" or "DMA", whichever most of the cycles are spent for, or "host".
    """

    id: int | None
    name: str
    kind: str
    macs: int
    cycles: int | None
    nbytes: int
    constants: int = 0
    utilization: float | None = None
    bound: str = HOST
    instructions: int | None = None
    array_cycles: int = 0
    dma_cycles: int = 0


@dataclass(frozen=True)
class Summary:
    """One page on a project; `str()` is for people, `to_csv()` and `to_json()` have the layers.

    `operators` and `offloaded` are numbers of operators of the model file, `macs` and `offloaded_macs` their
    multiplications with additions. `cycles` are those of the accelerator, None where these are not known,
    `host_cycles` the estimate for the host, in accelerator cycles, without `unknown` operators. `ram`, `flash` and
    `weights`, the part of the flash that belongs to layers, are bytes; `moved` are the bytes that the DMA moves, by
    kind. `clock` is in Hz, of the accelerator, or None. `macs_per_cycle`, of weights of 8 bits, and
    `dma_bytes_per_cycle` are the most of all accelerators.
    """

    mod_name: str
    accelerator: str | None
    operators: int
    offloaded: int
    macs: int
    offloaded_macs: int
    cycles: int | None
    host_cycles: int
    unknown: int
    ram: int
    flash: int
    weights: int
    moved: Mapping[str, int]
    layers: tuple[LayerFigures, ...]
    clock: float | None = None
    macs_per_cycle: int = 0
    dma_bytes_per_cycle: int = 0

    @property
    def costliest(self) -> tuple[LayerFigures, ...]:
        """The layers and operators that take the most cycles, the costliest first."""
        known = [one for one in self.layers if one.cycles]
        return tuple(sorted(known, key=lambda one: -(one.cycles or 0))[:COSTLIEST])

    def milliseconds(self, cycles: int) -> float | None:
        """The time of accelerator cycles; None without a clock."""
        return None if self.clock is None else cycles / self.clock * 1000

    def roofline(self) -> Figure:
        """A picture of each layer's rate in MACs a cycle over its MACs for each byte that its copies move, below what
        the array and the DMA allow. The cycles are those of its jobs, or of its copies if these take longer. A layer
        that moves nothing stands at the right.

        `InvalidInput` where no layer has MACs and cycles on an accelerator, `ToolchainMissing` without matplotlib.
        """
        if not any(one.macs and one.cycles and one.bound != HOST for one in self.layers):
            raise InvalidInput(f"{self.mod_name}: a roofline is of layers with MACs on an accelerator: it has none")
        with needs_matplotlib():
            from byoc_hw.report.roofline import draw_roofline
        return draw_roofline(self)

    def to_csv(self) -> str:
        """The layers as a table: a line of headings, and one for each layer, in the order of execution."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(one.name for one in fields(LayerFigures))
        writer.writerows(asdict(layer).values() for layer in self.layers)
        return text.getvalue()

    def to_json(self) -> str:
        """All figures as JSON, by the names of the fields."""
        return json.dumps(asdict(self), indent=2)

    def __repr__(self) -> str:
        on = f" on {self.accelerator}" if self.accelerator is not None else ""
        return line(self, f"{self.mod_name}{on}", f"{self._total()}, {self.ram:,} bytes of RAM")

    def __str__(self) -> str:
        return "\n".join([*self._lines(), *(_ROW.format(*row).rstrip() for row in self._rows())])

    def _repr_html_(self) -> str:
        headings, *rows = self._rows()
        return table_html("\n".join(self._lines()), headings, rows)

    def _total(self) -> str:
        return "cycles not known" if self.cycles is None else f"{self.cycles:,} accelerator cycles"

    def _lines(self) -> list[str]:
        place = "" if self.accelerator is None else f" on {self.accelerator}"
        unknown = f", without {counted(self.unknown, 'operator')} of unknown cost" if self.unknown else ""
        moved = ", ".join(f"{kind} {nbytes:,}" for kind, nbytes in self.moved.items() if nbytes and kind != "reordered")
        return [
            f"{self.mod_name}{place}",
            f"  operators    {share_of(self.offloaded, self.operators)} offloaded",
            f"  MACs         {share_of(self.offloaded_macs, self.macs)} offloaded",
            f"  accelerator  {self._timed(self.cycles)}",
            f"  host         {self._timed(self.host_cycles)}, by estimate{unknown}",
            f"  RAM          {self.ram:,} bytes",
            f"  flash        {self.flash:,} bytes of constants, {self.weights:,} of them of layers",
            f"  bytes moved  {moved or 'none'}",
            f"the {counted(len(self.costliest), 'costliest layer')}:",
        ]

    def _timed(self, cycles: int | None) -> str:
        if cycles is None:
            return "cycles not known: its regions are calls of a library"
        time = self.milliseconds(cycles)
        return f"{cycles:,} cycles{'' if time is None else f', {time:.3f} ms'}"

    def _rows(self) -> list[tuple[str, ...]]:
        return [_HEADINGS, *map(_row, self.costliest)]


def _row(layer: LayerFigures) -> tuple[str, ...]:
    use = "-" if layer.utilization is None else f"{layer.utilization:.0%}"
    numbers = (f"{layer.cycles:,}", f"{layer.macs:,}", f"{layer.nbytes:,}", f"{layer.constants:,}")
    kind = layer.kind if len(layer.kind) <= _KIND else f"{layer.kind[: _KIND - 3]}..."
    return (short_name(layer.name), kind, *numbers, use, layer.bound)


def summary_of(
    metadata: Mapping[str, Any], report: Report, schedule: Schedule, ram: int, flash: int, clock: float | None
) -> Summary:
    """The page on a project with this metadata, report, schedule, and bytes of RAM and flash."""
    layers = tuple(_figures(metadata, report, schedule))
    on_host = [one for one in layers if one.bound == HOST]
    return Summary(
        mod_name=report.mod_name,
        accelerator=report.accelerator,
        operators=sum(outcome.placement != "folded" for outcome in report.outcomes),
        offloaded=len(report.offloaded),
        macs=report.macs,
        offloaded_macs=report.offloaded_macs,
        cycles=schedule.cycles if schedule.missing is None or not schedule.layers else None,
        host_cycles=sum(one.cycles or 0 for one in on_host),
        unknown=sum(one.cycles is None for one in on_host),
        ram=ram,
        flash=flash,
        weights=sum(one.constants for one in layers),
        moved=schedule.moved,
        layers=layers,
        clock=clock,
        macs_per_cycle=metadata["accelerator"].get("macs_per_cycle", 0),
        dma_bytes_per_cycle=metadata["accelerator"].get("dma_bytes_per_cycle", 0),
    )


def _figures(metadata: Mapping[str, Any], report: Report, schedule: Schedule) -> Iterator[LayerFigures]:
    """The layers of regions in the order of execution, then the operators on the host."""
    accelerator = metadata["accelerator"]
    costs, times = costs_by_layer(schedule), {one.id: one for one in schedule.by_layer}
    moved: Counter[int | None] = Counter()
    for region in schedule.regions:
        for one in region.work:
            moved[one.layer] += one.nbytes
    for layer in metadata["layers"]:
        if layer["region"] is not None:
            number, macs = layer["id"], layer.get("macs", 0)
            cost = costs[number] if schedule.missing is None else None
            peak = accelerator.get("macs_per_cycle", 0) * _EIGHT // schedule.narrow.get(number, _EIGHT)
            yield LayerFigures(
                id=number,
                name=layer["name"],
                kind=layer["kind"],
                macs=macs,
                cycles=None if cost is None else cost.cycles,
                nbytes=moved[number],
                constants=layer.get("constants", 0),
                utilization=macs / (cost.cycles * peak) if cost and cost.cycles and peak and macs else None,
                array_cycles=times[number].array if cost is not None else 0,
                dma_cycles=times[number].dma if cost is not None else 0,
                bound="DMA" if cost is not None and 2 * cost.waits > cost.cycles else "array",
            )
    rate = accelerator.get("host_cycles_per_instruction", 1.0)
    for outcome in report.host:
        kind = ", ".join(dict.fromkeys(name.removeprefix("qnn.").removeprefix("nn.") for name in outcome.relay))
        instructions = outcome.host_instructions or None
        cycles = None if instructions is None else round(instructions * rate)
        yield LayerFigures(None, outcome.name, kind, outcome.macs, cycles, outcome.nbytes, instructions=instructions)


@dataclass
class _Cost:
    """Cycles of a layer, and those of them in which the array waits."""

    cycles: int = 0
    waits: int = 0


def costs_by_layer(schedule: Schedule) -> Mapping[int | None, _Cost]:
    """The cycles of the regions by layer. Each belongs to the job that runs; where none does, to the layer without jobs
    whose copy runs; else to the next job, for which the array waits, or behind the last one to that."""
    work = sorted((one for region in schedule.regions for one in region.work), key=lambda one: (one.start, one.end))
    jobs = [one for one in work if one.engine == "array"]
    with_jobs = {one.layer for one in jobs}
    others = [one for one in work if one.engine != "array" and one.layer not in with_jobs and one.layer is not None]
    found: dict[int | None, _Cost] = defaultdict(_Cost)
    now = 0
    for job in jobs:
        if job.start > now:
            _spread(found, now, job.start, job.layer, others)
        found[job.layer].cycles += max(job.end - max(now, job.start), 0)
        now = max(now, job.end)
    _spread(found, now, schedule.cycles, jobs[-1].layer if jobs else None, others)
    return found


def _spread(
    found: dict[int | None, _Cost], start: int, end: int, waiting: int | None, others: Sequence[Activity]
) -> None:
    """Share out cycles in which no job runs: to copies of layers without jobs, the rest to the layer that waits."""
    now = start
    for one in others:
        first, last = max(one.start, now), min(one.end, end)
        if first < last:
            _wait(found[waiting], first - now)
            _wait(found[one.layer], last - first)
            now = last
    _wait(found[waiting], end - now)


def _wait(cost: _Cost, cycles: int) -> None:
    cost.cycles += cycles
    cost.waits += cycles
