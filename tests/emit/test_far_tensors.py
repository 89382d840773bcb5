"""The core of a chip moves no byte: it starts copies between tensors that it cannot even read."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from chip_samples import CHIP, NPU, chip_plan, two_branches
from test_chip_projects import IMAGE, project_of

from byoc_hw.plan.region import plan_region

DRIVER = Path(__file__).with_name("far_memory.c")


@pytest.mark.slow
def test_the_core_touches_no_byte_of_what_accelerators_hand_over(tmp_path: Path):
    """Inputs, outputs and all that goes from one accelerator to the other lie where nothing is mapped for the core: a
    byte that it touched would end the program, as the second run shows."""
    alone = project_of(tmp_path / "alone", plan_region(two_branches(), NPU), NPU)
    expected = alone.run([IMAGE]).outputs[0]
    plan = chip_plan(two_branches())
    directory = project_of(tmp_path / "project", plan).directory
    subprocess.run(["make", "-s", "-C", directory], check=True)
    (source,) = (directory / "src").glob(f"*_{CHIP.name}.c")
    objects = [
        path
        for path in (directory / "build").rglob("*.o")
        if path.parent.name not in ("src", "app", "build")
        or path.name in ("hwlib_lanes.o", "npu_table.o", "dsp_table.o")
    ]
    sizes = {"IN_BYTES": IMAGE.nbytes, "OUT_BYTES": expected.nbytes, "SCRATCH_BYTES": plan.scratch_bytes}
    defines = [f"-D{name}={nbytes}" for name, nbytes in sizes.items()]
    hals = [f"-D{one.name}_hal=far_{one.name}_hal" for one in CHIP.accelerators]
    include = [f"-I{directory / folder}" for folder in ("include", "src", "hwlib/include")]
    region = tmp_path / "region.o"
    subprocess.run(["gcc", "-std=c11", "-c", *include, *hals, source, "-o", region], check=True)
    program = tmp_path / "far"
    command = ["gcc", "-std=c11", "-no-pie", *include, f"-DREGION={plan.graph.name}", *defines]
    subprocess.run([*command, DRIVER, region, *objects, "-lm", "-o", program], check=True)
    found = subprocess.run([program], input=IMAGE.tobytes(), capture_output=True, check=True).stdout
    np.testing.assert_array_equal(np.frombuffer(found, np.int8), expected.ravel())
    assert subprocess.run([program, "look"], check=False).returncode == -signal.SIGSEGV
    assert not re.search(r"\bmem(cpy|move|set)\b", source.read_text())
