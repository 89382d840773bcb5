"""What models take on variations of an accelerator: a table, a picture, and the front of those that nothing beats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import exp, log
from typing import TYPE_CHECKING, Any

from byoc_hw.accelerator import KIB
from byoc_hw.html_tables import table_html
from byoc_hw.report.line import counted, line, share_of
from byoc_hw.report.schedule import needs_matplotlib
from byoc_hw.soc import Hardware, accelerators_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Variation:
    """One variation: the fields that it changes, and the hardware that it is.

    By model, `cycles` are those of the planned regions, and `host_cycles` the estimate for the operators on the host,
    in accelerator cycles, without `unknown` operators whose cost is not known. `offloaded` and `operators` are numbers
    of operators of all models.
    """

    changes: Mapping[str, Any]
    hardware: Hardware = field(repr=False)
    cycles: Mapping[str, int]
    host_cycles: Mapping[str, int]
    offloaded: int
    operators: int
    unknown: int = 0

    @property
    def total(self) -> dict[str, int]:
        """The cycles of each model, with those of the host."""
        return {name: cycles + self.host_cycles[name] for name, cycles in self.cycles.items()}

    @property
    def memory(self) -> int:
        """Bytes of all local memories."""
        return sum(one.activation_memory + one.weight_memory for one in accelerators_of(self.hardware))

    @property
    def array(self) -> int:
        """Multipliers of all arrays."""
        return sum(one.array_rows * one.array_columns for one in accelerators_of(self.hardware))

    @property
    def name(self) -> str:
        """The changes, as in a sentence."""
        return ", ".join(f"{name} {value_text(name, value)}" for name, value in self.changes.items()) or "as given"


METRICS: Mapping[str, Callable[[Variation], float]] = {
    "cycles": lambda one: exp(sum(log(max(cycles, 1)) for cycles in one.total.values()) / len(one.total)),
    "memory": lambda one: one.memory,
    "array": lambda one: one.array,
    "dma": lambda one: sum(each.dma_width for each in accelerators_of(one.hardware)),
    "ram": lambda one: one.hardware.ram,
    "flash": lambda one: one.hardware.flash,
}
"""What variations are compared by; less is better. The cycles of several models are their geometric mean."""


@dataclass(frozen=True)
class Exploration:
    """What models take on variations of an accelerator, the first of which is the accelerator as given.

    `str()` is a table, `picture()` a picture, `to_json()` is for programs. `front` are the variations that no other one
    beats in all of `objective`.
    """

    accelerator: str
    objective: tuple[str, ...]
    variations: tuple[Variation, ...]

    @property
    def front(self) -> tuple[Variation, ...]:
        """The variations than which no other is as good by every metric and better by one, by their cycles."""
        rated = {one.name: tuple(METRICS[name](one) for name in self.objective) for one in self.variations}
        best = [one for one in self.variations if not any(_beats(other, rated[one.name]) for other in rated.values())]
        return tuple(sorted(best, key=METRICS["cycles"]))

    def times_given(self, variation: Variation) -> float:
        """The cycles of a variation over those of the accelerator as given: the geometric mean over the models."""
        return METRICS["cycles"](variation) / METRICS["cycles"](self.variations[0])

    def picture(self) -> Figure:
        """Cycles over the memory of each variation, by the size of the array, with the front.

        `ToolchainMissing` without matplotlib.
        """
        with needs_matplotlib():
            from byoc_hw.report.front_picture import draw_variations
        return draw_variations(self)

    def to_json(self) -> str:
        """Each variation by its changes, with its figures, and whether it is on the front."""
        front = self.front
        entries = [
            {
                "changes": dict(one.changes),
                "cycles": dict(one.cycles),
                "host_cycles": dict(one.host_cycles),
                "memory": one.memory,
                "array": one.array,
                "offloaded": one.offloaded,
                "operators": one.operators,
                "front": one in front,
            }
            for one in self.variations
        ]
        whole = {"accelerator": self.accelerator, "objective": self.objective, "variations": entries}
        return json.dumps(whole, indent=2, default=str)

    def __repr__(self) -> str:
        numbers = f"{counted(len(self.variations), 'variation')}, {len(self.front)} on the front"
        return line(self, self.accelerator, numbers)

    def __str__(self) -> str:
        rows = [[str(cell) for cell in row] for row in self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join([self._headline(), *(f"  {text}" for text in lines)])

    def _repr_html_(self) -> str:
        headings, *rows = self._rows()
        return table_html(self._headline(), list(map(str, headings)), rows)

    def _headline(self) -> str:
        return (
            f"{counted(len(self.variations), 'variation')} of {self.accelerator}, {len(self.front)} on the front (*) "
            f"of {', '.join(self.objective)}; cycles with the host's estimate"
        )

    def _rows(self) -> Iterator[list[object]]:
        fields = list(dict.fromkeys(name for one in self.variations for name in one.changes))
        models, front = list(self.variations[0].cycles), self.front
        yield ["", *fields, *models, "times given", "memory", "array", "offloaded"]
        for one in self.variations:
            total = one.total
            yield [
                "*" if one in front else "",
                *(value_text(name, one.changes[name]) if name in one.changes else "as given" for name in fields),
                *(f"{total[name]:,}" for name in models),
                f"{self.times_given(one):.3f}",
                size_text(one.memory),
                f"{one.array:,}",
                share_of(one.offloaded, one.operators),
            ]


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(less <= more for less, more in zip(one, other, strict=True))


def value_text(name: str, value: Any) -> str:
    """The value of a field: sizes of memories in KiB, an array as rows x columns."""
    if name.rpartition(".")[2] in ("activation_memory", "weight_memory", "ram", "flash"):
        return size_text(value)
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def size_text(nbytes: int) -> str:
    """Bytes, or whole KiB."""
    return f"{nbytes // KIB}K" if nbytes and nbytes % KIB == 0 else f"{nbytes:,}"
