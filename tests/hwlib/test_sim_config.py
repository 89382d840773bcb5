"""The generated configuration says what the accelerator says, or refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from byoc_hw.accelerator import REFERENCE, SMALL, Library, Limits
from byoc_hw.errors import InvalidInput
from byoc_hw.hwlib.sim_config import sim_config


def test_writes_the_numbers_of_the_accelerator():
    text = sim_config(SMALL)
    assert "#define HWLIB_SIM_ACTIVATION_MEMORY 32768u\n" in text
    assert "#define HWLIB_SIM_DMA_WIDTH 4u\n" in text
    assert "#define HWLIB_SIM_CONV2D_STRIDES (1u << 1 | 1u << 2)\n" in text


def test_a_limit_that_does_not_apply_allows_all_that_a_descriptor_can_say():
    text = sim_config(replace(REFERENCE, limits={"pool2d": Limits()}))
    assert "#define HWLIB_SIM_POOL2D_KERNEL_H 255u\n" in text
    assert "1u << 31)" in text


def test_a_kind_that_is_missing_takes_nothing():
    text = sim_config(replace(REFERENCE, limits={}))
    assert "#define HWLIB_SIM_KINDS (0u)\n" in text
    assert "#define HWLIB_SIM_CONV2D_KERNEL_H 0u\n" in text


def test_a_rounding_that_is_missing_is_not_in_the_mask():
    assert "#define HWLIB_SIM_ROUNDINGS (1u << HWLIB_ROUND_UPWARD | 1u << HWLIB_ROUND_TFLITE)\n" in sim_config(
        REFERENCE
    )
    upward = sim_config(replace(REFERENCE, roundings=("upward",)))
    assert "#define HWLIB_SIM_ROUNDINGS (1u << HWLIB_ROUND_UPWARD)\n" in upward


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"roundings": ("stochastic",)}, "the simulator's rounding is one of upward, tflite: got stochastic"),
        ({"limits": {"conv2d": Limits(strides=(64,))}}, "the simulator's stride is one of 1, .*: got 64"),
        ({"limits": {"dense": Limits(weight_bits=(16,))}}, "the simulator's weight width is one of 8, 4, 2: got 16"),
        ({"limits": {}, "library": Library(Path("v.h"), (), {})}, "the simulator has no whole-layer calls"),
    ],
)
def test_refuses_accelerator_that_the_simulator_cannot_be(change, message: str):
    with pytest.raises(InvalidInput, match=message):
        sim_config(replace(REFERENCE, **change))
