"""Small quantized ONNX networks, built node by node in the form in which PyTorch and onnxruntime export them.

Every value is a pair of QuantizeLinear and DequantizeLinear (QDQ form) with a scale of its own; weights are constants
behind a DequantizeLinear. Weights are random, scales fit the values that they give.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod, sqrt

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}


@dataclass(frozen=True)
class Value:
    """A float tensor of the graph that was just dequantized: its name, shape, the spread of its values, its grid."""

    name: str
    shape: tuple
    spread: float = 1.0
    scale: float | None = None
    zero_point: int | None = None


@dataclass
class QdqNet:
    """A network in the making: each method adds an operator with its QDQ pairs, and gives its result.

    `dtype` is that of activations, `per_channel` says whether weights have a scale for each output channel,
    `weight_dtype` is theirs. Operators of `opset` 13 and later have the same form.
    """

    dtype: str = "int8"
    per_channel: bool = True
    weight_dtype: str = "int8"
    opset: int = 17
    seed: int = 0
    nodes: list = field(default_factory=list)
    constants: list = field(default_factory=list)
    inputs: list = field(default_factory=list)
    outputs: list = field(default_factory=list)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self._count = 0

    # ------------------------------------------------------------ pieces

    def constant(self, array, what="constant"):
        """The name of a new initializer."""
        name = self._name(what)
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, operator, inputs, what="", **attributes):
        """The name of the output of a new node."""
        name = self._name(what or operator.lower())
        self.nodes.append(helper.make_node(operator, inputs, [name], f"/{name}", **attributes))
        return name

    def _name(self, what):
        self._count += 1
        return f"{what}_{self._count}"

    def quantized(self, name, shape, spread=1.0, scale=None, zero_point=None):
        """The value behind a new QDQ pair. By default four times its spread fits, around an odd zero point."""
        if scale is None:
            scale = spread * self.rng.uniform(4.0, 5.0) / 128
        if zero_point is None:
            zero_point = int(self.rng.integers(-9, 9)) + (128 if self.dtype == "uint8" else 0)
        numbers = [self.constant(np.float32(scale), "scale"), self.constant(self.dtype_of(zero_point), "zero_point")]
        quantized = self.node("QuantizeLinear", [name, *numbers])
        return Value(self.node("DequantizeLinear", [quantized, *numbers]), tuple(shape), spread, scale, zero_point)

    def dtype_of(self, zero_point):
        """A zero point as the activations' type."""
        return np.asarray(zero_point, self.dtype)

    def weights(self, shape, axis=0, spread=1.0):
        """The name of dequantized weights, with their scales."""
        count = shape[axis] if self.per_channel else 1
        scales = (self.rng.uniform(0.5, 1.0, count) * spread * 2 / 127).astype(np.float32)
        data = np.clip(np.rint(self.rng.standard_normal(shape) * 50), -127, 127).astype(np.int64)
        zero_point = 0
        if self.weight_dtype == "uint8":
            zero_point = 128 + int(self.rng.integers(-9, 9))
            data = np.clip(data + zero_point, 0, 255)
        zero_points = np.full(count, zero_point, self.weight_dtype)
        name = self.constant(data.astype(self.weight_dtype), "weight")
        if not self.per_channel:
            numbers = [self.constant(scales[0]), self.constant(zero_points[0])]
            return self.node("DequantizeLinear", [name, *numbers]), scales
        numbers = [self.constant(scales), self.constant(zero_points)]
        return self.node("DequantizeLinear", [name, *numbers], axis=axis), scales

    def bias(self, count, spread):
        """The name of a float bias, as PyTorch exports it."""
        return self.constant((self.rng.standard_normal(count) * spread).astype(np.float32), "bias")

    # ------------------------------------------------------------ operators

    def input(self, *shape, quantized=True):
        """A new float input of the model, quantized."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return self.quantized(name, shape)

    def output(self, value):
        """Make a value an output of the model."""
        name = f"y{len(self.outputs)}"
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape))

    def conv(self, x, filters, kernel=3, stride=1, groups=1, act="Relu", pads=None, dilation=1):
        """A convolution with bias, over one dimension or two; `act` is Relu, Relu6 or none."""
        batch, channels, *sides = x.shape
        window = [kernel] * len(sides)
        fan_in = channels // groups * prod(window)
        weights, _ = self.weights((filters, channels // groups, *window), spread=1 / sqrt(fan_in))
        around = [kernel // 2] * 2 * len(sides) if pads is None else pads
        extents = [
            (extent + around[side] + around[side + len(sides)] - (kernel - 1) * dilation - 1) // stride + 1
            for side, extent in enumerate(sides)
        ]
        result = self.node(
            "Conv",
            [x.name, weights, self.bias(filters, x.spread)],
            kernel_shape=window,
            strides=[stride] * len(sides),
            pads=around,
            group=groups,
            dilations=[dilation] * len(sides),
        )
        return self.activated(result, (batch, filters, *extents), x.spread, act)

    def activated(self, name, shape, spread, act):
        """A result behind its activation and its QDQ pair."""
        if act == "Relu":
            name = self.node("Relu", [name])
        elif act == "Relu6":
            name = self.node("Clip", [name, self.constant(np.float32(0)), self.constant(np.float32(6))])
        return self.quantized(name, shape, spread)

    def depthwise(self, x, kernel=3, stride=1, act="Relu"):
        """A depthwise convolution."""
        return self.conv(x, x.shape[1], kernel, stride, x.shape[1], act)

    def add(self, x, y, act=""):
        """The sum of two values."""
        return self.activated(self.node("Add", [x.name, y.name]), x.shape, sqrt(x.spread**2 + y.spread**2), act)

    def mul(self, x, y):
        """The product of two values."""
        return self.quantized(self.node("Mul", [x.name, y.name]), x.shape, x.spread * y.spread)

    def concat(self, *values, axis=1):
        """Values behind one another."""
        shape = list(values[0].shape)
        shape[axis] = sum(value.shape[axis] for value in values)
        result = self.node("Concat", [value.name for value in values], axis=axis)
        return self.quantized(result, shape, max(value.spread for value in values))

    def max_pool(self, x, kernel=2, stride=2, pads=(0, 0, 0, 0)):
        """The maximum over a window, with its input's scale as exporters have it."""
        return self._pool("MaxPool", x, kernel, stride, pads, x.scale, x.zero_point)

    def avg_pool(self, x, kernel=2, stride=2, pads=(0, 0, 0, 0), **attributes):
        """The average over a window."""
        return self._pool("AveragePool", x, kernel, stride, pads, None, None, **attributes)

    def _pool(self, operator, x, kernel, stride, pads, scale, zero_point, **attributes):
        sides = x.shape[2:]
        padded = (extent + pads[side] + pads[side + len(sides)] for side, extent in enumerate(sides))
        shape = (*x.shape[:2], *((extent - kernel) // stride + 1 for extent in padded))
        numbers = {"kernel_shape": [kernel] * len(sides), "strides": [stride] * len(sides), "pads": list(pads)}
        result = self.node(operator, [x.name], **numbers, **attributes)
        return self.quantized(result, shape, x.spread, scale, zero_point)

    def global_average(self, x):
        """The average over all dimensions behind the channels."""
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:]))
        return self.quantized(self.node("GlobalAveragePool", [x.name]), shape, x.spread / 2)

    def mean(self, x, axes, keepdims=0):
        """The mean over axes."""
        shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape) if keepdims or axis not in axes]
        result = self.node("ReduceMean", [x.name], axes=list(axes), keepdims=keepdims)
        return self.quantized(result, shape, x.spread / 2)

    def flatten(self, x):
        """Two dimensions, as in front of a Gemm: without a QDQ pair of its own."""
        return replace(x, name=self.node("Flatten", [x.name], axis=1), shape=(x.shape[0], prod(x.shape[1:])))

    def reshape(self, x, *shape):
        """Another shape, without a QDQ pair of its own."""
        return replace(x, name=self.node("Reshape", [x.name, self.constant(np.asarray(shape, np.int64))]), shape=shape)

    def transpose(self, x, *axes):
        """Other axes, without a QDQ pair of its own."""
        shape = tuple(x.shape[axis] for axis in axes)
        return replace(x, name=self.node("Transpose", [x.name], perm=list(axes)), shape=shape)

    def padded(self, x, before, after):
        """Zeros around the last dimension, without a QDQ pair of their own."""
        axes = len(x.shape) - 1
        widths = self.constant(np.asarray([*[0] * axes, before, *[0] * axes, after], np.int64))
        shape = (*x.shape[:-1], x.shape[-1] + before + after)
        return replace(x, name=self.node("Pad", [x.name, widths], mode="constant"), shape=shape)

    def at(self, x, index, axis):
        """What is at one index of an axis, without a QDQ pair of its own."""
        name = self.node("Gather", [x.name, self.constant(np.int64(index))], axis=axis)
        return replace(x, name=name, shape=(*x.shape[:axis], *x.shape[axis + 1 :]))

    def repeated_maximum(self, x, axis):
        """The maximum along an axis at each of its places, without a QDQ pair of its own."""
        name = self.node("ReduceMax", [x.name], axes=[axis], keepdims=1)
        return replace(x, name=self.node("Expand", [name, self.constant(np.asarray(x.shape, np.int64))]))

    def gemm(self, x, features, act=""):
        """A fully connected layer with bias."""
        weights, _ = self.weights((features, x.shape[1]), spread=1 / sqrt(x.shape[1]))
        result = self.node("Gemm", [x.name, weights, self.bias(features, x.spread)], transB=1)
        return self.activated(result, (x.shape[0], features), x.spread, act)

    def matmul_with_weights(self, x, features):
        """A MatMul with weights and an Add of its bias, as linear layers over several rows are exported."""
        weights, _ = self.weights((x.shape[-1], features), axis=1, spread=1 / sqrt(x.shape[-1]))
        product = self.node("MatMul", [x.name, weights])
        result = self.node("Add", [product, self.bias(features, x.spread)])
        return self.quantized(result, (*x.shape[:-1], features), x.spread)

    def matmul(self, x, y):
        """The matrix product of two activations."""
        shape = (*x.shape[:-1], y.shape[-1])
        return self.quantized(self.node("MatMul", [x.name, y.name]), shape, x.spread * y.spread * sqrt(x.shape[-1]))

    def softmax(self, x):
        """Softmax over the last axis, at the scale of 1/256."""
        zero_point = 0 if self.dtype == "uint8" else -128
        return self.quantized(self.node("Softmax", [x.name], axis=-1), x.shape, 0.1, 1 / 256, zero_point)

    def unary(self, operator, x, **attributes):
        """An element-wise function."""
        return self.quantized(self.node(operator, [x.name], **attributes), x.shape, x.spread)

    def prelu(self, x, *slopes):
        """A leaky relu with one slope for all channels, or one for each."""
        name = self.constant(np.asarray(slopes, np.float32).reshape(-1, *(1 for _ in x.shape[2:])), "slope")
        return self.quantized(self.node("PRelu", [x.name, name]), x.shape, x.spread)

    def batch_norm(self, x, act=""):
        """A batch normalization by itself; its first constant is quantized, as onnxruntime has it."""
        count = x.shape[1]
        factor, _ = self.weights((count,), spread=1.0)
        beta, mean = (self.bias(count, x.spread / 4) for _ in range(2))
        variance = self.constant(self.rng.uniform(0.5, 1.5, count).astype(np.float32))
        result = self.node("BatchNormalization", [x.name, factor, beta, mean, variance])
        return self.activated(result, x.shape, x.spread, act)

    def split(self, x, *sizes):
        """The channels in parts, each behind a QDQ pair of its own."""
        names = [self._name("split") for _ in sizes]
        parts = self.constant(np.asarray(sizes, np.int64))
        self.nodes.append(helper.make_node("Split", [x.name, parts], names, f"/{names[0]}", axis=1))
        shapes = [(x.shape[0], size, *x.shape[2:]) for size in sizes]
        return [self.quantized(name, shape, x.spread) for name, shape in zip(names, shapes, strict=True)]

    def depth_to_space(self, x, block, mode="CRD"):
        """Channels as pixels, without a QDQ pair of their own."""
        batch, channels, height, width = x.shape
        shape = (batch, channels // block**2, height * block, width * block)
        return replace(x, name=self.node("DepthToSpace", [x.name], blocksize=block, mode=mode), shape=shape)

    def resize(self, x, factor=2, mode="nearest"):
        """Larger height and width, with its input's scale."""
        attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        if mode == "linear":
            attributes = {"coordinate_transformation_mode": "half_pixel"}
        scales = self.constant(np.asarray([1, 1, factor, factor], np.float32))
        shape = (*x.shape[:2], *(extent * factor for extent in x.shape[2:]))
        result = self.node("Resize", [x.name, "", scales], mode=mode, **attributes)
        return self.quantized(result, shape, x.spread, x.scale, x.zero_point)

    def conv_transpose(self, x, filters, kernel=2, stride=2):
        """A transposed convolution with bias."""
        batch, channels, height, width = x.shape
        per_channel, self.per_channel = self.per_channel, False  # onnxruntime quantizes these per tensor
        weights, _ = self.weights((channels, filters, kernel, kernel), spread=1 / sqrt(channels))
        self.per_channel = per_channel
        result = self.node(
            "ConvTranspose",
            [x.name, weights, self.bias(filters, x.spread)],
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
        )
        extents = [(extent - 1) * stride + kernel for extent in (height, width)]
        return self.quantized(result, (batch, filters, *extents), x.spread)

    # ------------------------------------------------------------ the file

    def model(self):
        """The checked model."""
        graph = helper.make_graph(self.nodes, "net", self.inputs, self.outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model

    def save(self, path):
        """Write the file; its path."""
        onnx.save(self.model(), str(path))
        return path
