"""The wheel holds everything that a user needs: it is built, installed elsewhere, and used from there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import byoc_hw

pytestmark = pytest.mark.needs_relay  # what builds wheels comes with it

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("byoc_hw", "patterns", "setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")

USE = """
import sys
from pathlib import Path

import byoc_hw
import byoc_hw.hwlib
from byoc_hw.demo import heldout, model_path
from byoc_hw.frontend.relay.reference import Reference

installed = Path(sys.argv[1])
for module in (byoc_hw, byoc_hw.hwlib):
    assert installed in Path(module.__file__).parents, module.__file__
names = {name for name, _, _ in byoc_hw.pattern_table("hwlib")}
assert {"hwlib.qnn_conv2d", "hwlib.qnn_add", "hwlib.reshape"} <= names, names
assert installed in Path(sys.modules["byoc_hw.patterns"].__file__).parents
headers = ("include/hwlib.h", "include/hwlib_hal.h", "src/hwlib_steps.h")
regs = ("regs/regs_hal.c", "regs/regs.h", "regs/model/regs_model.c", "regs/model/regs_model.h")
libraries = ("library/library_hal.c", "sim/library/library_sim.c")
for name in (*headers, "src/hwlib_copy.c", "sim/sim_job.c", "kit/kit_run.c", "template/chip_hal.c", *regs, *libraries):
    assert (Path(byoc_hw.hwlib.__file__).parent / name).exists(), name

mod, params = byoc_hw.load_tflite(model_path())
project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, mod_name="digits"), output_dir="digits")
image = heldout().images[:1]
assert project.run(image).outputs[0].tobytes() == Reference(mod, params).run([image])[0].tobytes()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of a copy of the tree: building leaves files in it."""
    tree, out = tmp_path_factory.mktemp("wheel") / "tree", tmp_path_factory.mktemp("dist")
    copied(tree)
    # The pinned setuptools and wheel are in the test requirements, so that this works offline.
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, tree, cwd=tree)
    (made,) = out.glob("*.whl")
    return made


def copied(tree):
    """A copy of what a wheel is made of."""
    tree.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)


def run(*command, cwd, **environment):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_compiles_and_runs_the_demo_from_a_wheel(wheel, tmp_path):
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", "--no-deps", "--no-index", "--target", installed, wheel, cwd=elsewhere)
    (elsewhere / "use.py").write_text(USE)
    # PYTHONPATH comes before site-packages, so before an editable install.
    run(sys.executable, "-W", "ignore", "use.py", installed, cwd=elsewhere, PYTHONPATH=str(installed))
    shown = run(
        sys.executable, "-m", "byoc_hw", "run", "digits", "--random", "0", cwd=elsewhere, PYTHONPATH=str(installed)
    )
    assert "int8[1, 10]" in shown
    console = run(installed / "bin" / "byoc-hw", "--version", cwd=elsewhere, PYTHONPATH=str(installed))
    assert console == f"byoc_hw {byoc_hw.__version__}\n"


def test_the_wheel_holds_no_tests_and_no_strays(wheel, tmp_path):
    shutil.unpack_archive(wheel, tmp_path, "zip")
    tops = {path.name for path in tmp_path.iterdir()}
    assert tops == {"byoc_hw", next(name for name in tops if name.endswith(".dist-info"))}
    packaged = {path.relative_to(tmp_path / "byoc_hw").as_posix() for path in tmp_path.glob("byoc_hw/**/*.*")}
    tree = {
        path.relative_to(ROOT / "byoc_hw").as_posix()
        for path in (ROOT / "byoc_hw").rglob("*.*")
        if not any(part.startswith((".", "__pycache__")) for part in path.parts[len(ROOT.parts) :])
    }
    tree |= {f"patterns/{path.name}" for path in (ROOT / "patterns").glob("*.py")}
    assert packaged == tree


# ---------------------------------------------------------------- another Python

OTHERS = ["python3.8", "python3.9", "python3.14", "/usr/bin/python3"]


def answer(interpreter):
    """What setup.py says to an interpreter that is another Python; None if it is not there, or is no other."""
    code = "import sys; print(not (3, 10) <= sys.version_info[:2] <= (3, 13))"
    try:
        asked = subprocess.run([interpreter, "-c", code], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if asked.stdout.strip() != "True":
        return None
    return subprocess.run([interpreter, ROOT / "setup.py", "--version"], capture_output=True, text=True)


def test_setup_says_what_to_do_on_another_python():
    """Pip shows this to who installs a clone or the sdist; a stand-in is asked where no other Python is installed."""
    pretend = "import runpy, sys; sys.version_info = (3, 14, 0); runpy.run_path('setup.py')"
    answers = [subprocess.run([sys.executable, "-c", pretend], cwd=ROOT, capture_output=True, text=True)]
    answers += filter(None, map(answer, OTHERS))
    for done in answers:
        assert done.returncode == 1
        assert "byoc_hw needs CPython 3.10 to 3.13: TVM's wheels are made for those" in done.stderr
        assert "This is Python 3." in done.stderr
        assert "uv venv --python 3.10 && uv pip install ." in done.stderr
        assert "Traceback" not in done.stderr


def test_the_sdist_says_it_too(tmp_path):
    tree = tmp_path / "tree"
    copied(tree)
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, tree, cwd=tree)
    (made,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(made, tmp_path)
    assert (made.with_name(made.name.removesuffix(".tar.gz")) / "setup.py").read_text() == (
        ROOT / "setup.py"
    ).read_text()
