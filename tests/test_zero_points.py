"""Zero points that no int8 holds: every pattern declines them, and the host computes TVM's result."""

import pytest
from bit_exact import assert_bit_exact
from relay_samples import Add, Conv, Dense, Mul, Pool, Quantized, side_by_side

import byoc_hw

SAMPLES = {
    "conv2d, input": ("qnn_conv2d", Conv(ifm_zero_point=200), 200),
    "conv2d, weights": ("qnn_conv2d", Conv(weight_zero_point=128), 128),
    "conv2d, output": ("qnn_conv2d", Conv(ofm_zero_point=-129), -129),
    "depthwise, input": ("qnn_depthwise_conv2d", Conv(depthwise=True, ifm_zero_point=-300), -300),
    "depthwise, output": ("qnn_depthwise_conv2d", Conv(depthwise=True, ofm_zero_point=255), 255),
    "dense, input": ("qnn_dense", Dense(ifm_zero_point=1000), 1000),
    "dense, weights": ("qnn_dense", Dense(weight_zero_point=-200), -200),
    "dense, output": ("qnn_dense", Dense(ofm_zero_point=128), 128),
    "add, first": ("qnn_add", Add(lhs=Quantized(0.1, 128)), 128),
    "add, second": ("qnn_add", Add(rhs=Quantized(0.1, -129)), -129),
    "add, output": ("qnn_add", Add(out=Quantized(0.1, 200)), 200),
    "mul, first": ("qnn_mul", Mul(lhs=Quantized(0.1, 300)), 300),
    "mul, output": ("qnn_mul", Mul(out=Quantized(0.1, -2000)), -2000),
    "mean, input": ("avg_pool2d", Pool("mean", ifm=Quantized(0.1, 128)), 128),
    "mean, output": ("avg_pool2d", Pool("mean", ofm=Quantized(0.1, -129)), -129),
}


@pytest.mark.parametrize(("composite", "sample", "found"), SAMPLES.values(), ids=SAMPLES)
def test_a_zero_point_outside_int8_is_declined(composite, sample, found):
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(sample.module()))
    assert f"{composite}: zero points are from -128 to 127: got {found}" in str(report)
    assert {outcome.placement for outcome in report.outcomes} <= {"host", "folded"}


@pytest.mark.slow
def test_the_host_computes_them_as_tvm_does():
    mod = side_by_side([sample for _, sample, _ in SAMPLES.values()])
    project = assert_bit_exact(mod)
    assert {outcome.placement for outcome in byoc_hw.explain(project).outcomes} <= {"host", "folded"}
