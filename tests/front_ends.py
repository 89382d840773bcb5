"""Which test files need the TVM that is not there: those that import it, or a module of the tests that does."""

import ast
import functools
from pathlib import Path

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY

TESTS = Path(__file__).parent
_MISSING = (
    *(() if HAS_RELAY else ("tvm.relay", "byoc_hw.frontend.relay", "tflite_runtime")),
    *(() if HAS_RELAX else ("tvm.relax", "byoc_hw.frontend.relax")),
)


@functools.cache
def _modules():
    return {path.stem: path for path in TESTS.rglob("*.py")}


@functools.cache
def needs_the_other(path):
    """Whether a file cannot be imported with the TVM that is installed."""
    for name in _imports(path):
        if any(name == missing or name.startswith(f"{missing}.") for missing in _MISSING):
            return True
        helper = _modules().get(name.split(".")[0])
        if helper is not None and helper != path and needs_the_other(helper):
            return True
    return False


def _imports(path):
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def left_out():
    """The test files that need the other TVM."""
    return [path for path in sorted(TESTS.rglob("test_*.py")) if needs_the_other(path)]
