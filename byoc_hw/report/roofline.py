"""The roofline: what rate each layer reaches, and whether the array or the DMA keeps it from more."""

from __future__ import annotations

from math import log2

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from byoc_hw.objective import HOST
from byoc_hw.report.pictures import PALETTE, Picture
from byoc_hw.report.summary import LayerFigures, Summary

_NAMED = 12
"""The costliest layers have their numbers in them."""
_SIDE_BY_SIDE = 4
"""The most numbers at one place."""


def draw_roofline(summary: Summary) -> Figure:
    """A disc for each layer, as large as its share of the cycles, in the colour of its kind."""
    figure = Picture(figsize=(9.0, 5.2), layout="constrained")
    axes = figure.subplots()
    layers = [one for one in summary.layers if one.macs and one.cycles and one.bound != HOST]
    known = [_intensity(one) for one in layers if one.nbytes]
    ridge = summary.macs_per_cycle / max(summary.dma_bytes_per_cycle, 1)
    right = 4 * max([ridge, *known])
    left = min([ridge, *known]) / 2
    total = sum(one.cycles or 0 for one in layers)
    for kind, colour in zip(dict.fromkeys(one.kind for one in layers), PALETTE, strict=False):
        here = [one for one in layers if one.kind == kind]
        axes.scatter(
            [_intensity(one) or right for one in here],
            [_rate(one) for one in here],
            [20 + 1500 * (one.cycles or 0) / total for one in here],
            color=colour,
            alpha=0.7,
            edgecolors="white",
            label=kind,
        )
    _roof(axes, summary, (left, ridge, 1.5 * right))
    named: dict[tuple[int, int], list[LayerFigures]] = {}
    for one in sorted(layers, key=lambda one: -(one.cycles or 0)):
        place = round(2 * log2(_intensity(one) or right)), round(2 * log2(_rate(one)))
        if place in named or len(named) < _NAMED:  # side by side where several layers lie over each other
            named.setdefault(place, []).append(one)
    for some in named.values():
        ids = [str(one.id) for one in sorted(some, key=lambda one: one.id or 0)]
        more = ["..."] * (len(ids) > _SIDE_BY_SIDE)
        where = _intensity(some[0]) or right, _rate(some[0])
        axes.annotate(", ".join(ids[:_SIDE_BY_SIDE] + more), where, ha="center", va="center", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_xlabel("MACs for each byte that the DMA moves (at the right: none is moved)")
    axes.set_ylabel("MACs a cycle")
    axes.set_title(f"{summary.mod_name} on {summary.accelerator}", loc="left", fontweight="bold")
    axes.grid(color="#ececec", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


def _roof(axes: Axes, summary: Summary, across: tuple[float, float, float]) -> None:
    rates = [min(summary.macs_per_cycle, one * summary.dma_bytes_per_cycle) for one in across]
    axes.plot(across, rates, color="black", linewidth=1)
    text = f"{summary.macs_per_cycle:,} MACs and {summary.dma_bytes_per_cycle:,} bytes a cycle"
    axes.annotate(text, (across[2], rates[2]), xytext=(0, 4), textcoords="offset points", ha="right", fontsize=8)


def _intensity(layer: LayerFigures) -> float:
    return layer.macs / layer.nbytes if layer.nbytes else 0.0


def _rate(layer: LayerFigures) -> float:
    return layer.macs / max(layer.array_cycles, layer.dma_cycles, 1)
