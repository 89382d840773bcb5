"""Random small networks, and random accelerators for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import tvm
from fuzz_oracle import expected
from relay_samples import Add, Conv, Dense, Mul, Pool, Quantized, Sample, Subtract, module, variable
from tvm import relay

from byoc_hw.accelerator import DIANA_DIGITAL, REFERENCE, SMALL, Accelerator, TuningSpace
from byoc_hw.graph import output_extent
from byoc_hw.limits import DEFAULT_LIMITS, Limits

ZERO_POINTS = [-128, -3, 0, 5, 127]
CHANNELS = [1, 2, 3, 5, 8, 16, 17, 33]
STEPS = ["conv", "conv", "conv", "pool", "add", "add", "mul", "mean", "excite", "on_the_host"]


def accelerator(rng: Random) -> Accelerator:
    """A preset, or one of any sizes; it may be too small for any layer, and kinds may be missing."""
    if rng.random() < 0.3:
        return rng.choice([REFERENCE, SMALL, DIANA_DIGITAL])
    kinds = [kind for kind in DEFAULT_LIMITS if rng.random() < 0.9] if rng.random() < 0.4 else list(DEFAULT_LIMITS)
    space = TuningSpace(
        longest_group=rng.choice([1, 2, 8]),
        stripes=rng.choice([(1,), (1, 2, 3), TuningSpace().stripes]),
        **{
            flag: rng.random() < 0.8
            for flag in ("swap", "hold", "overlap", "resident", "tile", "patches", "halos", "pack")
        },
    )
    return replace(
        REFERENCE,
        label="RANDOM",
        limits={kind: limits(rng, kind) for kind in kinds},
        activation_memory=rng.choice([64, 300, 700, 1500, 2048, 4096, 16384, 1 << 20]),
        weight_memory=rng.choice([64, 300, 600, 1500, 4096, 8192, 1 << 20]),
        array_rows=rng.choice([1, 2, 3, 4, 8, 16, 64]),
        array_columns=rng.choice([1, 2, 4, 7, 8, 16, 64]),
        depthwise_rows=rng.choice([1, 3, 4, 16]),
        elementwise_width=rng.choice([1, 3, 16]),
        local_alignment=rng.choice([4, 4, 8, 16, 64]),
        dma_alignment=rng.choice([1, 1, 1, 2, 4, 8]),
        dma_width=rng.choice([1, 3, 4, 16]),
        dma_row_setup=rng.choice([0, 0, 3, 20]),
        job_setup=rng.choice([0, 0, 50, 200]),
        queue=rng.choice([1, 2, 3, 64]),
        packed_rows=rng.random() < 0.5,
        tuning=space if rng.random() < 0.5 else TuningSpace(),
    )


def limits(rng: Random, kind: str) -> Limits:
    """A kind's limits; those of a convolution may let kernels in small parts only."""
    largest = rng.randint(1, 4), rng.randint(1, 4)
    parts = DEFAULT_LIMITS[kind].kernel_parts and rng.random() < 0.4
    return replace(DEFAULT_LIMITS[kind], max_kernel=largest) if parts else DEFAULT_LIMITS[kind]


class Value:
    """A tensor of a network: its Relay expression, and what it is by the oracle."""

    def __init__(self, expr: relay.Expr, compute: Callable[..., np.ndarray], *inputs: Value) -> None:
        self.expr, self.compute, self.inputs = expr, compute, inputs

    def of(self, known: dict[Value, np.ndarray]) -> np.ndarray:
        """The tensor; `known` has that of the input, and gets what is computed for it."""
        if self not in known:
            known[self] = self.compute(*(value.of(known) for value in self.inputs))
        return known[self]


@dataclass
class Networks:
    """Several networks in one module: it takes as long to compile as one."""

    mod: tvm.IRModule
    inputs: list[Value]
    outputs: list[Value]

    def expected(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The outputs for the inputs."""
        known = dict(zip(self.inputs, arrays, strict=True))
        return [output.of(known) for output in self.outputs]


def networks(rng: Random, count: int, layouts: list[str]) -> Networks:
    """As many networks."""
    made = [_network(rng, f"x{index}", layouts) for index in range(count)]
    outputs = [output for _, own in made for output in own]
    inputs = [one for one, _ in made]
    body = relay.Tuple([output.expr for output in outputs]) if len(outputs) > 1 else outputs[0].expr
    return Networks(module(body, *(one.expr for one in inputs)), inputs, outputs)


def _network(rng: Random, name: str, layouts: list[str]) -> tuple[Value, list[Value]]:
    """The input of a network and its outputs."""
    network = _Network(rng, name, layouts)
    network.conv()
    for _ in range(rng.randint(1, 5)):
        network.same_shape.append(network.value)
        getattr(network, rng.choice(STEPS))()
        if rng.random() < 0.2:
            network.outputs.append(network.value)
    if rng.random() < 0.5:
        network.classify()
    return network.input, [network.value, *network.outputs]


class _Network:
    """A network as it grows: the value at its end, that value's shape, and what may be added to it."""

    def __init__(self, rng: Random, name: str, layouts: list[str]) -> None:
        self.rng, self.layout = rng, rng.choice(layouts)
        self.height, self.width = rng.randint(1, 14), rng.randint(1, 14)
        self.channels = rng.choice(CHANNELS)
        shape = Conv(self.height, self.width, self.channels, layout=self.layout).ifm_shape
        self.input = self.value = Value(variable(shape, name=name), lambda: None)
        self.same_shape: list[Value] = []
        self.outputs: list[Value] = []

    def then(self, sample: Sample, *others: Value) -> None:
        """The sample of the value at the end."""
        inputs = (self.value, *others)
        expr = sample.expr(*(value.expr for value in inputs))
        self.value = Value(expr, lambda *arrays: expected(sample, *arrays)[0], *inputs)

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng(self.rng.randrange(2**32)).integers(low, high, shape)

    def weights(self, shape: tuple[int, ...]) -> np.ndarray:
        """Of 8, 4 or 2 bits."""
        low, high = self.rng.choice([(-127, 128), (-127, 128), (-8, 8), (-2, 2)])
        return self.integers(low, high, shape)

    def scales(self, count: int) -> tuple[float, ...]:
        return tuple(self.rng.uniform(0.002, 0.02) for _ in range(count))

    def window(self) -> dict[str, tuple[int, ...]]:
        """Kernel, strides and padding that leave at least one output."""
        rng = self.rng
        kernel = rng.randint(1, min(5, self.height + 1)), rng.randint(1, min(5, self.width + 1))
        least = [max(0, kernel[0] - self.height), max(0, kernel[1] - self.width)]
        padding = tuple(rng.randint(low, size - 1) for low, size in zip(least * 2, kernel * 2, strict=True))
        return {"kernel": kernel, "strides": (rng.randint(1, 2), rng.randint(1, 2)), "padding": padding}

    def moved(self, window: dict[str, tuple[int, ...]], channels: int | None = None) -> None:
        """The shape behind a window."""
        (rows, columns), (down, along) = window["kernel"], window["strides"]
        top, left, bottom, right = window["padding"]
        self.height = output_extent(self.height, top, bottom, rows, down)
        self.width = output_extent(self.width, left, right, columns, along)
        self.channels = channels or self.channels
        self.same_shape = []

    def conv(self) -> None:
        rng, window = self.rng, self.window()
        depthwise = self.channels > 1 and rng.random() < 0.5
        # TVM itself takes a convolution from one channel to one for a depthwise one, and fails.
        filters = self.channels if depthwise else max(rng.choice(CHANNELS), 2)
        per_channel = rng.random() < 0.5
        self.then(
            Conv(
                self.height,
                self.width,
                self.channels,
                filters,
                depthwise=depthwise,
                layout=self.layout,
                per_channel=per_channel,
                scales=self.scales(filters if per_channel else 1),
                bias=rng.random() < 0.5,
                clip=rng.choice([None, (-128, 100), (0, 127)]),
                ifm_zero_point=rng.choice(ZERO_POINTS),
                weight_zero_point=rng.choice([0, 0, 3]),
                ofm_zero_point=rng.choice(ZERO_POINTS),
                ofm_scale=rng.choice([0.1, 0.4, 2.0]),
                weights=self.weights((filters, *window["kernel"], 1 if depthwise else self.channels)),
                bias_values=self.integers(-2000, 2000, (filters,)),
                **window,
            )
        )
        self.moved(window, filters)

    def pool(self) -> None:
        window = self.window()
        operator = self.rng.choice(["nn.avg_pool2d", "nn.max_pool2d"])
        included = operator == "nn.avg_pool2d" and self.rng.random() < 0.5
        self.then(Pool(operator, layout=self.layout, count_include_pad=included, **window))
        self.moved(window)

    def add(self) -> None:
        self.pairwise(Add)

    def mul(self) -> None:
        self.pairwise(Mul)

    def pairwise(self, operator: type[Add] | type[Mul]) -> None:
        if self.same_shape:
            lhs = Quantized(0.3, self.rng.choice(ZERO_POINTS))
            self.then(operator(lhs=lhs), self.rng.choice(self.same_shape))

    def excite(self) -> None:
        """The value and its mean over all pixels, either one first."""
        lhs, (before, by) = Quantized(0.3, self.rng.choice(ZERO_POINTS)), self.squeezed()
        self.value, other = self.rng.choice([(before, by), (by, before)])
        self.then(self.rng.choice([Add, Mul, Subtract])(lhs=lhs), other)

    def squeezed(self) -> tuple[Value, Value]:
        """The value, and its mean over all pixels."""
        before, axis = self.value, (1, 2) if self.layout == "NHWC" else (2, 3)
        self.then(Pool("mean", layout=self.layout, axis=axis, keepdims=True))
        return before, self.value

    def mean(self) -> None:
        self.squeezed()
        self.height = self.width = 1
        self.same_shape = []

    def classify(self) -> None:
        inputs = self.height * self.width * self.channels
        self.value = Value(relay.reshape(self.value.expr, (1, -1)), lambda array: array.reshape(1, -1), self.value)
        for _ in range(self.rng.randint(0, 2)):
            outputs = self.rng.choice(CHANNELS)
            weights, bias = self.weights((outputs, inputs)), self.integers(-2000, 2000, (outputs,))
            self.then(Dense(inputs, outputs, scales=self.scales(1), weights=weights, bias_values=bias))
            inputs = outputs

    def on_the_host(self) -> None:
        self.value = Value(relay.nn.relu(self.value.expr), lambda array: np.maximum(array, 0), self.value)
