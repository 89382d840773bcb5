"""Channels that a requantize scales to nothing: 0, whatever the input, on every machine."""

from pathlib import Path

import numpy as np
import pytest
from bit_exact import assert_bit_exact, input_arrays
from relay_samples import Conv

import byoc_hw
from byoc_hw.frontend.dead_channels import total_shift

ALIVE, DEAD = 0.01, 2.0**-40
SCALES = (ALIVE, DEAD, ALIVE, DEAD)


@pytest.mark.slow
@pytest.mark.parametrize(
    "conv",
    [
        Conv(filters=4, scales=SCALES),
        Conv(filters=4, scales=SCALES, bias=False, weight_zero_point=3),
        Conv(depthwise=True, scales=SCALES),
        Conv(filters=4, scales=SCALES, layout="NCHW"),
        Conv(filters=4, per_channel=False, scales=(DEAD,)),
    ],
    ids=["conv2d", "no bias, weight zero point", "depthwise", "NCHW", "per tensor"],
)
@pytest.mark.parametrize("offloaded", [True, False])
def test_dead_channels_give_the_zero_point(conv, offloaded):
    mod = conv.module()
    project = assert_bit_exact(mod) if offloaded else byoc_hw.build(mod)
    axis = conv.layout.index("C")
    for inputs in input_arrays(mod):
        (output,) = project.run(inputs, toolchain=byoc_hw.Toolchain(cflags="-O1")).outputs
        dead = range(4) if not conv.per_channel else (1, 3)
        assert (np.take(output, dead, axis) == conv.ofm_zero_point).all()


def test_the_bound_is_the_one_that_the_text_on_numerics_gives():
    text = " ".join((Path(__file__).parents[2] / "docs" / "numerics.md").read_text(encoding="utf-8").split())
    assert "is below 2^-32, TVM's code shifts by 63 bits or more" in text
    below = float(np.nextafter(np.float32(2.0**-32), np.float32(0)))
    assert (total_shift(2.0**-32, 1.0), total_shift(below, 1.0)) == (62, 63)
    assert round((2**31) * below) == 0  # the largest sum, scaled: the zero point is the exact result


def test_shift_is_counted_as_tvm_counts_it():
    assert total_shift(1.0, 1.0) == 31  # significand 0.5, exponent 1: the one bit shifts left
    assert total_shift(0.5, 1.0) == 31
    assert total_shift(0.25, 1.0) == 32
    assert total_shift(2.0**-33, 1.0) == 63
