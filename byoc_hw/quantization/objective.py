"""What widths are chosen for: "accuracy", the least of a cost, or the best within a cost."""

from __future__ import annotations

import re
from dataclasses import dataclass

from byoc_hw.arguments import shown
from byoc_hw.errors import InvalidInput

COSTS = ("flash", "ram", "cycles")
_FORM = re.compile(r"\s*([a-z]+)\s*(?:<=\s*(\d+)\s*([A-Za-z]*)\s*)?")
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20}


@dataclass(frozen=True)
class Goal:
    """A cost, and the most that it may be; without `most` it is to be as little as the tolerance lets it be."""

    cost: str
    most: int | None


def goal(objective: object) -> Goal | None:
    """The goal of an objective: None for "accuracy". `InvalidInput` for what is none."""
    rule = (
        f'objective is "accuracy", one of {", ".join(COSTS)}, or one with a limit, as "flash<=32KiB", "cycles<=50000"'
    )
    if objective == "accuracy":
        return None
    parts = _FORM.fullmatch(objective) if isinstance(objective, str) else None
    if parts is None or parts[1] not in COSTS:
        raise InvalidInput(f"{rule}: got {shown(objective)}")
    cost, most, unit = parts[1], parts[2], (parts[3] or "").lower()
    if unit not in (_UNITS if cost != "cycles" else ("",)):
        raise InvalidInput(f"{rule}: got the unit {parts[3]} in {shown(objective)}")
    return Goal(cost, None if most is None else int(most) * _UNITS[unit])
