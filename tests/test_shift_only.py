"""An accelerator that has shifts in place of a multiplier: what it takes and declines, what its simulator refuses."""

from dataclasses import replace

import numpy as np
import pytest
from bit_exact import assert_bit_exact
from relay_samples import Add, Conv, Dense, Mul, Quantized, const, module
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.ratios import is_shift

SHIFTS = replace(byoc_hw.REFERENCE, label="SHIFTS", shift_only=True)
CONV = Conv(ifm_scale=0.5, ofm_scale=8.0, scales=tuple(2.0**-power for power in (1, 2, 3, 4, 5, 6, 7, 8)))
ROUGH = Conv(ifm_scale=0.5, ofm_scale=8.0, scales=(0.5,) * 7 + (0.3,))
UNITS = {"lhs": Quantized(0.25, -3), "rhs": Quantized(0.5, 4)}


def averaged(scale):
    """Averages, requantized."""
    (x,) = CONV.variables()
    mean = relay.mean(relay.cast(x, "int32"), axis=[1, 2], keepdims=True)
    constants = [
        const(value, kind) for value, kind in ((0.5, "float32"), (0, "int32"), (scale, "float32"), (0, "int32"))
    ]
    return module(relay.qnn.op.requantize(mean, *constants, out_dtype="int8"), x)


# By kind: with ratios that are powers of two, with one that is none, and that one.
CASES = {
    "conv2d": (CONV.module(), ROUGH.module(), "0.01875"),
    "depthwise": (
        replace(CONV, depthwise=True, channels=8).module(),
        replace(ROUGH, depthwise=True, channels=8).module(),
        "0.01875",
    ),
    "dense": (
        Dense(scales=(0.25 / np.float32(0.05),), ofm_scale=4.0).module(),
        Dense(scales=(0.25 / np.float32(0.05),), ofm_scale=3.0).module(),
        "0.0833333",
    ),
    "add": (Add(**UNITS, out=Quantized(1.0, 1)).module(), Add(**UNITS, out=Quantized(0.75, 1)).module(), "0.333333"),
    "mul": (
        Mul(**UNITS, out=Quantized(16.0, 1)).module(),
        Mul(**UNITS, out=Quantized(12.0, 1)).module(),
        "0.0104167",
    ),
    "average": (averaged(1.0), averaged(0.7), "0.714286"),
}


@pytest.mark.parametrize(("fitting", "other", "ratio"), CASES.values(), ids=CASES)
def test_takes_powers_of_two_and_declines_other_ratios_with_their_value(fitting, other, ratio):
    """What it takes runs on its simulator, which refuses other multipliers."""
    project = assert_bit_exact(fitting, accelerator=SHIFTS, count=1, cflags=SANITIZED)
    assert project.report.offloaded
    declined = byoc_hw.partition_for_hwlib(other, accelerator=SHIFTS)
    assert not region_graphs(declined)
    assert f"ratios of scales are powers of two: got {ratio}" in str(byoc_hw.explain(declined))
    assert region_graphs(byoc_hw.partition_for_hwlib(other))  # the scales are all that keeps it


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["conv2d", "add", "mul", "average"])
def test_tflites_rounding_takes_them_too(kind):
    outputs = []
    for accelerator in (SHIFTS, byoc_hw.REFERENCE):
        mod = byoc_hw.partition_for_hwlib(CASES[kind][0], accelerator=accelerator, numerics="tflite")
        project = byoc_hw.build(mod)
        assert not project.report.host
        random = np.random.default_rng(0)
        outputs += project.run(
            [random.integers(-128, 128, one.shape).astype(np.int8) for one in project.inputs]
        ).outputs
    np.testing.assert_array_equal(*outputs)


def test_the_simulator_refuses_another_multiplier(tmp_path):
    """A project for any scales, in which the array is said to have shifts alone."""
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(ROUGH.module()), output_dir=tmp_path / "net")
    header = project.directory / "hwlib/include/hwlib_accelerator.h"
    assert "SHIFT_ONLY" not in header.read_text()
    guard = "#define HWLIB_ACCELERATOR_H\n"
    header.write_text(header.read_text().replace(guard, f"{guard}#define HWLIB_ACCELERATOR_SHIFT_ONLY 1u\n"))
    image = np.zeros(project.inputs[0].shape, np.int8)
    with pytest.raises(RunError, match=r"params: multiplier is neither 0 nor 2\^30: the array has shifts alone"):
        project.run([image])


def test_a_header_says_so():
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(CONV.module(), accelerator=SHIFTS))
    text = (project.directory / "hwlib/include/hwlib_accelerator.h").read_text()
    assert "#define HWLIB_ACCELERATOR_SHIFT_ONLY 1u" in text


def test_a_module_of_shifts_is_all_its_own():
    random = np.random.default_rng(0)
    (x,) = CONV.variables()
    weights = random.integers(-127, 128, (3, 3, 4, 6)).astype(np.int8)
    total = relay.nn.conv2d(
        x,
        const(weights, "int8"),
        channels=6,
        kernel_size=(3, 3),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype="int32",
    )
    shifted = relay.right_shift(relay.add(total, const(128, "int32")), const(8, "int32"))
    mod = module(relay.cast(relay.clip(shifted, -127, 127), "int8"), x)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=SHIFTS))
    assert not project.report.host


@pytest.mark.parametrize("ratio", [1.0, 0.5, 2.0**-40, 1024.0, 0.0, 0.5 * (1 + 2**-40), 1 - 2**-40])
def test_powers_of_two_are_shifts(ratio):
    """Also what the 31 bits of a multiplier cannot tell from one."""
    assert is_shift(ratio)


@pytest.mark.parametrize("ratio", [0.3, 0.75, 1 + 2**-20, 3.0])
def test_other_ratios_are_none(ratio):
    assert not is_shift(ratio)


def test_refuses_what_is_no_flag():
    with pytest.raises(InvalidInput, match="accelerator hwlib: shift_only is"):
        replace(SHIFTS, shift_only=1)
