"""Regions that run while the host works on something else: which, where main waits, and what it gains."""

from dataclasses import replace

import numpy as np
import pytest
from bit_exact import assert_equals_tvm, input_arrays
from relay_samples import Conv, module
from riscv32_tools import needs_riscv32
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw import build_arena
from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import RunError
from byoc_hw.graph import Graph, Reshape
from byoc_hw.overlap import overlapped
from byoc_hw.plan.place.arena import place_model
from byoc_hw.plan.region_memory import Lifetime, RegionMemory
from byoc_hw.program import Buffer, CopyCall, HostCall, Program, RegionCall, WaitCall, Workspace
from byoc_hw.tensor import Tensor


def buffer(name, role="intermediate"):
    return Buffer(name, 160, role, (160,))


X, Y = buffer("x", "input"), buffer("y", "output")
A, B, C, D = map(buffer, "abcd")


def host(*arguments):
    return HostCall("_".join(one.name for one in arguments), arguments)


def region(source, target):
    one, other = Tensor(source.name, (160,)), Tensor(target.name, (160,))
    graph = Graph(f"region_{target.name}", (one,), (other,), (Reshape("reshape", (), one, other),))
    return RegionCall(graph, (source, target))


def shown(*calls):
    """The calls of the overlapped program, a region's start and wait marked."""
    found = overlapped(Program("net", (X,), (Y,), calls)).calls
    names = {HostCall: lambda call: call.symbol, RegionCall: lambda call: f"start {call.arguments[1].name}"}
    names |= {WaitCall: lambda call: f"wait {call.arguments[1].name}", CopyCall: lambda call: "copy"}
    return [names[type(call)](call) for call in found]


def test_waits_before_the_first_call_that_needs_the_region():
    assert shown(region(X, A), host(X, B), host(A, B, Y)) == ["start a", "x_b", "wait a", "a_b_y"]


def test_starts_before_the_host_functions_that_it_does_not_need():
    assert shown(host(X, A), host(X, B), region(A, C), host(C, B, Y)) == ["x_a", "start c", "x_b", "wait c", "c_b_y"]


def test_a_chain_stays_as_it_is():
    assert shown(host(X, A), region(A, B), host(B, Y)) == ["x_a", "start b", "b_y"]


def test_a_region_ends_before_the_next_one():
    calls = region(X, A), host(X, B), region(A, C), host(X, D), host(B, C, D, Y)
    assert shown(*calls) == ["start a", "x_b", "wait a", "start c", "x_d", "wait c", "b_c_d_y"]


def test_a_region_ends_before_its_input_is_overwritten():
    assert shown(region(A, Y), host(X, B), host(X, A)) == ["start y", "x_b", "wait y", "x_a"]


def test_a_region_ends_with_the_model():
    assert shown(region(X, A), host(X, Y)) == ["start a", "x_y", "wait a"]


def test_a_copy_alone_is_nothing_to_do_meanwhile():
    assert shown(region(X, A), CopyCall(X, Y)) == ["start a", "copy"]


# ---------------------------------------------------------------- memory


def test_a_running_region_shares_no_byte_with_what_the_host_does_meanwhile():
    call = region(A, C)
    inside = RegionMemory(
        ("one", "two"), (Lifetime("s", 64, 0, 0, "r"), Lifetime("t", 64, 1, 1, "r")), ((0, 0), (1, 1)), 16, {}
    )
    busy = replace(host(X, B), moments=(frozenset({"b", "pad"}),))
    program = Program("net", (X,), (Y,), (host(X, A), call, busy, host(B, C, Y)))
    spaces = [Workspace("pad", 96, 16)]
    alone, beside = (place_model(one, spaces, {call.graph.name: inside}, 16) for one in (program, overlapped(program)))
    conflicts = {block.name: block.conflicts for block in beside.blocks}
    assert conflicts["pad"] >= {"a", "b", "c", "s", "t"}
    assert conflicts["b"] >= {"a", "c", "s", "t"}
    assert "s" not in conflicts["t"]  # the region's own blocks still share
    assert "a" not in conflicts["t"]
    assert "s" not in {block.name: block.conflicts for block in alone.blocks}["pad"]
    assert beside.arena.nbytes > alone.arena.nbytes


# ---------------------------------------------------------------- the whole way


def two_branches():
    """A convolution for the accelerator beside a chain that stays on the host; both are joined there."""
    conv = Conv(height=24, width=24, channels=16, filters=64)
    x, *weights = conv.variables()
    turned = relay.annotation.stop_fusion(relay.reverse(x, axis=1))
    wide = relay.annotation.stop_fusion(relay.repeat(x, 6, axis=3))
    other = relay.annotation.stop_fusion(relay.min(wide, axis=3, keepdims=True))
    return module(relay.maximum(conv.expr(turned, *weights), other), x, *weights)


@pytest.fixture
def built(monkeypatch):
    """The two branches, their module, and how to build them with the host beside the region or after it."""
    mod = two_branches()
    partitioned = byoc_hw.partition_for_hwlib(mod)

    def build(beside=True, accelerator=REFERENCE):
        monkeypatch.setattr(build_arena, "overlapped", overlapped if beside else lambda program: program)
        return byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=accelerator))

    return build, mod, partitioned


def main_of(project):
    return (project.directory / "src" / "default_main.c").read_text()


def test_the_host_works_beside_the_region_bit_exact(built):
    build, mod, partitioned = built
    project = build()
    body = main_of(project).partition("default_run(")[2]
    start, other, wait, join = (body.index(text) for text in ("main_0(", "_repeat", "main_0_wait();", "_maximum("))
    assert start < other < wait < join
    assert "(void)tvmgen_default_hwlib_main_0_wait();" in body  # where a host function fails
    assert_equals_tvm(project, partitioned, mod, list(input_arrays(mod)), SANITIZED)


def test_a_failure_beside_the_region_names_the_host_function(built):
    build, mod, _ = built
    project = build()
    source = project.directory / "src" / "default_host.c"
    head, repeat, body = source.read_text().rpartition("_repeat(")
    source.write_text(head + repeat + body.replace("return 0;", "return 5;", 1))
    with pytest.raises(RunError, match=r"(?s)_repeat\n.*status 5"):
        project.run(next(input_arrays(mod)))


def test_main_waits_at_once_where_ram_is_too_small_for_both(built):
    build, _, _ = built
    beside, after = build().memory.arena, build(beside=False).memory.arena
    assert after < beside
    project = build(accelerator=replace(REFERENCE, ram=after))
    assert project.memory.arena == after
    assert "_wait" not in main_of(project)


@needs_riscv32
def test_the_regions_last_jobs_take_no_time_end_to_end(built):
    build, mod, _ = built
    inputs = next(input_arrays(mod))
    beside, after = (build(beside).run(inputs, on="riscv32") for beside in (True, False))
    np.testing.assert_array_equal(beside.outputs[0], after.outputs[0])
    assert beside.cycles == after.cycles
    gained = after.end_to_end.total - beside.end_to_end.total
    assert gained > beside.cycles.total / 40
