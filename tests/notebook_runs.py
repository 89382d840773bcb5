"""Runs the notebooks: those that are about hardware are the same whatever front end there is."""

import importlib.util
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
FILES = sorted(NOTEBOOKS.glob("*.ipynb"))
HARDWARE = ("02_schedule", "03_several_accelerators", "05_mesh", "08_bring_up_a_hal", "09_explore_hardware")


def assert_runs(path):
    pytest.importorskip("nbformat", reason="pip install byoc-hw[notebooks]")
    spec = importlib.util.spec_from_file_location("execute", NOTEBOOKS / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    done = module.execute(path)
    assert all(cell.execution_count for cell in done.cells if cell.cell_type == "code")
