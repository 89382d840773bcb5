"""Scales that are none: each sends its operator to the host, with the operand and the value.

The host's build is then TVM's own: it computes what TVM computes, or is refused with the operator.
"""

import math

import numpy as np
import pytest
from relay_samples import Add, Conv, Dense, Mul, Pool, Quantized, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.reference import Reference

WRONG = {"zero": (0.0, "0"), "negative": (-0.5, "-0.5"), "NaN": (math.nan, "nan"), "infinite": (math.inf, "inf")}

PER_CHANNEL = (0.01, None, 0.01, 0.01)
"""`None` stands for the wrong one."""


def softmax(scale, out=1 / 256):
    x = variable((1, 10))
    real = relay.qnn.op.dequantize(x, const(scale, "float32"), const(0, "int32"))
    return module(relay.qnn.op.quantize(relay.nn.softmax(real), const(out, "float32"), const(-128, "int32")), x)


def channels(wrong):
    return tuple(wrong if scale is None else scale for scale in PER_CHANNEL)


# Composite, operand in the message, sample by scale.
OPERANDS = {
    "conv input": ("qnn_conv2d", "ifm", lambda scale: Conv(ifm_scale=scale).module()),
    "conv weights": ("qnn_conv2d", "weights", lambda scale: Conv(per_channel=False, scales=(scale,)).module()),
    "conv channel": ("qnn_conv2d", "weights", lambda scale: Conv(filters=4, scales=channels(scale)).module()),
    "conv output": ("qnn_conv2d", "ofm", lambda scale: Conv(ofm_scale=scale).module()),
    "depthwise": ("qnn_depthwise_conv2d", "ofm", lambda scale: Conv(depthwise=True, ofm_scale=scale).module()),
    "dense weights": ("qnn_dense", "weights", lambda scale: Dense(scales=(scale,)).module()),
    "dense output": ("qnn_dense", "ofm", lambda scale: Dense(ofm_scale=scale).module()),
    "add left": ("qnn_add", "ifm", lambda scale: Add(lhs=Quantized(scale)).module()),
    "add right": ("qnn_add", "ifm2", lambda scale: Add(rhs=Quantized(scale)).module()),
    "add output": ("qnn_add", "ofm", lambda scale: Add(out=Quantized(scale)).module()),
    "mul left": ("qnn_mul", "ifm", lambda scale: Mul(lhs=Quantized(scale)).module()),
    "mul right": ("qnn_mul", "ifm2", lambda scale: Mul(rhs=Quantized(scale)).module()),
    "mul output": ("qnn_mul", "ofm", lambda scale: Mul(out=Quantized(scale)).module()),
    "mean input": ("avg_pool2d", "ifm", lambda scale: Pool("mean", ifm=Quantized(scale)).module()),
    "mean output": ("avg_pool2d", "ofm", lambda scale: Pool("mean", ofm=Quantized(scale)).module()),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize(("composite", "operand", "make"), OPERANDS.values(), ids=OPERANDS)
def test_declines_scales_that_are_none(composite, operand, make, wrong):
    scale, shown = wrong
    mod = make(scale)
    report = str(byoc_hw.explain(byoc_hw.partition_for_hwlib(mod)))
    assert f"{composite}: scale of {operand} is finite and above 0: got {shown}" in report


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize(("operand", "make"), [("ifm", softmax), ("ofm", lambda scale: softmax(0.1, scale))])
def test_declines_scales_of_softmax_that_are_none(operand, make, wrong):
    scale, shown = wrong
    reason = f"qnn_softmax: scale of {operand} is finite and above 0: got {shown}"
    assert reason in str(byoc_hw.explain(byoc_hw.partition_for_hwlib(make(scale), numerics="tflite")))


def test_declines_bounds_that_are_no_numbers():
    report = str(byoc_hw.explain(byoc_hw.partition_for_hwlib(Conv(clip=(math.nan, 6.0)).module())))
    assert "qnn_conv2d: bounds of clip are numbers: got nan and 6" in report


def test_infinite_bounds_are_the_types():
    assert byoc_hw.explain(byoc_hw.partition_for_hwlib(Conv(clip=(-math.inf, math.inf)).module())).offloaded


@pytest.mark.parametrize("make", [Conv(ofm_scale=0.0).module, Add(out=Quantized(0.0)).module], ids=["conv", "add"])
def test_a_build_whose_host_cannot_have_the_scale_names_the_operator(make):
    with pytest.raises(
        Unsupported, match=r"qnn\.\w+ \(qnn\.\w+_1\) on the host: input scale over output scale .*: got inf"
    ):
        byoc_hw.build(byoc_hw.partition_for_hwlib(make()))


@pytest.mark.parametrize("make", [lambda: Conv(ofm_scale=-0.5), lambda: Dense(scales=(0.0,))], ids=["negative", "zero"])
def test_the_host_computes_what_tvm_computes(make):
    mod = make().module()
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod))
    shape = tuple(int(extent) for extent in mod["main"].params[0].checked_type.shape)
    array = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    np.testing.assert_array_equal(project.run(array).outputs[0], Reference(mod).run([array])[0])
