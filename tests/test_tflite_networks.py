"""Networks of the forms that real ones have, as int8 and uint8 files: what is offloaded, and every bit of it."""

import numpy as np
import pytest
from bit_exact import assert_equals_tvm, input_arrays
from riscv32_tools import needs_riscv32
from tflite_networks import NETWORKS

import byoc_hw

SOFTMAX = "softmax is offloaded with numerics='tflite' only"
STATE = "activation type is int8: got int16"

# What is not on the accelerator as a whole, and why: with numerics="relay", by file.
ON_THE_HOST = {
    ("mobilenet", "int8"): {"softmax_1": SOFTMAX},
    ("inception", "int8"): {},
    ("unet", "int8"): {},
    ("keywords", "int8"): {"svdf_1": STATE, "svdf_2": STATE, "softmax_1": SOFTMAX},
    ("attention", "int8"): {"softmax_1": SOFTMAX},
    ("shufflenet", "int8"): {},
    ("mobilenet", "uint8"): {"softmax_1": SOFTMAX},
    ("inception", "uint8"): {},
    ("unet", "uint8"): {},
    ("shufflenet", "uint8"): {},
}
"""With numerics="relay". TFLite has no SVDF and no matrix product of uint8."""


@pytest.fixture
def path(name, dtype, tmp_path):
    file = tmp_path / f"{name}.tflite"
    file.write_bytes(NETWORKS[name](dtype))
    return file


@pytest.mark.parametrize(("name", "dtype"), ON_THE_HOST)
def test_what_is_not_offloaded_is_known_with_its_reason(path, name, dtype):
    outcomes = byoc_hw.explain(byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(path))).outcomes
    left = {one.name: said(one) for one in outcomes if one.placement not in ("accelerator", "folded")}
    expected = ON_THE_HOST[name, dtype]
    assert left.keys() == expected.keys()
    for operator, reason in expected.items():
        assert reason in left[operator], operator


def said(outcome):
    """Why an operator is not offloaded, as one text."""
    reasons = [str(rule) for rejection in outcome.rejections for rule in (*rejection.broken, rejection.near_miss)]
    return "; ".join([*reasons, *(f"no pattern covers {operator}" for operator in outcome.uncovered)])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), ON_THE_HOST)
def test_every_layer_and_output_is_tvms(path, name, dtype):
    mod, params = byoc_hw.load_tflite(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="net")
    inputs = list(input_arrays(partitioned, 6))
    expected = assert_equals_tvm(byoc_hw.build(partitioned), partitioned, mod, inputs, params=params)
    assert len({outputs[0].tobytes() for outputs in expected}) > 4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), ON_THE_HOST)
def test_every_layer_and_output_is_tflites(path, name, dtype):
    pytest.importorskip("tflite_runtime", reason="the oracle: install the package tflite-runtime==2.14.0")
    mod, params = byoc_hw.load_tflite(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="net", numerics="tflite")
    inputs = list(input_arrays(partitioned, 6))
    validation = byoc_hw.validate(byoc_hw.build(partitioned), inputs, path)
    if dtype == "uint8":
        assert validation.tvm_arithmetic  # its values differ, and those of what follows it
        assert name != "inception" or validation, str(validation)
        return
    assert not validation.tvm_arithmetic
    assert validation, str(validation)


@pytest.mark.slow
@needs_riscv32
@pytest.mark.parametrize(("name", "dtype"), [("keywords", "int8")])
def test_bare_metal_gives_the_same_bits_step_by_step(path, name, dtype):
    """From one inference to the next the caller hands the states on."""
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(path)))
    rng = np.random.default_rng(0)
    values = {one.name: np.full(one.shape, one.zero_point, one.dtype) for one in project.inputs}
    for _ in range(3):
        values["input_0"] = rng.integers(-128, 128, values["input_0"].shape).astype(np.int8)
        here, there = (project.run(values, on=place).outputs for place in ("host", "riscv32"))
        for one, other in zip(here, there, strict=True):
            np.testing.assert_array_equal(one, other)
        outputs = dict(zip((one.name for one in project.outputs), here, strict=True))
        values |= {one.name: outputs[one.state] for one in project.inputs if one.state}
