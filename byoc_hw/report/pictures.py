"""The pictures of a schedule, drawn with matplotlib: the engines' timeline, and memory over time.

A layer has the same colour in all of them, and a tensor has the colour of the layer that writes it. Jobs with weights
of 4 bits are hatched, those of 2 bits across.
Matplotlib is used without pyplot: no global state changes, and no window opens.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Sequence
from itertools import groupby
from math import ceil, log2
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from byoc_hw.integers import ceil_div
from byoc_hw.report.schedule import Activity, Occupancy, Schedule

_WIDTH = 13.0  # inches of a picture
_AXES = 11.8  # inches of that for the axes
_FONT = 8.0  # points
_LETTER = 0.6 * _FONT / 72  # inches: the width of a letter, about
_LINE = 1.5 * _FONT / 72  # inches: the height of a line
_PANE = 2.6  # inches: the height of a map of memory
_NAME = 36  # letters of a name, at most
_LISTED = 24  # layers in a legend
_TICKS = 40  # moments with a name

PALETTE = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948",
    "#76b7b2", "#e15759", "#9c755f", "#ff9da7", "#a0cbe8",
)  # fmt: skip
_NOBODY = "#bab0ac"
_WAITS = {"job": "#dcdcdc", "copy": "#3b3b3b", "room": "#c00000", "event": "#9fc5e8"}
_WAITS_FOR = {
    "job": "core waits for a job",
    "copy": "for a copy",
    "room": "for room in a queue",
    "event": "for another accelerator",
}
_OWNERS = {
    "tensor": "#8da2b8",
    "region scratch": "#bab0ac",
    "host workspace": "#d8c7a3",
    "input or output": "#b9c9a9",
}
_HATCHES = {4: "//", 2: "xx"}  # by the bits of weights
_LINES = (1.0, 1.0, 1.0, 0.45)  # white, so that a label over it can be read
_LANES = {"in": (2.5, 2.9), "out": (2.1, 2.5), "array": (1.1, 1.9), "core": (0.1, 0.9)}


class Picture(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.savefig(data, format="png", dpi=110)
        return data.getvalue()


class _Rectangle(NamedTuple):
    """A rectangle in the units of its axes."""

    left: float
    right: float
    bottom: float
    top: float
    colour: str


# ---------------------------------------------------------------- the timeline


def draw_timeline(schedule: Schedule, shown: Collection[int] | None = None) -> Figure:
    """Three lanes for each accelerator: DMA (copies to local memory above, out of it below), array and core. With
    `shown` it is the time in which these layers, by number, have copies and jobs."""
    style = _Style(schedule)
    window = _window(schedule, shown)
    layers = _legend(schedule, style, window)
    columns = 4
    rows = schedule.accelerators or ("",)
    figure = _picture(schedule, 0.9 + 2.6 * len(rows) + _LINE * ceil_div(len(layers), columns))
    all_axes = figure.subplots(len(rows), squeeze=False)[:, 0]
    for accelerator, axes in zip(rows, all_axes, strict=True):
        _lanes(axes, schedule, accelerator, style, window)
    headline = schedule.headline().replace("; ", ";\n") if schedule.accelerators else schedule.headline()
    all_axes[0].set_title(headline, loc="left", fontsize=_FONT + 2)  # the legend stands beside it
    figure.legend(handles=layers, loc="outside lower left", ncols=columns, frameon=False, fontsize=_FONT)
    return figure


def draw_beside(before: Schedule, after: Schedule) -> Figure:
    """The timelines of two plans of one model on one axis of time, the first above the second."""
    columns, lanes = 4, [(one, name) for one in (before, after) for name in one.accelerators or ("",)]
    style = _Style(after)
    window = _Window(0, max(before.cycles, after.cycles))
    layers = _legend(after, style, window)
    figure = _picture(after, 0.9 + 2.6 * len(lanes) + _LINE * ceil_div(len(layers), columns))
    all_axes = figure.subplots(len(lanes), squeeze=False)[:, 0]
    for (schedule, accelerator), axes in zip(lanes, all_axes, strict=True):
        _lanes(axes, schedule, accelerator, _Style(schedule), window)
        text = "before" if schedule is before else f"after, {after.cycles / max(before.cycles, 1):.3f} of it"
        axes.set_title(f"{text}: {schedule.cycles:,} cycles", loc="left", fontsize=_FONT + 2)
    figure.legend(handles=layers, loc="outside lower left", ncols=columns, frameon=False, fontsize=_FONT)
    return figure


class _Window(NamedTuple):
    """The cycles that a timeline shows."""

    start: int
    stop: int

    @property
    def span(self) -> int:
        return self.stop - self.start


def _window(schedule: Schedule, shown: Collection[int] | None) -> _Window:
    if shown is None:
        return _Window(0, schedule.cycles)
    work = [one for region in schedule.regions for one in region.work if one.layer in shown]
    return _Window(min((one.start for one in work), default=0), max((one.end for one in work), default=0))


def _lanes(axes: Axes, schedule: Schedule, accelerator: str, style: _Style, window: _Window) -> None:
    """The lanes of one accelerator, by its name on a chip."""
    regions = [region for region in schedule.regions if region.accelerator == accelerator]
    work = [one for region in regions for one in region.work if one.end > window.start and one.start < window.stop]
    waits = [one for region in regions for one in region.waits if one.end > window.start and one.start < window.stop]
    boxes = [_Rectangle(one.start, one.end, *_LANES[one.engine], style.colour(one.layer)) for one in work]
    boxes += [_Rectangle(wait.start, wait.end, *_LANES["core"], _WAITS[wait.reason]) for wait in waits]
    _draw(axes, boxes, window.span)
    narrow = {bits: {layer for layer, found in schedule.narrow.items() if found == bits} for bits in _HATCHES}
    for bits, hatch in _HATCHES.items():
        jobs = [one for one in work if one.engine == "array" and one.layer in narrow[bits]]
        _hatch(axes, [_Rectangle(one.start, one.end, *_LANES["array"], style.colour(one.layer)) for one in jobs], hatch)
    _label_jobs(axes, work, window.span, style)
    _cycle_axis(axes, window.stop, window.start)
    axes.set_ylim(0, 3)
    axes.set_yticks([2.7, 2.5, 2.3, 1.5, 0.5], ["in", "DMA    ", "out", "array", "core"])
    axes.set_ylabel(accelerator, fontsize=_FONT)
    for region in regions[1:]:
        axes.axvline(region.start, color="#808080", linewidth=0.8, linestyle=(0, (4, 3)))
    reasons = [reason for reason in _WAITS if any(wait.reason == reason for wait in waits)]
    _patches(axes, {_WAITS_FOR[reason]: _WAITS[reason] for reason in reasons})


def _legend(schedule: Schedule, style: _Style, window: _Window) -> list[Patch]:
    """Number and name of each layer that works, or of those that keep the engines busy longest."""
    within = [one for one in schedule.by_layer if one.start is not None and one.end is not None]
    within = [one for one in within if (one.end or 0) > window.start and (one.start or 0) < window.stop]
    times = [(layer.array + layer.dma, layer.id) for layer in within if layer.id is not None]
    longest = sorted((-cycles, number) for cycles, number in times if cycles)
    listed = sorted(number for _, number in longest[:_LISTED])
    patches = [
        Patch(color=style.colour(number), label=f"{number}  {_fit(style.names[number], _NAME)}") for number in listed
    ]
    for bits, hatch in _HATCHES.items():
        if bits in schedule.narrow.values():
            patches.append(Patch(fill=False, hatch=hatch, label=f"weights of {bits} bits"))
    left = len(longest) - len(listed)
    if left:
        patches.append(Patch(color="none", label="and 1 shorter one" if left == 1 else f"and {left} shorter ones"))
    return patches


def _label_jobs(axes: Axes, work: Sequence[Activity], cycles: int, style: _Style) -> None:
    """A layer's label on the longest of its jobs that follow each other."""
    for layer, jobs in groupby((one for one in work if one.engine == "array"), key=lambda job: job.layer):
        longest = max(jobs, key=lambda job: job.end - job.start)
        if layer is not None:
            text = _label(layer, style.names[layer], _letters(longest.end - longest.start, cycles))
            _text(axes, (longest.start + longest.end) / 2, 1.5, text, style.colour(layer))


# ---------------------------------------------------------------- memory over time


def draw_memory(schedule: Schedule) -> Figure:
    """Addresses over time: local activations and weights by cycles, the arena by moments."""
    weights = [held for one in schedule.regions for held in one.weights]
    local = {**_activations(schedule), "local weights": (weights, schedule.weight_memory)}
    panes = {title: pane for title, pane in local.items() if pane[0]}
    style = _Style(schedule)
    layers, columns = _legend(schedule, style, _Window(0, schedule.cycles)), 4
    figure = _picture(schedule, 1.4 + _PANE * (len(panes) + 1) + _LINE * ceil_div(len(layers), columns))
    all_axes = figure.subplots(len(panes) + 1, squeeze=False)[:, 0]
    for axes, (title, (held, size)) in zip(all_axes, panes.items(), strict=False):
        _map(axes, held, schedule.cycles, style)
        _cycle_axis(axes, schedule.cycles)
        used = max(one.offset + one.nbytes for one in held)
        _address_axis(axes, used if size > 1.4 * used else size)
        axes.set_title(f"{title}: {_bytes(used)} of {_bytes(size)}", loc="left", fontsize=_FONT + 2)
    _arena(all_axes[-1], schedule, style)
    figure.legend(handles=layers, loc="outside lower left", ncols=columns, frameon=False, fontsize=_FONT)
    return figure


def _activations(schedule: Schedule) -> dict[str, tuple[list[Occupancy], int]]:
    """What local activation memories hold, and their size: each that is shared, and all others as one."""

    def held(names: Collection[str]) -> list[Occupancy]:
        return [held for one in schedule.regions if one.accelerator in names for held in one.activations]

    panes = {
        f"local activations, shared by {one.names}": (held(one.accelerators), one.nbytes) for one in schedule.shared
    }
    sharing = {name for one in schedule.shared for name in one.accelerators}
    others = [name for name in schedule.accelerators or ("",) if name not in sharing]
    of = f" of {', '.join(others)}" if sharing else ""
    return panes | {f"local activations{of}": (held(others), schedule.activation_memory)}


def _arena(axes: Axes, schedule: Schedule, style: _Style) -> None:
    """The arena by moments; the one with most bytes alive has a bar above it."""
    main = schedule.main_memory
    _map(axes, main.blocks, len(main.moments), style)
    _address_axis(axes, main.nbytes)
    alive = [0] * len(main.moments)
    for block in main.blocks:
        for moment in range(block.start, block.end):
            alive[moment] += block.nbytes
    peak = alive.index(max(alive))
    axes.plot([peak, peak + 1], [1, 1], "black", linewidth=3, transform=axes.get_xaxis_transform(), clip_on=False)
    shown = range(0, len(main.moments), ceil_div(len(main.moments), _TICKS))
    names = [style.label(main.moments[moment], 26) for moment in shown]
    centres = [moment + 0.5 for moment in shown]
    axes.set_xticks(centres, names, rotation=40, ha="right", rotation_mode="anchor", fontsize=_FONT - 1)
    title = f"main memory: an arena of {_bytes(main.nbytes)}, {_bytes(max(alive))} alive at the peak (black bar)"
    axes.set_title(title, loc="left", fontsize=_FONT + 2)
    plain = {block.owner for block in main.blocks if not style.is_layer(block.name)}
    _patches(axes, {owner: colour for owner, colour in _OWNERS.items() if owner in plain})


def _map(axes: Axes, held: Sequence[Occupancy], span: int, style: _Style) -> None:
    """A rectangle for each thing that is held, with its name if there is room; time goes from 0 to `span`."""
    boxes = [_Rectangle(one.start, one.end, one.offset, one.offset + one.nbytes, style.of_block(one)) for one in held]
    _draw(axes, boxes, span)
    axes.set_xlim(0, max(1, span))
    height = max((box.top for box in boxes), default=1) * _LINE / _PANE * 1.3
    for one, box in zip(held, boxes, strict=True):
        if box.top - box.bottom >= height:
            text = style.label(one.name, _letters(box.right - box.left, span))
            _text(axes, (box.left + box.right) / 2, (box.bottom + box.top) / 2, text, box.colour)


def _address_axis(axes: Axes, top: int) -> None:
    """Up to `top`, marked at round binary numbers."""
    axes.set_ylim(0, max(1, 1.02 * top))
    axes.yaxis.set_major_locator(MultipleLocator(2 ** ceil(log2(max(4, top) / 4))))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda nbytes, _: _bytes(nbytes)))


# ---------------------------------------------------------------- what they share


class _Style:
    """Colours and names: `names` are those of the layers by number, without the folders that all share."""

    def __init__(self, schedule: Schedule) -> None:
        first = {number: name.split(";")[0] for number, name, _ in schedule.layers}
        self._shared = _shared_folder(list(first.values()))
        self.names = {number: name.removeprefix(self._shared) for number, name in first.items()}
        working = {one.id for one in schedule.by_layer if one.start is not None}
        order = sorted(self.names, key=lambda number: (number not in working, number))
        self._colours = {number: PALETTE[at % len(PALETTE)] for at, number in enumerate(order)}
        self._numbers = {name: number for number, name, _ in schedule.layers}

    def colour(self, layer: int | None) -> str:
        """A layer's colour; neighbours differ."""
        return _NOBODY if layer is None else self._colours[layer]

    def is_layer(self, block: str) -> bool:
        """Whether a block is what a layer writes: it has the layer's name."""
        return _tensor(block) in self._numbers

    def of_block(self, block: Occupancy) -> str:
        number = self._numbers.get(_tensor(block.name))
        return _OWNERS.get(block.owner, _NOBODY) if number is None else self.colour(number)

    def label(self, name: str, room: int) -> str:
        """A block's or a moment's label of at most `room` letters; empty if they are too few for a name."""
        name = _tensor(name)
        if name in self._numbers:
            return _label(self._numbers[name], self.names[self._numbers[name]], room)
        name = name.split(";")[0].removeprefix(self._shared)
        return _fit(name, room) if room >= min(6, len(name)) else ""


def _shared_folder(names: Sequence[str]) -> str:
    """What all `names` start with, up to a slash."""
    folder = names[0] if len(names) > 1 else ""
    while folder and not all(name.startswith(folder) for name in names):
        folder = "".join(folder.rstrip("/").rpartition("/")[:2])
    return folder[: folder.rfind("/") + 1]


def _tensor(block: str) -> str:
    """A block's name without the region and the block's number."""
    return re.sub(r"^\w+: (\d{5} )?", "", block)


def _picture(schedule: Schedule, height: float) -> Picture:
    figure = Picture(figsize=(_WIDTH, height), layout="constrained")
    title = f"{schedule.mod_name} on {schedule.accelerator}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=_FONT + 4, fontweight="bold")
    return figure


def _hatch(axes: Axes, boxes: Sequence[_Rectangle], hatch: str) -> None:
    """Pale lines over boxes that are drawn."""
    if boxes:
        axes.add_collection(
            PolyCollection(_corners(boxes), facecolors="none", edgecolors=_LINES, linewidths=0, hatch=hatch)
        )


def _corners(boxes: Sequence[_Rectangle]) -> list[list[tuple[float, float]]]:
    return [
        [(box.left, box.bottom), (box.left, box.top), (box.right, box.top), (box.right, box.bottom)] for box in boxes
    ]


def _draw(axes: Axes, boxes: Sequence[_Rectangle], span: int) -> None:
    """All boxes as one collection, so that thousands stay fast; a narrow one has no white edge that would hide it."""
    corners = _corners(boxes)
    edges = ["white" if _inches(box.right - box.left, span) > 0.05 else box.colour for box in boxes]
    colours = [box.colour for box in boxes]
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=edges, linewidths=0.5))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(labelsize=_FONT)


def _cycle_axis(axes: Axes, cycles: int, start: int = 0) -> None:
    axes.set_xlim(start, max(start + 1, cycles))
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("accelerator cycles", fontsize=_FONT)
    axes.grid(axis="x", color="#ececec", linewidth=0.6)
    axes.set_axisbelow(True)


def _patches(axes: Axes, colours: dict[str, str]) -> None:
    """A legend on the right above the axes."""
    handles = [Patch(color=colour, label=label) for label, colour in colours.items()]
    if handles:
        place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.2}
        axes.legend(handles=handles, ncols=len(handles), frameon=False, fontsize=_FONT, **place)


def _text(axes: Axes, x: float, y: float, text: str, background: str) -> None:
    """Centred, black or white, whichever reads better."""
    red, green, blue = to_rgb(background)
    ink = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else "white"
    axes.text(x, y, text, color=ink, fontsize=_FONT, ha="center", va="center", clip_on=True)


def _inches(length: float, span: int) -> float:
    return length / max(1, span) * _AXES


def _letters(length: float, span: int) -> int:
    return int(_inches(length, span) / _LETTER)


def _label(number: int, name: str, room: int) -> str:
    """A layer's label of at most `room` letters: number and name, the number alone, or nothing."""
    left = room - len(str(number)) - 1
    if left >= min(6, len(name)):
        return f"{number} {_fit(name, left)}"
    return str(number) if len(str(number)) <= room else ""


def _fit(name: str, room: int) -> str:
    """At most `room` letters of a name: first its last part goes (`Relu` of `activation_3/Relu`), then its start."""
    room = min(room, _NAME)
    if len(name) > room:
        name = name.rpartition("/")[0] or name
    return name if len(name) <= room else f"…{name[len(name) - room + 1 :]}"


def _bytes(nbytes: float) -> str:
    return f"{nbytes:,.0f} B" if nbytes < 4096 else f"{nbytes / 1024:,.4g} KiB"
