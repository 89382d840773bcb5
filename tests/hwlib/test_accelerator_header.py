"""The generated headers say what the accelerator says, or it is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hwlib_simulator import CONV2D, MUL, run_gcc

from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.errors import InvalidInput
from byoc_hw.hwlib.accelerator_header import accelerator_header
from byoc_hw.hwlib.sim_config import sim_config
from byoc_hw.library_calls import Library
from byoc_hw.limits import Limits


def test_writes_the_numbers_of_the_accelerator():
    text = accelerator_header(SMALL)
    assert "#define HWLIB_ACCELERATOR_ACTIVATION_MEMORY 32768u\n" in text
    assert "stride: 1, 2 */\n#define HWLIB_ACCELERATOR_CONV2D_STRIDES 0x6u\n" in text
    assert "dilation: 1 */\n#define HWLIB_ACCELERATOR_CONV2D_DILATIONS 0x2u\n" in text
    assert "#define HWLIB_ACCELERATOR_DENSE_PIXELS 4294967295u\n" in text
    assert "#define HWLIB_SIM_DMA_WIDTH 4u\n" in sim_config(SMALL)


def test_no_number_is_in_two_headers():
    headers = accelerator_header(REFERENCE), sim_config(REFERENCE)
    names = [re.findall(r"#define HWLIB_(?:ACCELERATOR|SIM)_(\w+) \d", text) for text in headers]
    assert all(names)
    assert not {*names[0]} & {*names[1]}


def test_a_limit_that_does_not_apply_allows_all_that_a_descriptor_can_say():
    text = accelerator_header(replace(REFERENCE, limits={"pool2d": Limits()}))
    assert "#define HWLIB_ACCELERATOR_POOL2D_KERNEL_H 255u\n" in text
    assert "#define HWLIB_ACCELERATOR_POOL2D_STRIDES 0xfffffffeu\n" in text


def test_the_second_input_is_broadcast_where_the_limits_say_so():
    assert "#define HWLIB_ACCELERATOR_ADD_BROADCAST 1u\n" in accelerator_header(REFERENCE)
    assert "#define HWLIB_ACCELERATOR_MUL_BROADCAST 1u\n" in accelerator_header(SMALL)
    text = accelerator_header(replace(REFERENCE, limits={"add": Limits()}))
    assert "#define HWLIB_ACCELERATOR_ADD_BROADCAST 0u\n" in text
    assert "#define HWLIB_ACCELERATOR_MUL_BROADCAST 0u\n" in text


def test_a_kind_that_is_missing_takes_nothing():
    text = accelerator_header(replace(REFERENCE, limits={}))
    assert ": none */\n#define HWLIB_ACCELERATOR_KINDS 0x0u\n" in text
    assert "#define HWLIB_ACCELERATOR_CONV2D_KERNEL_H 0u\n" in text


def test_a_rounding_that_is_missing_is_not_in_the_mask():
    assert "upward, tflite */\n#define HWLIB_ACCELERATOR_ROUNDINGS 0x3u\n" in accelerator_header(REFERENCE)
    upward = accelerator_header(replace(REFERENCE, roundings=("upward",)))
    assert ": upward */\n#define HWLIB_ACCELERATOR_ROUNDINGS 0x1u\n" in upward


def test_kinds_are_those_of_the_hal_header():
    text = accelerator_header(replace(REFERENCE, limits={"mul": Limits(), "conv2d": Limits()}))
    assert f"#define HWLIB_ACCELERATOR_KINDS 0x{1 << MUL | 1 << CONV2D:x}u\n" in text


@pytest.mark.parametrize(
    "change", [{"limits": {**REFERENCE.limits, "mul": Limits()}}, {"roundings": ("tflite",)}, {"queue": 3}]
)
def test_every_value_is_one_for_the_preprocessor(change, tmp_path):
    """Enumerators are 0 in #if: an unknown name is an error here."""
    text = accelerator_header(replace(REFERENCE, **change))
    names = re.findall(r"#define (HWLIB_ACCELERATOR_\w+) ", text)
    checks = "".join(f"#if {name} == 0 || {name} != 0\n#else\n#error {name}\n#endif\n" for name in names)
    (tmp_path / "check.c").write_text(f"{text}{checks}typedef int checked;\n")
    run_gcc("-std=c11", "-Wundef", "-Werror", "-fsyntax-only", tmp_path / "check.c")


def test_refuses_accelerator_that_no_hal_is_for():
    library = replace(REFERENCE, limits={}, library=Library(Path("v.h"), (), {}))
    for header in (accelerator_header, sim_config):
        with pytest.raises(InvalidInput, match="a HAL has no whole-layer calls"):
            header(library)
