"""Models on a chip of several accelerators: TVM's bits in every layer, the planned cycles, and what is said of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from relay_samples import Conv, Pool, module, variable
from riscv32_tools import needs_riscv32
from tvm import relay

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.demo import heldout, model_path
from byoc_hw.plan.lanes import known_plan
from byoc_hw.plan.lanes.planner import plan_on_chip
from byoc_hw.plan.region import plan_region
from byoc_hw.remembered import Remembered

DLA = replace(byoc_hw.DIANA_DIGITAL, name="dla", label="DLA")
CHIP = byoc_hw.Soc((DLA, byoc_hw.DSP), label="DLA + DSP")


@pytest.fixture(scope="module")
def digits():
    """The digits model, partitioned for the chip, and its project."""
    partitioned = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), accelerator=CHIP)
    return partitioned, byoc_hw.build(partitioned)


@pytest.mark.slow
def test_a_region_is_planned_once_to_explain_and_build_it(digits, monkeypatch):
    """And what is built again is the same."""
    partitioned, project = digits
    searched = []
    monkeypatch.setattr(known_plan, "_plans", Remembered(8))
    monkeypatch.setattr(known_plan, "plan_on_chip", lambda *given: searched.append(given) or plan_on_chip(*given))
    byoc_hw.explain(partitioned)
    first, second = byoc_hw.build(partitioned), byoc_hw.build(partitioned)
    assert len(searched) == 1
    files = [path.relative_to(project.directory) for path in project.directory.rglob("*") if path.is_file()]
    for name in files:
        assert len({(one.directory / name).read_bytes() for one in (project, first, second)}) == 1


@pytest.mark.slow
def test_every_layer_has_tvms_bits_in_the_planned_cycles(digits):
    partitioned, project = digits
    image = heldout().images[:1]
    assert not byoc_hw.validate(project, image, partitioned).differences
    assert project.run(image).cycles.total == project.schedule.cycles


@pytest.mark.slow
def test_tensors_stay_in_a_memory_that_both_share(digits):
    """Fewer bytes are copied, and the inference ends earlier; the report says which tensors stay."""
    chip = replace(CHIP, shared=(("dla", "dsp"),))
    partitioned = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), accelerator=chip)
    project, image = byoc_hw.build(partitioned), heldout().images[:1]
    found, other = project.run(image, trace=True), digits[1].run(image, trace=True)
    np.testing.assert_array_equal(found.outputs[0], other.outputs[0])
    assert found.trace == other.trace  # whose bits are TVM's
    (graph,) = region_graphs(partitioned).values()
    plan, apart = plan_region(graph, chip), digits[1].schedule
    assert found.cycles.total == plan.cycles < 0.9 * apart.cycles
    assert project.schedule.moved["spilled"] < 0.5 * apart.moved["spilled"]
    assert str(project.report).count("handed over in local memory") == len(plan.handed_over) > 0


@pytest.mark.slow
def test_short_queues_hold_no_other_accelerator_back(digits):
    """The core waits for room in a queue as it waits for a copy: the others go on, and little is late."""
    chip = byoc_hw.Soc(tuple(replace(one, queue=1) for one in CHIP.accelerators))
    partitioned = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), accelerator=chip)
    project = byoc_hw.build(partitioned)
    assert project.run(heldout().images[:1]).cycles.total == project.schedule.cycles
    assert project.schedule.cycles <= 1.02 * digits[1].schedule.cycles


@pytest.mark.slow
@needs_riscv32
def test_the_bare_metal_core_drives_both(digits):
    _, project = digits
    image = heldout().images[:1]
    here, there = project.run(image), project.run(image, on="riscv32")
    np.testing.assert_array_equal(here.outputs[0], there.outputs[0])
    assert here.cycles.total == there.cycles.total


EACH_STEP = 55.03
"""Instructions of the core for a step of the digits' plan on `REFERENCE`, with what the region takes besides, as they
were counted: copies, jobs and waits of a HAL that is called directly."""


@pytest.mark.slow
@needs_riscv32
@pytest.mark.parametrize(
    "hardware",
    [byoc_hw.REFERENCE, byoc_hw.Soc((replace(byoc_hw.REFERENCE, name="one"),))],
    ids=["one accelerator", "a chip of one"],
)
def test_the_core_executes_at_most_a_little_more(hardware):
    """Accelerators side by side cost the core of a single one nothing: 3 % more than was counted are too many."""
    partitioned = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), accelerator=hardware)
    (graph,) = region_graphs(partitioned).values()
    steps = len(plan_region(graph, byoc_hw.REFERENCE).steps)
    found = byoc_hw.build(partitioned).run(heldout().images[:1], on="riscv32")
    assert found.host_instructions.regions <= 1.03 * EACH_STEP * steps


@pytest.mark.slow
def test_the_report_says_where_and_what_it_takes_elsewhere(digits):
    partitioned, project = digits
    said = str(project.report)
    assert "on DLA + DSP" in said
    assert "on dla; alone dla " in said
    assert byoc_hw.explain(partitioned).engines == project.report.engines
    assert set(project.report.engines) <= {outcome.name for outcome in project.report.offloaded}


def test_the_report_names_the_rule_of_an_accelerator_that_cannot():
    strided = replace(byoc_hw.DSP, limits={"pool2d": replace(byoc_hw.DSP.limits["pool2d"], strides=(2,))})
    x = variable((1, 8, 8, 4))
    mod = module(relay.nn.max_pool2d(x, pool_size=(3, 3), strides=(1, 1), layout="NHWC"), x)
    partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=byoc_hw.Soc((DLA, strided)))
    (said,) = byoc_hw.explain(partitioned).engines.values()
    assert said.startswith("on dla; alone dla")
    assert "dsp not: stride is 2: got 1" in said


@pytest.mark.slow
def test_a_layer_runs_where_it_is_wished(digits):
    partitioned, _ = digits
    project = byoc_hw.build(partitioned, place={"pool2d": "dsp"})
    pools = [text for text in project.report.engines.values() if text.startswith("on dsp; ")]
    assert pools
    image = heldout().images[:1]
    assert not byoc_hw.validate(project, image, partitioned).differences


WISHES = {
    "no operator": ({"conv7": "dsp"}, "place names offloaded operators, or kinds of layers"),
    "no accelerator": ({"pool2d": "gpu"}, "place: an operator runs on dla, dsp or host: got 'gpu' for pool2d"),
}


@pytest.mark.parametrize(("place", "message"), WISHES.values(), ids=WISHES)
def test_a_wish_for_what_is_not_there_is_refused(digits, place, message):
    with pytest.raises(byoc_hw.InvalidInput, match=message):
        byoc_hw.build(digits[0], place=place)


def test_a_wish_for_an_accelerator_of_another_chip_is_refused():
    partitioned = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()))
    with pytest.raises(byoc_hw.InvalidInput, match="place: an operator runs on hwlib or host: got 'dsp' for pool2d"):
        byoc_hw.build(partitioned, place={"pool2d": "dsp"})


@pytest.mark.slow
def test_a_tuned_chip_has_tvms_bits_in_the_cycles_that_were_found(digits, tmp_path):
    partitioned, project = digits
    tuning = byoc_hw.tune(partitioned, budget=100, progress=False)
    assert project.schedule.cycles == tuning.before > tuning.after
    tuning.save(tmp_path / "chip.tuning")
    assert byoc_hw.Tuning.load(tmp_path / "chip.tuning") == tuning
    tuned, image = byoc_hw.build(partitioned, tuning=tmp_path / "chip.tuning"), heldout().images[:1]
    assert "in 1 region (1 of 1 regions tuned)" in str(tuned.report)
    assert not byoc_hw.validate(tuned, image, partitioned).differences
    assert tuned.run(image).cycles.total == tuned.schedule.cycles == tuning.after
    assert tuned.schedule.bound == project.schedule.bound


def test_what_a_tuning_of_a_chip_leaves_no_room_for_is_refused(digits):
    partitioned, _ = digits
    tuning = byoc_hw.tune(partitioned, budget=1, progress=False)
    rule = "a tuning says which accelerators of DLA \\+ DSP run a layer, for the fewest cycles: got {}"
    with pytest.raises(byoc_hw.InvalidInput, match=rule.format("place={'add': 'dsp'} as well")):
        byoc_hw.build(partitioned, tuning=tuning, place={"add": "dsp"})
    with pytest.raises(byoc_hw.InvalidInput, match=rule.format("an Energy as well")):
        byoc_hw.build(partitioned, tuning=tuning, objective=byoc_hw.Energy({"dla": 1, "dsp": 1}, 1, 1))
    renamed = replace(CHIP, accelerators=(DLA, replace(byoc_hw.DSP, dma_width=4)), label="OTHER")
    other = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), accelerator=renamed)
    with pytest.raises(byoc_hw.InvalidInput, match=r"for DLA \+ DSP \(accelerator 1 dma_width 8, not 4\)"):
        byoc_hw.build(other, tuning=tuning)
    alone = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), accelerator=byoc_hw.SMALL)
    with pytest.raises(byoc_hw.InvalidInput, match=r"for DLA \+ DSP \(accelerators 2, not 1\)"):
        byoc_hw.build(alone, tuning=tuning)


def test_an_accelerator_without_work_has_no_code():
    """The project has no file and no line of it, and builds without its HAL; one that is given is not needed."""
    x = variable((1, 8, 8, 4))
    pool = byoc_hw.Soc((DLA, replace(byoc_hw.DSP, limits={"softmax": byoc_hw.DSP.limits["softmax"]})))
    mod = module(relay.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2), layout="NHWC"), x)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=pool))
    files = [path for path in project.directory.rglob("*") if path.is_file() and path.name != "metadata.json"]
    assert not [path for path in files if "dsp" in path.relative_to(project.directory).as_posix()]
    assert not [path for path in files if "dsp" in path.read_text().lower()]
    values = np.arange(256, dtype=np.uint8).view(np.int8).reshape(1, 8, 8, 4)
    np.testing.assert_array_equal(project.run(values).outputs[0], values.reshape(4, 2, 4, 2, 4).max((1, 3))[None])


def test_an_accelerator_without_work_has_nothing_in_common_with_others():
    """Of a memory and events that only it and the other one have, the project has none: no HAL is asked for it."""
    x = variable((1, 8, 8, 4))
    idle = replace(DLA, name="idle", limits={"softmax": byoc_hw.DSP.limits["softmax"]})
    chip = byoc_hw.Soc((DLA, idle), shared=(("dla", "idle"),), events=4, with_events=("idle",))
    mod = module(relay.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2), layout="NHWC"), x)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=chip))
    alone = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=byoc_hw.Soc((DLA,))))
    assert project.schedule.accelerators == ("dla", "idle")
    assert project.schedule.shared == alone.schedule.shared == ()
    for name in ("Makefile", "src/default_soc.c", "hwlib/dla/hwlib_sim_config.h"):
        assert (project.directory / name).read_text() == (alone.directory / name).read_text()


WAITED = byoc_hw.Library(Path("v.h"), (), {"add": byoc_hw.LibraryCall("add", lambda layer, operands: [])}, wait="v")


def vector(library, kinds=("add", "reshape")):
    """A DSP with a library, as an accelerator of a chip."""
    return byoc_hw.Soc(
        (DLA, replace(byoc_hw.DSP, limits={kind: byoc_hw.DSP.limits[kind] for kind in kinds}, library=library))
    )


CHIPS = {
    "no accelerators": (lambda: byoc_hw.Soc(()), "accelerators are 1 to 16: got 0"),
    "one name twice": (lambda: byoc_hw.Soc((DLA, DLA)), "differ: got dla twice"),
    "a library that waits": (
        lambda: vector(replace(WAITED, wait=None)),
        "library of dsp: its calls only start, and it has a wait: wait is None",
    ),
    "no cost": (lambda: vector(WAITED), "library of dsp: each call has a cost: cycles of add is None"),
    "no call": (
        lambda: vector(WAITED, ("transpose", "add")),
        "library of dsp: it has a call for each layer kind: none for transpose",
    ),
    "no accelerator": (lambda: byoc_hw.Soc(("dla",)), "each of accelerators is an Accelerator"),
}


@pytest.mark.parametrize(("make", "message"), CHIPS.values(), ids=CHIPS)
def test_a_chip_that_cannot_be_is_refused(make, message):
    with pytest.raises(byoc_hw.InvalidInput, match=message):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("mlperf_model", ["kws_ref_model", "pretrainedResnet_quant"], indirect=True)
@pytest.mark.parametrize("numerics", ["relay", "tflite"])
def test_larger_models_have_tvms_or_tflites_bits(mlperf_model, numerics):
    mod, params = byoc_hw.load_tflite(mlperf_model)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, accelerator=CHIP, numerics=numerics)
    project = byoc_hw.build(partitioned)
    (entry,) = project.inputs
    values = np.random.default_rng(1).integers(-128, 128, entry.shape).astype(np.int8)
    against = partitioned if numerics == "relay" else mlperf_model
    assert not byoc_hw.validate(project, values, against).differences


@pytest.mark.slow
def test_what_nobody_reads_is_not_compared():
    """The pooling does not read the last of 25 rows, so a chip does not compute it."""
    x = variable((1, 25, 16, 8))
    y = Pool("nn.max_pool2d").expr(Conv(height=25, width=16, channels=8, filters=32).expr(x))
    chip = byoc_hw.Soc((byoc_hw.REFERENCE, replace(byoc_hw.REFERENCE, name="second")))
    partitioned = byoc_hw.partition_for_hwlib(module(y, x), accelerator=chip)
    project = byoc_hw.build(partitioned)
    image = np.random.default_rng(0).integers(-128, 128, (1, 25, 16, 8)).astype(np.int8)
    validation = byoc_hw.validate(project, image, partitioned)
    assert (len(validation.compared), validation.differences) == (3, ())
    (computed,) = project.run(image, trace=True).computed.values()
    assert computed.reshape(25, 16 * 32).all(1).tolist() == [True] * 24 + [False]
