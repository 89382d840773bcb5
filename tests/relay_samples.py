"""Small Relay models, one operator each or a few, with everything that matters to a pattern a knob.

A sample has `variables(prefix)`, the model inputs that it needs, `expr(*variables)`, what it computes
of them, and `module()`. `side_by_side` puts several into one module.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import tvm
from tvm import relay


def const(value, dtype):
    return relay.const(np.asarray(value, dtype), dtype=dtype)


def module(body, *inputs):
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(list(inputs), body)))


def variable(shape, dtype="int8", name="x"):
    return relay.var(name, shape=shape, dtype=dtype)


def side_by_side(samples):
    """One module that computes every sample from inputs of its own; its outputs in the same order."""
    inputs, outputs = [], []
    for index, sample in enumerate(samples):
        own = sample.variables(f"s{index}_")
        inputs += own
        outputs.append(sample.expr(*own))
    return module(relay.Tuple(outputs) if len(outputs) > 1 else outputs[0], *inputs)


class Sample:
    """What all samples share."""

    def module(self):
        inputs = self.variables("")
        return module(self.expr(*inputs), *inputs)


@dataclass
class Conv(Sample):
    """A quantized convolution; `depthwise` has `multiplier` filters for each of `channels`."""

    height: int = 8
    width: int = 8
    channels: int = 4
    filters: int = 8
    kernel: tuple = (3, 3)
    strides: tuple = (1, 1)
    padding: tuple = (1, 1, 1, 1)
    dilation: tuple = (1, 1)
    explicit_pad: tuple | None = None
    pad_value: float | None = None
    pad_mode: str = "constant"
    pad_channels: tuple = (0, 0)
    depthwise: bool = False
    multiplier: int = 1
    groups: int | None = None
    layout: str = "NHWC"
    kernel_layout: str | None = None
    constant_weights: bool = True
    bias: bool = True
    bias_as_add: bool = False
    bias_axis: int | None = None
    constant_bias: bool = True
    requantized: bool = True
    requantize_axis: int | None = None
    rounding: str = "None"
    compute_dtype: str = "None"
    sum_dtype: str = "int32"
    clip: tuple | None = None
    per_channel: bool = True
    ifm_zero_point: int = -3
    weight_zero_point: int | tuple = 0
    sum_zero_point: int = 0
    ofm_zero_point: int = 5
    ifm_scale: float = 0.05
    ofm_scale: float = 0.4
    scales: tuple | None = None
    batch: int = 1
    dtype: str = "int8"
    weight_dtype: str = "int8"
    seed: int = 0
    weights: np.ndarray | None = None
    bias_values: np.ndarray | None = None

    @property
    def ifm_shape(self):
        nhwc = dict(zip("NHWC", (self.batch, self.height, self.width, self.channels), strict=True))
        return tuple(nhwc[letter] for letter in self.layout)

    @property
    def total_filters(self):
        return self.channels * self.multiplier if self.depthwise else self.filters

    @property
    def weight_layout(self):
        if self.kernel_layout is not None:
            return self.kernel_layout
        if self.layout == "NCHW":
            return "OIHW"
        # As the TFLite importer has it: a depthwise kernel of one channel is an ordinary one.
        return "HWOI" if self.depthwise and self.channels > 1 else "HWIO"

    def variables(self, prefix=""):
        own = [variable(self.ifm_shape, self.dtype, f"{prefix}x")]
        if not self.constant_weights:
            own.append(variable(self._weights().shape, self.weight_dtype, f"{prefix}w"))
        if not self.constant_bias:
            own.append(variable((self.total_filters,), "int32", f"{prefix}b"))
        return own

    def _weights(self):
        """As `weight_layout` has them."""
        rng = np.random.default_rng(self.seed)
        per_group = 1 if self.depthwise else (self.channels + sum(self.pad_channels)) // (self.groups or 1)
        weights = self.weights
        if weights is None:
            weights = rng.integers(-127, 128, (self.total_filters, *self.kernel, per_group))
        if self.multiplier > 1 and self.weight_layout == "HWOI":  # HWOI is then (height, width, channel, multiplier)
            weights = weights.reshape(self.channels, self.multiplier, *self.kernel).transpose(0, 2, 3, 1)
        return weights.transpose(["OHWI".index(letter) for letter in self.weight_layout]).astype(self.weight_dtype)

    def _padded(self, ifm):
        top, left, bottom, right = self.explicit_pad
        widths = {"N": (0, 0), "H": (top, bottom), "W": (left, right), "C": self.pad_channels}
        value = float(self.ifm_zero_point if self.pad_value is None else self.pad_value)
        return relay.nn.pad(ifm, [widths[letter] for letter in self.layout], value, self.pad_mode)

    def expr(self, ifm, *others):
        rng = np.random.default_rng(self.seed + 1)
        others = list(others)
        filters, axis = self.total_filters, self.layout.index("C")
        weights = const(self._weights(), self.weight_dtype) if self.constant_weights else others.pop(0)
        bias = rng.integers(-2000, 2000, filters).astype("int32") if self.bias_values is None else self.bias_values
        scales = np.asarray(self.scales or rng.uniform(0.002, 0.02, filters if self.per_channel else 1), "float32")
        if self.explicit_pad is not None:
            ifm = self._padded(ifm)
        out = relay.qnn.op.conv2d(
            ifm,
            weights,
            const(self.ifm_zero_point, "int32"),
            const(self.weight_zero_point, "int32"),
            const(self.ifm_scale, "float32"),
            const(scales if self.per_channel else scales[0], "float32"),
            kernel_size=self.kernel,
            channels=filters,
            strides=self.strides,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.channels if self.depthwise else (self.groups or 1),
            data_layout=self.layout,
            kernel_layout=self.weight_layout,
            out_dtype=self.sum_dtype,
        )
        if not self.constant_bias:
            out = relay.nn.bias_add(out, others.pop(0), axis=axis)
        elif self.bias and self.bias_as_add:
            out = relay.add(out, const(bias.reshape([-1 if i == axis else 1 for i in range(4)]), self.sum_dtype))
        elif self.bias:
            out = relay.nn.bias_add(
                out, const(bias, self.sum_dtype), axis=axis if self.bias_axis is None else self.bias_axis
            )
        total = scales * np.float32(self.ifm_scale)
        if self.requantized:
            out = relay.qnn.op.requantize(
                out,
                const(total if self.per_channel else total[0], "float32"),
                const(self.sum_zero_point, "int32"),
                const(self.ofm_scale, "float32"),
                const(self.ofm_zero_point, "int32"),
                axis=axis if self.requantize_axis is None else self.requantize_axis,
                rounding=self.rounding,
                compute_dtype=self.compute_dtype,
                out_dtype=self.dtype,
            )
        return out if self.clip is None else relay.clip(out, *self.clip)


@dataclass
class Dense(Sample):
    """A quantized fully connected layer."""

    inputs: int = 24
    outputs: int = 10
    bias: bool = True
    bias_as_add: bool = False
    constant_bias: bool = True
    requantized: bool = True
    sum_dtype: str = "int32"
    clip: tuple | None = None
    per_channel: bool = False
    ifm_zero_point: int = -3
    weight_zero_point: int | tuple = 0
    ofm_zero_point: int = 5
    ofm_scale: float = 0.4
    scales: tuple | None = None
    shape: tuple | None = None
    batch: int = 1
    dtype: str = "int8"
    constant_weights: bool = True
    seed: int = 0
    weights: np.ndarray | None = None
    bias_values: np.ndarray | None = None

    def variables(self, prefix=""):
        own = [variable(self.shape or (self.batch, self.inputs), self.dtype, f"{prefix}x")]
        if not self.constant_weights:
            own.append(variable((self.outputs, self.inputs), name=f"{prefix}w"))
        if not self.constant_bias:
            own.append(variable((self.outputs,), "int32", f"{prefix}b"))
        return own

    def expr(self, x, *others):
        rng = np.random.default_rng(self.seed)
        others = list(others)
        weights = rng.integers(-127, 128, (self.outputs, self.inputs)) if self.weights is None else self.weights
        bias = rng.integers(-2000, 2000, self.outputs) if self.bias_values is None else self.bias_values
        scales = np.asarray(self.scales or rng.uniform(0.002, 0.02, self.outputs if self.per_channel else 1), "float32")
        last = len(self.shape or (1, 1)) - 1
        out = relay.qnn.op.dense(
            x,
            const(weights, "int8") if self.constant_weights else others.pop(0),
            const(self.ifm_zero_point, "int32"),
            const(self.weight_zero_point, "int32"),
            const(0.05, "float32"),
            const(scales if self.per_channel else scales[0], "float32"),
            units=self.outputs,
            out_dtype=self.sum_dtype,
        )
        if not self.constant_bias:
            out = relay.nn.bias_add(out, others.pop(0), axis=last)
        elif self.bias and self.bias_as_add:
            out = relay.add(out, const(bias, self.sum_dtype))
        elif self.bias:
            out = relay.nn.bias_add(out, const(bias, self.sum_dtype), axis=last)
        total = scales * np.float32(0.05)
        if self.requantized:
            out = relay.qnn.op.requantize(
                out,
                const(total if self.per_channel else total[0], "float32"),
                const(0, "int32"),
                const(self.ofm_scale, "float32"),
                const(self.ofm_zero_point, "int32"),
                axis=last,
                out_dtype=self.dtype,
            )
        return out if self.clip is None else relay.clip(out, *self.clip)


@dataclass
class Quantized:
    """Scale and zero point; several scales for one a channel."""

    scale: float | tuple = 0.1
    zero_point: int = 0

    def constants(self):
        return const(self.scale, "float32"), const(self.zero_point, "int32")


@dataclass
class Pairwise(Sample):
    """A quantized operator of two tensors, element by element."""

    operator: ClassVar[Callable]

    shape: tuple = (1, 6, 5, 7)
    other: tuple | None = None
    lhs: Quantized = field(default_factory=lambda: Quantized(0.1, -3))
    rhs: Quantized = field(default_factory=lambda: Quantized(0.07, 4))
    out: Quantized = field(default_factory=lambda: Quantized(0.15, 1))
    clip: tuple | None = None
    dtype: str = "int8"

    def variables(self, prefix=""):
        return [
            variable(self.shape, self.dtype, f"{prefix}x"),
            variable(self.shape if self.other is None else self.other, self.dtype, f"{prefix}y"),
        ]

    def expr(self, lhs, rhs):
        constants = (*self.lhs.constants(), *self.rhs.constants(), *self.out.constants())
        out = type(self).operator(lhs, rhs, *constants)
        return out if self.clip is None else relay.clip(out, *self.clip)


class WithItself(Sample):
    """A pairwise operator of a tensor and the same tensor."""

    def __init__(self, pairwise):
        self.pairwise = pairwise

    def variables(self, prefix=""):
        return self.pairwise.variables(prefix)[:1]

    def expr(self, x):
        return self.pairwise.expr(x, x)


class WithConstant(Sample):
    """A pairwise operator of a tensor and a constant, which is `data`."""

    data = (np.arange(72) * 5 % 256 - 128).reshape(1, 3, 4, 6)

    def __init__(self, pairwise, constant_first=False):
        self.pairwise, self.constant_first = pairwise, constant_first

    def variables(self, prefix=""):
        return [variable(self.data.shape, name=f"{prefix}x")]

    def expr(self, x):
        operands = (x, const(self.data, "int8"))
        return self.pairwise.expr(*(reversed(operands) if self.constant_first else operands))


class Add(Pairwise):
    operator = staticmethod(relay.qnn.op.add)


class Subtract(Pairwise):
    operator = staticmethod(relay.qnn.op.subtract)


class Mul(Pairwise):
    operator = staticmethod(relay.qnn.op.mul)


@dataclass
class Product(Sample):
    """`first` x `second` transposed; of two matrices as a dense layer of computed weights."""

    first: tuple = (2, 5, 7)
    second: tuple = (2, 3, 7)
    ifm: Quantized = field(default_factory=lambda: Quantized(0.1, -3))
    ifm2: Quantized = field(default_factory=lambda: Quantized(0.05, 9))
    ofm: Quantized = field(default_factory=lambda: Quantized(0.6, 4))
    reshaped: tuple | None = None
    clip: tuple | None = None
    dtype: str = "int8"

    def variables(self, prefix=""):
        shapes = {"x": self.first, "y": self.second}
        return [variable(shape, self.dtype, f"{prefix}{name}") for name, shape in shapes.items()]

    def expr(self, x, y):
        (scale, zero), (scale2, zero2) = self.ifm.constants(), self.ifm2.constants()
        if len(self.first) == 2:
            units = self.second[0]
            out = relay.qnn.op.dense(x, y, zero, zero2, scale, scale2, units=units, out_dtype="int32")
        else:
            out = relay.qnn.op.batch_matmul(x, y, zero, zero2, scale, scale2)
        out = out if self.reshaped is None else relay.reshape(out, self.reshaped)
        product = const(self.ifm.scale * self.ifm2.scale, "float32")
        out = relay.qnn.op.requantize(out, product, const(0, "int32"), *self.ofm.constants(), out_dtype="int8")
        return out if self.clip is None else relay.clip(out, *self.clip)


@dataclass
class Pool(Sample):
    """Pooling: "nn.avg_pool2d", "nn.max_pool2d" or in 1-D, "nn.global_avg_pool2d"; "mean", "sum" or "max"."""

    operator: str = "nn.avg_pool2d"
    shape: tuple = (1, 8, 7, 5)
    kernel: tuple = (2, 2)
    strides: tuple = (2, 2)
    padding: tuple = (0, 0, 0, 0)
    dilation: tuple = (1, 1)
    layout: str = "NHWC"
    count_include_pad: bool = False
    ceil_mode: bool = False
    clip: tuple | None = None
    axis: tuple = (1, 2)
    keepdims: bool = False
    exclude: bool = False
    rounding: str = "None"
    compute_dtype: str = "None"
    requantized: bool = True
    widened: bool = True
    cast: bool = False
    dtype: str = "int8"
    ifm: Quantized = field(default_factory=lambda: Quantized(0.1, -3))
    ofm: Quantized = field(default_factory=lambda: Quantized(0.07, 4))

    def variables(self, prefix=""):
        return [variable(self.shape, self.dtype, f"{prefix}x")]

    def expr(self, x):
        window = {
            "pool_size": self.kernel,
            "strides": self.strides,
            "padding": self.padding,
            "dilation": self.dilation,
            "layout": self.layout,
            "ceil_mode": self.ceil_mode,
        }
        wide = relay.cast(x, "int32") if self.widened else x
        if self.operator in ("nn.max_pool2d", "nn.max_pool1d"):
            out = getattr(relay.nn, self.operator.removeprefix("nn."))(x, **window)
        elif self.operator in ("nn.avg_pool2d", "nn.avg_pool1d"):
            average = getattr(relay.nn, self.operator.removeprefix("nn."))
            out = average(wide, **window, count_include_pad=self.count_include_pad)
        elif self.operator == "nn.global_avg_pool2d":
            out = relay.nn.global_avg_pool2d(wide, layout=self.layout)
        else:
            out = getattr(relay, self.operator)(wide, axis=self.axis, keepdims=self.keepdims, exclude=self.exclude)
            if self.requantized:
                out = relay.qnn.op.requantize(
                    out,
                    *self.ifm.constants(),
                    *self.ofm.constants(),
                    rounding=self.rounding,
                    compute_dtype=self.compute_dtype,
                    out_dtype="int8",
                )
        if self.widened and self.operator in ("nn.avg_pool2d", "nn.avg_pool1d", "nn.global_avg_pool2d"):
            out = relay.cast(out, self.dtype)
        if self.cast:
            out = relay.cast(out, "int8")
        return out if self.clip is None else relay.clip(out, *self.clip)
