"""Whole networks: every layer and every output bit for bit TVM's, offloaded and on the host alone."""

import numpy as np
import pytest
from bit_exact import assert_equals_tvm

import byoc_hw
from byoc_hw.accelerator import DIANA_DIGITAL, REFERENCE, SMALL
from byoc_hw.demo import heldout, model_path
from byoc_hw.frontend.relay.reference import Reference

MLPERF_TINY = [
    "ad01_int8",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
    ),
]
OFFLOADED = {"qnn.conv2d", "qnn.dense", "qnn.add", "nn.avg_pool2d"}


def structured(shape, count, seed):
    """Rails, ramps, checkerboards, single spikes and noise of several strengths, as int8."""
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    ramp = np.linspace(-128, 127, size).round()
    board = np.where(np.indices(shape).sum(axis=0) % 2, 127, -128)
    spike = np.full(size, -128)
    spike[size // 2] = 127
    kinds = [np.full(shape, -128), np.full(shape, 127), np.zeros(shape), ramp, ramp[::-1], board, spike]
    kinds += [rng.normal(0, strength, shape).clip(-128, 127) for strength in (3, 30)]
    kinds += [rng.integers(-128, 128, shape) for _ in range(count - len(kinds))]
    return [kind.reshape(shape).astype(np.int8) for kind in kinds]


@pytest.mark.slow
@pytest.mark.parametrize("mlperf_model", MLPERF_TINY, indirect=True)
def test_mlperf_tiny_layer_by_layer(mlperf_model):
    mod, params = byoc_hw.load_tflite(mlperf_model)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="net")
    project = byoc_hw.build(partitioned)
    left = {operator for outcome in project.report.host for operator in outcome.relay}
    assert left <= {"qnn.dequantize", "nn.softmax", "qnn.quantize"}
    assert {operator for outcome in project.report.offloaded for operator in outcome.relay} & OFFLOADED
    (shape,) = (tuple(int(n) for n in p.type_annotation.shape) for p in mod["main"].params[:1])
    inputs = [[array] for array in structured(shape, 20, seed=0)]
    expected = assert_equals_tvm(project, partitioned, mod, inputs, "-O2", params)
    baseline = byoc_hw.build(mod, params, mod_name="host")
    for outputs, result in zip(expected, baseline.run_batch(inputs), strict=True):
        np.testing.assert_array_equal(result.outputs[0], outputs[0])


@pytest.mark.parametrize(
    "accelerator",
    [REFERENCE, *(pytest.param(preset, marks=pytest.mark.slow) for preset in (SMALL, DIANA_DIGITAL))],
    ids=lambda preset: preset.label,
)
def test_digits_layer_by_layer(accelerator):
    mod, params = byoc_hw.load_tflite(model_path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="digits", accelerator=accelerator)
    images = heldout().images
    inputs = [[array] for array in [*images[:12, None], *structured((1, 8, 8, 1), 12, seed=1)]]
    assert_equals_tvm(byoc_hw.build(partitioned), partitioned, mod, inputs, params=params)


@pytest.mark.slow
def test_digits_on_the_host_alone():
    mod, params = byoc_hw.load_tflite(model_path())
    reference = Reference(mod, params)
    inputs = [[array] for array in structured((1, 8, 8, 1), 20, seed=2)]
    for arrays, result in zip(inputs, byoc_hw.build(mod, params).run_batch(inputs), strict=True):
        np.testing.assert_array_equal(result.outputs[0], reference.run(arrays)[0])
