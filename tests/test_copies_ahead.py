"""Models with functions of the host between regions: constants come meanwhile, the results are TVM's bit for bit."""

import subprocess
from dataclasses import replace

import numpy as np
import pytest
from bit_exact import assert_equals_tvm, input_arrays
from relay_samples import Conv, module
from riscv32_tools import needs_riscv32
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw import compiler
from byoc_hw.accelerator import SMALL
from byoc_hw.errors import RunError
from byoc_hw.plan.steps import CopyWait

SLOW = replace(SMALL, label="SMALL with a slow DMA", dma_width=1)


def three_regions():
    """Convolutions with an operator between them that stays on the host."""
    shape = {"height": 12, "width": 12}
    first = Conv(**shape, channels=8, filters=16)
    (x,) = first.variables()
    value = first.expr(x)
    for seed in (1, 2):
        value = relay.annotation.stop_fusion(relay.reverse(value, axis=1))
        value = Conv(**shape, channels=16, filters=16, seed=seed).expr(value)
    return module(value, x)


@pytest.fixture(scope="module")
def model():
    return three_regions()


@pytest.fixture
def built(model, monkeypatch):
    """The project, its module, and the same without copies ahead."""
    partitioned = byoc_hw.partition_for_hwlib(model, accelerator=SLOW)
    ahead = byoc_hw.build(partitioned)
    monkeypatch.setattr(compiler, "with_copies_ahead", lambda program, regions, accelerator: regions)
    return ahead, byoc_hw.build(partitioned), partitioned


def regions_of(project):
    return (project.directory / "src" / "default_hwlib.c").read_text()


@pytest.mark.slow
def test_results_are_exact_and_cycles_those_of_the_schedule(built, model):
    ahead, plain, partitioned = built
    assert regions_of(ahead).count("hwlib_go_on(") == 2
    assert "hwlib_go_on" not in regions_of(plain)
    assert_equals_tvm(ahead, partitioned, model, list(input_arrays(model)), SANITIZED)
    assert ahead.schedule.bound <= ahead.schedule.cycles <= plain.schedule.cycles


def test_no_file_of_the_runtime_is_there_for_nothing(built):
    ahead, plain, _ = built
    assert (ahead.directory / "hwlib/src/hwlib_go_on.c").exists()
    assert not (plain.directory / "hwlib/src/hwlib_go_on.c").exists()


@pytest.mark.slow
@needs_riscv32
def test_constants_come_while_the_host_works(built, model):
    ahead, plain, _ = built
    inputs = list(input_arrays(model))[-1]
    mine, other = (project.run(inputs, on="riscv32") for project in (ahead, plain))
    np.testing.assert_array_equal(mine.outputs[0], other.outputs[0])
    assert mine.cycles.total == ahead.schedule.cycles
    assert mine.host_instructions.total <= other.host_instructions.total
    assert other.end_to_end.total - mine.end_to_end.total > 4000  # 2 x 2,304 bytes of weights and more


def test_a_missing_wait_for_copies_in_flight_is_a_race(model, monkeypatch):
    def damaged(program, regions, accelerator):
        found = compiler_ahead(program, regions, accelerator)
        name, plan = next((name, plan) for name, plan in found.items() if plan.after)
        call = plan.calls[0]
        at = next(at for at, step in enumerate(call.steps) if isinstance(step, CopyWait))
        calls = (replace(call, steps=call.steps[:at] + call.steps[at + 1 :]), *plan.calls[1:])
        return {**found, name: replace(plan, calls=calls, local=())}

    compiler_ahead = compiler.with_copies_ahead
    monkeypatch.setattr(compiler, "with_copies_ahead", damaged)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(model, accelerator=SLOW))
    with pytest.raises(RunError, match="bytes of a copy in flight"):
        project.run(next(input_arrays(model)))


def test_a_region_that_is_not_behind_its_own_one_is_refused(built, model, tmp_path):
    """The second region is called in place of the first: it fails, and computes nothing of what is in local memory."""
    ahead, _, _ = built
    main = ahead.directory / "src" / "default_main.c"
    text = main.read_text()
    first = text.index("status = tvmgen_default_hwlib_main_0(")
    main.write_text(text[:first] + "(void)inputs; status = 0;" + text[text.index(";", first) + 1 :])
    with pytest.raises(RunError, match="status 7"):
        ahead.run(next(input_arrays(model)))


def test_a_failing_function_of_the_host_leaves_nothing_in_flight(built, model):
    ahead, _, _ = built
    main = (ahead.directory / "src" / "default_main.c").read_text()
    failed = main.index("return host_failed(", main.index("_main_0("))
    assert main[:failed].rstrip().endswith("tvmgen_default_hwlib_main_0_give_up();")


def test_a_model_that_runs_in_steps_starts_each_region_with_nothing(model):
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(model, accelerator=SLOW), poll=True)
    assert "go_on" not in regions_of(project)
    project.run(next(input_arrays(model)))


def test_generated_code_compiles_without_warnings(built):
    ahead, _, _ = built
    subprocess.run(["make", "-s", "-C", ahead.directory, "CC=gcc", "WERROR=1", "lib"], check=True)
