"""A script under `mpi4py.futures` on two ranks, the second of which works."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest


def run_with_mpi(script, directory):
    """What the text of a script prints in this directory; the test is skipped where there is no MPI."""
    pytest.importorskip("mpi4py", reason="pip install mpi4py, and an MPI")
    mpiexec = which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if mpiexec is None:
        pytest.skip("mpiexec is not installed: pip install mpich, or install the package openmpi-bin")
    (directory / "on_ranks.py").write_text(script)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [mpiexec, "-n", "2", sys.executable, "-W", "ignore", "-m", "mpi4py.futures", "on_ranks.py"]
    done = subprocess.run(command, env=os.environ | root, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
