"""The schedule in a project's metadata: when the engines work, when the core waits, what each memory holds.

Times are accelerator cycles since the start of the first region. Instructions of the core take no time
here: functions of the host are left out, and within a region the core only starts copies and jobs, and waits.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from byoc_hw.arguments import check_type, shown
from byoc_hw.emit.schedule_rows import ENGINES, NO_LAYER, REASONS, REASONS_OF_ONE
from byoc_hw.errors import InvalidInput, ToolchainMissing
from byoc_hw.plan.steps import ACTIVATIONS, WEIGHTS
from byoc_hw.report.cycles import short_name
from byoc_hw.report.line import counted, line, times_bound

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROW = "  {:<36}  {:<16}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}"
_HEADINGS = ("layer", "kind", "start", "end", "array", "DMA", "waits")
_END = "the end of a region"


@dataclass(frozen=True)
class Activity:
    """A copy or a job, from cycle `start` to `end`.

    `engine` is "in" for a copy to local memory, "out" for a copy to main memory, "array" for a job.
    `layer` is the number of the layer that starts it, None at the end of a region. A copy may bring what
    a later layer reads. `nbytes` is 0 for a job.
    """

    engine: str
    start: int
    end: int
    layer: int | None
    nbytes: int


@dataclass(frozen=True)
class CoreWait:
    """The core waits from cycle `start` to `end`: for a "copy", for a "job", or for "room" in an engine's queue.

    On a chip of several accelerators it is one of them that waits, also for an "event" of another one: the end of a
    copy to main memory.
    `layer` is the number of the layer that has to wait, None at the end of a region.
    """

    reason: str
    start: int
    end: int
    layer: int | None


@dataclass(frozen=True)
class Occupancy:
    """Bytes of a memory that hold a tensor, weights or a workspace from `start` up to `end`.

    Times are cycles in local memory; in main memory they are moments, as numbers of `MainMemory.moments`.
    `owner` is for main memory only: a tensor, region scratch, a host workspace ...
    """

    name: str
    offset: int
    nbytes: int
    start: int
    end: int
    owner: str = ""


@dataclass(frozen=True)
class RegionSchedule:
    """One region: its copies and jobs and the core's waits, in order, and what its local memories hold.

    `start` and `end` are cycles. `moved` has the bytes that its DMA moves, by kind (see `Schedule.moved`). No plan of
    the region takes fewer cycles than `bound`.
    On a chip of several accelerators it is what one of them does of the region, and `accelerator` is its name.
    """

    name: str
    start: int
    end: int
    work: tuple[Activity, ...]
    waits: tuple[CoreWait, ...]
    activations: tuple[Occupancy, ...]
    weights: tuple[Occupancy, ...]
    moved: Mapping[str, int]
    bound: int
    accelerator: str = ""

    def __repr__(self) -> str:
        name = f"{self.name} on {self.accelerator}" if self.accelerator else self.name
        return line(self, name, f"cycles {self.start:,} to {self.end:,}, {len(self.work):,} copies and jobs")


@dataclass(frozen=True)
class LayerTimes:
    """The times of one layer, in cycles: from the start of its first copy or job to the end of its last.

    `array` and `dma` are the cycles of its jobs and copies, `waits` those in which the core waits. `id` is
    None for the end of a region. A layer without copies and jobs (a reshape) has neither `start` nor `end`.
    """

    id: int | None
    name: str
    kind: str
    start: int | None
    end: int | None
    array: int
    dma: int
    waits: int


@dataclass(frozen=True)
class MainMemory:
    """The arena: its size in bytes, what lies in it, and the names of its moments: layers and functions, in order."""

    nbytes: int
    blocks: tuple[Occupancy, ...]
    moments: tuple[str, ...]

    def __repr__(self) -> str:
        blocks, moments = counted(len(self.blocks), "block"), counted(len(self.moments), "moment")
        return f"<MainMemory: {self.nbytes:,} bytes, {blocks} in {moments}>"


@dataclass(frozen=True)
class SharedActivations:
    """A local activation memory of several accelerators of a chip: their names, and its size in bytes."""

    accelerators: tuple[str, ...]
    nbytes: int

    def __repr__(self) -> str:
        return f"<SharedActivations of {self.names}: {self.nbytes:,} bytes>"

    @property
    def names(self) -> str:
        """The accelerators, as in a sentence."""
        return " and ".join((", ".join(self.accelerators[:-1]), self.accelerators[-1]))


@dataclass(frozen=True)
class Schedule:
    """The planned times of one inference. `str()` is a table; `timeline()` and `memory()` are pictures.

    `layers` are those of the regions: number, name and kind. `activation_memory` and `weight_memory`
    are the sizes of the local memories. `missing` says why there is no schedule, if there is none. Of a chip,
    `accelerators` are the names, `regions` has an entry for each accelerator of each region, and the sizes are the
    largest. `shared` are the activation memories that accelerators share. `narrow` are the bits of weights, by the
    number of the layer, where these are fewer than 8.
    """

    mod_name: str
    accelerator: str
    layers: tuple[tuple[int, str, str], ...]
    regions: tuple[RegionSchedule, ...]
    activation_memory: int
    weight_memory: int
    main_memory: MainMemory
    missing: str | None = None
    accelerators: tuple[str, ...] = ()
    shared: tuple[SharedActivations, ...] = ()
    narrow: Mapping[int, int] = field(default_factory=dict)

    @property
    def cycles(self) -> int:
        """Accelerator cycles of one inference."""
        return self.regions[-1].end if self.regions else 0

    @property
    def bound(self) -> int:
        """Cycles that no plan of these regions goes below. What the bound leaves out says docs/planning.md."""
        return sum({region.name: region.bound for region in self.regions}.values())

    @property
    def busy(self) -> dict[str, float]:
        """The share of the cycles in which the "dma" and the "array" work; of a chip all of them together."""
        return {"dma": self._share(self._worked("in", "out")), "array": self._share(self._worked("array"))}

    @property
    def waiting(self) -> dict[str, float]:
        """The share of the cycles in which the core waits for each of `CoreWait.reason`."""
        waits = [wait for region in self.regions for wait in region.waits]
        return {
            reason: self._share(sum(wait.end - wait.start for wait in waits if wait.reason == reason))
            for reason in (REASONS if self.accelerators else REASONS_OF_ONE)
        }

    @property
    def moved(self) -> dict[str, int]:
        """Bytes that the DMA moves: "weights" (all constants), "inputs" and "outputs" of regions, "spilled" tensors.

        A spilled tensor goes to main memory and back. "reordered" are the bytes of inputs and outputs that
        lie in another order in main memory. The core moves no bytes.
        """
        kinds = dict.fromkeys(kind for region in self.regions for kind in region.moved)
        return {kind: sum(region.moved[kind] for region in self.regions) for kind in kinds}

    @property
    def by_layer(self) -> tuple[LayerTimes, ...]:
        """The times of each layer in order, then those of the ends of regions, if copies or jobs start there."""
        work: dict[int | None, list[Activity]] = {}
        waits: dict[int | None, int] = {}
        for region in self.regions:
            for one in region.work:
                work.setdefault(one.layer, []).append(one)
            for wait in region.waits:
                waits[wait.layer] = waits.get(wait.layer, 0) + wait.end - wait.start
        rows: list[tuple[int | None, str, str]] = [*self.layers]
        if None in work or None in waits:
            rows.append((None, _END, ""))
        return tuple(
            LayerTimes(
                layer,
                name,
                kind,
                min((one.start for one in work.get(layer, ())), default=None),
                max((one.end for one in work.get(layer, ())), default=None),
                sum(one.end - one.start for one in work.get(layer, ()) if one.engine == "array"),
                sum(one.end - one.start for one in work.get(layer, ()) if one.engine != "array"),
                waits.get(layer, 0),
            )
            for layer, name, kind in rows
        )

    def timeline(self, layers: Collection[int] | None = None) -> Figure:
        """A picture of the three lanes: DMA, array and core, coloured by layer.

        With `layers`, numbers such as `range(10, 20)`, it is the time in which these have copies and jobs.
        `InvalidInput` where there is no schedule, or none of these layers, `ToolchainMissing` without matplotlib.
        """
        self._check_drawn()
        numbers = [number for number, *_ in self.layers]
        if layers is not None and not any(number in layers for number in numbers):
            raise InvalidInput(
                f"{self.mod_name}: layers are some of those in regions, {min(numbers)} to {max(numbers)}: "
                f"got {shown(layers)}"
            )
        with needs_matplotlib():
            from byoc_hw.report.pictures import draw_timeline
        return draw_timeline(self, layers)

    def beside(self, other: Schedule) -> Figure:
        """A picture of both timelines on one axis of time: `self` above, as before a tuning, and `other` below.

        `InvalidInput` where one of them has no schedule, `ToolchainMissing` without matplotlib.
        """
        check_type("other", other, Schedule, "a Schedule")
        self._check_drawn()
        other._check_drawn()
        with needs_matplotlib():
            from byoc_hw.report.pictures import draw_beside
        return draw_beside(self, other)

    def _check_drawn(self) -> None:
        if self.missing is not None:
            raise InvalidInput(f"{self.mod_name}: {self.missing}")

    def memory(self) -> Figure:
        """A picture of addresses over time: the local memories, if the plan has a map of them, and the arena.

        `ToolchainMissing` without matplotlib.
        """
        with needs_matplotlib():
            from byoc_hw.report.pictures import draw_memory
        return draw_memory(self)

    def headline(self) -> str:
        """Cycles, and the shares of them in which each engine works and the core waits."""
        waiting = ", ".join(f"for {_FOR[reason]} {share:.0%}" for reason, share in self.waiting.items() if share)
        busy = self.busy
        return (
            f"{self.cycles:,} cycles, {times_bound(self.cycles, self.bound)}: "
            f"array busy {busy['array']:.0%}, DMA busy {busy['dma']:.0%}"
            f"{f'; {self._waiter} ' if waiting else ''}{waiting}"
        )

    @property
    def _waiter(self) -> str:
        return "accelerators wait" if self.accelerators else "core waits"

    def __repr__(self) -> str:
        numbers = f"{self.cycles:,} cycles, array busy {self.busy['array']:.0%}"
        return line(self, f"{self.mod_name} on {self.accelerator}", self.missing or numbers)

    def __str__(self) -> str:
        if self.missing is not None:
            return f"{self.mod_name}: {self.missing}"
        title = f"{self.mod_name} on {self.accelerator}: {self.headline()}"
        return "\n".join(
            [title, f"  {self._bytes_moved()}", *(_ROW.format(*row).rstrip() for row in (_HEADINGS, *self._rows()))]
        )

    def _repr_html_(self) -> str:
        if self.missing is not None:
            return f"<p>{html.escape(str(self))}</p>"
        title = f"<p><b>{html.escape(self.mod_name)} on {html.escape(self.accelerator)}</b>: {self.headline()}</p>"
        head = "".join(f"<th>{heading}</th>" for heading in (*_HEADINGS, ""))
        rows = zip(self._rows(), (*(self._bar(times) for times in self.by_layer), ""), strict=True)
        body = "".join(f"<tr>{''.join(map(_cell, row))}<td>{bar}</td></tr>" for row, bar in rows)
        return f"{title}<p>{self._bytes_moved()}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _bytes_moved(self) -> str:
        moved = self.moved
        reordered = moved.pop("reordered")
        shown = ", ".join(f"{kind} {nbytes:,}" for kind, nbytes in moved.items() if nbytes)
        shared = "".join(f"; {one.names} share local activations" for one in self.shared)
        return f"bytes moved: {shown or 'none'}{f' (reordered on the way {reordered:,})' if reordered else ''}{shared}"

    def _rows(self) -> Iterator[tuple[str | int, ...]]:
        """The table's rows: a dash where nothing happens."""
        for times in self.by_layer:
            if times.start is None or times.end is None:
                yield short_name(times.name), times.kind, *("-" * 5)
            else:
                yield short_name(times.name), times.kind, times.start, times.end, times.array, times.dma, times.waits
        array, dma = self._worked("array"), self._worked("in", "out")
        waits = sum(wait.end - wait.start for region in self.regions for wait in region.waits)
        yield "total", "", 0, self.cycles, array, dma, waits

    def _bar(self, times: LayerTimes) -> str:
        """From a layer's start to its end, as a bar in a table."""
        if times.start is None or times.end is None or not self.cycles:
            return ""
        left, width = (100 * cycles / self.cycles for cycles in (times.start, times.end - times.start))
        return (
            '<div style="width:240px"><div style="height:0.8em;background:#4e79a7;'
            f'margin-left:{left:.1f}%;width:{max(width, 0.5):.1f}%"></div></div>'
        )

    def _worked(self, *engines: str) -> int:
        return sum(one.end - one.start for region in self.regions for one in region.work if one.engine in engines)

    def _share(self, cycles: int) -> float:
        return cycles / (self.cycles * max(1, len(self.accelerators))) if self.cycles else 0.0


_FOR = {"copy": "copies", "job": "jobs", "room": "room in a queue", "event": "each other"}


def _cell(value: str | int) -> str:
    side = "left" if isinstance(value, str) and value != "-" else "right"
    return f'<td style="text-align:{side}">{html.escape(str(value))}</td>'


@contextmanager
def needs_matplotlib() -> Iterator[None]:
    """`ToolchainMissing` with what to install, where matplotlib is imported and is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ToolchainMissing("a picture needs matplotlib: pip install 'byoc-hw[notebooks]'") from error


# ---------------------------------------------------------------- from metadata


def from_metadata(metadata: Mapping[str, Any]) -> Schedule:
    """The schedule that a project's metadata holds."""
    accelerator, found = metadata["accelerator"], metadata["schedule"]
    layers = [layer for layer in metadata["layers"] if layer["region"] is not None]
    missing = None
    if not layers:
        missing = "no schedule: nothing runs on an accelerator"
    elif not found["regions"]:
        missing = "no schedule: its regions are calls of a library, which has its own"
    ram = metadata["memory"]["ram"]
    blocks = (
        Occupancy(entry["name"], entry["offset"], entry["bytes"], first, last + 1, entry["owner"])
        for entry in ram["buffers"]
        for first, last in entry["spans"]
    )
    return Schedule(
        metadata["model"]["name"],
        accelerator["label"],
        tuple((layer["id"], layer["name"], layer["kind"]) for layer in layers),
        tuple(map(_region, found["regions"])),
        found["activations"],
        found["weights"],
        MainMemory(ram["arena"], tuple(blocks), tuple(ram["moments"])),
        missing,
        tuple(entry["name"] for entry in metadata.get("accelerators", ())),
        tuple(
            SharedActivations(tuple(entry["shares"]), entry["activations"])
            for entry in metadata.get("accelerators", ())
            if entry.get("shares", [""])[0] == entry["name"]
        ),
        {layer["id"]: layer["weights"]["bits"] for layer in layers if "weights" in layer},
    )


def _region(entry: Mapping[str, Any]) -> RegionSchedule:
    return RegionSchedule(
        entry["name"],
        entry["start"],
        entry["end"],
        tuple(
            Activity(ENGINES[engine], start, end, _layer(id), size) for engine, start, end, id, size in entry["work"]
        ),
        tuple(CoreWait(REASONS[reason], start, end, _layer(id)) for reason, start, end, id in entry["waits"]),
        tuple(_local(entry, ACTIVATIONS)),
        tuple(_local(entry, WEIGHTS)),
        dict(entry["moved"]),
        entry["bound"],
        entry.get("accelerator", ""),
    )


def _local(entry: Mapping[str, Any], space: int) -> Iterator[Occupancy]:
    for name, memory, offset, nbytes, start, end in entry["local"]:
        if memory == space:
            yield Occupancy(entry["names"][name], offset, nbytes, start, end)


def _layer(number: int) -> int | None:
    return None if number == NO_LAYER else number
