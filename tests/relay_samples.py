"""Small Relay models, one operator each or a few, with everything that matters to a pattern a knob."""

from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relay


def const(value, dtype):
    return relay.const(np.asarray(value, dtype), dtype=dtype)


def module(body, *inputs):
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(list(inputs), body)))


def variable(shape, dtype="int8", name="x"):
    return relay.var(name, shape=shape, dtype=dtype)


@dataclass
class Conv:
    """A quantized convolution; `depthwise` has one filter for each of `channels`."""

    height: int = 8
    width: int = 8
    channels: int = 4
    filters: int = 8
    kernel: tuple = (3, 3)
    strides: tuple = (1, 1)
    padding: tuple = (1, 1, 1, 1)
    dilation: tuple = (1, 1)
    explicit_pad: tuple | None = None
    depthwise: bool = False
    groups: int | None = None
    layout: str = "NHWC"
    bias: bool = True
    bias_as_add: bool = False
    clip: tuple | None = None
    per_channel: bool = True
    ifm_zero_point: int = -3
    weight_zero_point: int = 0
    ofm_zero_point: int = 5
    ifm_scale: float = 0.05
    ofm_scale: float = 0.4
    scales: tuple | None = None
    batch: int = 1
    dtype: str = "int8"
    seed: int = 0
    weights: np.ndarray | None = None
    bias_values: np.ndarray | None = None

    @property
    def ifm_shape(self):
        nhwc = dict(zip("NHWC", (self.batch, self.height, self.width, self.channels), strict=True))
        return tuple(nhwc[letter] for letter in self.layout)

    def expr(self, ifm):
        rng = np.random.default_rng(self.seed)
        filters = self.channels if self.depthwise else self.filters
        per_group = 1 if self.depthwise else self.channels // (self.groups or 1)
        weights = rng.integers(-127, 128, (filters, *self.kernel, per_group)).astype("int8")
        if self.weights is not None:
            weights = self.weights
        bias = rng.integers(-2000, 2000, filters).astype("int32") if self.bias_values is None else self.bias_values
        scales = np.asarray(self.scales or rng.uniform(0.002, 0.02, filters if self.per_channel else 1), "float32")
        kernel_layout = {"NHWC": "HWOI" if self.depthwise else "HWIO", "NCHW": "OIHW"}[self.layout]
        axis = self.layout.index("C")
        if self.explicit_pad is not None:
            top, left, bottom, right = self.explicit_pad
            widths = {"N": (0, 0), "H": (top, bottom), "W": (left, right), "C": (0, 0)}
            ifm = relay.nn.pad(ifm, [widths[letter] for letter in self.layout], float(self.ifm_zero_point))
        conv = relay.qnn.op.conv2d(
            ifm,
            const(weights.transpose(["OHWI".index(letter) for letter in kernel_layout]), "int8"),
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
            kernel_layout=kernel_layout,
        )
        if self.bias and self.bias_as_add:
            conv = relay.add(conv, const(bias.reshape([-1 if i == axis else 1 for i in range(4)]), "int32"))
        elif self.bias:
            conv = relay.nn.bias_add(conv, const(bias, "int32"), axis=axis)
        total = scales * np.float32(self.ifm_scale)
        out = relay.qnn.op.requantize(
            conv,
            const(total if self.per_channel else total[0], "float32"),
            const(0, "int32"),
            const(self.ofm_scale, "float32"),
            const(self.ofm_zero_point, "int32"),
            axis=axis,
            out_dtype=self.dtype,
        )
        return out if self.clip is None else relay.clip(out, *self.clip)

    def module(self):
        x = variable(self.ifm_shape, self.dtype)
        return module(self.expr(x), x)


@dataclass
class Dense:
    """A quantized fully connected layer."""

    inputs: int = 24
    outputs: int = 10
    bias: bool = True
    clip: tuple | None = None
    per_channel: bool = False
    ifm_zero_point: int = -3
    weight_zero_point: int = 0
    ofm_zero_point: int = 5
    ofm_scale: float = 0.4
    batch: int = 1
    constant_weights: bool = True
    seed: int = 0

    def module(self):
        rng = np.random.default_rng(self.seed)
        x = variable((self.batch, self.inputs))
        weights = const(rng.integers(-127, 128, (self.outputs, self.inputs)), "int8")
        inputs = [x]
        if not self.constant_weights:
            weights = variable((self.outputs, self.inputs), name="w")
            inputs.append(weights)
        scales = rng.uniform(0.002, 0.02, self.outputs if self.per_channel else 1).astype("float32")
        dense = relay.qnn.op.dense(
            x,
            weights,
            const(self.ifm_zero_point, "int32"),
            const(self.weight_zero_point, "int32"),
            const(0.05, "float32"),
            const(scales if self.per_channel else scales[0], "float32"),
            units=self.outputs,
        )
        if self.bias:
            dense = relay.nn.bias_add(dense, const(rng.integers(-2000, 2000, self.outputs), "int32"))
        total = scales * np.float32(0.05)
        out = relay.qnn.op.requantize(
            dense,
            const(total if self.per_channel else total[0], "float32"),
            const(0, "int32"),
            const(self.ofm_scale, "float32"),
            const(self.ofm_zero_point, "int32"),
            axis=1,
            out_dtype="int8",
        )
        return module(out if self.clip is None else relay.clip(out, *self.clip), *inputs)


@dataclass
class Quantized:
    """Scale and zero point."""

    scale: float = 0.1
    zero_point: int = 0

    def constants(self):
        return const(self.scale, "float32"), const(self.zero_point, "int32")


@dataclass
class Add:
    """A quantized addition."""

    shape: tuple = (1, 6, 5, 7)
    other: tuple | None = None
    lhs: Quantized = field(default_factory=lambda: Quantized(0.1, -3))
    rhs: Quantized = field(default_factory=lambda: Quantized(0.07, 4))
    out: Quantized = field(default_factory=lambda: Quantized(0.15, 1))
    clip: tuple | None = None

    def expr(self, lhs, rhs):
        out = relay.qnn.op.add(lhs, rhs, *self.lhs.constants(), *self.rhs.constants(), *self.out.constants())
        return out if self.clip is None else relay.clip(out, *self.clip)

    def module(self):
        x, y = variable(self.shape), variable(self.other or self.shape, name="y")
        return module(self.expr(x, y), x, y)


@dataclass
class Pool:
    """Pooling: operator "nn.avg_pool2d", "nn.max_pool2d", "nn.global_avg_pool2d" or "mean"."""

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
    ifm: Quantized = field(default_factory=lambda: Quantized(0.1, -3))
    ofm: Quantized = field(default_factory=lambda: Quantized(0.07, 4))

    def expr(self, x):
        window = {
            "pool_size": self.kernel,
            "strides": self.strides,
            "padding": self.padding,
            "dilation": self.dilation,
            "layout": self.layout,
            "ceil_mode": self.ceil_mode,
        }
        if self.operator == "nn.max_pool2d":
            out = relay.nn.max_pool2d(x, **window)
        elif self.operator == "nn.avg_pool2d":
            wide = relay.nn.avg_pool2d(relay.cast(x, "int32"), **window, count_include_pad=self.count_include_pad)
            out = relay.cast(wide, "int8")
        elif self.operator == "nn.global_avg_pool2d":
            out = relay.cast(relay.nn.global_avg_pool2d(relay.cast(x, "int32"), layout=self.layout), "int8")
        else:
            mean = relay.mean(relay.cast(x, "int32"), axis=self.axis, keepdims=self.keepdims)
            out = relay.qnn.op.requantize(mean, *self.ifm.constants(), *self.ofm.constants(), out_dtype="int8")
        return out if self.clip is None else relay.clip(out, *self.clip)

    def module(self):
        x = variable(self.shape)
        return module(self.expr(x), x)
