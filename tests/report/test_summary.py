"""The page on a project: its figures are those of the model, the plan and the memory."""

import csv
import io
import json
from dataclasses import replace

import pytest
from relay_samples import Add, Conv, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.errors import InvalidInput
from byoc_hw.report.line import share_of
from byoc_hw.report.schedule import Activity, RegionSchedule
from byoc_hw.report.summary import costs_by_layer


@pytest.fixture(scope="module")
def project():
    """Two convolutions; the second one has a stride that no accelerator takes."""
    first, second = (
        Conv(filters=16),
        Conv(channels=16, filters=4, strides=(4, 4), padding=(0, 0, 0, 0)),
    )
    x = variable(first.ifm_shape)
    mod = module(second.expr(first.expr(x)), x)
    return byoc_hw.build(byoc_hw.partition_for_hwlib(mod, mod_name="two"))


def test_macs_and_operators_are_those_of_the_model(project):
    page = project.summary()
    (on,) = (one.macs for one in page.layers if one.bound != "host" and one.macs)
    off = sum(one.macs for one in page.layers if one.bound == "host")
    layer = next(entry for entry in project.layers if entry["kind"] == "conv2d")
    assert on == layer["macs"] == page.offloaded_macs
    assert page.macs == on + off
    assert off == 2 * 2 * 4 * 3 * 3 * 16
    assert "MACs" in str(project.report)
    assert share_of(page.offloaded_macs, page.macs) in str(page)


def test_cycles_of_layers_add_up_to_those_of_the_regions(project):
    page = project.summary()
    assert page.cycles == project.schedule.cycles == sum(one.cycles for one in page.layers if one.bound != "host")
    assert page.host_cycles == sum(one.instructions for one in page.layers if one.bound == "host") > 0
    assert (page.ram, page.flash) == (project.memory.ram_bytes, project.memory.flash_bytes)
    assert page.costliest[0].bound == "host"


def test_the_clock_gives_milliseconds(project):
    page = project.summary(clock=1e6)
    assert page.milliseconds(1500) == 1.5
    assert f"{page.cycles:,} cycles, {page.cycles / 1000:.3f} ms" in str(page)
    assert project.summary().milliseconds(5) is None
    assert " ms" not in str(project.summary())
    with pytest.raises(InvalidInput, match="clock is a finite number above 0: got -1"):
        project.summary(clock=-1)


def test_the_layers_are_a_table_and_data(project):
    page = project.summary()
    rows = list(csv.DictReader(io.StringIO(page.to_csv())))
    assert [int(row["macs"]) for row in rows] == [one.macs for one in page.layers]
    assert json.loads(page.to_json())["layers"][0]["cycles"] == page.layers[0].cycles
    assert "<table>" in page._repr_html_()
    assert len(repr(page)) <= 100


def test_a_project_on_the_host_alone_has_a_page():
    page = byoc_hw.build(Conv().module()).summary()
    assert (page.cycles, page.offloaded, page.accelerator) == (0, 0, None)
    assert page.macs > 0 == page.offloaded_macs
    assert page.unknown == len(page.layers)
    assert "of unknown cost" in str(page)


def test_weights_of_a_layer_are_its_own(project):
    (layer,) = (one for one in project.summary().layers if one.constants)
    assert layer.constants == 16 * (3 * 3 * 4 + 12)


def job(layer, start, end):
    return Activity("array", start, end, layer, 0)


def copy(layer, start, end):
    return Activity("in", start, end, layer, 1)


def costs(project, *work):
    end = max(one.end for one in work)
    region = RegionSchedule("r", 0, end, work, (), (), (), {}, 0)
    schedule = replace(project.schedule, regions=(region,))
    return {layer: (cost.cycles, cost.waits) for layer, cost in costs_by_layer(schedule).items() if cost.cycles}


def test_a_layer_costs_its_jobs_and_what_the_array_waits_for_them(project):
    # The copy for layer 1 is started by layer 0: layer 1 waits for it.
    found = costs(project, copy(0, 0, 10), job(0, 10, 30), copy(0, 10, 50), job(1, 50, 60), copy(1, 60, 65))
    assert found == {0: (30, 10), 1: (35, 25)}


def test_a_layer_of_copies_costs_its_copies(project):
    found = costs(project, job(0, 0, 10), copy(1, 5, 20), job(2, 25, 30))
    assert found == {0: (10, 0), 1: (10, 10), 2: (10, 5)}


def test_shares_say_that_something_is_missing():
    assert share_of(3, 3) == "3 of 3 (100%)"
    assert share_of(999, 1000) == "999 of 1,000 (99.90%)"
    assert share_of(0, 0) == "0 of 0"


def test_an_addition_has_no_macs_and_three_tensors():
    (outcome,) = byoc_hw.explain(byoc_hw.partition_for_hwlib(Add().module())).outcomes
    shape = relay.transform.InferType()(Add().module())["main"].params[0].checked_type.shape
    size = 1
    for extent in shape:
        size *= int(extent)
    assert outcome.macs == 0
    assert outcome.nbytes == 3 * size
