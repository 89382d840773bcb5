"""Networks of any size in Relay, with random weights, to measure compile times."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relay

RESNET50_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Number of blocks, and channels inside a block; its output has four times as many."""


def chain(length: int) -> tvm.IRModule:
    """A chain of convolutions of 16 channels on an 8 x 8 image."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, 8, 8, 16), dtype="int8")
    out = ifm
    for _ in range(length):
        out = drawn.conv(out, 16, 16, kernel=3)
    return _module(ifm, out)


def resnet50() -> tvm.IRModule:
    """ResNet-50: 53 convolutions, 25 million weights, images of 224 x 224."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, 224, 224, 3), dtype="int8")
    channels = 64
    out = drawn.conv(ifm, 3, channels, kernel=7, stride=2)
    out = relay.nn.max_pool2d(out, (3, 3), (2, 2), padding=(1, 1, 1, 1), layout="NHWC")
    for stage, (blocks, inside) in enumerate(RESNET50_STAGES):
        for block in range(blocks):
            out = drawn.bottleneck(out, channels, inside, stride=2 if stage and not block else 1)
            channels = 4 * inside
    out = drawn.average(out, 7)
    return _module(ifm, drawn.dense(relay.reshape(out, (1, channels)), channels, 1000))


def _module(ifm: relay.Var, out: relay.Expr) -> tvm.IRModule:
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([ifm], out)))


class _Layers:
    """Makes quantized layers with random weights; all activations have the same scale and zero point."""

    scale, zero_point = 0.1, -3

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def conv(self, ifm: relay.Expr, channels: int, filters: int, *, kernel: int = 1, stride: int = 1) -> relay.Expr:
        out = relay.qnn.op.conv2d(
            ifm,
            self._weights((kernel, kernel, channels, filters)),
            *self._sum_quantization(),
            kernel_size=(kernel, kernel),
            channels=filters,
            strides=(stride, stride),
            padding=(kernel // 2,) * 4,
            data_layout="NHWC",
            kernel_layout="HWIO",
        )
        return self._finished(out, filters, axis=3)

    def dense(self, ifm: relay.Expr, channels: int, units: int) -> relay.Expr:
        out = relay.qnn.op.dense(ifm, self._weights((units, channels)), *self._sum_quantization(), units=units)
        return self._finished(out, units, axis=1)

    def bottleneck(self, ifm: relay.Expr, channels: int, inside: int, stride: int) -> relay.Expr:
        out = self.conv(ifm, channels, inside)
        out = self.conv(out, inside, inside, kernel=3, stride=stride)
        out = self.conv(out, inside, 4 * inside)
        shortcut = (
            ifm if channels == 4 * inside and stride == 1 else self.conv(ifm, channels, 4 * inside, stride=stride)
        )
        quantizations = (_const(self.scale, "float32"), _const(self.zero_point, "int32")) * 3
        return relay.qnn.op.add(out, shortcut, *quantizations)

    def average(self, ifm: relay.Expr, kernel: int) -> relay.Expr:
        wide = relay.cast(ifm, "int32")
        return relay.cast(relay.nn.avg_pool2d(wide, (kernel, kernel), layout="NHWC"), "int8")

    def _weights(self, shape: tuple[int, ...]) -> relay.Constant:
        return _const(self._random.integers(-127, 128, shape), "int8")

    def _sum_quantization(self) -> tuple[relay.Constant, ...]:
        points = (_const(self.zero_point, "int32"), _const(0, "int32"))
        return (*points, _const(self.scale, "float32"), _const(0.01, "float32"))

    def _finished(self, out: relay.Expr, channels: int, axis: int) -> relay.Expr:
        bias = _const(self._random.integers(-1000, 1000, channels), "int32")
        return relay.qnn.op.requantize(
            relay.nn.bias_add(out, bias, axis=axis),
            _const(0.01 * self.scale, "float32"),
            _const(0, "int32"),
            _const(self.scale, "float32"),
            _const(self.zero_point, "int32"),
            axis=axis,
            out_dtype="int8",
        )


def _const(value: Any, dtype: str) -> relay.Constant:
    return relay.const(np.asarray(value, dtype), dtype=dtype)
