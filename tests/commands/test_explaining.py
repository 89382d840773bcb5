"""`python -m byoc_hw explain`, `report` and `plan`: what they print, draw and refuse."""

import csv
import io
import json
import re

import pytest
from command_samples import MODEL

import byoc_hw
from byoc_hw import __main__ as cli
from byoc_hw.compiler import region_graphs
from byoc_hw.demo import model_path
from byoc_hw.pattern import patterns
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.stages import STAGES


def test_explain_for_people_and_for_programs(capfd):
    assert cli.main(["explain", MODEL]) == 0
    assert "qnn_softmax: softmax is offloaded with numerics='tflite' only" in capfd.readouterr().out
    assert cli.main(["explain", MODEL, "--numerics", "tflite"]) == 0
    assert "(numerics tflite): 14 of 14 operators offloaded" in capfd.readouterr().out
    assert cli.main(["explain", MODEL, "--json", "--deny", "qnn_conv2d"]) == 0
    outcomes = json.loads(capfd.readouterr().out)["outcomes"]
    assert {outcome["placement"] for outcome in outcomes} >= {"accelerator", "host"}


def test_explain_draws_the_graph(tmp_path, capfd, monkeypatch):
    assert cli.main(["explain", MODEL, "--graph", str(tmp_path / "graph.dot")]) == 0
    text = (tmp_path / "graph.dot").read_text()
    assert text.count("[label=") == 14 + 2  # and the keys of two places
    assert text.count(" -> ") == 14  # a chain of 14 with one branch
    assert "13 of 14 operators offloaded" in text
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["explain", MODEL, "--graph", str(tmp_path / "graph.svg")]) == 3
    assert "dot is not installed: install the package graphviz" in capfd.readouterr().err
    assert not (tmp_path / "graph.svg").exists()


def test_report_is_one_page_of_a_model_or_a_project(built, capfd):
    assert cli.main(["report", MODEL, "--clock", "200MHz"]) == 0
    page = capfd.readouterr().out
    assert "13 of 14 (93%) offloaded" in page
    assert re.search(r"accelerator  [\d,]+ cycles, 0\.\d{3} ms", page)
    assert "the 5 costliest layers:" in page
    assert cli.main(["report", str(built), "--clock", "0.2G"]) == 0
    assert capfd.readouterr().out == page.replace("digits_int8 on", "digits on")


def test_report_for_tables_and_programs(built, capfd):
    assert cli.main(["report", str(built), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capfd.readouterr().out)))
    assert cli.main(["report", str(built), "--json"]) == 0
    plain = json.loads(capfd.readouterr().out)
    assert len(rows) == len(plain["layers"])
    assert sum(int(row["cycles"]) for row in rows if row["bound"] != "host") == plain["cycles"]
    assert [row["name"] for row in rows] == [layer["name"] for layer in plain["layers"]]


def test_report_refuses_what_it_cannot_do(built, ended, capfd):
    code, error = ended("report", built, "--ram", "64k")
    assert (code, f"--ram is for a model: {built} is a project that was built" in error) == (2, True)
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(["report", MODEL, "--clock", "0"])
    assert "a clock is above 0, in Hz, as in 200000000, 200M, 1.5GHz: got '0'" in capfd.readouterr().err


@pytest.fixture(scope="module")
def layout():
    """The plan of the digits on `SMALL`."""
    mod = byoc_hw.partition_for_hwlib(*byoc_hw.load(model_path()), accelerator=byoc_hw.SMALL)
    (graph,) = region_graphs(mod).values()
    return lay_out_region(graph, byoc_hw.SMALL)


@pytest.mark.parametrize(
    ("stage", "line"),
    [
        ("graph", "%7 = add(%4, %6) -> 1x4x4x48  # model_1/re_lu_14/Relu"),
        ("mapping", "%9    component 0   as it stands, packed conv2d 2x2x48 -> 2x2x64, 2972 cycles"),
        ("choices", "group 0   %0         whole  held [0, 1]"),
        ("work", "33    %12   copy 10 bytes                a27[0:10] -> s12[0:10], 73 cycles"),
        ("steps", "  job 2x2x16 -> 1x1x16  ifm 9952, ofm 8816"),
    ],
)
def test_a_stage_of_planning_has_one_line_each(layout, stage, line):
    assert line in str(STAGES[stage](layout)).splitlines()


@pytest.mark.slow
def test_plan_shows_a_stage(capsys, layout):
    assert cli.main(["plan", MODEL, "--stage", "work", "--accelerator", "SMALL"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:] == str(STAGES["work"](layout)).splitlines()[1:]  # the first has the name of the region


def test_plan_of_a_model_that_stays_on_the_host_says_so(capsys):
    composites = [pattern.name for pattern in patterns()]
    assert cli.main(["plan", str(model_path()), "--deny", *composites]) == 2
    assert "planning is of regions: nothing of the model runs on accelerator REFERENCE" in capsys.readouterr().err
