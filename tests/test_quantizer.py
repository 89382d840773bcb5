"""quantize: integer modules from float ones, what they cost and lose, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from bit_exact import assert_bit_exact
from float_networks import Net, branches, module, residual
from riscv32_tools import needs_riscv32
from tvm import relay

import byoc_hw
from byoc_hw import demo
from byoc_hw.compiler import region_graphs
from byoc_hw.frontend.relay.reference import Reference


def samples(count=24, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 12, 10, 3)).astype(np.float32)


def made(mod=None, count=24, **options):
    return byoc_hw.quantize(residual() if mod is None else mod, samples(count), progress=False, **options)


NAMES = ("nn.conv2d_1", "nn.conv2d_2", "nn.conv2d_3", "nn.conv2d_4", "nn.dense_1")


# ---------------------------------------------------------------- what comes out


@pytest.mark.parametrize("bits", [pytest.param(8, marks=pytest.mark.slow), 4, pytest.param(2, marks=pytest.mark.slow)])
def test_generated_c_equals_relay_on_the_same_integers(bits):
    quantized = made(bits=bits)
    assert set(quantized.bits.values()) == {bits}
    assert_bit_exact(quantized.mod)


PRESETS = [byoc_hw.SMALL, *(pytest.param(one, marks=pytest.mark.slow) for one in (byoc_hw.DIANA_DIGITAL, byoc_hw.DSP))]


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", PRESETS, ids=lambda one: one.label)
def test_mixed_widths_are_exact_on_every_preset(accelerator):
    widths = dict(zip(NAMES, (2, 8, 4, 2, 8), strict=True))
    assert_bit_exact(made(bits=widths, accelerator=accelerator).mod, accelerator=accelerator)


@pytest.mark.slow
@needs_riscv32
def test_mixed_widths_are_exact_on_riscv32():
    quantized = made(bits={NAMES[0]: 4, NAMES[1]: 2, NAMES[4]: 2})
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(quantized.mod))
    stored = quantized.quantize_inputs(samples(2, seed=4))["image"][:, None]
    expected = Reference(quantized.mod)
    for one in stored:
        assert (project.run(one, on="riscv32").outputs[0] == expected.run([one])[0]).all()


def test_everything_but_the_softmax_is_offloaded():
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(made(bits=4).mod))
    assert [outcome.relay for outcome in report.host] == [("qnn.dequantize", "nn.softmax", "qnn.quantize")]


def test_layers_of_the_region_have_the_wished_widths():
    widths = dict(zip(NAMES, (2, 4, 8, 4, 2), strict=True))
    (graph,) = region_graphs(byoc_hw.partition_for_hwlib(made(bits=widths).mod)).values()
    assert [layer.weights.bits for layer in graph.layers if hasattr(layer, "weights")] == list(widths.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [residual, lambda: residual(layout="NCHW"), branches], ids=["nhwc", "nchw", "branches"]
)
def test_the_integer_module_computes_what_was_looked_at(make):
    mod = make()
    drawn = {
        one.name_hint: np.random.default_rng(2).normal(size=(24, *map(int, one.checked_type.shape))).astype(np.float32)
        for one in mod["main"].params
    }
    quantized = byoc_hw.quantize(mod, drawn, bits=4, progress=False)
    stored = quantized.quantize_inputs(drawn)
    scale, zero_point = quantized.outputs[0]
    expected = quantized.outputs_for(drawn) / scale + zero_point
    reference = Reference(quantized.mod)
    for number in range(4):
        found = reference.run({name: values[number] for name, values in stored.items()})[0]
        assert np.abs(found - expected[number]).max() <= 6  # halves are rounded otherwise, layer after layer


@pytest.mark.slow
def test_with_float_ends_the_module_takes_and_gives_real_numbers():
    ints, floats = made(), made(integer_ends=False)
    image = samples(1, seed=9)
    (stored,) = ints.quantize_inputs(image).values()
    scale, zero_point = ints.outputs[0]
    (real,) = Reference(floats.mod).run([image])
    assert real.dtype == np.float32
    levels = Reference(ints.mod).run([stored])[0].astype(int)
    assert np.allclose((levels - zero_point) * scale, real)


def test_four_bits_agree_with_float_far_better_than_nearest_weights():
    compensated, nearest = made(bits=4, count=64), made(bits=4, count=64, rounding="nearest")
    assert compensated.divergence < nearest.divergence / 2
    assert compensated.agreement >= nearest.agreement


def test_the_same_seed_gives_the_same_bytes():
    def constants(one):
        found = []
        relay.analysis.post_order_visit(
            one.mod["main"], lambda node: found.append(node.data.numpy()) if isinstance(node, relay.Constant) else None
        )
        return b"".join(array.tobytes() for array in found)

    assert constants(made(bits=2, seed=3)) == constants(made(bits=2, seed=3))


def test_integer_samples_with_a_scale_are_those_of_a_sensor():
    grid = (0.02, -7)
    stored = np.random.default_rng(1).integers(-128, 128, (16, 12, 10, 3)).astype(np.int8)
    quantized = byoc_hw.quantize(residual(), stored, inputs={"image": grid}, progress=False)
    assert quantized.inputs == {"image": (float(np.float32(0.02)), -7)}
    real = (stored.astype(np.float32) + 7) * np.float32(0.02)
    assert (quantized.quantize_inputs(real)["image"] == stored).all()


# ---------------------------------------------------------------- what it costs


def test_the_report_has_bits_bytes_errors_and_cycles_of_each_layer():
    quantized = made(bits={NAMES[2]: 4})
    first, third = quantized.layers[0], quantized.layers[2]
    assert (first.kind, first.weights, first.bits, first.nbytes) == ("conv2d", 216, 8, 216)
    assert (third.bits, third.nbytes) == (4, 32)
    assert 0 < third.error < 0.1
    assert third.cycles is not None
    assert str(quantized).splitlines()[1].split() == ["layer", "kind", "weights", "bits", "bytes", "error", "cycles"]
    assert "<table>" in quantized._repr_html_()


@pytest.mark.slow
def test_a_width_that_the_accelerator_lacks_costs_the_next_one():
    limits = {
        kind: replace(one, weight_bits=(8, 4)) if one.weight_bits else one
        for kind, one in byoc_hw.REFERENCE.limits.items()
    }
    quantized = made(bits=2, accelerator=replace(byoc_hw.REFERENCE, label="NO_2", limits=limits))
    assert quantized.layers[0].nbytes == 8 * 14
    assert all(bits != 2 for point in quantized.front for bits in point.bits)


@pytest.mark.slow
def test_the_front_says_what_a_project_takes():
    quantized = made()
    points = quantized.front
    assert len(points) > 2
    for point in (points[0], points[-1]):
        project = byoc_hw.build(byoc_hw.partition_for_hwlib(quantized.at(point).mod))
        assert project.memory.flash_bytes == point.flash
        assert project.schedule.cycles == point.cycles
    assert [point.loss for point in points] == sorted((point.loss for point in points), reverse=True)
    assert str(points).splitlines()[0].split()[:3] == ["point", "loss", "flash"]


@pytest.mark.slow
def test_a_limit_of_flash_is_kept():
    limit = 2600
    quantized = made(objective=f"flash<={limit}")
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(quantized.mod))
    assert (
        project.memory.flash_bytes <= limit < byoc_hw.build(byoc_hw.partition_for_hwlib(made().mod)).memory.flash_bytes
    )


@pytest.mark.slow
def test_the_fewest_cycles_lose_no_more_than_the_tolerance():
    best, cheap = made(), made(objective="cycles", tolerance=0.1)
    assert cheap.agreement >= best.agreement - 0.1
    assert sum(layer.cycles for layer in cheap.layers) < sum(layer.cycles for layer in best.layers)


@pytest.mark.slow
def test_a_limit_that_cannot_be_reached_says_the_least():
    with pytest.raises(
        byoc_hw.InvalidInput, match=r"objective flash<=100: the least that can be reached is about [\d,]+: got 100"
    ):
        made(objective="flash<=100")


@pytest.mark.slow
def test_the_shipped_digits_keep_their_accuracy_in_four_bits():
    held, found = demo.heldout(), {}
    for bits in (8, 4, 2):
        quantized = byoc_hw.quantize(demo.float_path(), demo.calibration(), bits=bits, progress=False)
        project = byoc_hw.build(byoc_hw.partition_for_hwlib(quantized.mod))
        stored = quantized.quantize_inputs(held.pixels[:, None, ..., None] / np.float32(16))
        answers = [one.outputs[0].argmax() for one in project.run_batch(list(next(iter(stored.values()))))]
        found[bits] = np.mean(np.array(answers) == held.labels)
    assert found[8] >= held.float_accuracy - 0.005
    assert found[4] >= found[8] - 0.005
    assert found[2] >= 0.93


# ---------------------------------------------------------------- what is refused

REFUSED = {
    "bits": ({"bits": 3}, "bits is one of 8, 4, 2"),
    "bits of a layer": ({"bits": {NAMES[0]: 5}}, f"bits of {NAMES[0]} is one of 8, 4, 2: got 5"),
    "unknown layer": ({"bits": {"conv": 4}}, "bits names layers with weights"),
    "objective": ({"objective": "small"}, 'objective is "accuracy"'),
    "both": ({"objective": "flash", "bits": 4}, 'objective is "accuracy" where bits are given'),
    "ranges": ({"activations": "max"}, "activations is one of minmax, percentile, mse: got 'max'"),
    "rounding": ({"rounding": "up"}, "rounding is compensated or nearest: got 'up'"),
    "input": ({"inputs": {"x": (1.0, 0)}}, "inputs names inputs of the model, image: got 'x'"),
    "scale": ({"inputs": {"image": (0, 0)}}, "inputs: scale of image is a finite number above 0: got 0"),
    "zero point": ({"inputs": {"image": (0.1, 200)}}, "inputs: zero point of image is at most 127: got 200"),
    "tolerance": ({"tolerance": -1}, "tolerance is a finite number of at least 0: got -1"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_arguments_are_refused_with_name_rule_and_value(options, message):
    with pytest.raises(byoc_hw.InvalidInput) as error:
        made(**options)
    assert message in str(error.value)


SAMPLES = {
    "shape": (
        np.zeros((4, 12, 10, 4), np.float32),
        "calibration of image is (samples, 1, 12, 10, 3) or (samples, 12, 10, 3)",
    ),
    "none": (np.zeros((0, 12, 10, 3), np.float32), "of at least one sample: got (0, 12, 10, 3)"),
    "bytes": (np.zeros((4, 12, 10, 3), np.uint8), "integers with their scale and zero point in inputs: got uint8"),
    "nan": (np.full((4, 12, 10, 3), np.nan, np.float32), "calibration of image is finite: got nan"),
    "beyond float32": (np.full((4, 12, 10, 3), 1e300), "calibration of image is finite: got inf"),
    "large": (np.full((4, 12, 10, 3), 3e38, np.float32), "what the network computes on the calibration is finite: got"),
    "ragged": ([np.zeros(3), np.zeros(2)], "calibration of image is an array: ValueError"),
    "text": (np.full((4, 12, 10, 3), "x"), "calibration of image is of numbers"),
    "name": (
        {"picture": np.zeros((4, 12, 10, 3), np.float32)},
        "inputs of the model, image: got 'picture'",
    ),
    "missing": ({}, "calibration has samples of each input: none of image"),
}


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
@pytest.mark.parametrize(("values", "message"), SAMPLES.values(), ids=SAMPLES)
def test_samples_that_do_not_fit_are_refused(values, message):
    with pytest.raises(byoc_hw.InvalidInput) as error:
        byoc_hw.quantize(residual(), values, progress=False)
    assert message in str(error.value)


def test_several_inputs_need_a_mapping_and_as_many_samples_of_each():
    with pytest.raises(byoc_hw.InvalidInput, match="calibration has an array for each input, left, right"):
        byoc_hw.quantize(branches(), np.zeros((2, 9, 9, 4), np.float32), progress=False)
    uneven = {"left": np.zeros((2, 9, 9, 4), np.float32), "right": np.zeros((3, 9, 9, 4), np.float32)}
    with pytest.raises(byoc_hw.InvalidInput, match="as many samples of each input: got 2, 3"):
        byoc_hw.quantize(branches(), uneven, progress=False)


def test_a_partitioned_or_quantized_module_is_refused():
    with pytest.raises(byoc_hw.InvalidInput, match="quantize"):
        made(mod=byoc_hw.partition_for_hwlib(made().mod))
    with pytest.raises(byoc_hw.InvalidInput, match="float"):
        made(mod=made().mod)


def test_an_integer_module_prints():
    assert "qnn.conv2d" in str(made(bits=4).mod)


def test_an_output_of_integers_stays_as_it_is():
    x = relay.var("image", shape=(1, 12, 10, 3))
    net = Net(1)
    classes = relay.argmax(net.dense(relay.nn.batch_flatten(net.conv(x, 3, 4)), 480, 6), axis=1)
    quantized = byoc_hw.quantize(module(classes, x), samples(8), progress=False)
    assert quantized.outputs == (None,)
    (stored,) = quantized.quantize_inputs(samples(1)).values()
    assert Reference(quantized.mod).run([stored])[0].dtype == np.int32


def test_layers_of_one_name_in_the_model_have_names_of_their_own():
    x = relay.var("image", shape=(1, 12, 10, 3))
    net = Net(1)
    body = net.conv(x, 3, 4)
    span = tvm.ir.Span(tvm.ir.SourceName("block"), 0, 0, 0, 0)
    for _ in range(2):
        conv = net.conv(body, 4, 4, bias=False)
        body = relay.Call(conv.op, conv.args, conv.attrs, None, span)
    quantized = byoc_hw.quantize(module(body, x), samples(8), bits={"block_2": 4}, progress=False)
    assert list(quantized.bits.values()) == [8, 8, 4]
