"""What a plan says is what is built and simulated: bounds, periods, bytes and code."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from effort import examples
from flows import PE, small_mesh
from hypothesis import given, settings
from hypothesis import strategies as st
from mesh_samples import network_of, program_of, random_values, run_graph, run_stages
from plan_graphs import graphs
from plan_samples import Samples, activation, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.mesh import pipelines
from byoc_hw.mesh.code_size import PE_CODE, code_owners
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.events import simulate
from byoc_hw.mesh.machine import Link, Mesh
from byoc_hw.mesh.pe_source import channel_buffer_bytes, ports_of
from byoc_hw.mesh.pe_stages import bytes_of_pe
from byoc_hw.mesh.pipelines import plan_network
from byoc_hw.mesh.stage_plan import plan_stage
from byoc_hw.mesh.stage_program import stage_program
from byoc_hw.program import Buffer, HostCall, Program


def chain(sizes, channels=8, layers=3):
    """Convolutions over an image of `sizes` rows and columns."""
    sample, value, found = Samples(), activation("x", (1, *sizes, channels)), []
    image = value
    for _ in range(layers):
        found.append(sample.conv2d(value, channels, (3, 3), padding=(1, 1, 1, 1)))
        value = found[-1].ofm
    return network_of(program_of(graph_of([image], found, [value])))


def check_is_built(plan):
    """Each PE has no more bytes for data and code than there are, and stages no more cycles than the plan says. Returns
    the most bytes of code."""
    mesh, figures = plan.placed
    data, code, ports = {}, {}, {}
    for number, place in enumerate(plan.replicas[0]):
        one = stage_program(plan.network, plan.stages, number, plan.channels, f"pe{number}")
        buffers = channel_buffer_bytes(one, number, plan.channels)
        built = plan_stage(one, mesh.pe, plan.network, buffers, mesh.data)
        assert built.cycles(mesh.pe) <= figures.cycles[number]
        data.setdefault(place, []).append((built.nbytes, built.arena))
        code.setdefault(place, []).append((built.program, built.regions))
        ports[place] = ports.get(place, 0) + sum(map(len, ports_of([number], plan.channels)))
    assert max(map(bytes_of_pe, data.values())) <= mesh.data
    most = max(sum(code_owners(code[place], ports[place]).values()) for place in code)
    assert most <= mesh.code
    return most


def test_the_bound_holds_where_rows_are_packed():
    """Of an image of 5 columns an array of 16 has idle columns, unless it takes several rows as one."""
    network = chain((5, 5))
    mesh = Mesh(replace(PE, packed_rows=True), 1, 1)
    plan = plan_network(network, mesh)
    assert plan.placed[1].cycles[0] < PieceCosts(network, mesh.pe).work()
    assert plan.efficiency <= 1


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_messages_that_wait_for_each_other_on_slow_links_are_in_a_plan(objective):
    mesh = small_mesh(3, 2, link=Link(1, 0))
    plan = plan_network(chain((8, 8), 16), mesh, objective, 1)
    assert simulate(plan.flow(1), 1).latency() == plan.latency
    assert simulate(plan.flow(1), 300).period() == pytest.approx(plan.period_alone, rel=0.01)


def functions(count):
    """A chain of functions of the host."""
    buffers = [Buffer("x", 64, "input", (64,))]
    buffers += [Buffer(f"b{number}", 64, "intermediate", (64,)) for number in range(1, count)]
    buffers.append(Buffer("y", 64, "output", (64,)))
    calls = tuple(HostCall(f"function_{at}", pair, 1) for at, pair in enumerate(pairwise(buffers)))
    return network_of(Program("model", (buffers[0],), (buffers[-1],), calls))


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_stages_with_too_much_code_are_cut_and_at_last_named(objective):
    """Each function is taken to have 4 KiB."""
    network, mesh = functions(4), small_mesh(4, 1)
    plan = plan_network(network, mesh, objective)
    assert check_is_built(plan) > mesh.code // 2
    assert len(plan.stages) > 1
    assert len(plan_network(network, replace(mesh, memory=mesh.memory + 16 * 1024, code=32 * 1024)).stages) == 1
    none = replace(mesh, memory=mesh.memory - mesh.code + PE_CODE, code=PE_CODE)
    with pytest.raises(PlanError, match=rf"stage 0 .*fits the {PE_CODE} bytes of a PE for code: it has \d+; "):
        plan_network(network, none, objective)


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_a_network_without_work_is_refused(objective):
    sample, image = Samples(), activation("x", (1, 4, 4, 8))
    joined = sample.concat([image, image], axis=3)
    with pytest.raises(InvalidInput, match="a pipeline has work to do: it has none"):
        plan_network(network_of(program_of(graph_of([image], [joined], [joined.ofm]))), small_mesh(2, 1), objective)


def test_constants_of_a_function_of_the_host_need_room():
    function = HostCall("table_of", (Buffer("x", 64, "input", (64,)), Buffer("y", 64, "output", (64,))), 1)
    program = Program("model", (function.arguments[0],), (function.arguments[1],), (function,))
    mesh = small_mesh(2, 1)
    for objective in ("throughput", "latency"):
        fitting = plan_network(network_of(program, (), {"table_of": 5000}), mesh, objective)
        bare = plan_network(network_of(program), mesh, objective)
        assert fitting.placed[1].nbytes[0] == bare.placed[1].nbytes[0] + 5000
        with pytest.raises(PlanError, match=r"bytes of a PE for data|bytes each for data"):
            plan_network(network_of(program, (), {"table_of": mesh.data}), mesh, objective)


@pytest.mark.slow
def test_buffers_of_channels_count_with_what_their_alignment_adds():
    """Messages of 63 bytes lie in buffers of 64."""
    network, mesh = chain((7, 9), 1), small_mesh(4, 1)
    for _ in range(2):
        plan = plan_network(network, mesh, pipelines=1)
        check_is_built(plan)
        mesh = replace(mesh, memory=mesh.memory - mesh.data + max(plan.placed[1].nbytes) - 1)


@pytest.mark.slow
def test_lengths_of_pipelines_are_ranked_with_the_credits_that_they_have_room_for():
    """By its longest stage a pipeline of 2 PEs is better than one of 6, but it waits for credits."""
    network, mesh = chain((16, 16), 16, 4), small_mesh(6, 1, link=Link(hop_cycles=3000))
    mesh = replace(mesh, memory=mesh.memory - mesh.data + 24_000)
    planner = pipelines._Planner(network, mesh)
    short, long = planner._by_jobs(2, 3), planner._by_jobs(6, 1)
    assert 3 / max(short.placed[1].cycles) > 1 / max(long.placed[1].cycles)
    assert short.throughput < long.throughput
    assert len(plan_network(network, mesh).replicas) == 1


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None)
@given(
    graphs(REFERENCE, 8),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([1, 4, 16]),
    st.integers(10, 17),
    st.sampled_from(["throughput", "latency"]),
)
def test_random_networks_on_random_meshes_are_planned_as_they_are_built_and_run(
    graph, width, height, link, bits, objective
):
    network, code = network_of(program_of(graph)), 16 << 10
    pe = replace(PE, activation_memory=1 << 14)
    memory = pe.activation_memory + pe.weight_memory + code + (1 << bits)
    mesh = Mesh(pe, width, height, Link(link), memory=memory, code=code)
    if width * height > 3:
        mesh = replace(mesh, dead={(0, 0), (width - 1, height - 1)})
    try:
        plan = plan_network(network, mesh, objective)
    except (InvalidInput, PlanError) as error:
        if not re.search("PEs would do|no number of PEs|fits the|has work to do", str(error)):
            raise
        return
    check_is_built(plan)
    assert plan.efficiency <= 1
    assert simulate(plan.flow(1), 300).period() == pytest.approx(plan.period_alone, rel=0.01)
    random = np.random.default_rng(bits)
    inputs = [random_values(tensor, random) for tensor in graph.inputs]
    found = run_graph(graph, inputs)
    for tensor, output in zip(graph.outputs, run_stages(network, plan.stages, inputs), strict=True):
        assert np.array_equal(found[tensor], output)
