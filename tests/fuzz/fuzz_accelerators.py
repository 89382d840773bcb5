"""Random networks on random accelerators: every output to the bit, in the cycles that were planned, or no plan."""

from __future__ import annotations

import numpy as np
from bit_exact import input_arrays
from fuzz_case import QUICK, Case, Finding
from fuzz_networks import accelerator, networks

import byoc_hw


def run(case: Case) -> None:
    hardware = accelerator(case.rng)
    made = networks(case.rng, 3, ["NHWC", "NCHW"] if hardware.dma_alignment == 1 else ["NHWC"])
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(made.mod, accelerator=hardware), io_in_arena=case.chance(0.2))
    inputs = list(input_arrays(made.mod, 1, seed=case.seed))
    for arrays, result in zip(inputs, project.run_batch(inputs, toolchain=QUICK), strict=True):
        if (result.cycles.total if result.cycles else 0) != project.schedule.cycles:
            raise Finding("wrong cycles", "the simulator's are not the plan's", f"{hardware!r}\n{made.mod}")
        for number, (found, wanted) in enumerate(zip(result.outputs, made.expected(arrays), strict=True)):
            if not np.array_equal(found, wanted):
                raise Finding("wrong bits", "a network", f"output {number}\n{hardware!r}\n{made.mod}")
    case.tally["exact"] += 1
