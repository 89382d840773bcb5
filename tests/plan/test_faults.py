"""Planted faults: what a plan must not do is refused, by the machine of these tests and by the simulator in C."""

import importlib
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from plan_machine import Machine, RefusedError
from plan_samples import Samples, accelerator, graph_of
from relay_samples import Conv, module, variable

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import RunError
from byoc_hw.plan import ACTIVATIONS, WEIGHTS, Copy, CopyWait, Job, JobWait, plan_region

_BUILD = importlib.import_module("byoc_hw.build")  # `byoc_hw.build` is the function

HARDWARE = {"roomy": REFERENCE, "tight": accelerator(1500, 1200)}


def residual():
    """Three convolutions with a branch around the second, an addition and a pooling."""
    samples = Samples()
    ifm = samples.tensor((1, 12, 12, 4))
    first = samples.conv2d(ifm, 8, padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 8, padding=(1, 1, 1, 1))
    added = samples.add(first.ofm, second.ofm)
    last = samples.conv2d(added.ofm, 24, strides=(2, 2))
    pooled = samples.pool(last.ofm)
    return graph_of([ifm], [first, second, added, last, pooled], [pooled.ofm])


def without(plan, wanted):
    """The plan without one step, counted through all calls and the tail."""
    seen = 0
    calls = []
    for call in plan.calls:
        kept = tuple(step for at, step in enumerate(call.steps, seen) if at != wanted)
        calls.append(replace(call, steps=kept))
        seen += len(call.steps)
    return replace(
        plan,
        calls=tuple(calls),
        tail=tuple(step for at, step in enumerate(plan.tail, seen) if at != wanted),
    )


def places(plan, kind, space=None):
    """Where in a plan there are steps of a kind, copies into one memory if a `space` is given."""
    return [
        at
        for at, step in enumerate(plan.steps)
        if isinstance(step, kind) and (space is None or step.target.space == space)
    ]


def run(plan, hardware):
    random = np.random.default_rng(0)
    inputs = [random.integers(-128, 128, one.shape).astype(np.int8) for one in plan.graph.inputs]
    return Machine(plan, hardware, inputs).run()


@pytest.mark.parametrize("hardware", HARDWARE.values(), ids=HARDWARE)
@pytest.mark.parametrize("kind", [CopyWait, JobWait])
def test_every_wait_is_needed(hardware, kind):
    plan = plan_region(residual(), hardware)
    run(plan, hardware)
    found = places(plan, kind)
    assert found
    for at in found:
        with pytest.raises(RefusedError, match=r"in flight"):
            run(without(plan, at), hardware)


@pytest.mark.parametrize("hardware", HARDWARE.values(), ids=HARDWARE)
@pytest.mark.parametrize("space", [ACTIVATIONS, WEIGHTS])
def test_local_memory_is_not_read_before_it_is_filled(hardware, space):
    plan = plan_region(residual(), hardware)
    with pytest.raises(RefusedError, match=r"unwritten bytes read|which holds no such work"):
        run(without(plan, places(plan, Copy, space)[0]), hardware)


# ---------------------------------------------------------------- the simulator in C


@pytest.fixture(scope="module")
def network():
    one, two = Conv(12, 12, 4, 8, padding=(1, 1, 1, 1)), Conv(12, 12, 8, 24, seed=1)
    ifm = variable(one.ifm_shape, name="x")
    return module(two.expr(one.expr(ifm)), ifm)


def run_damaged(network, damage):
    """One inference of the network in C, its region's plan damaged."""
    with patch.object(_BUILD, "plan_region", lambda *given, **options: damage(plan_region(*given, **options))):
        project = byoc_hw.build(byoc_hw.partition_for_hwlib(network))
    return project.run(np.zeros((1, 12, 12, 4), np.int8), cflags="-O1")


def moved_weights(plan):
    """The first job reads its weights where nothing has been written."""
    at = places(plan, Job)[0]
    calls, seen = [], 0
    for call in plan.calls:
        steps = [
            replace(step, weights=step.weights + 32768) if seen + index == at else step
            for index, step in enumerate(call.steps)
        ]
        calls.append(replace(call, steps=tuple(steps)))
        seen += len(call.steps)
    return replace(plan, calls=tuple(calls))


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda plan: without(plan, places(plan, CopyWait)[0]), "HWLIB_ERROR_RACE.*in flight"),
        (lambda plan: without(plan, places(plan, JobWait)[0]), "HWLIB_ERROR_RACE.*in flight"),
        (moved_weights, "HWLIB_ERROR_UNWRITTEN.*nothing has written"),
        (lambda plan: without(plan, len(plan.steps) - 1), "ended before"),
    ],
    ids=["no wait for a copy", "no wait for a job", "weights elsewhere", "no wait at the end"],
)
def test_the_simulator_refuses_a_damaged_plan(network, damage, error):
    with pytest.raises(RunError, match=rf"(?s){error}"):
        run_damaged(network, damage)


def test_the_same_plan_undamaged_runs(network):
    assert run_damaged(network, lambda plan: plan).outputs[0].shape[-1] == 24
