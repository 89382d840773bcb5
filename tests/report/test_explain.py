"""The report as people and programs read it."""

import json
from dataclasses import replace

import pytest
from relay_samples import Conv, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.pattern import BrokenRule, Outcome, Rejection
from byoc_hw.report.explain import Report
from byoc_hw.report.line import COLUMNS

REPORT = Report(
    "net",
    "REFERENCE",
    "relay",
    (
        Outcome("conv", ("qnn.conv2d", "qnn.requantize"), "accelerator", ("qnn_conv2d",), ("region_0",)),
        Outcome(
            "wide<conv>",
            ("qnn.conv2d",),
            "host",
            rejections=(Rejection("qnn_conv2d", (BrokenRule("stride is one of 1, 2", "3"),)),),
        ),
        Outcome("a" * 200, ("nn.softmax",), "host", uncovered=("nn.softmax",)),
        Outcome("weights", ("add",), "folded"),
    ),
)


def test_text_names_each_operator_its_place_and_its_reasons():
    assert str(REPORT).splitlines() == [
        "net on REFERENCE (numerics relay): 1 of 3 operators offloaded, in 1 region",
        "  accelerator  qnn_conv2d  conv",
        "  host         -           wide<conv>",
        "               qnn_conv2d: stride is one of 1, 2: got 3",
        f"  host         -           {'a' * 57}...",
        "               no pattern covers nn.softmax",
        "  folded       -           weights",
    ]


POLLS = {
    "nothing on the host": (REPORT.outcomes[:1], "polls compute nothing: they start copies and jobs"),
    "no estimate": (
        REPORT.outcomes,
        "longest time between two returns of a poll: no estimate for 2 operators on the host",
    ),
    "the slowest operator": (
        (*REPORT.outcomes, *(Outcome(f"on_{n}", ("add",), "host", host_instructions=n) for n in (70, 1900, 400))),
        "longest time between two returns of a poll: about 1,900 instructions, in on_1900; "
        "no estimate for 2 operators on the host",
    ),
}


@pytest.mark.parametrize(("outcomes", "said"), POLLS.values(), ids=POLLS)
def test_a_polled_model_says_how_long_a_poll_takes(outcomes, said):
    report = replace(REPORT, outcomes=outcomes, polled=True)
    assert str(report).splitlines()[1] == f"  {said}"
    assert Report.from_plain(report.plain()) == report
    assert "poll" not in str(replace(report, polled=False))


def test_json_holds_whole_names_rules_and_values():
    plain = json.loads(REPORT.to_json())
    assert plain["outcomes"][1]["rejections"][0]["broken"] == [{"rule": "stride is one of 1, 2", "found": "3"}]
    assert plain["outcomes"][2]["name"] == "a" * 200


def test_plain_data_gives_the_report_back():
    assert Report.from_plain(REPORT.plain()) == REPORT


def test_what_another_version_tells_of_an_operator_is_left_out():
    plain = json.loads(json.dumps(REPORT.plain()))
    plain["outcomes"][1]["weather"] = "fine"
    plain["outcomes"][1]["rejections"][0]["broken"][0]["weather"] = "fine"
    assert Report.from_plain(plain) == REPORT


def test_html_escapes_the_models_names():
    html = REPORT._repr_html_()
    assert "wide&lt;conv&gt;" in html
    assert "<conv>" not in html


def test_module_and_project_tell_the_same():
    for mod in (byoc_hw.partition_for_hwlib(Conv(strides=(stride, stride)).module()) for stride in (1, 3)):
        project = byoc_hw.explain(byoc_hw.build(mod))
        assert byoc_hw.explain(mod) == replace(project, cycles=None)


def test_a_plan_is_compared_with_the_bound():
    mod = byoc_hw.partition_for_hwlib(Conv().module())
    project = byoc_hw.build(mod)
    cycles, bound = project.schedule.cycles, project.schedule.bound
    assert 0 < bound <= cycles
    assert f"  no plan takes fewer than {bound:,} cycles\n" in str(byoc_hw.explain(mod))
    assert f"  regions take {cycles:,} cycles, {cycles / bound:.2f} of the bound: no plan" in str(
        byoc_hw.explain(project)
    )


def test_refuses_a_module_that_was_not_partitioned():
    x = variable((1, 4), "float32")
    with pytest.raises(byoc_hw.InvalidInput, match="explain takes a module that partition_for_hwlib made"):
        byoc_hw.explain(module(relay.nn.relu(x), x))


# ---------------------------------------------------------------- one line


def test_repr_is_one_line():
    assert repr(REPORT) == "<Report net on REFERENCE: 1 of 3 operators offloaded, in 1 region>"
    alone = replace(REPORT, accelerator=None, numerics=None)
    assert repr(alone) == "<Report net: not partitioned, all 3 operators on the host>"


def test_repr_cuts_a_long_name_and_keeps_the_numbers():
    text = repr(replace(REPORT, mod_name="n" * 200))
    assert len(text) == COLUMNS == 100
    assert text.endswith("nnn...: 1 of 3 operators offloaded, in 1 region>")
