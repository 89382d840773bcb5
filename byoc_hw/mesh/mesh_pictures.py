"""The pictures of a plan for a mesh: the mesh by stage and load, the pipeline's timeline, and the balance of stages."""

from __future__ import annotations

import matplotlib
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from byoc_hw.integers import ceil_div
from byoc_hw.mesh.events import Simulation, simulate
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.plan import MeshPlan
from byoc_hw.mesh.predict import frames_to_fill
from byoc_hw.report.pictures import PALETTE, Picture

_FREE, _DEAD = "#eeeeee", "#3b3b3b"
_STAGES, _LOADS = matplotlib.colormaps["turbo"], matplotlib.colormaps["viridis"]
_LARGEST = 0.5
"""Inches of a PE, at most."""
_MOST_STAGES = 48
"""The most stages of a timeline."""
_MOST_NAMED = 24
"""The most of them that have their number beside them."""


def draw_mesh(plan: MeshPlan) -> Figure:
    """Two maps of the mesh: the stage of each PE, and the share of the time in which it computes."""
    mesh, figures = plan.placed
    columns, rows = (len(span) for span in _shown(mesh))
    each = min(6.0 / columns, _LARGEST)
    width, height = max(8.0, 2 * each * columns + 1.0), min(12.0, max(3.5, each * rows + 1.2))
    figure = Picture(figsize=(width, height), layout="constrained")
    title = f"{str(plan).splitlines()[0]}; grey is free, black is dead"
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    stages: dict[tuple[int, int], float] = {}
    loads: dict[tuple[int, int], float] = {}
    for places in plan.replicas:
        for number, place in enumerate(places):
            stages[place] = float(number)
            loads[place] = loads.get(place, 0.0) + figures.cycles[number] / plan.period
    left, right = figure.subplots(1, 2)
    _map(left, plan, stages, ScalarMappable(Normalize(0, max(1, len(plan.stages) - 1)), _STAGES), "stage")
    _map(right, plan, loads, ScalarMappable(Normalize(0, 1), _LOADS), "share of time at work")
    return figure


def _shown(mesh: Mesh) -> tuple[range, range]:
    """The columns and rows with PEs that are not dead, from the first to the last of them."""
    columns, rows = (sorted({place[axis] for place in mesh.alive}) for axis in (0, 1))
    return range(columns[0], columns[-1] + 1), range(rows[0], rows[-1] + 1)


def _map(axes: Axes, plan: MeshPlan, values: dict[tuple[int, int], float], scale: ScalarMappable, title: str) -> None:
    mesh, _ = plan.placed
    columns, rows = _shown(mesh)
    places = [(x, y) for y in rows for x in columns]
    unused = {place: _DEAD if place in mesh.dead else _FREE for place in places if place not in values}
    colours = [unused[place] if place in unused else _colour(scale, values[place]) for place in places]
    squares = [[(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)] for x, y in places]
    edge = 0.5 if len(columns) <= 64 else 0.0
    axes.add_collection(PolyCollection(squares, facecolors=colours, edgecolors="white", linewidths=edge))
    for at in range(0, mesh.width + 1, mesh.width // mesh.chips[0]):
        axes.axvline(at, color="#808080", linewidth=0.8)
    for at in range(0, mesh.height + 1, mesh.height // mesh.chips[1]):
        axes.axhline(at, color="#808080", linewidth=0.8)
    if len(places) <= 256:
        for (x, y), value in values.items():
            text = f"{value:.0f}" if title == "stage" else f"{value:.2f}"
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=7, color=_ink(_colour(scale, value)))
    axes.set_xlim(columns.start, columns.stop)
    axes.set_ylim(rows.stop, rows.start)
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.set_title(title, loc="left", fontsize=9)
    axes.tick_params(length=0, labelsize=7)
    axes.figure.colorbar(scale, ax=axes, shrink=0.7)


def _colour(scale: ScalarMappable, value: float) -> tuple[float, ...]:
    return scale.cmap(float(scale.norm(value)))


def _ink(background: tuple[float, ...]) -> str:
    red, green, blue = background[:3]
    return "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else "white"


def draw_pipeline(plan: MeshPlan, frames: int = 6) -> Figure:
    """When each stage of the first pipeline computes the first frames, as the simulator runs them."""
    run = simulate(plan.flow(1), frames)
    shown = min(len(plan.stages), _MOST_STAGES)
    figure = Picture(figsize=(13.0, 1.6 + 0.22 * shown), layout="constrained")
    axes = figure.subplots()
    for frame in range(frames):
        boxes = _boxes(run, frame, shown)
        axes.add_collection(
            PolyCollection(
                boxes,
                facecolors=PALETTE[frame % len(PALETTE)],
                edgecolors="white",
                linewidths=0.4,
                label=f"frame {frame}",
            )
        )
    axes.set_xlim(0, max(1, run.cycles))
    axes.set_ylim(shown, 0)
    named = range(0, shown, ceil_div(shown, _MOST_NAMED))
    axes.set_yticks([stage + 0.5 for stage in named], list(map(str, named)))
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("accelerator cycles")
    axes.set_ylabel("stage")
    axes.spines[["top", "right"]].set_visible(False)
    in_flight = frames_to_fill(plan.latency, plan.period)
    more = f"; {shown} of {len(plan.stages)} stages" if shown < len(plan.stages) else ""
    title = (
        f"{plan.network.name}: a frame every {plan.period:,} cycles, latency {plan.latency:,}, {in_flight} in flight"
    )
    axes.set_title(title + more, loc="left", fontsize=10)
    axes.legend(ncols=frames, frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    return figure


def _boxes(run: Simulation, frame: int, shown: int) -> list[list[tuple[float, float]]]:
    spans = [(run.starts[stage][frame], run.ends[stage][frame], stage) for stage in range(shown)]
    return [[(start, at + 0.1), (end, at + 0.1), (end, at + 0.9), (start, at + 0.9)] for start, end, at in spans]


def draw_balance(plan: MeshPlan) -> Figure:
    """The cycles of each stage against the period, and the bytes on its PE against the room."""
    mesh, figures = plan.placed
    figure = Picture(figsize=(13.0, 5.0), layout="constrained")
    figure.suptitle(str(plan).splitlines()[1], x=0.01, ha="left", fontsize=10)
    top, bottom = figure.subplots(2, 1, sharex=True)
    numbers = range(len(plan.stages))
    top.bar(numbers, figures.cycles, color="#4e79a7")
    top.axhline(plan.period, color="#c00000", linewidth=1, label="period")
    top.axhline(figures.work / len(plan.stages), color="#59a14f", linewidth=1, label="work / stages")
    top.set_ylabel("cycles")
    bottom.bar(numbers, figures.nbytes, color="#76b7b2")
    bottom.axhline(mesh.data, color="#c00000", linewidth=1, label="room for data")
    bottom.set_ylabel("bytes")
    bottom.set_xlabel("stage")
    bottom.xaxis.set_major_locator(MaxNLocator(24, integer=True))
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure
