"""Which test files need one TVM or the other, and which know no TVM: by their imports, and those of the modules of the
tests among them."""

import ast
import functools
import re
from pathlib import Path

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY

TESTS = Path(__file__).parent
BENCHMARKS = TESTS.parent / "benchmarks"
_OF_RELAY = ("tvm.relay", "byoc_hw.frontend.relay", "tflite_runtime")
_OF_RELAX = ("tvm.relax", "byoc_hw.frontend.relax")
_MISSING = (*(() if HAS_RELAY else _OF_RELAY), *(() if HAS_RELAX else _OF_RELAX))
_KNOWING = (
    *("patterns", "tvm", "tflite"),
    *(f"byoc_hw.{name}" for name in ("__main__", "authoring", "commands", "compiler", "demo", "frontend")),
    *(f"byoc_hw.{name}" for name in ("exploration", "mesh_builder", "mesh_pipeline", "operator_check")),
    *(f"byoc_hw.{name}" for name in ("quantizer", "tuner", "validation")),
)
"""The front ends, and what calls them."""
_CALLING = ("test_fuzz", "test_notebooks")
"""Files that import what knows TVM where they need it, or in other processes."""
_OF_BOTH = ("test_same_graphs", "test_tflite_host")
"""Files with results that either TVM has to give."""


@functools.cache
def _modules():
    return {path.stem: path for folder in (BENCHMARKS, TESTS) for path in folder.rglob("*.py")}


def needs_the_other(path):
    """Whether a file cannot be imported with the TVM that is installed."""
    return _needs(path, _MISSING)


def needs_relay(path):
    """Whether a file is for Relay, or for both of them."""
    return path.stem in _OF_BOTH or _needs(path, _OF_RELAY)


@functools.cache
def _needs(path, packages):
    imports = any(_is_in(name, packages) for name in _imports(path))
    return imports or any(_needs(helper, packages) for helper in _helpers(path))


@functools.cache
def knows_tvm(path):
    """Whether a file may find something else with another TVM."""
    knowing = any(name == "byoc_hw" or _is_in(name, _KNOWING) for name in _imports(path))
    return knowing or path.stem in _CALLING or any(map(knows_tvm, _helpers(path)))


def _is_in(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _helpers(path):
    """The modules of the tests that a file imports."""
    names = {name.split(".")[0] for name in _imports(path)} - {path.stem}
    return [_modules()[name] for name in names & _modules().keys()]


def _imports(path):
    for node in _beginning(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _beginning(text):
    """A file up to its first function, which has all imports: to parse all of each takes five times as long."""
    try:
        return ast.parse(re.split(r"^(?:@|def |class )", text, maxsplit=1, flags=re.MULTILINE)[0])
    except SyntaxError:  # that was in the middle of a string
        return ast.parse(text)


def left_out():
    """The test files that need the other TVM."""
    return [path for path in sorted(TESTS.rglob("test_*.py")) if needs_the_other(path)]
