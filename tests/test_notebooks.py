"""Every other notebook runs, warnings as errors, and all are stored without outputs."""

import pytest
from notebook_runs import FILES, HARDWARE, assert_runs

nbformat = pytest.importorskip("nbformat", reason="pip install byoc-hw[notebooks]")

OF_RELAY = ("04_fewer_bits", "07_write_a_pattern")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the Jupyter packages
@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.needs_relay] if path.stem in OF_RELAY else [])
        for path in FILES
        if path.stem not in HARDWARE
    ],
)
def test_notebook_runs(path):
    assert_runs(path)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_notebook_is_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
