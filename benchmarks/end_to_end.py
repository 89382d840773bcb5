"""What offloading gains: one inference on a bare-metal RISC-V core, alone and with the accelerator.

Instructions are counted by QEMU, exactly; accelerator cycles are the simulator's; end to end the host
takes a cycle an instruction and both overlap as they would. The numbers are the same on any machine.
The model's arithmetic is the same on both: their outputs are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tables import models, options, show

import byoc_hw
from byoc_hw.run.result import HostInstructions, Result

COLUMNS = ("model", "CPU only", "offloaded", "regions", "operators", "main", "accelerator", "end to end", "ratio")
"""Instructions of the core alone, and with the accelerator, by part; cycles of the accelerator and of both together."""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--layers", action="store_true", help="also each layer's share")
    given = parser.parse_args()

    def rows() -> Iterator[list[object]]:
        for path in models(given.models):
            alone, offloaded = runs(path)
            yield [path.stem, *row(alone, offloaded)]
            if given.layers:
                print_layers(offloaded)

    show("end_to_end", COLUMNS, rows(), into_readme=given.update)


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
