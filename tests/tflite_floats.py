"""Small float networks as TFLite files, made in memory with random weights."""

from __future__ import annotations

import numpy as np
import tflite
from tflite_samples import NONE, GrowingFile, Node, TensorSample

SAME = tflite.Padding.SAME
STORED = ("float32", "int8", "float16")
"""How weights are stored: "int8" as of dynamic range quantization, "float16" behind DEQUANTIZE."""


class FloatSample(GrowingFile):
    """A float network."""

    def __init__(self, stored: str = "float32", seed: int = 0) -> None:
        super().__init__(seed)
        self.stored = stored

    def input(self, *shape: int) -> int:
        self.inputs.append(self._tensor(shape, f"input_{len(self.inputs)}"))
        return self.inputs[-1]

    def constant(self, values: np.ndarray, name: str = "constant") -> int:
        dtype = str(values.dtype).upper()
        self.tensors.append(
            TensorSample(values.shape, None, data=values, name=f"{name}_{len(self.tensors)}", dtype=dtype)
        )
        return len(self.tensors) - 1

    def operator(self, kind: str, inputs: list[int], shape: tuple[int, ...], **options: object) -> int:
        output = self._tensor(shape, f"{kind.lower()}_{len(self.nodes)}")
        self.nodes.append(Node(kind, inputs, [output], options, version=1))
        return output

    def conv(self, x: int, channels: int, kernel: int = 3, stride: int = 1, activation: int = NONE, bias=True) -> int:
        _, height, width, depth = self.shape(x)
        operands = self._products((channels, kernel, kernel, depth), 0)
        shape = (1, -(-height // stride), -(-width // stride), channels)
        operands = operands if bias else operands[:1]
        return self.operator("CONV_2D", [x, *operands], shape, **window(stride), FusedActivationFunction=activation)

    def depthwise(self, x: int, multiplier: int = 1, kernel: int = 3, activation: int = NONE) -> int:
        _, height, width, depth = self.shape(x)
        operands = self._products((1, kernel, kernel, depth * multiplier), 3)
        options = window(1) | {"FusedActivationFunction": activation, "DepthMultiplier": multiplier}
        return self.operator("DEPTHWISE_CONV_2D", [x, *operands], (1, height, width, depth * multiplier), **options)

    def dense(self, x: int, units: int, activation: int = NONE, keep: bool = False) -> int:
        *rows, depth = self.shape(x)
        options = {"FusedActivationFunction": activation, "KeepNumDims": keep}
        return self.operator("FULLY_CONNECTED", [x, *self._products((units, depth), 0)], (*rows, units), **options)

    def _products(self, shape: tuple[int, ...], axis: int) -> list[int]:
        """Weights, some channels with larger ones than others, and a bias."""
        along = [-1 if place == axis else 1 for place in range(len(shape))]
        spread = self.rng.uniform(0.3, 2, shape[axis]) / np.sqrt(np.prod(shape) / shape[axis])
        weights = (self.rng.normal(size=shape) * spread.reshape(along)).astype(np.float32)
        bias = self.rng.normal(size=shape[axis]).astype(np.float32) / 5
        return [self._weights(weights, axis), self.constant(bias, "bias")]

    def _weights(self, weights: np.ndarray, axis: int) -> int:
        if self.stored == "float32":
            return self.constant(weights, "weights")
        if self.stored == "float16":
            halves = self.constant(weights.astype(np.float16), "halves")
            return self.operator("DEQUANTIZE", [halves], weights.shape)
        scales = np.abs(weights).max(axis=tuple({*range(weights.ndim)} - {axis}), keepdims=True) / 127
        levels = np.rint(weights / scales).astype(np.int8)
        self.tensors.append(
            TensorSample(weights.shape, tuple(scales.reshape(-1)), 0, levels, axis, f"weights_{len(self.tensors)}")
        )
        return len(self.tensors) - 1

    def _tensor(self, shape: tuple[int, ...], name: str) -> int:
        self.tensors.append(TensorSample(shape, None, name=name, dtype="FLOAT32"))
        return len(self.tensors) - 1


def window(stride: int) -> dict:
    return {"Padding": SAME, "StrideH": stride, "StrideW": stride, "DilationHFactor": 1, "DilationWFactor": 1}
