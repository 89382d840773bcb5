"""Weights whose values fit in 4 or 2 bits are packed so, on every accelerator that has the width: the same bits come
out, with less flash, less traffic and fewer cycles."""

import re
from dataclasses import replace

import numpy as np
import pytest
from bit_exact import assert_bit_exact
from relay_samples import Conv, Dense, module
from riscv32_tools import needs_riscv32

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.graph import Weighted
from byoc_hw.run.new_hal import new_hal

RAILS = {8: (-128, 127), 4: (-8, 7), 2: (-2, 1)}
ONLY_8 = replace(
    byoc_hw.REFERENCE,
    label="ONLY_8",
    limits={
        kind: replace(limits, weight_bits=(8,)) if limits.weight_bits else limits
        for kind, limits in byoc_hw.REFERENCE.limits.items()
    },
)
ONLY_4 = replace(
    ONLY_8,
    label="ONLY_4",
    limits={
        kind: replace(limits, weight_bits=(4,)) if limits.weight_bits else limits
        for kind, limits in ONLY_8.limits.items()
    },
)


def weights(bits, shape, seed=0):
    """Random weights with both of the extreme values of a width."""
    low, high = RAILS[bits]
    values = np.random.default_rng(seed).integers(low, high + 1, shape).astype(np.int8)
    values.flat[:2] = low, high
    return values


def conv(bits, **options):
    shape = (10, 3, 3, 1) if options.get("depthwise") else (12, 3, 3, 10)
    return Conv(11, 9, 10, 12, weights=weights(bits, shape), **options).module()


def dense(bits):
    return Dense(33, 7, weights=weights(bits, (7, 33))).module()


def layer_of(mod, accelerator=byoc_hw.REFERENCE):
    (graph,) = region_graphs(byoc_hw.partition_for_hwlib(mod, accelerator=accelerator)).values()
    return graph.layers[0]


MODELS = {"conv2d": conv, "depthwise": lambda bits: conv(bits, depthwise=True), "dense": dense}


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("kind", MODELS)
def test_narrow_weights_take_less_of_all_and_give_the_same_bits(kind, bits):
    mod = MODELS[kind](bits)
    assert layer_of(mod).weights.bits == bits
    narrow, wide = assert_bit_exact(mod, count=1), assert_bit_exact(mod, accelerator=ONLY_8, count=1)
    assert narrow.memory.flash_bytes < wide.memory.flash_bytes
    assert narrow.schedule.cycles < wide.schedule.cycles
    assert narrow.schedule.moved["weights"] < wide.schedule.moved["weights"]


@pytest.mark.parametrize("value", [8, -9])
def test_one_value_beyond_a_width_makes_the_next_one(value):
    values = weights(4, (12, 3, 3, 10))
    values[5, 1, 1, 3] = value
    assert layer_of(Conv(11, 9, 10, 12, weights=values).module()).weights.bits == 8


@pytest.mark.slow
@pytest.mark.parametrize("preset", [byoc_hw.SMALL, byoc_hw.DIANA_DIGITAL, byoc_hw.DSP], ids=lambda one: one.label)
def test_every_preset_reads_narrow_weights(preset):
    tiny = replace(preset, activation_memory=1024, weight_memory=256)
    assert_bit_exact(conv(4), accelerator=tiny, count=1)


def test_an_accelerator_with_narrow_weights_alone_declines_wide_ones():
    mod = byoc_hw.partition_for_hwlib(conv(8), accelerator=ONLY_4)
    assert not region_graphs(mod)
    assert "weight bits is 4: got 8" in str(byoc_hw.explain(mod))
    assert assert_bit_exact(conv(2), accelerator=ONLY_4, count=1).report.offloaded


@pytest.mark.slow
def test_accelerators_of_a_chip_have_widths_of_their_own():
    chip = byoc_hw.Soc((replace(ONLY_8, name="wide"), replace(byoc_hw.REFERENCE, name="narrow")))
    project = assert_bit_exact(conv(2), accelerator=chip, count=1)
    (text,) = set(project.report.engines.values())
    wide, narrow = (int(re.search(rf"{name} ([\d,]+) cycles", text)[1].replace(",", "")) for name in ("wide", "narrow"))
    assert narrow < wide


def chain():
    """A convolution, a depthwise one and a convolution, of 4, 2 and 8 bits, with odd numbers of channels."""
    layers = [
        Conv(9, 7, 5, 7, weights=weights(4, (7, 3, 3, 5))),
        Conv(9, 7, 7, 7, depthwise=True, weights=weights(2, (7, 3, 3, 1))),
        Conv(9, 7, 7, 3, weights=weights(8, (3, 3, 3, 7))),
    ]
    (x,) = layers[0].variables()
    value = x
    for layer in layers:
        value = layer.expr(value)
    return module(value, x)


def weighted(graph):
    return [layer for layer in graph.layers if isinstance(layer, Weighted)]


@pytest.mark.slow
@pytest.mark.parametrize("memories", [{}, {"activation_memory": 600, "weight_memory": 200}], ids=["whole", "cut"])
def test_a_plain_hal_reads_them(memories, tmp_path):
    """Its C is written from the header, and shares nothing with the simulator's."""
    small = replace(byoc_hw.SMALL, **memories)
    new_hal(tmp_path / "hal", small)
    mod = byoc_hw.partition_for_hwlib(chain(), accelerator=small)
    (graph,) = region_graphs(mod).values()
    assert [layer.weights.bits for layer in weighted(graph)] == [4, 2, 8]
    project = byoc_hw.build(mod)
    image = np.random.default_rng(1).integers(-128, 128, project.inputs[0].shape).astype(np.int8)
    assert byoc_hw.validate(project, [[image]], mod, toolchain=byoc_hw.Toolchain(hal=tmp_path / "hal"))


@pytest.mark.slow
@pytest.mark.parametrize("numerics", ["relay", "tflite"])
def test_the_host_has_them_as_int8(numerics):
    """A layer that is sent to the host, or that the accelerator declines, gives the same bits."""
    mod = byoc_hw.partition_for_hwlib(chain(), numerics=numerics)
    (graph,) = region_graphs(mod).values()
    image = np.random.default_rng(1).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    expected = byoc_hw.build(mod).run([image]).outputs[0]
    sent = byoc_hw.build(mod, place=dict.fromkeys((layer.name for layer in weighted(graph)[:2]), "host"))
    assert len(sent.report.host) >= 2
    np.testing.assert_array_equal(sent.run([image]).outputs[0], expected)
    declined = byoc_hw.build(byoc_hw.partition_for_hwlib(chain(), accelerator=ONLY_4, numerics=numerics))
    assert declined.report.host
    np.testing.assert_array_equal(declined.run([image]).outputs[0], expected)


def test_the_report_has_the_width_of_weights():
    assert all("; weights of 4 bits" in text for text in report_of(weights(4, (12, 3, 3, 10))).values())
    assert all("weights" not in text for text in report_of(weights(8, (12, 3, 3, 10))).values())


def test_the_memory_table_has_the_widths_and_what_they_save():
    memory = byoc_hw.build(byoc_hw.partition_for_hwlib(chain())).memory
    # 7 channels of 45 values: 23 bytes, not 45; of 9 values in 2 bits: 3 bytes, not 9.
    assert list(memory.narrow.values()) == [(4, 7 * (45 - 23)), (2, 7 * (9 - 3))]
    lines = str(memory).splitlines()
    assert "saved          196  by weights of fewer than 8 bits:" in lines
    assert [line.split(",")[0].strip() for line in lines[-2:]] == ["154    4 bits", "42    2 bits"]
    assert "saved" not in str(byoc_hw.build(byoc_hw.partition_for_hwlib(conv(8))).memory)


def test_widths_of_parts_of_a_chip_add_up():
    chip = byoc_hw.Soc((replace(byoc_hw.REFERENCE, name="one"), replace(ONLY_8, name="wide")))
    mod = byoc_hw.partition_for_hwlib(conv(4), accelerator=chip)
    (layer,) = [layer for graph in region_graphs(mod).values() for layer in weighted(graph)]
    on = {name: byoc_hw.build(mod, place={layer.name: name}).memory.narrow for name in ("one", "wide")}
    assert on == {"one": {layer.name: (4, 12 * 45)}, "wide": {}}


def test_pictures_show_the_widths():
    pytest.importorskip("matplotlib")
    from matplotlib.text import Text

    labels = {}
    for name, mod in (("narrow", chain()), ("wide", conv(8))):
        figure = byoc_hw.build(byoc_hw.partition_for_hwlib(mod)).schedule.timeline()
        hatches = {one.get_hatch() for axes in figure.axes for one in axes.collections} - {None}
        labels[name] = {text.get_text() for text in figure.findobj(Text) if "weights of" in text.get_text()}, hatches
    assert labels == {"narrow": ({"weights of 4 bits", "weights of 2 bits"}, {"//", "xx"}), "wide": (set(), set())}


def test_the_report_names_weights_that_keep_a_layer_from_a_narrower_width():
    values = weights(4, (12, 3, 3, 10))
    values.flat[[7, 8, 9]] = 9, -15, 15
    assert all("; 3 of 1,080 weights need 5 bits, the others 4" in text for text in report_of(values).values())


def report_of(values):
    return byoc_hw.explain(byoc_hw.partition_for_hwlib(Conv(11, 9, 10, 12, weights=values).module())).engines


@needs_riscv32
def test_narrow_weights_run_on_riscv32():
    mod = conv(2)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod))
    image = np.random.default_rng(1).integers(-128, 128, project.inputs[0].shape).astype(np.int8)
    host, core = (project.run([image], on=on) for on in ("host", "riscv32"))
    np.testing.assert_array_equal(host.outputs[0], core.outputs[0])
