"""Writes a pattern and its test to start from: an operator form that lowers to a layer kind that there is."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import jinja2

from byoc_hw.accelerator import REFERENCE
from byoc_hw.authoring.closed_kinds import CLOSED_KINDS
from byoc_hw.authoring.testing import golden_text
from byoc_hw.compiler import build, partition_for_hwlib
from byoc_hw.errors import ByocHwError, InvalidInput, PatternError, ToolchainMissing
from byoc_hw.frontend.pattern_files import load_patterns
from byoc_hw.frontend.relay.front_end import operator_module
from byoc_hw.frontend.relay.table import ordered_forms
from byoc_hw.graph import LAYER_KINDS
from byoc_hw.pattern import patterns, unregister_pattern
from byoc_hw.whole_file import check_directory, write_whole

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("byoc_hw.authoring"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # Python, not HTML
)

_FILES = _TEMPLATES.list_templates()
WRITTEN_KINDS = {cls.__name__: kind for kind, cls in LAYER_KINDS.items() if f"{kind}.py.j2" in _FILES}
"""The layer kinds that patterns are written for, by the name of the class: all but `CLOSED_KINDS`."""


def new_pattern(name: str, layer: str, output_dir: Path | str | None = None) -> tuple[Path, ...]:
    """Write a pattern of a layer kind (as "Conv2d"), its test and the C that it is compared with; their paths.

    In a clone they go to `patterns/`, `tests/patterns/` and `tests/patterns/golden/`; with `output_dir` into that
    directory and its `golden/`. The pattern is whole, and so is its test: both are there to be edited.

    Raises `InvalidInput`, before anything is written, for a name that is no identifier or that is taken, for a layer
    kind that there is not, and where a registered pattern already matches the operators that the new one starts from.
    """
    _check_name(name)
    if layer in CLOSED_KINDS:
        raise InvalidInput(f"no new pattern is for {layer}: {CLOSED_KINDS[layer]}")
    if layer not in WRITTEN_KINDS:
        raise InvalidInput(f"a new pattern is for one of the layer kinds {', '.join(WRITTEN_KINDS)}: got {layer!r}")
    places = _places(name, None if output_dir is None else Path(output_dir))
    for path in places:
        if path.exists():
            raise InvalidInput(f"a new pattern has a name of its own: {path} exists")
        check_directory(path.parent)
    given = {"name": name, "layer": layer, "outside": output_dir is not None}
    pattern, test = (_text(f"{prefix}{WRITTEN_KINDS[layer]}.py.j2", given) for prefix in ("", "test_"))
    golden = _golden(name, pattern, test)
    for path, text in zip(places, (pattern, test, golden), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    return places


def load_pattern_file(path: Path | str) -> None:
    """Register the patterns of a Python file. `InvalidInput` for one that cannot be loaded."""
    path = Path(path)
    load_patterns()  # before: a name that is taken is then the file's mistake
    try:
        _loaded(path.stem, path.parent)
    except ByocHwError:
        raise
    except Exception as error:
        said = str(error) if isinstance(error, OSError | SyntaxError) else f"{type(error).__name__}: {error}"
        raise InvalidInput(f"{path} is a file of Python that registers a pattern: {said}") from error


def _check_name(name: str) -> None:
    if not name.isidentifier() or name.startswith("_"):
        raise InvalidInput(f"a pattern's name is an identifier: got {name!r}")
    load_patterns()
    if name in (pattern.name for pattern in patterns()):
        raise InvalidInput(f"a new pattern has a name of its own: {name!r} is registered")


def _places(name: str, output_dir: Path | None) -> tuple[Path, Path, Path]:
    """The files of the pattern, of its test, and of its C."""
    if output_dir is not None:
        if importlib.util.find_spec(name) is not None:
            raise InvalidInput(f"a new pattern has a name of its own: Python has a module {name!r}")
        return output_dir / f"{name}.py", output_dir / f"test_{name}.py", output_dir / "golden" / f"{name}.c"
    folder = Path(importlib.import_module("byoc_hw.patterns").__path__[0]).resolve()
    tests = folder.parent / "tests" / "patterns"
    if not tests.is_dir():
        raise InvalidInput(
            f"--output-dir says where a pattern goes that is not in a clone of byoc_hw: {folder} is none"
        )
    return folder / f"{name}.py", tests / f"test_{name}.py", tests / "golden" / f"{name}.c"


def _text(template: str, given: dict[str, object]) -> str:
    """A file of Python: as the template has it, without the blank lines around parts that are left out."""
    text = _TEMPLATES.get_template(template).render(given)
    return re.sub(r"\n{4,}", "\n\n\n", text).rstrip("\n") + "\n"


def _golden(name: str, pattern: str, test: str) -> str:
    """The C of the test's operator, with the pattern registered for as long."""
    if importlib.util.find_spec("pytest") is None:
        raise ToolchainMissing("the test of a pattern needs pytest: pip install pytest")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{name}.py").write_text(pattern, encoding="utf-8")
        Path(folder, f"test_{name}.py").write_text(test, encoding="utf-8")
        with _registered(name, Path(folder)):
            operator = _loaded(f"test_{name}", Path(folder)).operator()
            partitioned = partition_for_hwlib(operator_module(operator), mod_name=name)
            return golden_text(build(partitioned), REFERENCE)


@contextmanager
def _registered(name: str, folder: Path) -> Iterator[None]:
    """The pattern of a file, for a while."""
    sys.modules[name] = _loaded(name, folder)
    try:
        ordered_forms()
        yield
    except PatternError as error:
        raise InvalidInput(f"a new pattern starts from operators that no other one matches: {error}") from error
    finally:
        del sys.modules[name]
        unregister_pattern(name)


def _loaded(name: str, folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None, "a file that ends in .py"
    assert spec.loader is not None, "a file that ends in .py"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
