"""The digest of an accelerator, by which a partitioned module finds it again: what it tells apart, and what not."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from relay_samples import Conv

import byoc_hw
from byoc_hw.frontend.accelerators import digest_of

CHIP = byoc_hw.Soc((byoc_hw.DIANA_DIGITAL, byoc_hw.DSP))


def slower(chip):
    return replace(chip, accelerators=tuple(replace(one, dma_setup=1000) for one in chip.accelerators))


def scaled(layer, factor):
    return factor * layer.ifm.elements


def of_a_closure(factor):
    return lambda layer: factor * layer.ifm.elements


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, layer):
        return self.factor * layer.ifm.elements


CYCLES = {
    "a closure": of_a_closure,
    "a partial function": lambda factor: partial(scaled, factor=factor),
    "an object": Scaled,
    "a method": lambda factor: Scaled(factor).__call__,
    "a default": lambda factor: lambda layer, factor=factor: factor * layer.ifm.elements,
    "a constant": lambda factor: eval(f"lambda layer: {factor} * layer.ifm.elements"),
    "an array": lambda factor: partial(scaled, factor=np.arange(2000) * factor),
}


@pytest.mark.parametrize("make", CYCLES.values(), ids=CYCLES)
def test_functions_are_told_apart_by_what_they_are_bound_to(make):
    one, same, other = (
        digest_of(replace(byoc_hw.DSP, whole_cycles={**byoc_hw.DSP.whole_cycles, "order": make(factor)}))
        for factor in (2, 2, 3)
    )
    assert one == same != other


def test_a_function_may_be_bound_to_itself():
    def cycles(layer):
        return cycles(layer) if layer is None else 1

    assert digest_of(replace(byoc_hw.DSP, whole_cycles={**byoc_hw.DSP.whole_cycles, "order": cycles}))


def test_a_module_keeps_its_chip_when_another_one_of_the_same_names_comes():
    mod = Conv().module()
    first = byoc_hw.partition_for_hwlib(mod, accelerator=CHIP)
    second = byoc_hw.partition_for_hwlib(mod, accelerator=slower(CHIP))
    assert byoc_hw.build(first).schedule.cycles < 1000 < byoc_hw.build(second).schedule.cycles
