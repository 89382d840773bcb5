"""Plans with one thing wrong are refused, by the machine of these tests and by the simulator in C."""

import subprocess
from dataclasses import replace

import numpy as np
import pytest
from hwlib_simulator import ADDRESS, ALIGNMENT, OK, RACE, UNWRITTEN, build_program
from hypothesis import HealthCheck, given, settings
from plan_check import check
from plan_choices import estimated
from plan_faults import changed, copies, jobs, with_step, without, without_each_wait
from plan_graphs import regions
from plan_machine import Machine, RefusedError
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.emit.region import region_source
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import ACTIVATIONS, WEIGHTS

HARDWARE = accelerator(3000, 1500, dma_alignment=2)
"""The layers below run in stripes that take turns, and the array sums over slices of channels."""

RULES = {
    "in flight on the same bytes": RACE,
    "unwritten bytes": UNWRITTEN,
    "bytes at": ADDRESS,
    "unaligned": ALIGNMENT,
    "ends with work in flight": OK,
}


def planned():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 10, 10, 8)), 8, padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 16, (1, 1))
    added = samples.add(second.ofm, second.ofm)
    graph = graph_of([first.ifm], [first, second, added], [added.ofm])
    plan = check(graph, HARDWARE, choices=estimated(graph, HARDWARE))
    assert len({call.index for call in plan.calls}) < len(plan.calls)
    assert any(not plan.steps[at].last for at in jobs(plan))
    return plan


def faults(plan):
    """Damaged plans by name."""
    found = {f"step {at}, a wait, is missing": damaged for at, damaged in without_each_wait(plan)}
    first, weights, job = copies(plan, ACTIVATIONS, True)[0], copies(plan, WEIGHTS, True)[0], jobs(plan)[0]
    store, last = copies(plan, ACTIVATIONS, False)[0], copies(plan, ACTIVATIONS, True)[-1]
    steps = plan.steps
    memory = HARDWARE.activation_memory
    found["an input is not loaded"] = without(plan, first)
    found["an input is loaded elsewhere"] = with_step(plan, first, target=steps[first].target + 2)
    found["weights are loaded elsewhere"] = with_step(plan, weights, target=steps[weights].target + 2)
    found["an input is loaded once its job runs"] = moved(plan, first, job)
    found["an output is stored before its job has run"] = moved(plan, store, job)
    found["a copy ends beyond the memory"] = with_step(
        plan, last, target=steps[last].target._replace(offset=memory - 2)
    )
    found["a job ends beyond the memory"] = with_step(plan, job, ifm=memory - 1)
    found["a copy starts at an odd byte"] = with_step(plan, first, source=steps[first].source + 1)
    found["partial sums start at an odd byte"] = with_step(
        plan, next(at for at in jobs(plan) if not steps[at].last), psum=steps[job].psum + 1
    )
    return found


def moved(plan, at, behind):
    """The plan with a step moved to directly behind another one. Nobody waits for it there."""
    steps = [(step,) for step in plan.steps]
    steps[at], steps[behind] = (), (plan.steps[behind], plan.steps[at]._replace(slot=0))
    return changed(plan, steps)


def inputs_of(plan):
    random = np.random.default_rng(0)
    return [random.integers(-128, 128, tensor.shape).astype(tensor.dtype) for tensor in plan.graph.inputs]


def refusal(plan, hardware):
    """The rule that the machine finds broken, None if none."""
    try:
        Machine(plan, hardware, inputs_of(plan)).run()
    except RefusedError as error:
        return next(rule for text, rule in RULES.items() if text in str(error))
    return None


@pytest.mark.slow
@given(regions(most=4))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_no_wait_can_be_left_out(region):
    hardware, graph = region
    plan = plan_region(graph, hardware)
    if len(plan.steps) < 150:
        assert {refusal(damaged, hardware) for _, damaged in without_each_wait(plan)} <= {RACE, OK}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A function that gives, for the plan or a damaged one by name, status, fault and what is in flight in the end."""
    plan = planned()
    damaged = {"nothing": plan, **faults(plan)}
    directory = tmp_path_factory.mktemp("faults")
    sources, cases = [], []
    for number, one in enumerate(damaged.values()):
        renamed = replace(one, graph=replace(one.graph, name=f"region_{number}"))
        sources.append(region_source(renamed, HARDWARE))
        cases.append(f"case {number}: result = region_{number}(ifm, ofm); break;")
    ifm = ", ".join(map(str, inputs_of(plan)[0].ravel()))
    main = f"""
#include <stdio.h>
#include <stdlib.h>
#include "hwlib_sim.h"

static int8_t ifm[] = {{{ifm}}}, ofm[{plan.graph.outputs[0].nbytes}];

int main(int count, char **arguments)
{{
  int32_t result = 0;
  switch (count > 1 ? atoi(arguments[1]) : 0) {{ {" ".join(cases)} default: break; }}
  printf("%d|%s|%u|", (int)HWLIB_RESULT_STATUS(result), hwlib_sim_fault(), (unsigned)hwlib_sim_in_flight());
  for (unsigned i = 0; i < sizeof ofm; ++i) {{
    printf("%d ", ofm[i]);
  }}
  return 0;
}}
"""
    (directory / "main.c").write_text("\n".join(sources) + main)
    program = build_program(directory / "build", HARDWARE, str(directory / "main.c"))

    def run(name):
        number = list(damaged).index(name)
        shown = subprocess.run([program, str(number)], capture_output=True, text=True, check=True).stdout.split("|")
        return int(shown[0]), shown[1], int(shown[2]), np.array(shown[3].split(), np.int8)

    return run


@pytest.mark.slow
def test_simulator_runs_the_plan_as_the_machine_does(simulated):
    plan = planned()
    status, fault, in_flight, ofm = simulated("nothing")
    assert (status, fault, in_flight) == (OK, "", 0)
    np.testing.assert_array_equal(ofm, Machine(plan, HARDWARE, inputs_of(plan)).run()[0].ravel())


@pytest.mark.parametrize("name", faults(planned()))
def test_simulator_refuses_a_damaged_plan_for_the_machine_s_reason(simulated, name):
    rule = refusal(faults(planned())[name], HARDWARE)
    status, fault, in_flight, _ = simulated(name)
    assert rule is not None
    assert (status, bool(fault)) == (rule, rule != OK)
    assert in_flight > 0 or rule != OK
