"""A few cases of every class of fuzzing, and that the runner sees what goes wrong."""

import os
import re
import signal
import sys
import time
from types import SimpleNamespace

import pytest
from fuzz_case import CLASSES, Finding, try_case
from fuzz_runner import Limits, fuzz

from byoc_hw.errors import InvalidInput, RunError

SEEDS = {
    "relay": 11,
    "structures": 3,
    "tflite": 1,
    "arithmetic": 1,
    "accelerators": 1,
    "plans": 1,
    "names": 1,
    "files": 1,
    "failures": 1,
}


@pytest.mark.slow
@pytest.mark.needs_relay
@pytest.mark.parametrize("name", SEEDS)
def test_a_case_of_each_class_has_no_finding(name):
    outcome = try_case(name, SEEDS[name])
    assert not outcome.kind, f"{outcome.kind}: {outcome.what}\n{outcome.detail}"
    assert sum(outcome.tally.values())


def test_each_class_is_tried():
    assert set(SEEDS) | {"coverage"} == set(CLASSES)  # which needs atheris, and a minute


def planted(case):
    """A case for each thing that may come of one."""
    match case.seed:
        case 0:
            case.tally["exact"] += 1
        case 1:
            raise InvalidInput("scale is positive: got -1")
        case 2 | 3:
            raise Finding("wrong bits", "conv2d", f"seed {case.seed}")
        case 4:
            raise KeyError("lost")
        case 5:
            raise RunError("default does not build (exit code 2):\nsrc/a.c:3:1: error: unknown type name 'x'")
        case 6:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 7:
            busy()
        case 8:
            asleep()
        case 9:
            bytearray(1 << 60)
        case 10:
            with case.outside("TVM"):
                os.kill(os.getpid(), signal.SIGSEGV)


def busy():
    while True:
        pass


def asleep():
    time.sleep(60)


@pytest.mark.slow
def test_the_runner_tells_what_goes_wrong(monkeypatch):
    monkeypatch.setitem(sys.modules, "fuzz_planted", SimpleNamespace(run=planted))
    said = []
    report = fuzz(["planted"], seed=0, jobs=2, seconds=60, cases=11, limits=Limits(cpu=1, clock=3), say=said.append)
    found = {(entry.outcome.kind, entry.outcome.what): entry for entry in report.findings.values()}
    kinds = sorted(kind for kind, _ in found)
    assert kinds == ["crash", "does not compile", "foreign error", "memory", "timeout", "timeout", "wrong bits"]
    assert found["wrong bits", "conv2d"].count == 2
    assert found["does not compile", "a.c:N:N: error: unknown type name '...'"].seed == 5
    assert any(what.startswith("KeyError in test_fuzz.py:planted") for _, what in found)
    row = re.search(r"^planted.*$", str(report), re.M)[0].split()[1:]
    assert list(map(int, row)) == [11, 1, 0, 1, 1, 8, 7]  # cases, exact, built, refused, TVM crashed, failed, findings
    assert len(said) == 7
