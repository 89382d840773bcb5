"""What a quantization did, layer by layer; and the front of widths, as a table and a picture."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class QuantizedLayer:
    """One layer with weights: their number and bits, `nbytes` in flash, and the layer's cycles, where it is offloaded.

    `error` is the mean squared error of its results, before they are rounded to int8, as a share of their mean square.
    """

    name: str
    kind: str
    weights: int
    bits: int
    nbytes: int
    error: float
    cycles: int | None


@dataclass(frozen=True)
class FrontPoint:
    """Widths for all layers that lose least for their cost. `loss` is the sum of what each layer loses by itself."""

    bits: tuple[int, ...]
    loss: float
    flash: int
    ram: int
    cycles: int
    weight_bytes: int


@dataclass(frozen=True)
class Front(Sequence[FrontPoint]):
    """Points from the cheapest to the best; prints as text, shows as a table in a notebook."""

    points: tuple[FrontPoint, ...]
    cost: str

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: Any) -> Any:
        return self.points[index]

    def __iter__(self) -> Iterator[FrontPoint]:
        return iter(self.points)

    def __str__(self) -> str:
        return as_text(_FRONT, map(_front_row, enumerate(self.points)))

    def _repr_html_(self) -> str:
        return as_html(_FRONT, map(_front_row, enumerate(self.points)))

    def plot(self, path: str | None = None) -> Any:
        """Draw loss against the cost; a matplotlib figure, also written to `path`. Needs the extra `notebooks`."""
        from matplotlib import pyplot
        from matplotlib.ticker import StrMethodFormatter

        figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
        costs = [getattr(point, self.cost) for point in self.points]
        axes.plot(costs, [point.loss for point in self.points], marker="o", color="#4e79a7")
        for place, point in enumerate(self.points):
            axes.annotate(str(place), (costs[place], point.loss), textcoords="offset points", xytext=(4, 5), fontsize=8)
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.set_ylim(bottom=0)
        axes.set_xlabel({"flash": "flash (bytes)", "ram": "RAM (bytes)"}.get(self.cost, self.cost))
        axes.set_ylabel("predicted loss")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.grid(color="#ececec", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title("Widths of weights: the least loss for each cost", loc="left", fontweight="bold")
        if path is not None:
            figure.savefig(path, dpi=120)
        pyplot.close(figure)
        return figure


_FRONT = ("point", "loss", "flash", "RAM", "cycles", "weights", "8 bits", "4 bits", "2 bits")


def _front_row(numbered: tuple[int, FrontPoint]) -> tuple[str, ...]:
    place, point = numbered
    widths = (str(sum(bits == width for bits in point.bits)) for width in (8, 4, 2))
    sizes = (point.flash, point.ram, point.cycles, point.weight_bytes)
    return (str(place), f"{point.loss:.4f}", *(f"{size:,}" for size in sizes), *widths)


LAYERS = ("layer", "kind", "weights", "bits", "bytes", "error", "cycles")


def layer_row(layer: QuantizedLayer) -> tuple[str, ...]:
    """A layer in a table with the columns `LAYERS`."""
    cycles = "host" if layer.cycles is None else f"{layer.cycles:,}"
    name = layer.name if len(layer.name) <= _NAME else f"{layer.name[: _NAME - 3]}..."
    return name, layer.kind, f"{layer.weights:,}", str(layer.bits), f"{layer.nbytes:,}", f"{layer.error:.4%}", cycles


_NAME = 40


def as_text(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as text: numbers to the right, words to the left."""
    table = [tuple(titles), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    numbers = [
        all(row[place][:1].isdigit() or row[place] == "host" for row in table[1:]) for place in range(len(titles))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in table
    )


def as_html(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a notebook."""
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    side = "right" if text[:1].isdigit() or text == "host" else "left"
    return f'<td style="text-align:{side}">{html.escape(text)}</td>'
