"""What needs no TVM, and what says so where it is missing."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_samples import MODEL

import byoc_hw


def test_projects_run_on_a_machine_without_tvm(built):
    script = f"""
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "tvm" else find_spec(name, package)
sys.modules["tvm"] = None  # importing it fails as if it were not there
import byoc_hw, numpy
assert set(byoc_hw.__all__) <= set(dir(byoc_hw))
byoc_hw.Project({str(built)!r}).run(numpy.zeros((1, 8, 8, 1), "int8"))
try:
    byoc_hw.build(None)
except byoc_hw.Unsupported as error:
    assert str(error).startswith("this needs TVM: pip install 'byoc-hw[relay]'")
else:
    raise AssertionError("build needs TVM")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.needs_relay
@pytest.mark.parametrize(
    "first",
    [
        "byoc_hw",
        "tvm",
        pytest.param("byoc_hw.frontend.relay.read", marks=pytest.mark.slow),
        pytest.param("byoc_hw.patterns.qnn_conv2d", marks=pytest.mark.slow),
    ],
)
def test_importing_the_package_registers_with_tvm(first):
    script = f"""
import importlib.util
import {first}
import byoc_hw
assert importlib.util.find_spec("tvm")  # who only looks for it
from tvm.relay.op.contrib.register import get_pattern_table
assert [name for name, _, _ in get_pattern_table("hwlib")]
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_what_needs_no_tvm_does_not_import_it(built):
    script = f"""
import sys
from byoc_hw.__main__ import main
assert main(["run", {str(built)!r}, "--random", "0"]) == 0
assert main(["accelerator"]) == 0
assert "tvm" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_no_module_has_the_name_of_a_public_function():
    package = Path(byoc_hw.__file__).parent
    modules = {path.stem for path in package.iterdir()}
    assert not modules & set(byoc_hw.__all__)


def test_build_without_tvm_says_what_is_missing(ended, monkeypatch, tmp_path):
    def missing(path, **options):
        raise ModuleNotFoundError("No module named 'tvm'", name="tvm")

    monkeypatch.setattr(byoc_hw, "load", missing)
    code, error = ended("build", MODEL, "--output-dir", tmp_path / "p")
    assert code == 3
    assert "tvm" in error
    assert "pip install" in error
