"""Layers, graphs and lifetimes with random contents, for the tests of the planner."""

import random
from dataclasses import replace

import numpy as np

from byoc_hw.accelerator import REFERENCE
from byoc_hw.graph import (
    Add,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Gather,
    Graph,
    Lookup,
    MatMul,
    Mul,
    Ordering,
    Pad,
    Pool2d,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Suppression,
    Transpose,
    output_extent,
)
from byoc_hw.plan.place.by_lifetime import blocks_from_lifetimes, largest_sum, place
from byoc_hw.plan.region_memory import Lifetime
from byoc_hw.tensor import Quantization, Tensor


def accelerator(activations=256 * 1024, weights=64 * 1024, **changes):
    return replace(REFERENCE, activation_memory=activations, weight_memory=weights, **changes)


def activation(name, shape, scale=0.05, zero_point=0, data=None):
    return Tensor(name, tuple(shape), quantization=Quantization((scale,), (zero_point,)), data=data)


class Samples:
    """Makes layers on tensors; names count up, contents come from one seed."""

    def __init__(self, seed=0):
        self.random = np.random.default_rng(seed)
        self.count = 0

    def name(self, kind):
        self.count += 1
        return f"{kind}_{self.count}"

    def tensor(self, shape, data=None):
        scale = float(np.float32(self.random.uniform(0.02, 0.2)))
        return activation(self.name("tensor"), shape, scale, int(self.random.integers(-128, 128)), data)

    def constant(self, shape):
        return self.tensor(shape, self.values(shape))

    def values(self, shape):
        return self.random.integers(-128, 128, shape).astype(np.int8)

    def weighted(self, ifm, ofm, shape, bits):
        high = 1 << (bits - 1)
        data = self.random.integers(-high, high, shape).astype(np.int8)
        zero_point = int(self.random.integers(-3, 4)) if bits == 8 else 0
        weights = Tensor(self.name("weights"), shape, "int8", bits, Quantization((0.01,), (zero_point,)), data)
        channels = ofm.shape[-1]
        bias = Tensor(
            self.name("bias"),
            (channels,),
            "int32",
            32,
            None,
            self.random.integers(-5000, 5000, channels).astype(np.int32),
        )
        per_channel = self.random.random() < 0.5
        sums = np.sqrt(np.prod(shape[1:])) * high * 40  # keeps outputs inside int8 for the most part
        scales = self.random.uniform(0.3, 1.5, channels if per_channel else 1) * ofm.quantization.scale[0] * 60 / sums
        return {
            "name": self.name("layer"),
            "source": (),
            "ifm": ifm,
            "ofm": ofm,
            "weights": weights,
            "bias": bias if self.random.random() < 0.8 else None,
            "accumulator": Quantization(tuple(float(scale) for scale in scales), (0,)),
            "act_min": -128 if self.random.random() < 0.5 else ofm.quantization.zero_point[0],
            "act_max": 127,
        }

    def conv2d(
        self, ifm, channels, kernel=(3, 3), strides=(1, 1), padding=(0, 0, 0, 0), bits=8, groups=1, dilation=(1, 1)
    ):
        ofm = self.tensor(window_shape(ifm, channels, kernel, strides, padding, dilation))
        fields = self.weighted(ifm, ofm, (channels, *kernel, ifm.shape[3] // groups), bits)
        return Conv2d(**fields, strides=strides, padding=padding, dilation=dilation, groups=groups)

    def depthwise(self, ifm, kernel=(3, 3), strides=(1, 1), padding=(0, 0, 0, 0), bits=8, dilation=(1, 1)):
        channels = ifm.shape[3]
        ofm = self.tensor(window_shape(ifm, channels, kernel, strides, padding, dilation))
        fields = self.weighted(ifm, ofm, (channels, *kernel, 1), bits)
        return DepthwiseConv2d(**fields, strides=strides, padding=padding, dilation=dilation)

    def dense(self, ifm, channels, bits=8):
        ofm = self.tensor((ifm.shape[0], channels))
        return Dense(**self.weighted(ifm, ofm, (channels, ifm.shape[1]), bits))

    def add(self, ifm, ifm2, rounding="upward", *, subtract=""):
        name, ofm = self.name("layer"), self.tensor(ifm.shape)
        largest = max(one.quantization.scale[0] for one in (ifm, ifm2))
        if largest > 1:  # of products of products
            ofm = replace(ofm, quantization=Quantization((float(np.float32(largest)),), ofm.quantization.zero_point))
        return Add(name, (), ifm, ofm, ifm2, rounding=rounding, subtract=subtract)

    def mul(self, ifm, ifm2, rounding="upward"):
        scale = float(np.float32(ifm.quantization.scale[0] * ifm2.quantization.scale[0] * self.random.uniform(40, 200)))
        ofm = activation(self.name("tensor"), ifm.shape, scale, int(self.random.integers(-128, 128)))
        return Mul(self.name("layer"), (), ifm, ofm, ifm2, rounding=rounding)

    def pool(
        self,
        ifm,
        mode="avg",
        kernel=(2, 2),
        strides=(2, 2),
        padding=(0, 0, 0, 0),
        rescaled=False,
        include=False,
        rounding="upward",
    ):
        shape = window_shape(ifm, ifm.shape[3], kernel, strides, padding)
        ofm = self.tensor(shape)
        return Pool2d(
            self.name("layer"),
            (),
            ifm,
            ofm,
            mode=mode,
            kernel=kernel,
            strides=strides,
            padding=padding,
            count_include_pad=include,
            rescaled=rescaled,
            rounding=rounding,
        )

    def matmul(self, ifm, ifm2, rounding="upward"):
        """The product of B x M x 1 x K and B x N x K."""
        product = float(np.float32(ifm.quantization.scale[0] * ifm2.quantization.scale[0]))
        scale = float(np.float32(product * 60 * ifm.shape[3] ** 0.5))
        ofm = activation(self.name("tensor"), (*ifm.shape[:3], ifm2.shape[1]), scale, int(self.random.integers(-9, 9)))
        accumulator = Quantization((product,), (0,))
        return MatMul(self.name("layer"), (), ifm, ofm, ifm2=ifm2, accumulator=accumulator, rounding=rounding)

    def softmax(self, ifm):
        ofm = activation(self.name("tensor"), ifm.shape, 1 / 256, -128)
        return Softmax(self.name("layer"), (), ifm, ofm, rounding="tflite")

    def lookup(self, ifm, by_channel=False):
        channels = ifm.shape[-1] if by_channel else 1
        tables = self.random.integers(0, 256, (channels, 256)).astype(np.uint8)
        return Lookup(self.name("layer"), (), ifm, self.tensor(ifm.shape), tables)

    def reshape(self, ifm, shape):
        return Reshape(self.name("layer"), (), ifm, replace(self.tensor(shape), quantization=ifm.quantization))

    def transpose(self, ifm, axes):
        shape = tuple(ifm.shape[axis] for axis in axes)
        ofm = replace(self.tensor(shape), quantization=ifm.quantization)
        return Transpose(self.name("layer"), (), ifm, ofm, axes=tuple(axes))

    def blocks_apart(self, ifm, block):
        """Pixels from channels, as a transposed convolution has them: each pixel becomes a block of them."""
        _, height, width, channels = ifm.shape
        down, along = block
        depth = channels // (down * along)
        return self._blocks(ifm, (1, height, width, *block, depth), (1, height * down, width * along, depth))

    def upsampled(self, ifm, channels, block=(2, 2), kernel=(3, 3)):
        """A transposed convolution, as TFLite has it: a convolution to blocks of pixels, which are put side by side."""
        first = self.conv2d(ifm, channels * block[0] * block[1], kernel, padding=(kernel[0] // 2, kernel[1] // 2) * 2)
        return [first, *self.blocks_apart(first.ofm, block)]

    def blocks_together(self, ifm, block):
        """Channels from pixels, the other way round."""
        _, height, width, channels = ifm.shape
        down, along = block
        rows, columns = height // down, width // along
        return self._blocks(ifm, (1, rows, down, columns, along, channels), (1, rows, columns, down * along * channels))

    def _blocks(self, ifm, apart, shape):
        """Three layers. The tensors between have no quantization, as no operator of a model states one."""
        apart = replace(self.tensor(apart), quantization=None)
        turned = self.transpose(apart, (0, 1, 3, 2, 4, 5))
        image = replace(self.tensor(shape), quantization=ifm.quantization)
        first, last = ((self.name("layer"), (), *ends) for ends in ((ifm, apart), (turned.ofm, image)))
        return Reshape(*first), turned, Reshape(*last)

    def moved(self, kind, ifm, shape, **fields):
        """A layer that only moves bytes."""
        return kind(self.name("layer"), (), ifm, replace(self.tensor(shape), quantization=ifm.quantization), **fields)

    def concat(self, inputs, axis):
        ifm, *others = inputs
        joined = sum(tensor.shape[axis] for tensor in inputs)
        shape = (*ifm.shape[:axis], joined, *ifm.shape[axis + 1 :])
        return self.moved(Concat, ifm, shape, others=tuple(others), axis=axis)

    def slice(self, ifm, begin, shape, steps):
        return self.moved(Slice, ifm, shape, begin=tuple(begin), steps=tuple(steps))

    def pad(self, ifm, before, after, value=0):
        shape = [first + size + last for first, size, last in zip(before, ifm.shape, after, strict=True)]
        return self.moved(Pad, ifm, tuple(shape), before=tuple(before), value=value)

    def order(self, ifm, axis, count, *, descending=True):
        shape = (*ifm.shape[:axis], count, *ifm.shape[axis + 1 :])
        name = self.name("order")
        return Ordering(name, (), ifm, Tensor(name, shape, "int32"), axis=axis, descending=descending)

    def gather(self, ifm, places, axis):
        name = self.name("gather")
        return Gather(name, (), ifm, replace(ifm, name=name, shape=places.shape), places=places, axis=axis)

    def suppression(self, boxes, valid_count, **fields):
        name = self.name("suppression")
        return Suppression(name, (), boxes, replace(boxes, name=name), valid_count=valid_count, **fields)

    def resize(self, ifm, rows, columns):
        shape = (1, len(rows), len(columns), ifm.shape[3])
        return self.moved(Resize, ifm, shape, rows=tuple(rows), columns=tuple(columns))


def window_shape(ifm, channels, kernel, strides, padding, dilation=(1, 1)):
    top, left, bottom, right = padding
    return (
        1,
        output_extent(ifm.shape[1], top, bottom, kernel[0], strides[0], dilation[0]),
        output_extent(ifm.shape[2], left, right, kernel[1], strides[1], dilation[1]),
        channels,
    )


def graph_of(inputs, layers, outputs):
    return Graph("region", tuple(inputs), tuple(outputs), tuple(layers))


class Growing:
    """A graph as it grows from one input."""

    def __init__(self, shape):
        self.samples = Samples()
        self.ifm, self.layers = self.samples.tensor(shape), []

    def add(self, layer):
        self.layers.append(layer)
        return layer.ofm

    def graph(self, *outputs):
        return graph_of([self.ifm], self.layers, outputs)


def kinds(graph):
    """The kinds of a graph's layers, in order."""
    return [layer.kind for layer in graph.layers]


def single(layer):
    """A graph of one layer."""
    inputs = [tensor for tensor in dict.fromkeys(layer.inputs) if tensor.data is None]
    return graph_of(inputs, [layer], [layer.ofm])


def hard_lifetimes():
    """Lifetimes on which the heuristic stays above the bound."""
    for seed in range(200):
        rng = random.Random(seed)
        lifetimes = []
        for index in range(24):
            first = rng.randrange(12)
            lifetimes.append(Lifetime(f"t{index:02}", 16 * rng.randrange(1, 40), first, first + rng.randrange(6), ""))
        if place(blocks_from_lifetimes(lifetimes, 16), largest_sum(lifetimes)).gap:
            return lifetimes
    raise AssertionError("the heuristic has become perfect: make the lifetimes harder")
