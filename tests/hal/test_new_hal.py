"""The HAL that `new_hal` writes has the numbers of the chip, and refuses a model that was compiled for more."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hwlib_simulator import HWLIB, run_gcc

import byoc_hw
from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.demo import heldout, model_path
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.frontend.installed import HAS_RELAX
from byoc_hw.library_calls import Library
from byoc_hw.limits import Limits
from byoc_hw.run.hal_test import hal_test, write_kit
from byoc_hw.run.new_hal import new_hal

REFUSAL = "the model was compiled for more than this chip has: compare hwlib_accelerator.h with chip_numbers.h"


def test_has_the_numbers_of_the_chip(tmp_path):
    new_hal(tmp_path, SMALL)
    assert "#define CHIP_ACTIVATION_MEMORY 32768u\n" in (tmp_path / "chip_numbers.h").read_text()
    assert {"chip.h", "chip_hal.c"} <= {path.name for path in tmp_path.iterdir()}


def test_template_has_no_test_code(tmp_path):
    new_hal(tmp_path)
    assert not [path.name for path in tmp_path.iterdir() if re.search(r"\bFAULT|\bfault", path.read_text())]


@pytest.mark.slow
def test_a_model_for_a_larger_accelerator_does_not_compile(tmp_path):
    """Without this it would compile, and compute rubbish."""
    new_hal(tmp_path / "hal", SMALL)
    mod, params = byoc_hw.load_tflite(model_path())
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params), output_dir=tmp_path / "digits")
    with pytest.raises(RunError, match=REFUSAL):
        project.run(np.zeros((1, 8, 8, 1), np.int8), toolchain=byoc_hw.Toolchain(hal=tmp_path / "hal"))


@pytest.mark.slow
def test_digits_on_it_equal_the_simulators(tmp_path):
    new_hal(tmp_path / "hal")
    mod, params = byoc_hw.load_tflite(model_path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params, numerics="float" if HAS_RELAX else "relay")
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "digits")
    images = [image[np.newaxis] for image in heldout().images[:10]]
    toolchain = byoc_hw.Toolchain(hal=tmp_path / "hal")
    on_the_simulator, on_the_hal = project.run_batch(images), project.run_batch(images, toolchain=toolchain)
    for simulated, plain in zip(on_the_simulator, on_the_hal, strict=True):
        np.testing.assert_array_equal(plain.outputs[0], simulated.outputs[0])
        assert plain.cycles is None
    assert byoc_hw.validate(project, images[0], partitioned, toolchain=toolchain).ok


LARGER = {
    "activations": {"activation_memory": REFERENCE.activation_memory + 1},
    "weights": {"weight_memory": REFERENCE.weight_memory + 1},
    "kinds": {"limits": REFERENCE.limits},
    "roundings": {"roundings": ("tflite",)},
    "alignment": {"dma_alignment": 1},
    "kernel": {"limits": {"conv2d": Limits(max_kernel=(3, 4), strides=(1,), weight_bits=(8,))}},
    "strides": {"limits": {"conv2d": Limits(max_kernel=(3, 3), strides=(1, 2), weight_bits=(8,))}},
    "weight bits": {"limits": {"conv2d": Limits(max_kernel=(3, 3), strides=(1,), weight_bits=(8, 4))}},
}
CHIP = replace(
    REFERENCE,
    roundings=("upward",),
    dma_alignment=4,
    limits={"conv2d": Limits(max_kernel=(3, 3), strides=(1,), weight_bits=(8,))},
)


def test_a_model_with_multipliers_does_not_compile_for_a_chip_of_shifts(tmp_path):
    new_hal(tmp_path, replace(CHIP, shift_only=True))
    with pytest.raises(RunError, match="the model was compiled with multipliers, and this chip has shifts alone"):
        hal_test(tmp_path, accelerator=CHIP, cflags="-O0")


@pytest.mark.slow
@pytest.mark.parametrize("change", LARGER.values(), ids=LARGER)
def test_whatever_the_chip_lacks_does_not_compile(change, tmp_path):
    new_hal(tmp_path, CHIP)
    with pytest.raises(RunError, match=REFUSAL):
        hal_test(tmp_path, accelerator=replace(CHIP, **change), cflags="-O0")


@pytest.mark.slow
def test_a_chip_that_has_more_compiles(tmp_path):
    new_hal(tmp_path / "hal")
    assert hal_test(tmp_path / "hal", accelerator=CHIP, cflags="-O1").passed


def test_the_simulator_refuses_a_kind_that_it_lacks(tmp_path):
    """As if a later version had added a kind to the header alone: the simulator's default is element-wise."""
    write_kit(tmp_path)
    header = tmp_path / "hwlib_accelerator.h"
    header.write_text(re.sub(r"_KINDS 0x\w+u", "_KINDS 0x80000000u", header.read_text()))
    (tmp_path / "hwlib_sim_config.h").write_text('#include "hwlib_accelerator.h"\n')
    with pytest.raises(AssertionError, match="the simulator lacks a layer kind or a rounding of the accelerator"):
        run_gcc("-std=c11", "-fsyntax-only", f"-I{tmp_path}", HWLIB / "sim" / "sim_job.c")


@pytest.mark.parametrize("there", ["file", "directory with a file"])
def test_refuses_a_directory_that_is_not_new_or_empty(there, tmp_path):
    target = tmp_path / "hal"
    if there == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine.c").write_text("mine")
    with pytest.raises(InvalidInput, match=r"a new HAL goes into a directory that is new or empty: .*hal"):
        new_hal(target)
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]


def test_refuses_an_accelerator_that_has_no_hal_before_anything_is_written(tmp_path):
    vendor = replace(REFERENCE, limits={}, library=Library(tmp_path / "v.h", (), {}))
    with pytest.raises(InvalidInput, match="a HAL has no whole-layer calls"):
        new_hal(tmp_path / "hal", vendor)
    assert not (tmp_path / "hal").exists()
