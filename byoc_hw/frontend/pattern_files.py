"""Imports the pattern files of this package and of installed ones, and puts their forms in order.

A file that imports the other TVM has no form for this one: its composites stay on the host here, and the report says
so as of any operator that is in no pattern.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any

from byoc_hw.arguments import errors_of
from byoc_hw.errors import PatternError
from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.pattern import Form, Pattern

ENTRY_POINT_GROUP = "byoc_hw.patterns"


@functools.cache
def load_patterns() -> None:
    """Import all modules of `byoc_hw.patterns` and the entry points of installed packages; each registers itself.

    Raises `PatternError` for one that fails.
    """
    for what, load in _files():
        with errors_of(what, PatternError):
            try:
                load()
            except ImportError as error:
                if not _is_of_the_other_tvm(error):
                    raise


def _files() -> Iterator[tuple[str, Callable[[], Any]]]:
    folder = importlib.import_module("byoc_hw.patterns")
    for module in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        name = f"{folder.__name__}.{module}"
        yield name, functools.partial(importlib.import_module, name)
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: (entry.name, entry.value)):
        yield f"entry point {entry.name} = {entry.value} of {ENTRY_POINT_GROUP}", entry.load


_NAME = re.compile(r"cannot import name '(\w+)'")


def _is_of_the_other_tvm(error: ImportError) -> bool:
    """Whether a module that is missing is one of Relay where there is none, or of Relax where that is old."""
    missing = (*(() if HAS_RELAY else ("tvm.relay",)), *(() if HAS_RELAX else ("tvm.relax",)))
    name = error.name or ""
    found = _NAME.match(error.msg)  # `from tvm import relay` names tvm alone
    wanted = f"{name}.{found[1]}" if found else name
    return any(wanted == one or wanted.startswith(f"{one}.") for one in missing)


def forms_in_order(
    table: Sequence[Pattern], operators_of: Callable[[Form], tuple[str, ...]]
) -> tuple[tuple[Pattern, Form], ...]:
    """Every form of some patterns, the more specific before the more general.

    A form with more operators is more specific. Of two patterns over the same operators, one must
    declare that it is `before` the other; raises `PatternError` if none does.
    """
    rivals: dict[tuple[str, ...], list[Pattern]] = {}
    forms = [(pattern, form, operators_of(form)) for pattern in table for form in pattern.forms]
    for pattern, _, operators in forms:
        if not operators:
            raise PatternError(f"pattern {pattern.name!r}: a form has at least one operator: got none")
        if pattern not in rivals.setdefault(operators, []):
            rivals[operators].append(pattern)

    def wins(pattern: Pattern, operators: tuple[str, ...]) -> int:
        return sum(rival.name in pattern.before for rival in rivals[operators])

    for operators, group in rivals.items():
        ranked = sorted(group, key=lambda pattern: (wins(pattern, operators), pattern.name))
        for first, second in itertools.pairwise(ranked):
            if wins(first, operators) == wins(second, operators):
                raise PatternError(
                    f"patterns {first.name!r} and {second.name!r} match the same operators "
                    f"({', '.join(operators)}): one declares before=({second.name!r},) or the like"
                )
    forms.sort(key=lambda item: (-len(item[2]), item[2], -wins(item[0], item[2])))
    return tuple((pattern, form) for pattern, form, _ in forms)
