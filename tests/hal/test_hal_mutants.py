"""The kit finds mutants of the template HAL that change a model's result, and names the function: samples of them."""

from __future__ import annotations

from pathlib import Path

import hal_mutants
import pytest
from hal_mutants import Bench, Mutant, judge, judged, mutants_of, projects, report, shuffled

from byoc_hw.demo import model_path
from byoc_hw.run.new_hal import new_hal


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    directory = tmp_path_factory.mktemp("mutants")
    return Bench(directory, list(projects([model_path()], directory)))


def check(outcomes, capsys):
    assert report(outcomes, ("missed",)), capsys.readouterr().out
    assert all(outcome.well_named for outcome in outcomes if outcome.what == "found"), capsys.readouterr().out


@pytest.mark.slow
def test_finds_a_sample_of_mutants(bench, capsys):
    outcomes = judge(bench, shuffled(bench.mutants(), seed=2), count=20, jobs=2)
    assert len(outcomes) == 20
    check(outcomes, capsys)


@pytest.mark.slow
def test_a_mutant_that_the_kit_misses_is_one_that_changes_a_result(bench, monkeypatch):
    """With a kit that passes everything, the models find it; and what changes nothing is harmless."""
    monkeypatch.setattr(bench, "named", lambda objects, directory: None)
    jobs = (bench.hal / "chip_jobs.c").read_text()

    def mutant(before: str, after: str) -> Mutant:
        assert before in jobs
        return Mutant("chip_jobs.c", 1, "run_conv2d", before, after, jobs.replace(before, after))

    weights = judged(bench, mutant("chip_weights + tile->weights", "chip_weights + tile->weights % 64"))
    assert (weights.what, weights.who) == ("missed", "digits_int8_relay")
    counter = judged(bench, mutant("c < channels", "c < (channels & 0x7fffu)"))
    assert counter.what == "harmless"
    assert judged(bench, mutant("c < channels", "c < unknown")).what == "no mutant"
    assert judged(bench, mutant("c < channels", "channels > c")).what == "no mutant"


def test_mutants_are_of_every_sort(tmp_path: Path):
    new_hal(tmp_path)
    found = {(mutant.function, mutant.before, mutant.after) for mutant in mutants_of(tmp_path)}
    assert len(mutants_of(tmp_path)) > 2000
    assert {
        ("weight_at", "8", "9"),
        ("run_conv2d", "<", "<="),
        ("run_add", "uint32_t", "uint8_t"),
        ("hwlib_hal_copy_2d", "source_stride", "(source_stride & 0xfffu)"),
        ("run_conv2d", "tile->params", "(tile->params & 0x7fffu)"),
        ("run_conv2d", "first", "1"),
        ("run_conv2d", "memcpy(psum, &sum, sizeof sum);", ";"),
    } <= found


def test_a_report_says_whether_the_goal_is_met(capsys):
    mutant = Mutant("chip_jobs.c", 3, "pool", "1", "2", "")
    good = [hal_mutants.Outcome(mutant, "found", "hwlib_hal_job_start")] * 99
    assert report([*good, hal_mutants.Outcome(mutant, "missed", "digits")], ("missed",))
    out = capsys.readouterr().out
    assert "missed  chip_jobs.c:3 pool: 1 -> 2  digits" in out
    assert "0.9900   goal 0.99: met" in out
    assert not report([*good[:98], hal_mutants.Outcome(mutant, "missed", "digits")], ())
    assert not report([], ())
