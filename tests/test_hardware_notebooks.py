"""Every notebook about hardware runs, warnings as errors."""

import pytest
from notebook_runs import HARDWARE, NOTEBOOKS, assert_runs


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the Jupyter packages
@pytest.mark.slow
@pytest.mark.parametrize("name", HARDWARE)
def test_notebook_runs(name):
    assert_runs(NOTEBOOKS / f"{name}.ipynb")
