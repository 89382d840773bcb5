"""TFLite networks with random weights, made in memory: layer after layer, with outputs that spread over int8."""

from __future__ import annotations

import numpy as np
import tflite
from tflite_samples import NONE, RELU, Node, TensorSample, network_bytes

SAME, VALID = tflite.Padding.SAME, tflite.Padding.VALID
FLOAT = 0.0
"""The scale that stands for none."""


class Network:
    """A network in the making. Each method adds an operator and returns the number of its output."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.tensors, self.nodes, self.inputs = [], [], []

    def bytes(self, *outputs):
        return network_bytes(self.tensors, self.nodes, self.inputs, outputs)

    def _tensor(self, shape, scale, zero_point=0, **fields):
        self.tensors.append(TensorSample(shape, scale, zero_point, name=f"t{len(self.tensors)}", **fields))
        return len(self.tensors) - 1

    def _output(self, operator, inputs, shape, scale, zero_point, options, **fields):
        ofm = self._tensor(shape, scale, zero_point, **fields)
        self.nodes.append(Node(operator, inputs, [ofm], options))
        return ofm

    def _zero_point(self):
        return int(self.rng.integers(-60, 60))

    def input(self, shape, scale=0.05):
        fields = {"dtype": "FLOAT32"} if scale == FLOAT else {}
        self.inputs.append(self._tensor(shape, scale, 0 if scale == FLOAT else self._zero_point(), **fields))
        return self.inputs[-1]

    def _weighted(self, operator, ifm, shape, per_channel, fan_in, ofm_shape, options, axis=0):
        """Weights of a shape, a bias, and an output whose scale fits the sums of `fan_in` products."""
        channels = ofm_shape[-1]
        scales = self.rng.uniform(0.001, 0.01, channels if per_channel else 1).astype(np.float32)
        products = np.float32(self.tensors[ifm].scale) * scales
        values = self.rng.integers(-127, 128, shape).astype(np.int8)
        weights = self._tensor(shape, tuple(scales), data=values, axis=axis)
        bias = self.rng.integers(-3000, 3000, channels).astype(np.int32)
        biases = self._tensor((channels,), tuple(products), data=bias)
        scale = float(products.mean() * 40 * np.sqrt(fan_in))
        return self._output(operator, [ifm, weights, biases], ofm_shape, scale, self._zero_point(), options)

    def conv(self, ifm, filters, kernel=(3, 3), stride=1, dilation=1, padding=SAME, relu=True):
        batch, _, _, depth = self.tensors[ifm].shape
        options, extents = self._window(ifm, kernel, stride, dilation, padding, relu)
        shape = (filters, *kernel, depth)
        return self._weighted(
            "CONV_2D", ifm, shape, True, kernel[0] * kernel[1] * depth, (batch, *extents, filters), options
        )

    def depthwise(self, ifm, multiplier=1, kernel=(3, 3), stride=1, dilation=1, padding=SAME, relu=True):
        batch, _, _, depth = self.tensors[ifm].shape
        options, extents = self._window(ifm, kernel, stride, dilation, padding, relu)
        shape = (1, *kernel, depth * multiplier)
        ofm = (batch, *extents, depth * multiplier)
        options["DepthMultiplier"] = multiplier
        return self._weighted("DEPTHWISE_CONV_2D", ifm, shape, True, kernel[0] * kernel[1], ofm, options, axis=3)

    def _window(self, ifm, kernel, stride, dilation, padding, relu):
        lost = [dilation * (extent - 1) if padding == VALID else 0 for extent in kernel]
        extents = [-(-(self.tensors[ifm].shape[1 + axis] - lost[axis]) // stride) for axis in (0, 1)]
        options = {"Padding": padding, "StrideH": stride, "StrideW": stride}
        options |= {"DilationHFactor": dilation, "DilationWFactor": dilation}
        return options | {"FusedActivationFunction": RELU if relu else NONE}, extents

    def dense(self, ifm, units):
        rows, depth = self.tensors[ifm].shape
        options = {"FusedActivationFunction": NONE}
        return self._weighted("FULLY_CONNECTED", ifm, (units, depth), False, depth, (rows, units), options)

    def pair(self, operator, first, second):
        """ADD, SUB or MUL; either input may be broadcast."""
        one, other = self.tensors[first], self.tensors[second]
        scale = 60 * one.scale * other.scale if operator == "MUL" else one.scale + other.scale
        options, shape = {"FusedActivationFunction": NONE}, np.broadcast_shapes(one.shape, other.shape)
        return self._output(operator, [first, second], shape, scale, self._zero_point(), options)

    def average(self, ifm, kernel, stride, padding=SAME):
        own = self.tensors[ifm]
        options, extents = self._window(ifm, kernel, stride, 1, padding, False)
        options = {key: value for key, value in options.items() if not key.startswith("Dilation")}
        options |= {"FilterHeight": kernel[0], "FilterWidth": kernel[1]}
        shape = (own.shape[0], *extents, own.shape[3])
        return self._output("AVERAGE_POOL_2D", [ifm], shape, own.scale, own.zero_point, options)

    def mean(self, ifm):
        """Over height and width."""
        own = self.tensors[ifm]
        axes = self._tensor((2,), FLOAT, data=np.array([1, 2], np.int32))
        shape, scale = (own.shape[0], own.shape[3]), 0.6 * own.scale
        return self._output("MEAN", [ifm, axes], shape, scale, self._zero_point(), {"KeepDims": False})

    def flatten(self, ifm):
        own = self.tensors[ifm]
        shape = (own.shape[0], int(np.prod(own.shape[1:])))
        target = self._tensor((2,), FLOAT, data=np.array(shape, np.int32))
        return self._output("RESHAPE", [ifm, target], shape, own.scale, own.zero_point, {})

    def pad(self, ifm, height, width):
        own = self.tensors[ifm]
        widths = np.array([(0, 0), height, width, (0, 0)], np.int32)
        shape = tuple(int(extent + before + after) for extent, (before, after) in zip(own.shape, widths, strict=True))
        around = self._tensor((4, 2), FLOAT, data=widths)
        return self._output("PAD", [ifm, around], shape, own.scale, own.zero_point, {})

    def softmax(self, ifm):
        return self._output("SOFTMAX", [ifm], self.tensors[ifm].shape, 1 / 256, -128, {"Beta": 1.0})

    def quantize(self, ifm, scale):
        return self._output("QUANTIZE", [ifm], self.tensors[ifm].shape, scale, self._zero_point(), {})

    def dequantize(self, ifm):
        return self._output("DEQUANTIZE", [ifm], self.tensors[ifm].shape, FLOAT, 0, {}, dtype="FLOAT32")


def mobile_net(seed=0):
    """In the manner of MobileNetV2, with float inputs and outputs: bottlenecks, two with a shortcut."""
    net = Network(seed)
    x = net.conv(net.quantize(net.input((1, 32, 32, 3), FLOAT), 0.03), 8, stride=2)
    for filters, stride in ((8, 1), (16, 2), (16, 1)):
        wide = net.conv(x, 4 * net.tensors[x].shape[3], kernel=(1, 1))
        narrow = net.conv(net.depthwise(wide, stride=stride), filters, kernel=(1, 1), relu=False)
        x = net.pair("ADD", x, narrow) if net.tensors[x].shape == net.tensors[narrow].shape else narrow
    x = net.mean(net.conv(x, 32, kernel=(1, 1)))
    return net.bytes(net.dequantize(net.softmax(net.dense(x, 20))))
