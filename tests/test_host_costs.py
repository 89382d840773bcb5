"""What the table says of layers on the host and of the core that drives regions, against counts under QEMU."""

from dataclasses import replace
from random import Random

import pytest
from host_samples import CHIP, NUMERICS, SAMPLES, chain, counts, layers_of, regions
from riscv32_tools import needs_riscv32

import byoc_hw
from byoc_hw.accelerator import HalInstructions
from byoc_hw.graph import LAYER_KINDS, Reshape
from byoc_hw.host_cost_table import INSTRUCTIONS
from byoc_hw.host_costs import host_function, host_instructions
from byoc_hw.plan.core import core_instructions, region_cycles

FACTOR = 3.5
"""Between what is predicted of a layer and what is counted: the largest that the benchmark prints is below."""


def test_every_kind_has_a_row_in_both_numerics():
    assert {name for name in SAMPLES if name in LAYER_KINDS} == LAYER_KINDS.keys() - {"pool2d", Reshape.kind}
    rows = {
        host_function(layers_of(name, Random(3), 1, numerics)[0][1])
        for name in ("conv2d", "grouped_conv2d", "max_pool2d", "avg_pool2d", "softmax", "concat")
        for numerics in ("relay", "tflite")
    }
    assert rows <= INSTRUCTIONS.keys()
    assert {"grouped_conv2d", "tflite_grouped_conv2d", "softmax", "tflite_softmax", "max_pool2d"} <= rows


@needs_riscv32
@pytest.mark.slow
@pytest.mark.parametrize("numerics", ["relay", "tflite"])
def test_instructions_of_random_layers_are_as_predicted(numerics):
    """Of other layers than the table is fitted to."""
    rng = Random(f"test {numerics}")
    drawn = [one for name in SAMPLES if numerics in NUMERICS[name] for one in layers_of(name, rng, 1, numerics)]
    executed = counts([sample for sample, _ in drawn], numerics)
    for (sample, layer), count in zip(drawn, executed, strict=True):
        assert count / FACTOR <= host_instructions(layer) <= count * FACTOR, f"{sample}: {count}"
    total = sum(host_instructions(layer) for _, layer in drawn)
    assert sum(executed) / 1.5 <= total <= sum(executed) * 1.5


@needs_riscv32
@pytest.mark.slow
@pytest.mark.parametrize(
    "chip", [byoc_hw.REFERENCE, CHIP, replace(CHIP, events=4)], ids=["accelerator", "chip", "chip with events"]
)
def test_the_time_of_random_regions_is_as_predicted(chip):
    rng = Random("test regions")
    for plan, core, time in regions([chain(rng) for _ in range(3)], chip):
        assert core / 1.6 <= core_instructions(plan, chip) <= core * 1.6
        assert time / 1.6 <= region_cycles(plan, chip) <= time * 1.6


@needs_riscv32
@pytest.mark.slow
def test_the_core_s_instructions_in_a_hal_are_counted_as_planned():
    dear = replace(byoc_hw.REFERENCE, hal_instructions=HalInstructions(copy=100, rows=30, job=50, wait=20))
    rng = Random("hal")
    samples = [chain(rng) for _ in range(3)]
    for free, paid in zip(regions(samples, byoc_hw.REFERENCE), regions(samples, dear), strict=True):
        (plan, core, time), (_, more, later) = free, paid
        added = core_instructions(plan, dear) - core_instructions(plan, byoc_hw.REFERENCE)
        assert more - core == added > 100
        assert time < later <= time + added
        assert region_cycles(plan, dear) > region_cycles(plan, byoc_hw.REFERENCE)
