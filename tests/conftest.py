"""What all tests share: hypothesis profiles, cached compilers, and the models that are given from outside."""

import functools
import gc
import os
import shutil
import tempfile
from pathlib import Path

import compile_cache
import pytest
from front_ends import knows_tvm, left_out, needs_relay, needs_the_other
from hypothesis import settings

from byoc_hw.frontend.installed import HAS_RELAY

pytest.register_assert_rewrite("pattern_checks")  # a shared module's assertions say as much as a test's own

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=2000)  # pytest --hypothesis-profile=thorough
settings.load_profile("ci" if os.environ.get("CI") else "default")

if HAS_RELAY:
    from tvm.relay.backend import te_compiler

    # TVM asks for its own build's settings with each operator that it compiles: the same answer each time.
    te_compiler.libinfo = functools.cache(te_compiler.libinfo)

os.environ["WERROR"] = "1"  # every project that a test builds is free of warnings

ROOT = Path(__file__).resolve().parents[1]
MODELS = Path(os.environ.get("BYOC_HW_MODELS", ROOT.parent / "shared" / "models"))


def pytest_configure(config):
    """The processes of `pytest -n` have the environment of the first one."""
    if hasattr(config, "workerinput"):
        return
    kept = os.environ.get("BYOC_HW_COMPILED")  # a directory for the objects of several sessions
    directory = Path(kept or tempfile.mkdtemp(prefix="byoc_hw_compilers_"))
    if not kept:
        config.add_cleanup(lambda: shutil.rmtree(directory))
    compile_cache.install(directory)


def pytest_collection_finish():
    """The garbage collector leaves alone what is there before the first test, and runs seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def pytest_addoption(parser):
    parser.addoption("--knows-tvm", action="store_true", help="no quick tests that are the same with another TVM")
    parser.addoption("--needs-relay", action="store_true", help="only what Relax cannot run, and what is for both")


def pytest_ignore_collect(collection_path):
    """Files that need Relay where TVM has Relax alone, or the other way round."""
    return (collection_path.suffix == ".py" and needs_the_other(collection_path)) or None


def pytest_collection_modifyitems(config, items):
    """Tests that need Relay, in files that do not; and those that an option leaves to another run."""
    if not HAS_RELAY:
        for item in items:
            if item.get_closest_marker("needs_relay"):
                item.add_marker(pytest.mark.skip(reason="needs Relay: this TVM has Relax alone"))
    kept = items[:]
    if config.getoption("needs_relay"):
        kept = [item for item in kept if item.get_closest_marker("needs_relay") or needs_relay(item.path)]
    if config.getoption("knows_tvm"):
        kept = [item for item in kept if item.get_closest_marker("slow") or knows_tvm(item.path)]
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def pytest_report_header():
    files = left_out()
    return f"{'Relay' if HAS_RELAY else 'Relax'} is installed: {len(files)} test files that need the other are left out"


@pytest.fixture
def mlperf_model(request):
    """Path of an MLPerf Tiny model, by indirect parametrization."""
    path = MODELS / f"{request.param}.tflite"
    if not path.exists():
        pytest.skip(f"{path.name} is not in {MODELS}: put the MLPerf Tiny models there or set BYOC_HW_MODELS")
    return path
