"""Sums that are shifted to int8, as shift-only hardware has them: which are layers, and that no bit changes."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import tvm
from relay_samples import const, module, side_by_side, variable
from tvm import relay

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.frontend.relay.reference import Reference

RANDOM = np.random.default_rng(6)


@dataclass
class Shifted:
    """A convolution, depthwise with `groups`, or with `dense` a matrix product, shifted to int8."""

    layout: str = "NHWC"
    groups: int = 1
    dense: bool = False
    bias: str = "add"  # or bias_add, or none
    relu: bool = False
    rounding: int | None = None  # half of a unit, if it is not given
    shift: object = 7
    clip: tuple = (-127, 127)
    largest: int = 127  # of weights
    weights_type: str = "int8"

    @property
    def nhwc(self):
        return self.layout == "NHWC"

    def variables(self, prefix=""):
        shape = (3, 11) if self.dense else (1, 7, 6, 4) if self.nhwc else (1, 4, 7, 6)
        return [variable(shape, "int8", f"{prefix}x")]

    def sums(self, x):
        random = np.random.default_rng(1)
        filters = 6 if self.groups == 1 else 4
        shape = (6, 11) if self.dense else (filters, 4 // self.groups, 3, 3)
        weights = random.integers(-self.largest, self.largest + 1, shape).astype(self.weights_type)
        bias = random.integers(-9000, 9000, filters).astype(np.int32)
        if self.dense:
            total = relay.nn.dense(x, const(weights, self.weights_type), out_dtype="int32")
            axis = 1
        else:
            order, kernel = ((2, 3, 1, 0), "HWIO") if self.nhwc else ((0, 1, 2, 3), "OIHW")
            if self.groups > 1 and self.nhwc:
                order, kernel = (2, 3, 0, 1), "HWOI"
            total = relay.nn.conv2d(
                x,
                const(weights.transpose(order), self.weights_type),
                channels=filters,
                kernel_size=(3, 3),
                padding=(1, 1),
                groups=self.groups,
                data_layout=self.layout,
                kernel_layout=kernel,
                out_dtype="int32",
            )
            axis = 3 if self.nhwc else 1
        if self.bias == "bias_add":
            return relay.nn.bias_add(total, const(bias, "int32"), axis)
        along = bias if self.dense or self.nhwc else bias.reshape(-1, 1, 1)
        return relay.add(total, const(along, "int32")) if self.bias == "add" else total

    def expr(self, x):
        total = self.sums(x)
        if self.relu:
            total = relay.nn.relu(total)
        half = (1 << self.shift >> 1) if self.rounding is None else self.rounding
        if half:
            total = relay.add(total, const(half, "int32"))
        total = relay.right_shift(total, const(np.array(self.shift, np.int32), "int32"))
        return relay.cast(relay.clip(total, *self.clip), "int8")

    def module(self):
        (x,) = self.variables()
        return module(self.expr(x), x)


CASES = {
    "rounded": Shifted(),
    "rounded down": Shifted(rounding=0),
    "rounded in another way": Shifted(rounding=17),
    "a relu": Shifted(relu=True),
    "a relu, rounded down": Shifted(relu=True, rounding=0),
    "a relu, and more than a unit": Shifted(relu=True, rounding=1000),
    "bias_add": Shifted(bias="bias_add"),
    "no bias": Shifted(bias="none"),
    "no bias, rounded down": Shifted(bias="none", rounding=0),
    "no shift": Shifted(shift=0, largest=1),
    "one bit": Shifted(shift=1, largest=2),
    "all bits": Shifted(shift=20),
    "NCHW": Shifted(layout="NCHW"),
    "NCHW, rounded down": Shifted(layout="NCHW", rounding=0, relu=True),
    "depthwise": Shifted(groups=4),
    "depthwise, NCHW": Shifted(groups=4, layout="NCHW", relu=True),
    "dense": Shifted(dense=True),
    "dense, rounded down": Shifted(dense=True, rounding=0),
    "all of int8": Shifted(clip=(-128, 127)),
    "narrow weights": Shifted(largest=7),
    "a shift for each channel": Shifted(shift=[5, 6, 7, 8, 9, 10], rounding=0),
}


@pytest.mark.slow
def test_gives_relays_results_bit_for_bit():
    mod = side_by_side(CASES.values())
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod))
    assert not project.report.host, str(project.report)
    reference = Reference(mod)
    shapes = [tuple(map(int, parameter.checked_type.shape)) for parameter in mod["main"].params]
    fills = [
        lambda shape: RANDOM.integers(-128, 128, shape),
        *(partial(np.full, fill_value=end) for end in (-128, 127)),
    ]
    inferences = [[fill(shape).astype(np.int8) for shape in shapes] for fill in fills]
    for inputs, result in zip(inferences, project.run_batch(inferences), strict=True):
        for name, found, expected in zip(CASES, result.outputs, reference.run(inputs), strict=True):
            np.testing.assert_array_equal(found, expected, err_msg=name)


def test_results_fill_the_range():
    """The samples are no saturated ones."""
    values = Reference(Shifted(shift=9).module()).run([RANDOM.integers(-128, 128, (1, 7, 6, 4)).astype(np.int8)])[0]
    assert len(np.unique(values)) > 50


def test_names_of_all_operators_are_kept():
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(Shifted(relu=True).module()))
    assert {outcome.placement for outcome in report.outcomes} == {"accelerator"}
    assert len(report.outcomes) == 7
    assert "float" not in str(report)


OTHERS = {
    "a clip beyond int8": Shifted(clip=(-200, 127)),
    "halves of a clip": Shifted(clip=(-127.5, 127)),
    "sums beyond 32 bits": replace(Shifted(), rounding=(1 << 31) - 200_000),
    "weights of 16 bits": Shifted(weights_type="int16"),
}


@pytest.mark.parametrize("sample", OTHERS.values(), ids=OTHERS)
def test_others_stay_on_the_host_with_the_same_bits(sample):
    mod = sample.module()
    partitioned = byoc_hw.partition_for_hwlib(mod)
    assert not region_graphs(partitioned)
    image = RANDOM.integers(-128, 128, (1, 7, 6, 4)).astype(np.int8)
    np.testing.assert_array_equal(byoc_hw.build(partitioned).run([image]).outputs[0], Reference(mod).run([image])[0])


def test_a_sum_that_something_else_reads_stays_on_the_host():
    sample = Shifted()
    (x,) = sample.variables()
    total = sample.sums(x)
    shifted = relay.cast(relay.clip(relay.right_shift(total, const(7, "int32")), -127, 127), "int8")
    partitioned = byoc_hw.partition_for_hwlib(module(relay.Tuple([shifted, total]), x))
    assert not region_graphs(partitioned)
    assert "a sum of integers is offloaded with its right_shift, clip and cast to int8" in str(
        byoc_hw.explain(partitioned)
    )


def test_a_clip_that_something_else_reads_stays_on_the_host():
    sample = Shifted()
    (x,) = sample.variables()
    clip = relay.clip(relay.right_shift(sample.sums(x), const(7, "int32")), -127, 127)
    mod = module(relay.Tuple([relay.cast(clip, "int8"), clip]), x)
    assert not region_graphs(byoc_hw.partition_for_hwlib(mod))


def test_a_clip_that_is_cast_twice_is_one_layer():
    sample = Shifted()
    (x,) = sample.variables()
    clip = relay.clip(relay.right_shift(sample.sums(x), const(7, "int32")), -127, 127)
    mod = module(relay.Tuple([relay.cast(clip, "int8"), relay.nn.relu(relay.cast(clip, "int8"))]), x)
    (graph,) = region_graphs(byoc_hw.partition_for_hwlib(mod)).values()
    assert [layer.kind for layer in graph.layers].count("conv2d") == 1


def test_tflites_rounding_is_another_one():
    """It would round twice."""
    mod = byoc_hw.partition_for_hwlib(Shifted().module(), numerics="tflite")
    assert not region_graphs(mod)
    assert 'right_shift, clip and cast to int8, with numerics="relay"' in str(byoc_hw.explain(mod))


def test_a_declined_one_says_why():
    only_1x1 = replace(byoc_hw.REFERENCE.limits["conv2d"], max_kernel=(1, 1), kernel_parts=False)
    small = replace(byoc_hw.REFERENCE, limits=byoc_hw.REFERENCE.limits | {"conv2d": only_1x1})
    partitioned = byoc_hw.partition_for_hwlib(Shifted().module(), accelerator=small)
    assert not region_graphs(partitioned)
    assert "kernel is at most 1 x 1: got 3 x 3" in str(byoc_hw.explain(partitioned))


# ---------------------------------------------------------------- relay.quantize


def float_network():
    """Convolutions, a residual addition, pooling: NCHW, as `relay.quantize` asks for."""
    random = np.random.default_rng(0)

    def real(*shape):
        return relay.const((0.3 * random.normal(size=shape)).astype(np.float32))

    def conv(value, channels, inputs, size=3, **options):
        around = (size // 2, size // 2)
        return relay.nn.conv2d(
            value,
            real(channels, inputs, size, size),
            padding=around,
            channels=channels,
            kernel_size=(size, size),
            **options,
        )

    x = relay.var("x", shape=(1, 3, 8, 8), dtype="float32")
    first = relay.nn.relu(relay.nn.bias_add(conv(x, 8, 3), real(8)))
    value = relay.nn.relu(conv(first, 8, 1, groups=8))
    value = relay.nn.bias_add(conv(value, 8, 8, 1), real(8))
    value = relay.nn.max_pool2d(relay.nn.relu(relay.add(value, first)), (2, 2), (2, 2))
    value = relay.nn.relu(conv(value, 16, 8))
    value = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(value)), real(10, 16))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], value)))


SHIFTS = replace(byoc_hw.REFERENCE, label="SHIFTS", shift_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", [byoc_hw.REFERENCE, SHIFTS], ids=lambda one: one.label)
@pytest.mark.parametrize("options", [{}, {"round_for_shift": False}], ids=["rounded", "rounded down"])
def test_a_network_of_relay_quantize(options, accelerator):
    settings = {"calibrate_mode": "global_scale", "global_scale": 8.0, "weight_scale": "power2", "skip_conv_layers": []}
    with tvm.transform.PassContext(opt_level=3), relay.quantize.qconfig(**settings, **options):
        mod = relay.quantize.quantize(float_network())
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=accelerator))
    kinds = [layer["kind"] for layer in project.layers if layer["region"]]
    assert [kinds.count(kind) for kind in ("conv2d", "depthwise_conv2d", "pool2d")] == [3, 1, 1]
    reference = Reference(mod)
    for _ in range(5):
        image = RANDOM.normal(size=(1, 3, 8, 8), scale=3).astype(np.float32)
        np.testing.assert_array_equal(project.run([image]).outputs[0], reference.run([image])[0])
