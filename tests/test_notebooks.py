"""Every notebook runs, warnings as errors, and is stored without outputs."""

import importlib.util
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="pip install byoc-hw[notebooks]")

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
FILES = sorted(NOTEBOOKS.glob("*.ipynb"))
OF_RELAY = ("04_fewer_bits", "07_write_a_pattern")


def load_execute():
    spec = importlib.util.spec_from_file_location("execute", NOTEBOOKS / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.execute


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the Jupyter packages
@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.needs_relay] if path.stem in OF_RELAY else [])
        for path in FILES
    ],
)
def test_notebook_runs(path):
    done = load_execute()(path)
    assert all(cell.execution_count for cell in done.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_notebook_is_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
