"""Checks of what `byoc_hw.partition_for_hwlib` is given, for every front end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc_hw.accelerator import Accelerator
from byoc_hw.arguments import shown
from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.pattern_files import load_patterns
from byoc_hw.pattern import patterns
from byoc_hw.program import check_mod_name
from byoc_hw.soc import Soc


def checked_arguments(deny: Iterable[str], mod_name: str, accelerator: object, numerics: str) -> tuple[str, ...]:
    """The names in `deny`, which `check_denied` goes through. Raises `InvalidInput` for an argument that breaks a
    rule."""
    if isinstance(deny, str) or not isinstance(deny, Iterable):
        raise InvalidInput(f"deny is a list of names: got {shown(deny)}")
    names = tuple(deny)
    check_mod_name(mod_name)
    if not isinstance(accelerator, Accelerator | Soc):
        raise InvalidInput(f"accelerator is an Accelerator or a Soc: got {type(accelerator).__name__}")
    accelerator.check_numerics(numerics)
    return names


def check_denied(deny: Sequence[str], sources: Sequence[str]) -> None:
    """Raise `InvalidInput` for a name that is neither a composite's nor one of the model's operators, `sources`."""
    load_patterns()
    known = {*sources, *(pattern.name for pattern in patterns())}
    for name in deny:
        if not isinstance(name, str) or name not in known:
            composites = ", ".join(pattern.name for pattern in patterns())
            raise InvalidInput(f"deny names operators of the model or composites ({composites}): got {name!r}")
