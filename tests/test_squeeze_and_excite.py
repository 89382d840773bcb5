"""Squeeze-and-excite: feature maps that are multiplied by what a small network makes of their mean."""

from dataclasses import replace

import numpy as np
import pytest
from bit_exact import assert_bit_exact, input_arrays
from relay_samples import Conv, Dense, Mul, Pool, Quantized, Subtract, const, module, variable
from riscv32_tools import needs_riscv32
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import KIB, REFERENCE, SMALL
from byoc_hw.frontend.relay.reference import Reference

FOUR_KIB = replace(REFERENCE, label="FOUR_KIB", activation_memory=4 * KIB, weight_memory=4 * KIB)
"""The feature maps do not fit: they are made, multiplied and read again in stripes."""

GATE = Quantized(1 / 256, -128)
FEATURES = Quantized(0.4, 5)


def gate(features, layout, channels=24, squeezed=6):
    """One number from 0 to 1 for each channel."""
    means = Pool("mean", axis=(1, 2) if layout == "NHWC" else (2, 3), ifm=FEATURES, ofm=Quantized(0.1, -3))
    value = Dense(channels, squeezed, clip=(-3, 127)).expr(means.expr(features))
    value = Dense(squeezed, channels, seed=2).expr(value)
    real = relay.sigmoid(relay.qnn.op.dequantize(value, const(0.1, "float32"), const(0, "int32")))
    value = relay.qnn.op.quantize(real, *GATE.constants(), out_dtype="int8")
    return relay.reshape(value, (1, 1, 1, channels) if layout == "NHWC" else (1, channels, 1, 1))


def network(layout):
    """Features that are multiplied by their gate, then subtracted from it, which comes first; between convolutions."""
    first = Conv(16, 16, 3, 24, layout=layout)
    x = variable(first.ifm_shape)
    features = first.expr(x)
    by = gate(features, layout)
    scaled = Mul(lhs=FEATURES, rhs=GATE, out=FEATURES).expr(features, by)
    less = Subtract(lhs=GATE, rhs=FEATURES, out=Quantized(0.4, -3)).expr(by, scaled)
    return module(Conv(16, 16, 24, 8, strides=(2, 2), layout=layout, seed=4).expr(less), x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "accelerator"),
    [
        pytest.param("NHWC", REFERENCE, marks=pytest.mark.slow),
        pytest.param("NHWC", SMALL, marks=pytest.mark.slow),
        ("NHWC", FOUR_KIB),
        ("NCHW", FOUR_KIB),
    ],
    ids=lambda value: value if isinstance(value, str) else value.label,
)
def test_a_network_is_one_region_and_bit_exact(layout, accelerator):
    project = assert_bit_exact(network(layout), accelerator=accelerator, count=1)
    assert not project.report.host, str(project.report)
    assert len({layer["region"] for layer in project.layers}) == 1


@pytest.mark.slow
@needs_riscv32
def test_a_bare_metal_core_gives_the_same():
    mod = network("NHWC")
    (low, *_, inputs) = input_arrays(mod, 1)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=FOUR_KIB))
    reference = Reference(mod)
    for arrays, result in zip([low, inputs], project.run_batch([low, inputs], on="riscv32"), strict=True):
        np.testing.assert_array_equal(result.outputs[0], reference.run(arrays)[0])
