"""TFLite files of one operator whose constants have 4 bits."""

from dataclasses import replace

import numpy as np
import tflite
from tflite_samples import NONE, RELU, Node, TensorSample, four_bits, network_bytes

CONV = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": tflite.Padding.SAME}
RANDOM = np.random.default_rng(4)


def scales(count):
    return tuple(float(scale) for scale in RANDOM.uniform(0.01, 0.1, count).astype(np.float32))


def weights(shape, scale, axis=0):
    values = RANDOM.integers(-8, 8, shape, np.int8)
    values.flat[:2] = -8, 7
    return TensorSample(shape, scale, data=values, name="w", axis=axis)


def bias(count, scale=0.001):
    return TensorSample((count,), scale, data=RANDOM.integers(-200, 200, count, np.int32), name="b")


def activation(name, *shape):
    return TensorSample(shape, float(np.float32(RANDOM.uniform(0.1, 0.4))), int(RANDOM.integers(-9, 9)), name=name)


X, Y = activation("x", 1, 5, 6, 3), activation("y", 1, 5, 6, 5)
# Odd numbers of values: the last byte has one. The second input of the network, if there is one, has 4 bits.
NETWORKS = {
    "CONV_2D": (X, weights((5, 3, 3, 3), scales(5)), bias(5), Y, CONV | {"FusedActivationFunction": RELU}),
    "CONV_2D, one scale": (X, weights((5, 3, 3, 3), 0.05), bias(5), Y, CONV),
    "DEPTHWISE_CONV_2D": (
        X,
        weights((1, 3, 3, 3), scales(3), axis=3),
        bias(3),
        replace(X, name="y", scale=0.3),
        CONV | {"DepthMultiplier": 1},
    ),
    "FULLY_CONNECTED": (
        activation("x", 2, 11),
        weights((5, 11), scales(5)),
        bias(5),
        activation("y", 2, 5),
        {"FusedActivationFunction": NONE},
    ),
    "FULLY_CONNECTED, one scale": (
        replace(activation("x", 1, 1, 11), scale=0.25),
        weights((5, 11), 0.04),
        bias(5, 0.25 * 0.04),
        activation("y", 1, 1, 5),
        {"KeepNumDims": True, "FusedActivationFunction": RELU},
    ),
    "ADD": (X, weights((1, 5, 6, 3), 0.2), None, replace(X, name="y", scale=0.5), {}),
}


def file_of(case, change=lambda tensor: tensor):
    x, w, b, y, options = NETWORKS[case]
    tensors = [x, change(w), *([b] if b else []), y]
    last = len(tensors) - 1
    node = Node(case.split(",")[0], range(last), [last], options)
    return network_bytes(tensors, [node], [0], [last])


def narrow_file(case):
    """The file of a case, with 4 bits."""
    return file_of(case, four_bits)
