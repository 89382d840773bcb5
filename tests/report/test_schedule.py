"""The schedule: its numbers are the simulator's, and the pictures show them."""

import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from relay_samples import Add, Conv, Pool, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.demo import heldout, model_path
from byoc_hw.errors import InvalidInput
from byoc_hw.report.schedule import Activity, CoreWait, MainMemory, Occupancy, RegionSchedule, Schedule, from_metadata

sys.path.append(str(Path(__file__).parents[1] / "emit"))
from vendor_library import VENDOR

QUICK = byoc_hw.Toolchain(cflags="-O1")
LONG = "model/block_7/" + "very_" * 30 + "long/Relu;model/block_7/batch_normalization/FusedBatchNormV3;" + "x" * 100


def two_regions():
    """Convolutions around an operator of the host."""
    x = variable((1, 12, 12, 8))
    first = Conv(channels=8).expr(x)
    host = relay.nn.softmax(relay.qnn.op.dequantize(first, const(0.1, "float32"), const(0, "int32")))
    host = relay.qnn.op.quantize(host, const(0.1, "float32"), const(0, "int32"), out_dtype="int8")
    return module(Pool("nn.max_pool2d").expr(Add().expr(Conv(channels=8, seed=2).expr(host), first)), x)


def digits(accelerator=REFERENCE, directory=None):
    mod = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), mod_name="digits", accelerator=accelerator)
    return byoc_hw.build(mod, output_dir=directory)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return digits(directory=tmp_path_factory.mktemp("schedule") / "digits")


SMALL_QUEUE = replace(SMALL, label="NARROW", activation_memory=2048, weight_memory=1024, queue=1)
COSTLY = replace(SMALL_QUEUE, label="COSTLY", job_setup=150, dma_row_setup=9, queue=3)


# ---------------------------------------------------------------- the numbers


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", [REFERENCE, SMALL, SMALL_QUEUE, COSTLY], ids=lambda preset: preset.label)
def test_cycles_are_the_simulators(accelerator):
    project = digits(accelerator)
    cycles = project.run(heldout().images[:1], toolchain=QUICK).cycles
    schedule = project.schedule
    assert schedule.cycles == cycles.total
    assert_no_overlap(schedule)
    times = {times.id: times for times in schedule.by_layer}
    for layer in cycles.by_layer:
        if layer.kind != "host":
            assert (times[layer.id].array, times[layer.id].dma) == (layer.array_cycles, layer.dma_cycles)
    copied = sum(work.nbytes for region in schedule.regions for work in region.work)
    assert copied == sum(layer.dma_bytes for layer in cycles.by_layer)


def test_bytes_moved_are_those_of_the_copies(project):
    schedule = project.schedule
    moved = schedule.moved
    work = [one for region in schedule.regions for one in region.work]
    assert sum(moved.values()) - moved["reordered"] == sum(one.nbytes for one in work)
    assert (moved["inputs"], moved["outputs"]) == (64, 10)  # each once


def test_regions_follow_each_other():
    mod = byoc_hw.partition_for_hwlib(two_regions())
    project = byoc_hw.build(mod)
    schedule = project.schedule
    assert len(schedule.regions) == 2
    assert schedule.regions[0].end == schedule.regions[1].start
    assert schedule.cycles == project.run(np.zeros((1, 12, 12, 8), np.int8), toolchain=QUICK).cycles.total
    assert_no_overlap(schedule)


def test_an_engine_does_one_thing_at_a_time(project):
    assert_no_overlap(project.schedule)


def assert_no_overlap(schedule):
    work = [work for region in schedule.regions for work in region.work]
    lanes = [
        [one for one in work if one.engine == "array"],
        [one for one in work if one.engine != "array"],
        [wait for region in schedule.regions for wait in region.waits],
    ]
    for lane in lanes:
        assert all(one.end <= other.start for one, other in pairwise(lane))
        assert all(0 <= one.start < one.end <= schedule.cycles for one in lane)
    # The core takes no time of its own: it waits from the start to the end.
    assert sum(wait.end - wait.start for wait in lanes[2]) == schedule.cycles
    assert sum(schedule.waiting.values()) == pytest.approx(1)


def test_local_memory_is_held_between_the_times_of_its_steps(project):
    metadata = json.loads((project.directory / "metadata.json").read_text())
    region = metadata["schedule"]["regions"][0]
    region["names"], region["local"] = ["weights of a"], [[0, 1, 64, 128, 10, 90]]
    assert from_metadata(metadata).regions[0].weights == (Occupancy("weights of a", 64, 128, 10, 90),)
    assert from_metadata(metadata).regions[0].activations == ()


def test_blocks_that_are_alive_together_lie_apart(project):
    memory = project.schedule.main_memory
    assert max(block.offset + block.nbytes for block in memory.blocks) == memory.nbytes == project.memory.arena
    for moment in range(len(memory.moments)):
        alive = sorted((b.offset, b.nbytes) for b in memory.blocks if b.start <= moment < b.end)
        assert all(at + size <= above for (at, size), (above, _) in pairwise(alive))
    peak = max(
        sum(b.nbytes for b in memory.blocks if b.start <= moment < b.end) for moment in range(len(memory.moments))
    )
    assert peak == project.memory.lower_bound


def test_metadata_has_a_line_for_each_row_and_is_the_same_each_time(project, tmp_path):
    text = (project.directory / "metadata.json").read_text()
    work = json.loads(text)["schedule"]["regions"][0]["work"]
    assert text.count(f"\n     {work[0]},\n") == 1
    digits(directory=tmp_path)
    assert (tmp_path / "metadata.json").read_text() == text


# ---------------------------------------------------------------- what has none


def test_a_project_without_regions_says_so():
    schedule = byoc_hw.build(two_regions(), mod_name="net").schedule
    assert str(schedule) == "net: no schedule: nothing runs on an accelerator"
    assert schedule.cycles == 0
    assert set(schedule.busy.values()) == {0}


@pytest.mark.slow
def test_calls_of_a_library_have_no_schedule_and_say_so():
    limits = {kind: VENDOR.limits[kind] for kind in ("conv2d", "dense", "reshape")}
    schedule = digits(replace(VENDOR, limits=limits)).schedule
    message = "digits: no schedule: its regions are calls of a library, which has its own"
    assert str(schedule) == message
    assert message in schedule._repr_html_()
    with pytest.raises(InvalidInput, match="calls of a library"):
        schedule.timeline()


# ---------------------------------------------------------------- the table


def sample():
    """Two layers of which the second's weights come while the first one computes; a map of the local memories."""
    region = RegionSchedule(
        "tvmgen_net_hwlib_main_0",
        0,
        2000,
        (
            Activity("in", 0, 100, 3, 64),
            Activity("array", 100, 1000, 3, 0),
            Activity("in", 100, 300, 3, 128),
            Activity("array", 1000, 1900, 4, 0),
            Activity("out", 1900, 2000, None, 32),
        ),
        (CoreWait("copy", 0, 100, 3), CoreWait("job", 100, 1900, 4), CoreWait("copy", 1900, 2000, None)),
        (
            Occupancy("image", 0, 64, 0, 1000),
            Occupancy(LONG, 64, 64, 100, 1900),
            Occupancy("model/fc", 0, 32, 1000, 2000),
        ),
        (Occupancy(LONG, 0, 64, 0, 1000), Occupancy("model/fc", 64, 64, 100, 1900)),
        {"weights": 128, "inputs": 64, "outputs": 32, "spilled": 0, "reordered": 64},
        1600,
    )
    main = MainMemory(
        96,
        (
            Occupancy("sid_1", 0, 64, 0, 2, "tensor"),
            Occupancy(f"tvmgen_net_hwlib_main_0: 00000 {LONG}", 64, 32, 1, 3, "region scratch"),
        ),
        ("the inputs", f"tvmgen_net_hwlib_main_0: {LONG}", "tvmgen_net_hwlib_main_0: model/fc", "the outputs"),
    )
    layers = ((3, LONG, "conv2d"), (4, "model/fc", "dense"), (5, "model/flat", "reshape"))
    return Schedule("net", "TINY", layers, (region,), 256, 128, main)


def test_text_has_a_row_for_each_layer():
    lines = str(sample()).splitlines()
    assert (
        lines[0] == "net on TINY: 2,000 cycles, 1.25 of the bound: array busy 90%, DMA busy 20%; "
        "core waits for copies 10%, for jobs 90%"
    )
    assert lines[1] == "  bytes moved: weights 128, inputs 64, outputs 32 (reordered on the way 64)"
    rows = [line.split() for line in lines[2:]]
    assert rows[0] == ["layer", "kind", "start", "end", "array", "DMA", "waits"]
    assert rows[1][0].startswith("...")
    assert rows[1][1:] == ["conv2d", "0", "1000", "900", "300", "100"]
    assert rows[2] == ["model/fc", "dense", "1000", "1900", "900", "0", "1800"]
    assert rows[3] == ["model/flat", "reshape", *"-----"]
    assert rows[4] == ["the", "end", "of", "a", "region", "1900", "2000", "0", "100", "100"]
    assert rows[5] == ["total", "0", "2000", "1800", "400", "2000"]
    assert max(map(len, lines)) <= 120


def test_repr_is_one_line():
    region, memory = sample().regions[0], sample().main_memory
    assert repr(sample()) == "<Schedule net on TINY: 2,000 cycles, array busy 90%>"
    assert repr(region) == "<RegionSchedule tvmgen_net_hwlib_main_0: cycles 0 to 2,000, 5 copies and jobs>"
    assert repr(memory) == f"<MainMemory: 96 bytes, 2 blocks in {len(memory.moments)} moments>"


def test_repr_of_a_schedule_that_is_missing_says_why():
    for why in ("nothing runs on an accelerator", "its regions are calls of a library, which has its own"):
        text = repr(replace(sample(), mod_name="n" * 200, missing=f"no schedule: {why}"))
        assert len(text) == 100
        assert text.endswith(f"...: no schedule: {why}>")


def test_html_has_the_same_rows_and_escapes_names():
    text = replace(sample(), layers=((3, "a<b>", "conv2d"), (4, "model/fc", "dense")))._repr_html_()
    assert "a&lt;b&gt;" in text
    assert "a<b>" not in text
    assert text.count("<tr>") == 5


# ---------------------------------------------------------------- the pictures


@pytest.fixture
def texts():
    """All visible texts of a figure, drawn."""
    text_class = pytest.importorskip("matplotlib.text", reason="pip install byoc-hw[notebooks]").Text

    def found(figure):
        figure.draw_without_rendering()
        return [text.get_text() for text in figure.findobj(text_class) if text.get_text()]

    return found


def test_the_timeline_has_three_lanes_and_names_what_fits(texts):
    found = texts(sample().timeline())
    assert {"DMA", "array", "core", "in", "out"} <= {text.strip() for text in found}
    assert "net on TINY" in found
    assert sample().headline() in found
    assert "4 fc" in found  # without the folder that all layers share
    assert {"4  fc", "core waits for a job", "for a copy"} <= set(found)


@pytest.mark.parametrize("picture", [Schedule.timeline, Schedule.memory])
def test_long_names_are_shortened(picture, texts):
    found = texts(picture(sample()))
    assert max(len(text) for text in found if text != sample().headline()) < 70
    assert any("3 …" in text and text.endswith("long") for text in found)


def test_memory_shows_the_local_memories_and_the_arena(texts):
    figure = sample().memory()
    found = texts(figure)
    assert "local activations: 128 B of 256 B" in found
    assert "local weights: 128 B of 128 B" in found
    assert "main memory: an arena of 96 B, 96 B alive at the peak (black bar)" in found
    assert {"image", "sid_1", "4 fc", "the inputs", "the outputs"} <= set(found)


def test_labels_do_not_overlap(project, texts):
    """Of all labels on jobs, and on the blocks of memory: each is within its own box."""
    for figure in (project.schedule.timeline(), project.schedule.memory()):
        figure.draw_without_rendering()
        for axes in figure.axes:
            boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
            assert boxes
            for at, box in enumerate(boxes):
                assert not any(box.overlaps(other) for other in boxes[at + 1 :])


def test_a_notebook_shows_a_picture_by_itself(texts):
    assert sample().memory()._repr_png_().startswith(b"\x89PNG")


def test_many_layers_keep_the_legend_short(texts):
    layers = tuple((number, f"layer_{number}", "conv2d") for number in range(1000))
    work = tuple(Activity("array", 10 * number, 10 * number + 9, number, 0) for number in range(1000))
    region = replace(sample().regions[0], end=10000, work=work, waits=())
    figure = replace(sample(), layers=layers, regions=(region,)).timeline()
    assert "and 976 shorter ones" in texts(figure)
