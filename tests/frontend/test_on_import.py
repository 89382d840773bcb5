"""Registering with TVM where nobody has imported it before."""

import subprocess
import sys

import pytest

from byoc_hw.demo import model_path


@pytest.mark.slow
def test_the_first_use_of_tvm_registers_once():
    """The front end imports TVM, which registers with it while it is made: there is one."""
    script = """
import sys
import byoc_hw
mod, params = byoc_hw.load_tflite(sys.argv[1])
print(len(byoc_hw.partition_for_hwlib(mod, params).functions) > 1)
"""
    done = subprocess.run([sys.executable, "-c", script, model_path()], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.needs_relay
def test_statistics_that_tvm_may_never_use_are_loaded_when_they_are():
    script = """
import sys
import byoc_hw.frontend.relay.front_end
print("scipy.stats._stats_py" in sys.modules)
import scipy.stats
print(float(scipy.stats.norm.cdf(0)), "scipy.stats._stats_py" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n0.5 True\n", done.stderr
