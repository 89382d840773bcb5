"""Small networks as TFLite files, made in memory with random weights, of the forms that real ones have.

Scales follow the spread of the values, so that no tensor is all at its limits: a layer's real values are taken to be
spread as those of its input, times the weights', times the root of the number of products in a sum.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import tflite
from tflite_samples import NONE, RELU, GrowingFile, Node, TensorSample

RELU6 = tflite.ActivationFunctionType.RELU6
SAME = tflite.Padding.SAME


class NetworkSample(GrowingFile):
    """A quantized network."""

    def __init__(self, dtype: str = "int8", seed: int = 0) -> None:
        super().__init__(seed)
        self.dtype, self.offset = dtype, 128 if dtype == "uint8" else 0

    def input(self, *shape: int) -> int:
        self.inputs.append(self._tensor(shape, 2 / 255, -1, f"input_{len(self.inputs)}"))
        return self.inputs[-1]

    # ---------------------------------------------------------------- operators with weights

    def conv(self, x: int, channels: int, kernel: int = 1, stride: int = 1, activation: int = RELU) -> int:
        _, height, width, depth = self.shape(x)
        weights, bias = self._weights(x, (channels, kernel, kernel, depth), 0, kernel * kernel * depth)
        shape = (1, -(-height // stride), -(-width // stride), channels)
        options = window(stride) | {"FusedActivationFunction": activation}
        return self._sums("CONV_2D", x, [weights, bias], shape, options, kernel * kernel * depth)

    def depthwise(self, x: int, kernel: int = 3, stride: int = 1, activation: int = RELU) -> int:
        _, height, width, depth = self.shape(x)
        weights, bias = self._weights(x, (1, kernel, kernel, depth), 3, kernel * kernel)
        shape = (1, -(-height // stride), -(-width // stride), depth)
        options = window(stride) | {"FusedActivationFunction": activation, "DepthMultiplier": 1}
        return self._sums("DEPTHWISE_CONV_2D", x, [weights, bias], shape, options, kernel * kernel)

    def dense(self, x: int, units: int, activation: int = NONE) -> int:
        *rows, depth = self.shape(x)
        weights, bias = self._weights(x, (units, depth), None, depth)
        options = {"FusedActivationFunction": activation, "KeepNumDims": len(rows) > 1}
        return self._sums("FULLY_CONNECTED", x, [weights, bias], (*rows, units), options, depth)

    def transposed_conv(self, x: int, channels: int, kernel: int = 2, stride: int = 2) -> int:
        _, height, width, depth = self.shape(x)
        weights, _ = self._weights(x, (channels, kernel, kernel, depth), 0, kernel * kernel * depth)
        shape = (1, height * stride, width * stride, channels)
        size = self._constant(np.array(shape, np.int32))
        products = depth * kernel * kernel / stride**2
        options = {"Padding": SAME, "StrideH": stride, "StrideW": stride}
        return self._operator(
            "TRANSPOSE_CONV", [size, weights, x], self._like_sums(x, weights, shape, products), options
        )

    def svdf(self, x: int, units: int, rank: int = 1, memory: int = 6) -> int:
        filters, depth = units * rank, self.shape(x)[1]
        features, _ = self._weights(x, (filters, depth), None, depth)
        spread = self._spread(x) * self._spread(features) * np.sqrt(depth)
        times = self.rng.integers(-2047, 2048, (filters, memory)).astype(np.int16)
        time_scale, state_scale = 1 / 2047, spread * 4 / 32767
        bias = self.rng.integers(-(2**20), 2**20, units).astype(np.int32)
        state = TensorSample((1, filters * memory), state_scale, dtype="INT16", variable=True)
        others = [self._constant(times, time_scale), self._constant(bias, state_scale * time_scale), self._add(state)]
        output = self._tensor((1, units), spread * np.sqrt(rank * memory / 3) * 4 / 255, -1)
        options = {"Rank": rank, "FusedActivationFunction": RELU}
        return self._operator("SVDF", [x, features, *others], output, options)

    # ---------------------------------------------------------------- operators without

    def add(self, x: int, y: int, activation: int = NONE) -> int:
        scale = float(np.hypot(self.tensors[x].scale, self.tensors[y].scale)) * 0.9
        output = self._tensor(self.shape(x), scale, 0.1)
        return self._operator("ADD", [x, y], output, {"FusedActivationFunction": activation})

    def concat(self, *values: int, axis: int = 3) -> int:
        """Of values with scales of their own. For int8, TFLite asks for one scale: the others are requantized."""
        shape = list(self.shape(values[0]))
        shape[axis] = sum(self.shape(value)[axis] for value in values)
        like = max((self.tensors[value] for value in values), key=lambda tensor: tensor.scale)
        if self.dtype == "int8":
            values = tuple(self._requantized(value, like) for value in values)
        output = self._add(replace(like, shape=tuple(shape), name=""))
        return self._operator("CONCATENATION", list(values), output, {"Axis": axis})

    def _requantized(self, x: int, like: TensorSample) -> int:
        if (self.tensors[x].scale, self.tensors[x].zero_point) == (like.scale, like.zero_point):
            return x
        return self._operator("QUANTIZE", [x], self._add(replace(like, shape=self.shape(x), name="")))

    def max_pool(self, x: int, kernel: int = 2, stride: int = 2) -> int:
        return self._pool("MAX_POOL_2D", x, kernel, stride)

    def average_pool(self, x: int, kernel: int = 2, stride: int = 2) -> int:
        return self._pool("AVERAGE_POOL_2D", x, kernel, stride)

    def mean(self, x: int) -> int:
        axes = self._constant(np.array([1, 2], np.int32))
        output = self._tensor((1, self.shape(x)[3]), self.tensors[x].scale / 3, -0.2)
        return self._operator("MEAN", [x, axes], output, {"KeepDims": False})

    def softmax(self, x: int) -> int:
        output = TensorSample(self.shape(x), 1 / 256, self.offset - 128, dtype=self.dtype.upper())
        return self._operator("SOFTMAX", [x], self._add(output), {"Beta": 1.0})

    def reshape(self, x: int, *shape: int) -> int:
        size = self._constant(np.array(shape, np.int32))
        return self._operator("RESHAPE", [x, size], self._same(x, shape))

    def transpose(self, x: int, *axes: int) -> int:
        order = self._constant(np.array(axes, np.int32))
        shape = tuple(self.shape(x)[axis] for axis in axes)
        return self._operator("TRANSPOSE", [x, order], self._same(x, shape))

    def channels(self, x: int, first: int, count: int) -> int:
        """A slice of some channels of (1, h, w, c)."""
        _, height, width, _ = self.shape(x)
        ends = (0, 0, 0, first), (1, height, width, first + count), (1, 1, 1, 1)
        masks = dict.fromkeys(("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask"), 0)
        inputs = [x, *(self._constant(np.array(values, np.int32)) for values in ends)]
        return self._operator("STRIDED_SLICE", inputs, self._same(x, (1, height, width, count)), masks)

    def nearest(self, x: int, factor: int = 2) -> int:
        _, height, width, depth = self.shape(x)
        size = self._constant(np.array([height * factor, width * factor], np.int32))
        return self._operator("RESIZE_NEAREST_NEIGHBOR", [x, size], self._same(x, (1, height * 2, width * 2, depth)))

    def matmul(self, x: int, y: int, *, turned: bool = False) -> int:
        """x (.., n, k) times y (.., k, m), or y (.., m, k) turned."""
        *batch, rows, depth = self.shape(x)
        columns = self.shape(y)[-2 if turned else -1]
        output = self._like_sums(x, y, (*batch, rows, columns), depth)
        return self._operator("BATCH_MATMUL", [x, y], output, {"AdjX": False, "AdjY": turned})

    # ---------------------------------------------------------------- tensors

    def _add(self, tensor: TensorSample) -> int:
        name = tensor.name or f"t{len(self.tensors)}"
        self.tensors.append(replace(tensor, name=name))
        return len(self.tensors) - 1

    def _tensor(self, shape: tuple[int, ...], scale: float, middle: float, name: str = "") -> int:
        """An activation; `middle` from -1 to 1 is where zero lies in its range."""
        zero_point = int(np.clip(round(middle * 128), -128, 127)) + self.offset
        return self._add(TensorSample(tuple(shape), float(scale), zero_point, dtype=self.dtype.upper(), name=name))

    def _same(self, x: int, shape: tuple[int, ...]) -> int:
        return self._add(replace(self.tensors[x], shape=tuple(shape), name=""))

    def _constant(self, values: np.ndarray, scale: float | tuple | None = None, zero_point: int = 0, axis: int = 0):
        return self._add(TensorSample(values.shape, scale, zero_point, values, axis))

    def _weights(self, x: int, shape: tuple[int, ...], axis: int | None, products: int) -> tuple[int, int]:
        """Weights with a scale for each index of `axis`, in int8, and a bias of the same size as the sums."""
        channels = shape[axis or 0]
        values = self.rng.integers(-127, 128, shape)
        if self.dtype == "uint8" or axis is None:
            scales = np.array([self.rng.uniform(0.004, 0.008)], np.float32)
        else:
            scales = self.rng.uniform(0.003, 0.01, channels).astype(np.float32)
        shift = 131 if self.dtype == "uint8" else 0
        stored = (values + shift).clip(0, 255) if shift else values
        weights = self._constant(stored.astype(self.dtype), tuple(scales), shift, axis or 0)
        spread = int(50 * 74 * np.sqrt(products))
        bias = self.rng.integers(-spread, spread + 1, channels).astype(np.int32)
        return weights, self._constant(bias, tuple(np.float32(self.tensors[x].scale) * scales))

    def _spread(self, value: int) -> float:
        """The spread of the real values of a tensor: of weights, which lie evenly in their range, or behind a RELU."""
        tensor = self.tensors[value]
        return (50 if tensor.data is None else 74) * float(np.mean(tensor.scale))

    def _like_sums(self, x: int, y: int, shape: tuple[int, ...], products: float) -> int:
        spread = self._spread(x) * self._spread(y) * np.sqrt(products)
        return self._tensor(shape, spread / 60, float(self.rng.uniform(-0.3, 0.3)))

    def _sums(
        self, operator: str, x: int, rest: list[int], shape: tuple[int, ...], options: dict, products: int
    ) -> int:
        spread = self._spread(x) * self._spread(rest[0]) * np.sqrt(products)
        activation = options["FusedActivationFunction"]
        middle = 0.1 if activation == NONE else -1
        return self._operator(operator, [x, *rest], self._tensor(shape, spread * 1.5 / 100, middle), options)

    def _pool(self, operator: str, x: int, kernel: int, stride: int) -> int:
        _, height, width, depth = self.shape(x)
        shape = (1, -(-height // stride), -(-width // stride), depth)
        options = {"Padding": SAME, "FilterHeight": kernel, "FilterWidth": kernel, "StrideH": stride, "StrideW": stride}
        return self._operator(operator, [x], self._same(x, shape), options)

    def _operator(self, operator: str, inputs: list[int], output: int, options: dict | None = None) -> int:
        self.nodes.append(Node(operator, inputs, [output], options or {}))
        name = f"{operator.lower()}_{sum(node.operator == operator for node in self.nodes)}"
        self.tensors[output] = replace(self.tensors[output], name=name)
        return output


def window(stride: int) -> dict:
    return {"Padding": SAME, "StrideH": stride, "StrideW": stride, "DilationHFactor": 1, "DilationWFactor": 1}


# ---------------------------------------------------------------- networks


def mobilenet(dtype: str) -> bytes:
    """Two inverted residual blocks of MobileNetV2, one of them with its addition, and a classifier."""
    net = NetworkSample(dtype, 1)
    x = net.conv(net.input(1, 16, 16, 3), 8, 3, 2, RELU6)
    x = net.conv(net.depthwise(net.conv(x, 24), 3, 2), 12, activation=NONE)
    y = net.conv(net.depthwise(net.conv(x, 36)), 12, activation=NONE)
    x = net.mean(net.conv(net.add(x, y), 32))
    return net.file(net.softmax(net.dense(x, 10)))


def inception(dtype: str) -> bytes:
    """Four branches of one input, put together by channels: twice."""
    net = NetworkSample(dtype, 2)
    x = net.conv(net.input(1, 12, 12, 3), 8, 3)
    for _ in range(2):
        pooled = net.conv(net.max_pool(x, 3, 1), 4)
        x = net.concat(net.conv(x, 4), net.conv(net.conv(x, 4), 8, 3), net.conv(net.conv(x, 2), 4, 5), pooled)
        x = net.average_pool(x)
    return net.file(net.dense(net.reshape(x, 1, int(np.prod(net.shape(x)))), 6))


def unet(dtype: str) -> bytes:
    """Down twice and up again: by nearest neighbours, and by a transposed convolution."""
    net = NetworkSample(dtype, 3)
    first = net.conv(net.input(1, 16, 16, 1), 6, 3)
    second = net.conv(net.max_pool(first), 8, 3)
    deepest = net.conv(net.max_pool(second), 12, 3)
    up = net.conv(net.concat(net.nearest(deepest), second), 8, 3)
    up = net.concat(net.transposed_conv(up, 6), first)
    return net.file(net.conv(net.conv(up, 6, 3), 2, activation=NONE))


def keywords(dtype: str) -> bytes:
    """A depthwise separable network over a spectrum, and two SVDF layers over time."""
    net = NetworkSample(dtype, 4)
    x = net.conv(net.input(1, 10, 8, 1), 8, 3, 2)
    for _ in range(2):
        x = net.conv(net.depthwise(x), 8)
    x = net.svdf(net.reshape(x, 1, int(np.prod(net.shape(x)))), 12, 2)
    return net.file(net.softmax(net.dense(net.svdf(x, 8), 4)))


def attention(dtype: str) -> bytes:
    """One block of attention with two heads over eight positions, its residual, and a classifier."""
    net = NetworkSample(dtype, 5)
    x = net.input(1, 8, 16)

    def heads(y: int) -> int:
        return net.transpose(net.reshape(y, 1, 8, 2, 8), 0, 2, 1, 3)

    query, key, value = (heads(net.dense(x, 16)) for _ in range(3))
    weights = net.softmax(net.matmul(query, key, turned=True))
    mixed = net.reshape(net.transpose(net.matmul(weights, value), 0, 2, 1, 3), 1, 8, 16)
    y = net.add(x, net.dense(mixed, 16))
    return net.file(net.dense(net.reshape(y, 1, 128), 5))


def shufflenet(dtype: str) -> bytes:
    """Half of the channels pass two blocks by, and all are shuffled behind each."""
    net = NetworkSample(dtype, 6)
    x = net.conv(net.input(1, 8, 8, 3), 16, 3)
    for _ in range(2):
        inside = net.conv(net.depthwise(net.conv(net.channels(x, 8, 8), 8)), 8)
        x = net.reshape(net.concat(net.channels(x, 0, 8), inside), 1, 8, 8, 2, 8)
        x = net.reshape(net.transpose(x, 0, 1, 2, 4, 3), 1, 8, 8, 16)
    x = net.depthwise(x, stride=2)
    return net.file(net.dense(net.mean(net.conv(x, 24)), 5))


NETWORKS = {
    "mobilenet": mobilenet,
    "inception": inception,
    "unet": unet,
    "keywords": keywords,
    "attention": attention,
    "shufflenet": shufflenet,
}
