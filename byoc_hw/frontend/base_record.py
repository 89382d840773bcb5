"""What a partitioned module records about itself, with either front end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from byoc_hw.frontend.model_ends import Ends
from byoc_hw.pattern import Outcome


@dataclass(frozen=True)
class BaseRecord:
    """Accelerator (by digest, compiler name and label), numerics, mod_name, the outcome of each operator, inputs and
    outputs."""

    accelerator: str
    compiler: str
    label: str
    numerics: str
    mod_name: str
    outcomes: tuple[Outcome, ...]
    ends: Ends

    @property
    def text(self) -> str:
        """The record for an attribute of a module."""
        return json.dumps(vars(self), default=vars)


def fields_in(text: str) -> dict[str, Any]:
    """The fields of a record, of its text."""
    plain: dict[str, Any] = json.loads(text)
    plain["outcomes"] = tuple(Outcome.from_plain(entry) for entry in plain["outcomes"])
    plain["ends"] = Ends.from_plain(plain["ends"])
    return plain
