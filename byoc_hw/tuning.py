"""The plans that tuning found, as data: saved to a file, and applied by `build`. Needs no TVM."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Graph
from byoc_hw.plan.chip_choices import ChipChoices, chip_choices_from_plain
from byoc_hw.plan.choices import Choices, from_plain
from byoc_hw.plan.tune.rounds import TunedRegion, fingerprint
from byoc_hw.report.line import counted, line
from byoc_hw.schema import (
    Schema,
    accepted,
    boolean,
    integer,
    list_of,
    nullable,
    read_json,
    row,
    structure,
    table_of,
    text,
    text_or_integer,
)
from byoc_hw.soc import Hardware, Soc
from byoc_hw.version import __version__
from byoc_hw.whole_file import write_whole

FORMAT = 1

_LARGEST = 2**24
"""Bytes of a tuning file: a hundred for each layer, and 100,000 layers."""

_COUNT = integer(1)
_CHOICES = structure(
    {
        "swapped": list_of(boolean),
        "groups": list_of(
            structure(
                {
                    "layers": integer(1, _LARGEST),
                    "stripes": _COUNT,
                    "whole": list_of(integer(high=_LARGEST)),
                    "overlap": boolean,
                    "resident": boolean,
                },
                {
                    "tiling": structure(
                        dict.fromkeys(("rows", "columns", "channels", "depth"), _COUNT)
                        | dict.fromkeys(("rows_outer", "whole_ifm"), boolean),
                        {"packed": boolean},
                    ),
                    **dict.fromkeys(("columns", "slices", "pieces"), _COUNT),
                    "kept": list_of(integer(high=_LARGEST)),
                    **dict.fromkeys(("alternating", "summed", "slices_outer"), boolean),
                },
            )
        ),
        "direct": boolean,
        "blocks": list_of(nullable(row(_COUNT, _COUNT))),
    },
    dict.fromkeys(("placed", "stored", "packed"), list_of(integer(high=_LARGEST)))
    | dict.fromkeys(("apart", "fine", "jobs_transpose"), boolean),
)
_INDICES = list_of(integer(high=_LARGEST))
_PART = structure(
    {"lane": integer(high=_LARGEST), "layers": _INDICES, "choices": _CHOICES},
    {"axis": integer(high=_LARGEST), "rows": row(integer(), integer()), "flat": boolean, "pieces": boolean},
)
_ON_CHIP = structure(
    {"order": _INDICES, "lanes": _INDICES, "swapped": list_of(boolean), "parts": list_of(_PART), "alone": boolean}
)


def _any_choices(value: Any, field: str) -> None:
    (_ON_CHIP if _is_on_chip(value) else _CHOICES)(value, field)


def _is_on_chip(plain: Any) -> bool:
    return isinstance(plain, dict) and "parts" in plain


def _choices(plain: Any) -> Choices | ChipChoices:
    return chip_choices_from_plain(plain) if _is_on_chip(plain) else from_plain(plain)


def _accelerator(value: Any, field: str) -> None:
    table_of(text_or_integer)(value, field)
    structure({"name": text, "label": text})(value, field)


_REGION: Mapping[str, Schema] = {
    "name": text,
    "fingerprint": text,
    "layers": integer(1, _LARGEST),
    "choices": _any_choices,
    "before": integer(),
    "after": integer(),
    "evaluations": integer(),
    "exact": boolean,
}
_TUNING = structure(
    {
        "accelerator": _accelerator,
        "budget": integer(),
        "seed": integer(-(2**128), 2**128),
        "regions": list_of(structure(_REGION)),
    }
)

_NOT_PLANNED = ("ram", "flash", "dma_reads_flash", "host_cycles_per_instruction", "shift_only")
"""Numbers of an accelerator, or of a chip, that the plan of a region by itself does not depend on."""

_TITLES = ("region", "layers", "before", "after", "fewer", "plans tried")


@dataclass(frozen=True)
class Tuning:
    """The best plan that was found for each region of a model.

    `accelerator` has its name, its label and each number that plans depend on; of a chip, also those of each of its
    accelerators, with its number in front. `budget` (plans for each region) and `seed` are those of `tune`. `regions`
    are in the order of the model, with accelerator cycles before (the planner's own choices) and after. `str()` and a
    notebook show a table.
    """

    accelerator: Mapping[str, str | int]
    budget: int
    seed: int
    regions: tuple[TunedRegion, ...]

    @property
    def before(self) -> int:
        """Accelerator cycles of all regions with the planner's own choices."""
        return sum(region.before for region in self.regions)

    @property
    def after(self) -> int:
        """Accelerator cycles of all regions as tuned."""
        return sum(region.after for region in self.regions)

    @cached_property
    def _by_fingerprint(self) -> dict[str, TunedRegion]:
        return {region.fingerprint: region for region in self.regions}

    def region(self, graph: Graph) -> TunedRegion | None:
        """The plan for a region with these layers, shapes and connections, whatever its weights; None without one."""
        return self._by_fingerprint.get(fingerprint(graph))

    def check(self, accelerator: Hardware) -> None:
        """`InvalidInput`, with what differs, if this tuning is for another accelerator or chip."""
        check_tunable(accelerator)
        own = figures(accelerator)
        if self.accelerator.get(_SEVERAL) != own.get(_SEVERAL):
            own = {_SEVERAL: own.get(_SEVERAL, 1)}
        differing = [
            f"{name} {self.accelerator.get(name)}, not {value}"
            for name, value in own.items()
            if not name.endswith("label") and self.accelerator.get(name) != value
        ]
        if differing:
            raise InvalidInput(
                f"a tuning is for the accelerator that the module was partitioned for, {accelerator.label}: "
                f"this one is for {self.accelerator.get('label')} ({'; '.join(differing)})"
            )

    # ------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Write a JSON file that `load` and `build(..., tuning=path)` read, in place of an earlier one.

        The same tuning gives the same bytes. `InvalidInput` if the file cannot be written.
        """
        plain = {
            "generator": "byoc_hw tune",
            "format": FORMAT,
            "version": __version__,
            "accelerator": dict(self.accelerator),
            "budget": self.budget,
            "seed": self.seed,
            "regions": [{**vars(region), "choices": region.choices.plain()} for region in self.regions],
        }
        write_whole(Path(path), (json.dumps(plain, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Tuning:
        """Read what `save` wrote. `InvalidInput` for anything else."""
        path = Path(path)
        try:
            plain = read_json(path, _LARGEST)
        except InvalidInput as error:
            raise InvalidInput(f"a tuning is a file that Tuning.save wrote: {error}") from error
        if not isinstance(plain, dict) or plain.get("generator") != "byoc_hw tune":
            raise InvalidInput(f"a tuning is a file that Tuning.save wrote: {path} is another file")
        if plain.get("format") != FORMAT:
            raise InvalidInput(f"format of a tuning is {FORMAT}: got {plain.get('format')} in {path}: tune again")
        accepted(path, plain, _TUNING)
        regions = tuple(
            TunedRegion(**{name: entry[name] for name in _REGION} | {"choices": _choices(entry["choices"])})
            for entry in plain["regions"]
        )
        return cls(plain["accelerator"], plain["budget"], plain["seed"], regions)

    # ------------------------------------------------------------ for people

    def __repr__(self) -> str:
        cycles = f"{self.before:,} accelerator cycles before, {self.after:,} after"
        return line(self, f"for {self.accelerator['label']}", f"{counted(len(self.regions), 'region')}, {cycles}")

    def __str__(self) -> str:
        rows = list(self._rows())
        widths = [max(map(len, column)) for column in zip(_TITLES, *rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if not at else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in (_TITLES, *rows)
        ]
        return "\n".join([self._headline(), *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{title}</th>" for title in _TITLES)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._rows()
        )
        return (
            f"<p>{html.escape(self._headline())}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )

    def _headline(self) -> str:
        return (
            f"tuned for {self.accelerator['label']} (budget {self.budget}, seed {self.seed}): "
            f"{self.before} accelerator cycles before, {self.after} after ({_fewer(self.before, self.after)} fewer)"
        )

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for region in self.regions:
            tried = f"{region.evaluations} (all there are)" if region.exact else str(region.evaluations)
            cycles = str(region.before), str(region.after), _fewer(region.before, region.after)
            yield (region.name, str(region.layers), *cycles, tried)


_SEVERAL = "accelerators"


def figures(hardware: Hardware) -> dict[str, str | int]:
    """An accelerator's name, its label, and each number that plans depend on; of a chip, its own and those of each."""
    numbers = {entry.name: getattr(hardware, entry.name) for entry in fields(hardware)}
    kept = {name: value for name, value in numbers.items() if isinstance(value, int) and name not in _NOT_PLANNED}
    found: dict[str, str | int] = {"name": hardware.name, "label": hardware.label}
    if not isinstance(hardware, Soc):
        packed = {"packed_rows": 1} if kept.pop("packed_rows") else {}
        return found | kept | packed
    found |= {_SEVERAL: len(hardware.accelerators), **kept}
    found |= {f"shared {number}": ", ".join(names) for number, names in enumerate(hardware.shared)}
    found |= {"with_events": ", ".join(hardware.with_events)} if hardware.with_events else {}
    for number, one in enumerate(hardware.accelerators):
        found |= {f"accelerator {number} {name}": value for name, value in figures(one).items()}
    return found


def check_tunable(hardware: Hardware) -> None:
    """`InvalidInput` for an accelerator with a library."""
    if hardware.library is not None:
        raise InvalidInput(
            f"tuning is of tiles and copies: accelerator {hardware.name} is driven by whole-layer calls, "
            "which its library cuts as it likes"
        )


def _fewer(before: int, after: int) -> str:
    return f"{1 - after / before:.1%}" if before else "0.0%"
