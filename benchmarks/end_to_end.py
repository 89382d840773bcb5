"""The speedup of offloading: one inference on a bare-metal RISC-V core, alone and with the accelerator.

QEMU counts the instructions exactly; accelerator cycles are the simulator's. End to end counts one host
cycle per instruction, in parallel with the accelerator. The numbers do not depend on the machine. The
outputs of all runs are compared. The core alone runs TVM's C, built with -O2 as a project is, and with -O3 and
unrolled loops.

With `--ahead`, one operator in the middle of each model stays on the host, so that regions come before and behind it.
They are measured each beginning with nothing in local memory, and with constants that the region in front copies ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from unittest.mock import patch

import numpy as np
import tvm
from tables import models, options, show

import byoc_hw
from byoc_hw import compiler
from byoc_hw.accelerator import DIANA_DIGITAL, REFERENCE, REGISTERS, SMALL
from byoc_hw.run.result import HostInstructions, Result
from byoc_hw.run.toolchain import DEFAULT_CFLAGS, Toolchain

COLUMNS = (
    "model",
    "built for",
    "CPU -O2",
    "CPU -O3",
    "offloaded",
    "regions",
    "operators",
    "main",
    "accelerator",
    "end to end",
    "ratio to -O2",
    "ratio to -O3",
)
"""Instructions of the core alone; with the accelerator, in total and by part; cycles of the accelerator and of both."""

PRESETS = (
    REFERENCE,
    replace(REFERENCE, label="REFERENCE, registers", hal_instructions=REGISTERS),
    DIANA_DIGITAL,
)
"""With "registers" the core also executes the HAL over memory-mapped registers, `hwlib/regs`; else none."""

TVM_ALONE = {
    "ad01_int8": 2.5e6,
    "kws_ref_model": 25.0e6,
    "pretrainedResnet_quant": 99.2e6,
    "vww_96_int8": 72.1e6,
}
"""Instructions of TVM's own C for the same core at -O2, without this project's flags. Measured values."""

CMSIS_NN = {"pretrainedResnet_quant": 53.8e6}
"""Instructions of CMSIS-NN's C kernels, compiled for the same core. A published count."""

MEMORIES = (REFERENCE, SMALL, replace(SMALL, label="SMALL, 1 byte a cycle", dma_width=1))

AHEAD = ("model", "built for", "regions", "accelerator", "end to end", "ahead: accelerator", "ahead: end to end")
"""Cycles of regions that begin with nothing, and with constants that are copied ahead."""

FASTER = Toolchain(cflags=f"{DEFAULT_CFLAGS} -O3 -funroll-loops")

GOALS = {
    ("REFERENCE", "pretrainedResnet_quant"): 600,
    ("REFERENCE", None): 230,
    ("DIANA_DIGITAL", None): 140,
}
"""Required speedup over `TVM_ALONE`, for one model or as the geometric mean of the four."""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--layers", action="store_true", help="also each layer's share")
    parser.add_argument("--ahead", action="store_true", help="the table of constants that are copied ahead, alone")
    given = parser.parse_args()
    if given.ahead:
        rows_ahead = (ahead(path, one) for path in models(given.models) for one in MEMORIES)
        show("end_to_end", AHEAD, rows_ahead, into_document=given.update, flag="--ahead")
        return

    found: dict[str, dict[str, int]] = {preset.label: {} for preset in PRESETS}

    def rows() -> Iterator[list[object]]:
        for path in models(given.models):
            mod, params = byoc_hw.load_tflite(path)
            project = byoc_hw.build(mod, params)
            alone, faster = run(mod, project), run(mod, project, FASTER)
            for preset in PRESETS:
                offloaded = run(mod, byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, accelerator=preset)))
                for one, *others in zip(alone.outputs, faster.outputs, offloaded.outputs, strict=True):
                    for other in others:
                        np.testing.assert_array_equal(one, other)
                assert offloaded.end_to_end is not None
                found[preset.label][path.stem] = offloaded.end_to_end.total
                yield [path.stem, preset.label, *row(alone, faster, offloaded)]
                if given.layers:
                    print_layers(offloaded)

    show("end_to_end", COLUMNS, rows(), into_document=given.update)
    for label, cycles in found.items():
        print_goals(label, cycles)


def ahead(path: Path, accelerator: byoc_hw.Accelerator) -> list[object]:
    """A row of the table with `--ahead`."""
    mod, params = byoc_hw.load_tflite(path)
    names = [one.name for one in byoc_hw.explain(partitioned(mod, params, accelerator)).offloaded if one.macs]
    divided = partitioned(mod, params, accelerator, deny=[names[len(names) // 2]])
    with_copies = byoc_hw.build(divided)
    with patch.object(compiler, "with_copies_ahead", lambda program, regions, accelerator: regions):
        without = byoc_hw.build(divided)
    first, second = run(mod, without), run(mod, with_copies)
    for one, other in zip(first.outputs, second.outputs, strict=True):
        np.testing.assert_array_equal(one, other)
    cells: list[object] = [path.stem, accelerator.label, len(with_copies.schedule.regions)]
    for project, result in ((without, first), (with_copies, second)):
        assert result.cycles is not None
        assert result.end_to_end is not None
        assert result.cycles.total == project.schedule.cycles
        cells += [result.cycles.total, result.end_to_end.total]
    return cells


def partitioned(mod: tvm.IRModule, params: object, accelerator: byoc_hw.Accelerator, **options: object) -> tvm.IRModule:
    return byoc_hw.partition_for_hwlib(mod, params, accelerator=accelerator, **options)


def print_goals(label: str, cycles: Mapping[str, int]) -> None:
    """Print the speedup of each model over TVM's own C, and the geometric mean."""
    ratios = {name: TVM_ALONE[name] / cycles[name] for name in TVM_ALONE if name in cycles}
    if len(ratios) < len(TVM_ALONE):
        return
    print(f"{label}, times faster than TVM's own C:")
    for name, ratio in [*ratios.items(), (None, geometric_mean(ratios.values()))]:
        goal = GOALS.get((label, name))
        met = "" if goal is None else f"   goal {goal}: {'met' if ratio >= goal else 'not met'}"
        print(f"  {name or 'geometric mean':<24}{ratio:8.1f}{met}")
    for name, count in CMSIS_NN.items():
        print(f"{label}, times faster than CMSIS-NN: {name} {count / cycles[name]:.1f}")


def run(mod: tvm.IRModule, project: byoc_hw.Project, toolchain: Toolchain = Toolchain()) -> Result:
    """One inference of a random input on the core."""
    rng = np.random.default_rng(0)
    shapes = [tuple(int(extent) for extent in parameter.type_annotation.shape) for parameter in mod["main"].params]
    inputs = [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes[:1]]
    return project.run(inputs, on="riscv32", toolchain=toolchain)


def row(alone: Result, faster: Result, offloaded: Result) -> list[object]:
    cores, host = [instructions(one).total for one in (alone, faster)], instructions(offloaded)
    assert offloaded.cycles is not None
    assert offloaded.end_to_end is not None
    end_to_end = offloaded.end_to_end.total
    split = [host.total, host.regions, host.host_operators, host.main]
    ratios = [f"{core / end_to_end:.1f}" for core in cores]
    return [*cores, *split, offloaded.cycles.total, end_to_end, *ratios]


def instructions(result: Result) -> HostInstructions:
    assert result.host_instructions is not None
    return result.host_instructions


def print_layers(result: Result) -> None:
    assert result.cycles is not None
    assert result.end_to_end is not None
    shares = zip(result.cycles.by_layer, instructions(result).by_layer, result.end_to_end.by_layer, strict=True)
    print(f"    {'layer':<40}{'instructions':>13}{'accelerator':>13}{'end to end':>13}")
    for layer, executed, time in shares:
        name = layer.name.split(";")[0][-36:]
        print(f"    {name:<40}{executed.count:>13}{layer.cycles:>13}{time.count:>13}")


if __name__ == "__main__":
    main()
