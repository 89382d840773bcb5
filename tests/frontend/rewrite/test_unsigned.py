"""uint8 models: what becomes int8 in a region, and that every result is that of the uint8 module, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
from bit_exact import assert_bit_exact
from relay_samples import Conv, Dense, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE

ZERO_POINTS = {"ifm_zero_point": 125, "ofm_zero_point": 133}
WEIGHTS = {"weight_dtype": "uint8", "weight_zero_point": 120}


def requantized(x, scale, zero_point, out_scale, out_zero_point, dtype="uint8"):
    numbers = (scale, "float32"), (zero_point, "int32"), (out_scale, "float32"), (out_zero_point, "int32")
    return relay.qnn.op.requantize(x, *(const(*number) for number in numbers), out_dtype=dtype)


def averaged(x, pool, **options):
    return relay.cast(pool(relay.cast(x, "int32"), **options), "uint8")


def everything():
    """A uint8 network with every operator that has a rule, from a uint8 input to uint8 and float outputs."""
    x = variable((1, 8, 8, 4), "uint8")
    first = Conv(
        dtype="uint8", **ZERO_POINTS, **WEIGHTS, explicit_pad=(1, 1, 1, 1), padding=(0, 0, 0, 0), clip=(133, 250)
    )
    shared = first.expr(x)
    depthwise = Conv(dtype="uint8", channels=8, depthwise=True, clip=(0.0, 255.0), **ZERO_POINTS, **WEIGHTS).expr(
        shared
    )
    total = relay.qnn.op.add(shared, depthwise, *scales(0.4, 133, 0.4, 133, 0.7, 128))
    product = relay.qnn.op.mul(total, shared, *scales(0.7, 128, 0.4, 133, 2.0, 7))
    joined = relay.qnn.op.concatenate(
        relay.Tuple([total, product]),
        relay.Tuple([const(0.7, "float32"), const(2.0, "float32")]),
        relay.Tuple([const(128, "int32"), const(7, "int32")]),
        const(1.5, "float32"),
        const(99, "int32"),
        3,
    )
    smaller = relay.nn.max_pool2d(joined, (3, 3), (2, 2), padding=(1, 1, 1, 1), layout="NHWC")
    windows = averaged(smaller, relay.nn.avg_pool2d, pool_size=(2, 2), strides=(2, 2), layout="NHWC")
    mean = requantized(relay.mean(relay.cast(smaller, "int32"), axis=(1, 2)), 1.5, 99, 0.8, 3)
    whole = relay.reshape(averaged(smaller, relay.nn.global_avg_pool2d, layout="NHWC"), (1, 16))
    ends = relay.qnn.op.add(mean, whole, *scales(0.8, 3, 1.5, 99, 1.1, 40))
    dense = Dense(inputs=16, dtype="uint8", **ZERO_POINTS).expr(ends)
    real = relay.nn.softmax(relay.qnn.op.dequantize(dense, const(0.4, "float32"), const(133, "int32")))
    softmax = relay.qnn.op.quantize(real, const(1 / 256, "float32"), const(0, "int32"), out_dtype="uint8")
    return module(relay.Tuple([softmax, windows, relay.cast(dense, "float32")]), x)


def scales(*numbers):
    return [const(number, "int32" if place % 2 else "float32") for place, number in enumerate(numbers)]


@pytest.mark.slow
def test_every_operator_gives_the_results_of_the_uint8_module():
    project = assert_bit_exact(everything(), count=4)
    layers = {layer["kind"] for layer in project.layers if layer["region"]}
    assert {"conv2d", "depthwise_conv2d", "add", "mul", "pool2d", "dense"} <= layers
    left = {operator for outcome in project.report.host for operator in outcome.relay}
    assert not left & {"qnn.conv2d", "qnn.dense", "qnn.add", "qnn.mul", "nn.max_pool2d", "nn.avg_pool2d", "mean"}


@pytest.mark.parametrize("count", [4, 9, 49, 121])
def test_an_average_of_any_sum_is_rounded_down(count):
    """Sums from 0 to all 255: the convolution in place of the division has to hit each quotient."""
    side = int(count**0.5)
    channels = 256
    x = variable((1, side, side, channels), "uint8")
    mod = module(averaged(x, relay.nn.avg_pool2d, pool_size=(side, side), layout="NHWC"), x)
    partitioned = byoc_hw.partition_for_hwlib(mod)
    assert "qnn_depthwise_conv2d" in str(byoc_hw.explain(partitioned))
    from byoc_hw.frontend.relay.reference import Reference

    original, rewritten = Reference(mod), Reference(partitioned)
    rng = np.random.default_rng(count)
    for _ in range(8):
        level = rng.integers(0, 256, (1, 1, 1, channels))
        near = np.clip(level + rng.integers(-1, 2, (1, side, side, channels)), 0, 255).astype(np.uint8)
        np.testing.assert_array_equal(rewritten.run([near])[0], original.run([near])[0])


def test_an_operator_without_a_rule_reads_uint8():
    x = variable((1, 8, 8, 4), "uint8")
    conv = Conv(dtype="uint8", **ZERO_POINTS).expr(x)
    mod = module(relay.Tuple([relay.bitwise_xor(conv, const(85, "uint8")), conv]), x)
    project = assert_bit_exact(mod)
    assert [outcome.relay for outcome in project.report.host if "bitwise_xor" in outcome.relay]
    assert [output.dtype for output in project.run([np.zeros((1, 8, 8, 4), np.uint8)]).outputs] == ["uint8"] * 2


def test_the_window_of_an_average_is_that_of_the_accelerators_depthwise_convolution():
    x = variable((1, 6, 6, 4), "uint8")
    mod = module(averaged(x, relay.nn.avg_pool2d, pool_size=(5, 5), layout="NHWC"), x)
    limits = {**REFERENCE.limits, "depthwise_conv2d": replace(REFERENCE.limits["depthwise_conv2d"], max_kernel=(3, 5))}
    assert byoc_hw.explain(byoc_hw.partition_for_hwlib(mod)).offloaded
    other = replace(REFERENCE, label="NARROW", limits=limits)
    assert not byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, accelerator=other)).offloaded
