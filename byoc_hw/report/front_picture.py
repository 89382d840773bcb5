"""The picture of variations of an accelerator: cycles over local memory, by the size of the array, with the front."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from byoc_hw.report.pictures import PALETTE, Picture
from byoc_hw.report.variations import METRICS, Exploration, size_text


def draw_variations(exploration: Exploration) -> Figure:
    """A point for each variation; those of one array have one colour. Those on the front are filled, and joined."""
    figure = Picture(figsize=(9.0, 5.2), layout="constrained")
    axes = figure.subplots()
    arrays = sorted({one.array for one in exploration.variations})
    front = exploration.front
    for at, array in enumerate(arrays):
        colour = PALETTE[at % len(PALETTE)]
        here = [one for one in exploration.variations if one.array == array]
        best = sorted((one for one in here if one in front), key=lambda one: one.memory)
        cycles = METRICS["cycles"]
        label = f"array of {array:,}"
        axes.scatter([one.memory for one in here], list(map(cycles, here)), 42, facecolors="white", edgecolors=colour)
        axes.plot([one.memory for one in best], list(map(cycles, best)), "o-", color=colour, label=label, linewidth=1)
    given = exploration.variations[0]
    axes.scatter(
        [given.memory], [METRICS["cycles"](given)], 130, facecolors="none", edgecolors="black", label="as given"
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({one.memory for one in exploration.variations})
    axes.set_xticks(sizes, [size_text(one) for one in sizes], rotation=40, ha="right")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("bytes of local memory")
    axes.set_ylabel("cycles, with the host" + (" (geometric mean)" if len(given.cycles) > 1 else ""))
    axes.grid(color="#ececec", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{exploration.accelerator}: {', '.join(given.cycles)}".rstrip(": "), loc="left", fontweight="bold")
    axes.legend(frameon=False)
    return figure
