"""What offloading gains: one inference on a bare-metal RISC-V core, alone and with the accelerator.

Instructions are counted by QEMU, exactly; accelerator cycles are the simulator's; end to end the host
takes a cycle an instruction and both overlap as they would. The numbers are the same on any machine.
The model's arithmetic is the same on both: their outputs are compared.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

import byoc_hw
from byoc_hw.demo import model_path
from byoc_hw.run.result import HostInstructions, Result

ROOT = Path(__file__).resolve().parents[1]
MODELS = Path(os.environ.get("BYOC_HW_MODELS", ROOT.parent / "shared" / "models"))
COLUMNS = ("CPU only", "offloaded", "regions", "operators", "main", "accelerator", "end to end", "ratio")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="the digits model, and those in $BYOC_HW_MODELS")
    parser.add_argument("--layers", action="store_true", help="also each layer's share")
    options = parser.parse_args()
    paths = options.models or [model_path(), *sorted(MODELS.glob("*.tflite"))]
    print("instructions of the core, cycles of the accelerator, cycles end to end; ratio: CPU only / end to end")
    print(f"{'model':<24}" + "".join(f"{column:>13}" for column in COLUMNS))
    for path in paths:
        alone, offloaded = runs(path)
        print(f"{path.stem:<24}" + "".join(f"{value:>13}" for value in row(alone, offloaded)), flush=True)
        if options.layers:
            print_layers(offloaded)


def runs(path: Path) -> tuple[Result, Result]:
    """One inference on the core alone, one with the accelerator."""
    mod, params = byoc_hw.load_tflite(path)
    projects = (byoc_hw.build(mod, params), byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params)))
    rng = np.random.default_rng(0)
    shapes = [tuple(int(extent) for extent in parameter.type_annotation.shape) for parameter in mod["main"].params]
    inputs = [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes[:1]]
    alone, offloaded = (project.run(inputs, on="riscv32") for project in projects)
    for one, other in zip(alone.outputs, offloaded.outputs, strict=True):
        np.testing.assert_array_equal(one, other)
    return alone, offloaded


def row(alone: Result, offloaded: Result) -> list[object]:
    core, host = instructions(alone), instructions(offloaded)
    assert offloaded.cycles is not None
    assert offloaded.end_to_end is not None
    end_to_end = offloaded.end_to_end.total
    split = [host.total, host.regions, host.host_operators, host.main]
    return [core.total, *split, offloaded.cycles.total, end_to_end, f"{core.total / end_to_end:.1f}"]


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
