"""Networks of any size in Relay, with random weights, to measure compile times."""

from __future__ import annotations

from collections.abc import Sequence
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


MOBILENET_STAGES = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)
"""Expansion, channels, number of blocks, and the stride of the first one."""


def mobilenet_v2(size: int = 224, stages: Sequence[tuple[int, int, int, int]] = MOBILENET_STAGES) -> tvm.IRModule:
    """MobileNetV2 for images of `size` x `size`: as a whole 52 convolutions, 3.5 million weights."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, size, size, 3), dtype="int8")
    channels = 32
    out = drawn.conv(ifm, 3, channels, kernel=3, stride=2)
    height = -(-size // 2)
    for expansion, filters, blocks, first in stages:
        for block in range(blocks):
            stride = 1 if block else first
            out = drawn.inverted_residual(out, channels, expansion * channels, filters, stride)
            channels, height = filters, -(-height // stride)
    out = drawn.average(drawn.conv(out, channels, 1280), height)
    return _module(ifm, drawn.dense(relay.reshape(out, (1, 1280)), 1280, 1000))


def resnet8(wider: int = 1) -> tvm.IRModule:
    """ResNet-8 for images of 32 x 32, with so many times the channels."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, 32, 32, 3), dtype="int8")
    channels = 16 * wider
    out = drawn.conv(ifm, 3, channels, kernel=3)
    for stride, factor in ((1, 1), (2, 2), (2, 4)):
        filters = 16 * wider * factor
        inside = drawn.conv(drawn.conv(out, channels, filters, kernel=3, stride=stride), filters, filters, kernel=3)
        shortcut = out if stride == 1 else drawn.conv(out, channels, filters, stride=stride)
        out, channels = drawn.add(inside, shortcut), filters
    return _module(ifm, drawn.dense(relay.reshape(drawn.average(out, 8), (1, channels)), channels, 10))


def unet(size: int = 96, channels: int = 16) -> tvm.IRModule:
    """A U-Net for images of `size` x `size`: down three times and up again, by transposed convolutions."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, size, size, 1), dtype="int8")
    out, before, skipped = ifm, 1, []
    for depth in range(3):
        inside = channels << depth
        out = drawn.conv(drawn.conv(out, before, inside, kernel=3), inside, inside, kernel=3)
        skipped.append(out)
        out, before = relay.nn.max_pool2d(out, (2, 2), (2, 2), layout="NHWC"), inside
    out = drawn.conv(drawn.conv(out, before, 2 * before, kernel=3), 2 * before, 2 * before, kernel=3)
    for skip in reversed(skipped):
        out = relay.concatenate([drawn.twice_as_large(out, 2 * before, before), skip], axis=3)
        out = drawn.conv(drawn.conv(out, 2 * before, before, kernel=3), before, before, kernel=3)
        before //= 2
    return _module(ifm, drawn.conv(out, 2 * before, 2))


SQUEEZE = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Channels of the narrow convolution of each module, and of both wide ones behind it."""


def squeezenet(size: int = 96) -> tvm.IRModule:
    """SqueezeNet for images of `size` x `size`: each module puts two convolutions of one input together."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, size, size, 3), dtype="int8")
    out, channels = drawn.conv(ifm, 3, 64, kernel=3, stride=2), 64
    for module, (narrow, wide) in enumerate(SQUEEZE):
        if module in (0, 2, 4):
            out = relay.nn.max_pool2d(out, (3, 3), (2, 2), padding=(0, 0, 1, 1), layout="NHWC")
        out = drawn.conv(out, channels, narrow)
        out = relay.concatenate([drawn.conv(out, narrow, wide), drawn.conv(out, narrow, wide, kernel=3)], axis=3)
        channels = 2 * wide
    return _module(ifm, drawn.average(drawn.conv(out, channels, 100), size // 16))


def shufflenet(size: int = 64) -> tvm.IRModule:
    """ShuffleNetV2 for images of `size` x `size`: half of the channels pass a block, and then all are shuffled."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, size, size, 3), dtype="int8")
    out, channels = drawn.conv(ifm, 3, 24, kernel=3, stride=2), 24
    out, height = relay.nn.max_pool2d(out, (3, 3), (2, 2), padding=(0, 0, 1, 1), layout="NHWC"), size // 4
    for half, blocks in ((24, 4), (48, 8), (96, 4)):
        for block in range(blocks):
            if block:
                halves = relay.split(out, 2, axis=3)
                kept, inside = halves[0], halves[1]
                inside = drawn.depthwise(drawn.conv(inside, half, half), half, 1)
            else:
                height //= 2
                kept = drawn.conv(drawn.depthwise(out, channels, 2), channels, half)
                inside = drawn.depthwise(drawn.conv(out, channels, half), half, 2)
            out = relay.concatenate([kept, drawn.conv(inside, half, half)], axis=3)
            out = relay.transpose(relay.reshape(out, (1, height, height, 2, half)), (0, 1, 2, 4, 3))
            out, channels = relay.reshape(out, (1, height, height, 2 * half)), 2 * half
    out = drawn.average(drawn.conv(out, channels, 256), height)
    return _module(ifm, drawn.dense(relay.reshape(out, (1, 256)), 256, 10))


def temporal(steps: int = 101, features: int = 40) -> tvm.IRModule:
    """A temporal convolutional network: residual convolutions over time, dilated by 1 to 8."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, 1, steps, features), dtype="int8")
    out = drawn.conv(ifm, features, 32)
    for block in range(6):
        out = drawn.add(out, drawn.over_time(out, 32, 5, 1 << block % 4))
    return _module(ifm, out)


def mixer(tokens: int = 64, channels: int = 96, blocks: int = 4) -> tvm.IRModule:
    """An MLP mixer: dense layers over the tokens of each channel, and over the channels of each token."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, 8, tokens // 8, 48), dtype="int8")
    out = relay.reshape(drawn.conv(ifm, 48, channels), (1, tokens, channels))
    for _ in range(blocks):
        turned = relay.transpose(out, (0, 2, 1))
        turned = drawn.dense_of_tokens(drawn.dense_of_tokens(turned, tokens, 2 * tokens), 2 * tokens, tokens)
        out = drawn.add(out, relay.transpose(turned, (0, 2, 1)))
        inside = drawn.dense_of_tokens(out, channels, 4 * channels)
        out = drawn.add(out, drawn.dense_of_tokens(inside, 4 * channels, channels))
    return _module(ifm, drawn.dense(relay.reshape(out, (1, tokens * channels)), tokens * channels, 10))


FACES = ((24, 1), (28, 1), (32, 2), (36, 1), (42, 1), (48, 2), (56, 1), (64, 1), (96, 2), (96, 1))
"""Channels of each block, and its stride."""


def blazeface(size: int = 128) -> tvm.IRModule:
    """The blocks of BlazeFace for images of `size` x `size`: the shortcut of a block with more channels is padded."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, size, size, 3), dtype="int8")
    out, channels = drawn.conv(ifm, 3, 24, kernel=5, stride=2), 24
    for filters, stride in FACES:
        inside = drawn.conv(drawn.depthwise(out, channels, stride, kernel=5), channels, filters)
        kept = out if stride == 1 else relay.nn.max_pool2d(out, (2, 2), (2, 2), layout="NHWC")
        padding = (0, 0), (0, 0), (0, 0), (0, filters - channels)
        out, channels = drawn.add(inside, relay.nn.pad(kept, padding, drawn.zero_point)), filters
    return _module(ifm, drawn.conv(out, channels, 6))


def fastdepth(size: int = 64) -> tvm.IRModule:
    """FastDepth for images of `size` x `size`: images become larger by their nearest pixels, and are added to earlier
    ones."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, size, size, 3), dtype="int8")
    out, channels, height = drawn.conv(ifm, 3, 16, kernel=3, stride=2), 16, size // 2
    earlier: list[tuple[relay.Expr, int, int]] = []
    for filters, stride in ((24, 1), (48, 2), (64, 2), (96, 2)):
        out = drawn.conv(drawn.depthwise(out, channels, stride), channels, filters)
        channels, height = filters, height // stride
        earlier.append((out, filters, height))
    for skip, filters, height in reversed(earlier[:-1]):
        out = drawn.conv(drawn.depthwise(out, channels, 1, kernel=5), channels, filters)
        out, channels = drawn.add(drawn.nearest(out, height), skip), filters
    return _module(ifm, drawn.conv(out, channels, 1))


def poses(height: int = 64, width: int = 48) -> tvm.IRModule:
    """A network for poses: residual blocks, and two transposed convolutions with kernels of 4 x 4."""
    drawn = _Layers()
    ifm = relay.var("x", shape=(1, height, width, 3), dtype="int8")
    out, channels = drawn.conv(ifm, 3, 16, kernel=3, stride=2), 16
    for filters, stride in ((24, 2), (24, 1), (48, 2), (48, 1)):
        inside = drawn.conv(drawn.conv(out, channels, filters, kernel=3, stride=stride), filters, filters, kernel=3)
        shortcut = out if stride == 1 else drawn.conv(out, channels, filters, stride=stride)
        out, channels = drawn.add(inside, shortcut), filters
    for _ in range(2):
        out, channels = drawn.twice_as_large(out, channels, 32, kernel=4), 32
    return _module(ifm, drawn.conv(out, channels, 17))


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

    def depthwise(self, ifm: relay.Expr, channels: int, stride: int, *, kernel: int = 3) -> relay.Expr:
        out = relay.qnn.op.conv2d(
            ifm,
            self._weights((kernel, kernel, channels, 1)),
            *self._sum_quantization(),
            kernel_size=(kernel, kernel),
            channels=channels,
            groups=channels,
            strides=(stride, stride),
            padding=(kernel // 2,) * 4,
            data_layout="NHWC",
            kernel_layout="HWOI",
        )
        return self._finished(out, channels, axis=3)

    def over_time(self, ifm: relay.Expr, channels: int, kernel: int, dilation: int) -> relay.Expr:
        out = relay.qnn.op.conv2d(
            ifm,
            self._weights((1, kernel, channels, channels)),
            *self._sum_quantization(),
            kernel_size=(1, kernel),
            channels=channels,
            dilation=(1, dilation),
            padding=(0, kernel // 2 * dilation) * 2,
            data_layout="NHWC",
            kernel_layout="HWIO",
        )
        return self._finished(out, channels, axis=3)

    def twice_as_large(self, ifm: relay.Expr, channels: int, filters: int, *, kernel: int = 2) -> relay.Expr:
        out = relay.qnn.op.conv2d_transpose(
            ifm,
            self._weights((channels, filters, kernel, kernel)),
            *self._sum_quantization(),
            strides=(2, 2),
            padding=(kernel // 2 - 1,) * 4,
            channels=filters,
            kernel_size=(kernel, kernel),
            data_layout="NHWC",
            kernel_layout="IOHW",
            out_dtype="int32",
        )
        return self._finished(out, filters, axis=3)

    def nearest(self, ifm: relay.Expr, height: int) -> relay.Expr:
        """An image of `height` x `height` of the nearest pixels."""
        size, how = (height, height), {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}
        return relay.image.resize2d(ifm, size, layout="NHWC", rounding_method="floor", **how)

    def inverted_residual(self, ifm: relay.Expr, channels: int, inside: int, filters: int, stride: int) -> relay.Expr:
        out = ifm if inside == channels else self.conv(ifm, channels, inside)
        out = self.conv(self.depthwise(out, inside, stride), inside, filters)
        return self.add(out, ifm) if stride == 1 and channels == filters else out

    def add(self, one: relay.Expr, other: relay.Expr) -> relay.Expr:
        quantizations = (_const(self.scale, "float32"), _const(self.zero_point, "int32")) * 3
        return relay.qnn.op.add(one, other, *quantizations)

    def dense(self, ifm: relay.Expr, channels: int, units: int) -> relay.Expr:
        out = relay.qnn.op.dense(ifm, self._weights((units, channels)), *self._sum_quantization(), units=units)
        return self._finished(out, units, axis=1)

    def dense_of_tokens(self, ifm: relay.Expr, channels: int, units: int) -> relay.Expr:
        """A dense layer of each token, as TFLite has it."""
        return relay.reshape(self.dense(relay.reshape(ifm, (-1, channels)), channels, units), (1, -1, units))

    def bottleneck(self, ifm: relay.Expr, channels: int, inside: int, stride: int) -> relay.Expr:
        out = self.conv(ifm, channels, inside)
        out = self.conv(out, inside, inside, kernel=3, stride=stride)
        out = self.conv(out, inside, 4 * inside)
        shortcut = (
            ifm if channels == 4 * inside and stride == 1 else self.conv(ifm, channels, 4 * inside, stride=stride)
        )
        return self.add(out, shortcut)

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
