"""Tuning a model: found, saved, shipped and built again; what does not belong together is refused."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi_futures import run_with_mpi
from relay_samples import Conv, Dense, Pool, module, side_by_side, variable
from tvm import relay

import byoc_hw
from byoc_hw.demo import heldout, model_path
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.plan.chip_choices import ChipChoices, PartChoices, PartCut
from byoc_hw.plan.choices import Choices, Group

sys.path.append(str(Path(__file__).parent / "emit"))
from vendor_library import VENDOR

TIGHT = replace(byoc_hw.SMALL, label="TIGHT", activation_memory=4 * 1024, weight_memory=2 * 1024)
"""Too small for the images below."""

BUDGET = 40


def network(seed=0, height=20):
    """conv -> conv -> pool, on images of 20 x 16"""
    x = variable((1, height, 16, 8), name="image")
    y = Conv(height=height, width=16, channels=8, filters=16, seed=seed).expr(x)
    y = Conv(height=height, width=16, channels=16, filters=16, seed=seed).expr(y)
    return module(Pool("nn.avg_pool2d").expr(y), x)


def partitioned(mod, accelerator=TIGHT):
    return byoc_hw.partition_for_hwlib(mod, accelerator=accelerator)


def inputs():
    return np.random.default_rng(0).integers(-128, 128, (1, 20, 16, 8)).astype("int8")


@pytest.fixture(scope="module")
def tuning():
    return byoc_hw.tune(network(), TIGHT, budget=BUDGET, progress=False)


# ---------------------------------------------------------------- found, saved, applied


@pytest.mark.slow
def test_a_tuned_build_takes_the_cycles_that_were_found_and_gives_the_same_values(tuning, tmp_path):
    tuning.save(tmp_path / "model.tuning")
    plain = byoc_hw.build(partitioned(network()))
    tuned = byoc_hw.build(partitioned(network()), tuning=tmp_path / "model.tuning")
    before, after = plain.run(inputs()), tuned.run(inputs())
    np.testing.assert_array_equal(after.outputs[0], before.outputs[0])
    assert (before.cycles.total, after.cycles.total) == (tuning.before, tuning.after)
    assert after.cycles.total < before.cycles.total


@pytest.mark.slow
def test_the_report_and_the_metadata_say_that_a_plan_was_tuned(tuning):
    project = byoc_hw.build(partitioned(network()), tuning=tuning)
    assert str(project.report).splitlines()[0].endswith("in 1 region (1 of 1 regions tuned)")
    metadata = json.loads((project.directory / "metadata.json").read_text())
    (entry,) = metadata["tuning"].values()
    assert (entry["before"], entry["after"]) == (tuning.before, tuning.after)
    assert entry["choices"] == tuning.regions[0].choices.plain()
    plain = byoc_hw.build(partitioned(network()))
    assert "tuned" not in str(plain.report)
    assert json.loads((plain.directory / "metadata.json").read_text())["tuning"] == {}


def test_a_tuning_is_for_the_same_model_with_other_weights(tuning):
    project = byoc_hw.build(partitioned(network(seed=1)), tuning=tuning)
    assert project.run(inputs()).cycles.total == tuning.after


@pytest.mark.slow
def test_a_file_holds_all_of_it_and_the_same_bytes_whoever_found_it(tuning, tmp_path):
    tuning.save(tmp_path / "one")
    with ThreadPoolExecutor(2) as pool:
        mod = partitioned(network())
        byoc_hw.tune(mod, TIGHT, budget=BUDGET, executor=pool, progress=False).save(tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert byoc_hw.Tuning.load(tmp_path / "one") == tuning


def test_a_file_holds_what_is_placed_packed_and_done_by_jobs(tuning, tmp_path):
    (region,) = tuning.regions
    sets = {"placed": frozenset({0, 2}), "stored": frozenset({1}), "packed": frozenset({0})}
    changed = replace(region.choices, **sets, jobs_transpose=True, apart=True, fine=True)
    tuning = replace(tuning, regions=(replace(region, choices=changed),))
    tuning.save(tmp_path / "file")
    assert byoc_hw.Tuning.load(tmp_path / "file") == tuning


def test_prints_as_a_table(tuning):
    headline, titles, row = str(tuning).splitlines()
    cycles = f"{tuning.before:,} accelerator cycles before, {tuning.after:,} after"
    assert repr(tuning) == f"<Tuning for TIGHT: 1 region, {cycles}>"
    assert headline.startswith(f"tuned for TIGHT (budget {BUDGET}, seed 0): {tuning.before} accelerator cycles before")
    assert titles.split() == ["region", "layers", "before", "after", "fewer", "plans", "tried"]
    assert row.split()[:4] == ["tvmgen_default_hwlib_main_0", "4", str(tuning.before), str(tuning.after)]
    assert "<td>tvmgen_default_hwlib_main_0</td>" in tuning._repr_html_()


def test_regions_of_one_structure_are_tuned_once():
    told = []
    mod = side_by_side([Dense(seed=seed) for seed in (0, 1)])
    tuning = byoc_hw.tune(mod, TIGHT, budget=30, progress=told.append)
    assert len(tuning.regions) == len({region.name for region in tuning.regions})
    assert {state.region for state in told} == {tuning.regions[0].name}
    byoc_hw.build(partitioned(mod), tuning=tuning)


# ---------------------------------------------------------------- progress


@pytest.mark.slow
def test_progress_is_a_line_for_each_round(capfd):
    byoc_hw.tune(network(), TIGHT, budget=20)
    out, error = capfd.readouterr()
    assert out == ""
    lines = error.splitlines()
    assert len(lines) == 2
    assert lines[-1].startswith("region 1 of 1: 20 of 20 plans, ")


@pytest.mark.slow
def test_progress_can_be_off_or_a_function(capfd):
    told = []
    tuning = byoc_hw.tune(network(), TIGHT, budget=20, progress=told.append)
    byoc_hw.tune(network(), TIGHT, budget=20, progress=False)
    assert capfd.readouterr() == ("", "")
    assert [(state.evaluations, state.number, state.regions) for state in told] == [(16, 1, 1), (20, 1, 1)]
    assert told[-1].best == tuning.after


# ---------------------------------------------------------------- what is refused


def test_another_accelerator_is_named_with_what_differs(tuning):
    larger = replace(TIGHT, label="LARGER", weight_memory=8 * 1024)
    rule = r"partitioned for, LARGER: this one is for TIGHT \(weight_memory 2048, not 8192\)"
    with pytest.raises(InvalidInput, match=rule):
        byoc_hw.build(partitioned(network(), larger), tuning=tuning)
    with pytest.raises(InvalidInput, match="the module was partitioned for accelerator TIGHT: got LARGER"):
        byoc_hw.tune(partitioned(network()), larger)


def test_another_model_is_an_error_and_nothing_is_written(tuning, tmp_path):
    with pytest.raises(InvalidInput, match="it has none of them, so it is of another model, or numerics, deny, place"):
        byoc_hw.build(partitioned(network(height=18)), tuning=tuning, output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_known_in_part_says_so():
    x = variable((1, 20, 16, 8), name="image")
    first = Conv(height=20, width=16, channels=8).expr(x)
    between = relay.reverse(first, axis=3)
    mod = module(Conv(height=20, width=16, channels=8, strides=(2, 2)).expr(between), x)
    tuning = byoc_hw.tune(mod, TIGHT, budget=5, progress=False)
    assert len(tuning.regions) == 2
    project = byoc_hw.build(partitioned(mod), tuning=replace(tuning, regions=tuning.regions[1:]))
    assert "(1 of 2 regions tuned)" in str(project.report)


@pytest.mark.parametrize(
    ("contents", "rule"),
    [
        (None, "a tuning is a file that Tuning.save wrote: .*No such file"),
        ("choices", "a tuning is a file that Tuning.save wrote"),
        ('{"generator": "byoc_hw"}', "is another file"),
        ('{"generator": "byoc_hw tune", "format": 99}', "format of a tuning is 1: got 99 .*: tune again"),
        ('{"generator": "byoc_hw tune", "format": 1, "regions": [{}]}', "is damaged: accelerator is missing"),
    ],
)
def test_a_file_that_is_none(contents, rule, tmp_path):
    path = tmp_path / "model.tuning"
    if contents is not None:
        path.write_text(contents)
    with pytest.raises(InvalidInput, match=rule):
        byoc_hw.build(partitioned(network()), tuning=path)


def test_a_file_with_a_number_that_makes_no_sense(tuning, tmp_path):
    path = tmp_path / "model.tuning"
    tuning.save(path)
    plain = json.loads(path.read_text())
    plain["regions"][0]["choices"]["groups"][0]["stripes"] = 0
    path.write_text(json.dumps(plain))
    with pytest.raises(InvalidInput, match=r"groups\[0\]\.stripes is a whole number from 1 to \d+: got 0"):
        byoc_hw.Tuning.load(path)


def test_choices_that_cannot_be_carried_out_say_which_region(tuning):
    (region,) = tuning.regions
    everything = replace(region.choices.groups[0], stripes=1, held=frozenset(range(4)), tiling=None)
    groups = [replace(everything, layers=1)] * region.layers
    impossible = replace(region, choices=replace(region.choices, groups=tuple(groups)))
    with pytest.raises(PlanError, match="main_0: its tuned plan cannot be carried out, tune it again: what is live"):
        byoc_hw.build(partitioned(network()), tuning=replace(tuning, regions=(impossible,)))


def test_an_accelerator_with_a_library_has_nothing_to_tune():
    with pytest.raises(InvalidInput, match="tuning is of tiles and copies: accelerator vendor is driven by whole"):
        byoc_hw.tune(Conv().module(), VENDOR)


def test_a_model_without_regions_has_nothing_to_tune(tuning):
    x = variable((1, 4), "float32")
    with pytest.raises(InvalidInput, match="nothing of the model runs on accelerator TIGHT"):
        byoc_hw.tune(module(relay.nn.relu(x), x), TIGHT)
    with pytest.raises(InvalidInput, match="a tuning is for a partitioned module"):
        byoc_hw.build(network(), tuning=tuning)


def test_a_budget_is_at_least_1():
    with pytest.raises(InvalidInput, match="budget is at least 1: got 0"):
        byoc_hw.tune(network(), TIGHT, budget=0)


# ---------------------------------------------------------------- the shipped model


@pytest.mark.slow
def test_the_shipped_model_is_tuned_without_a_change_of_its_outputs():
    mod, params = byoc_hw.load_tflite(model_path())
    mod = byoc_hw.partition_for_hwlib(mod, params, accelerator=byoc_hw.SMALL)
    tuning = byoc_hw.tune(mod, budget=20, progress=False)
    report = byoc_hw.validate(byoc_hw.build(mod, tuning=tuning), heldout().images[:1], mod)
    assert report.ok, report
    assert tuning.after <= tuning.before


# ---------------------------------------------------------------- damaged files


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["regions"], {}, r"regions is a list: got {}"),
        (["regions", 0, "choices"], None, r"regions\[0\]\.choices is a record: got None"),
        (["regions", 0, "before"], "x", r"regions\[0\]\.before is a whole number.*: got 'x'"),
        (["regions", 0, "layers"], 10**12, r"regions\[0\]\.layers is a whole number from 1 to \d+: got 1000000000000"),
        (["regions", 0, "choices", "blocks", 0], [1], r"choices\.blocks\[0\] is a list of 2 values: got \[1\]"),
        (["regions", 0, "choices", "swapped"], [1], r"choices\.swapped\[0\] is true or false: got 1"),
        (
            ["regions", 0, "choices", "groups", 0, "whole"],
            [1.5],
            r"groups\[0\]\.whole\[0\] is a whole number.*: got 1\.5",
        ),
        (["accelerator", "label"], 7, r"accelerator\.label is a text: got 7"),
        (["accelerator", "ram"], [], r"accelerator\.ram is a whole number.*: got \[\]"),
        (["budget"], 1e9, r"budget is a whole number.*: got 1000000000\.0"),
    ],
)
def test_a_damaged_file_names_file_field_rule_and_value(tuning, tmp_path, path, value, said):
    file = tmp_path / "model.tuning"
    tuning.save(file)
    check_damaged(file, path, value, said)


def check_damaged(file, path, value, said):
    """The file with another value at a path is refused, with what is wrong."""
    plain = json.loads(file.read_text())
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file.write_text(json.dumps(plain))
    with pytest.raises(InvalidInput, match=rf"model\.tuning is damaged: .*{said}"):
        byoc_hw.Tuning.load(file)


def chip_choices():
    part = PartChoices(PartCut(1, (0, 1), 1, (0, 4), flat=True), Choices((True,), (Group(1), Group(1)), (None, None)))
    return ChipChoices((0, 1), (0, 1), (True,), (replace(part, pieces=True), part), alone=True)


def test_a_file_holds_the_choices_of_a_chip(tuning, tmp_path):
    tuning = replace(tuning, regions=(replace(tuning.regions[0], choices=chip_choices()),))
    tuning.save(tmp_path / "file")
    assert byoc_hw.Tuning.load(tmp_path / "file") == tuning


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["order"], 1, "choices.order is a list: got 1"),
        (["parts", 0, "lane"], -1, r"parts\[0\].lane is a whole number from 0 to \d+: got -1"),
        (["parts", 1, "rows"], [0], r"parts\[1\].rows is a list of 2 values"),
        (["parts", 1, "choices", "blocks"], None, r"parts\[1\].choices.blocks is a list: got None"),
        (["alone"], 1, "choices.alone is true or false: got 1"),
    ],
)
def test_a_damaged_file_of_a_chip_names_the_field(tuning, tmp_path, path, value, said):
    file = tmp_path / "model.tuning"
    replace(tuning, regions=(replace(tuning.regions[0], choices=chip_choices()),)).save(file)
    check_damaged(file, ["regions", 0, "choices", *path], value, said)


def test_choices_of_a_chip_in_a_tuning_for_one_accelerator_say_which_region(tuning):
    of_a_chip = replace(tuning, regions=(replace(tuning.regions[0], choices=chip_choices()),))
    with pytest.raises(PlanError, match=r"cannot be carried out, tune it again: .*choices are for TIGHT: got others"):
        byoc_hw.build(partitioned(network()), tuning=of_a_chip)


def test_billions_of_layers_stripes_or_bytes_are_refused_in_a_second(tuning, tmp_path):
    file = tmp_path / "model.tuning"
    mod = partitioned(network())
    for name, value, error in (
        ("layers", 10**9, InvalidInput),
        ("layers", 2**24, PlanError),
        ("stripes", 10**9, None),  # a stripe has at least a row
    ):
        tuning.save(file)
        plain = json.loads(file.read_text())
        for group in plain["regions"][0]["choices"]["groups"]:
            group[name] = value
        file.write_text(json.dumps(plain))
        started = time.process_time()
        with pytest.raises(error) if error else nullcontext():
            byoc_hw.build(mod, tuning=file)
        assert time.process_time() - started < 5
    with file.open("r+b") as damaged:
        damaged.truncate(2**40)
    with pytest.raises(InvalidInput, match=r"model\.tuning has at most 16777216 bytes: got 1099511627776"):
        byoc_hw.Tuning.load(file)
    file.write_text("[" * 10**6)
    with pytest.raises(InvalidInput, match="is JSON in UTF-8: maximum recursion depth"):
        byoc_hw.Tuning.load(file)


def test_a_file_is_replaced_whole_or_stays(tuning, tmp_path, monkeypatch):
    file = tmp_path / "model.tuning"
    file.write_text("earlier")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(InvalidInput, match=r"model\.tuning can be written: .*No space left"):
        tuning.save(file)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("model.tuning", "earlier")]
    monkeypatch.undo()
    tuning.save(file)
    assert byoc_hw.Tuning.load(file) == tuning
    with pytest.raises(InvalidInput, match=r"none/model\.tuning can be written: .*No such file"):
        tuning.save(tmp_path / "none" / "model.tuning")


# ---------------------------------------------------------------- interrupted


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_found(tmp_path):
    def stop(state):
        if state.evaluations >= 16:
            raise KeyboardInterrupt

    with pytest.raises(byoc_hw.TuningInterrupted) as stopped:
        byoc_hw.tune(network(), TIGHT, budget=10_000, progress=stop)
    tuning = stopped.value.tuning
    assert [region.evaluations for region in tuning.regions] == [16]
    assert tuning == replace(byoc_hw.tune(network(), TIGHT, budget=16, progress=False), budget=10_000)
    tuning.save(tmp_path / "model.tuning")
    project = byoc_hw.build(partitioned(network()), tuning=tmp_path / "model.tuning")
    assert project.run(inputs()).cycles.total == tuning.after


def test_an_interrupt_before_the_first_plan_is_only_that(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("byoc_hw.plan.tune.rounds.known_layout", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        byoc_hw.tune(network(), TIGHT, budget=10, progress=False)
    assert type(stopped.value) is KeyboardInterrupt


# ---------------------------------------------------------------- on a cluster

FEW = {"budget": 24, "progress": False}


@pytest.mark.slow
def test_dask_tunes():
    distributed = pytest.importorskip("distributed", reason="pip install distributed")
    alone = byoc_hw.tune(network(), TIGHT, **FEW)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        assert byoc_hw.tune(network(), TIGHT, executor=client.get_executor(), **FEW) == alone


MPI = """
import byoc_hw
from byoc_hw.demo import model_path
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        mod = byoc_hw.partition_for_hwlib(*byoc_hw.load(model_path()), "digits", accelerator=byoc_hw.SMALL)
        byoc_hw.tune(mod, budget=24, progress=False, executor=pool).save("found.json")
        print(pool.num_workers)
"""


@pytest.mark.slow
def test_mpi_tunes(tmp_path):
    assert run_with_mpi(MPI, tmp_path).strip() == "1"
    mod = byoc_hw.partition_for_hwlib(*byoc_hw.load(model_path()), "digits", accelerator=byoc_hw.SMALL)
    byoc_hw.tune(mod, **FEW).save(tmp_path / "alone.json")
    assert (tmp_path / "found.json").read_bytes() == (tmp_path / "alone.json").read_bytes()
