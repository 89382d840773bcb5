"""Plans of networks on a mesh: all is computed once, all fits, and figures are those of the simulator."""

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
from flows import PE, small_mesh
from hypothesis import given, settings
from hypothesis import strategies as st
from mesh_samples import network_of, program_of, random_values, run_graph, run_stages
from plan_graphs import graphs
from plan_samples import Samples, activation, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.mesh import stage_cycles
from byoc_hw.mesh.balance import Balance
from byoc_hw.mesh.code_size import code_owners
from byoc_hw.mesh.costs import PieceCosts
from byoc_hw.mesh.events import simulate
from byoc_hw.mesh.machine import Link, Mesh
from byoc_hw.mesh.pe_source import channel_buffer_bytes, ports_of
from byoc_hw.mesh.pe_stages import bytes_of_pe
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.pipelines import plan_network
from byoc_hw.mesh.plan import OUTSIDE, Stage
from byoc_hw.mesh.plan_file import plan_json, read_plan
from byoc_hw.mesh.stage_cycles import StageCycles, with_planned_cycles
from byoc_hw.mesh.stage_plan import plan_stage
from byoc_hw.mesh.stage_program import program_of_pieces, stage_program
from byoc_hw.mesh.stages import StageCutter
from byoc_hw.mesh.units import Units, UnitWays
from byoc_hw.plan.place.arena import place_model
from byoc_hw.plan.planned import flash_bytes
from byoc_hw.plan.region import plan_region


def skip_graph(blocks=2, size=16, channels=16):
    """Convolutions with skips over two of them."""
    sample = Samples()
    ifm = activation("x", (1, size, size, channels))
    layers, out = [], ifm
    for _ in range(blocks):
        one = sample.conv2d(out, channels, (3, 3), padding=(1, 1, 1, 1))
        two = sample.conv2d(one.ofm, channels, (3, 3), padding=(1, 1, 1, 1))
        layers += [one, two, sample.add(two.ofm, out)]
        out = layers[-1].ofm
    return graph_of([ifm], layers, [out])


def skip_network(**sizes):
    return network_of(program_of(skip_graph(**sizes)))


@functools.cache
def on_eight_pes():
    """A network, and its plan as one pipeline of 8 PEs."""
    network = skip_network(size=12)
    return network, plan_network(network, small_mesh(8, 1), pipelines=1)


@functools.cache
def on_four_pes():
    """A smaller network, and its plan for latency."""
    network = skip_network(blocks=1, size=8)
    return network, plan_network(network, small_mesh(2, 2), "latency")


def check_fits(plan):
    """Each PE's bytes, with the buffers of its channels, are within the mesh's."""
    mesh, figures = plan.placed
    for number, nbytes in enumerate(figures.nbytes):
        held = sum(one.nbytes * one.credits for one in plan.channels if one.target == number)
        assert held <= nbytes
    assert max(plan.pe_bytes.values()) <= mesh.data
    assert not {place for places in plan.replicas for place in places} & mesh.dead


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(graphs(REFERENCE, 6), st.integers(1, 6), st.sampled_from(["throughput", "latency"]))
def test_planned_stages_give_the_outputs_of_the_whole_network(graph, pes, objective):
    random = np.random.default_rng(pes)
    network = network_of(program_of(graph))
    mesh = Mesh(REFERENCE, pes, 1, memory=2 << 20)
    if not PieceCosts(network, REFERENCE).work():
        with pytest.raises(InvalidInput, match="has work to do: it has none"):
            plan_network(network, mesh)
        return
    plan = plan_network(network, mesh, objective, 1)
    inputs = [random_values(tensor, random) for tensor in graph.inputs]
    found = run_graph(graph, inputs)
    for tensor, output in zip(graph.outputs, run_stages(network, plan.stages, inputs), strict=True):
        assert np.array_equal(found[tensor], output)
    check_fits(plan)


@pytest.mark.slow
def test_eight_pes_are_nearly_eight_times_as_fast():
    _, plan = on_eight_pes()
    assert plan.efficiency > 0.92  # with copies that no job hides
    assert plan.pes == 8
    check_fits(plan)
    assert simulate(plan.flow(), 200).period() == pytest.approx(plan.period, rel=0.01)
    assert simulate(plan.flow(), 1).latency() == pytest.approx(plan.latency, rel=0.01)  # no other frame is in its way


def test_a_network_that_fits_one_pe_is_there_once_a_pe():
    plan = plan_network(skip_network(size=8), small_mesh())
    assert (len(plan.stages), len(plan.replicas)) == (1, 16)
    assert plan.efficiency > 0.98  # with what is copied before the first job and behind the last
    assert simulate(plan.flow(), 5).rate * 1e6 == pytest.approx(plan.throughput)


def test_latency_is_that_of_the_simulator_and_below_that_of_one_pe():
    network = skip_network(blocks=1, size=8)
    plan = plan_network(network, small_mesh(3, 3), "latency")
    assert simulate(plan.flow(), 1).latency() == pytest.approx(plan.latency, rel=0.05)
    assert plan.latency < plan.placed[1].work / 3
    check_fits(plan)


@pytest.mark.slow
def test_dead_pes_are_planned_around():
    network = skip_network()
    dead = {(1, 0), (2, 2), (3, 3)}
    plan = plan_network(network, small_mesh(dead=dead), pipelines=1)
    check_fits(plan)
    assert plan.pes == 13
    assert max(one.hops for one in plan.inner_channels) >= 2


@pytest.mark.slow
def test_a_network_that_does_not_fit_is_refused_with_how_many_pes_would_do():
    network = skip_network(blocks=1, size=8, channels=32)
    mesh = small_mesh(2, 1)
    small = replace(mesh, memory=mesh.memory - mesh.data + 9000)
    with pytest.raises(
        PlanError, match=r"a pipeline of 2 PEs with 9000 bytes each .* does not, \d+ PEs would do"
    ) as error:
        plan_network(network, small, pipelines=1)
    enough = int(str(error.value).split()[-4])
    check_fits(plan_network(network, replace(small, width=enough), pipelines=1))


def test_a_layer_that_is_too_large_in_any_piece_is_named():
    with pytest.raises(PlanError, match=r"layer_.*: its smallest piece fits the 100 bytes of a PE for data: it has"):
        plan_network(skip_network(), small_mesh(memory=40 * 1024 + 100))


@pytest.mark.slow
def test_the_same_network_has_the_same_plan():
    texts = {plan_json(plan_network(skip_network(blocks=1, size=8), small_mesh(3, 2), pipelines=2)) for _ in range(2)}
    assert len(texts) == 1


def test_a_tensor_that_is_read_twice_by_a_node_is_needed_once():
    sample = Samples()
    conv = sample.conv2d(activation("x", (1, 1, 1, 1)), 1, (1, 1))
    twice = sample.add(conv.ofm, conv.ofm)
    network = network_of(program_of(graph_of([conv.ifm], [conv, twice], [twice.ofm])))
    plan = plan_network(network, small_mesh(1, 1), pipelines=1)
    assert sorted(piece.node for stage in plan.stages for piece in stage.pieces) == [0, 1]


@pytest.mark.slow
def test_a_plan_says_what_it_found_and_its_bound():
    text = str(on_eight_pes()[1])
    for part in ("1 pipeline of 8 stages, 8 of 8 PEs", "found / bound 0.9", "busiest link", "latency"):
        assert part in text


REFUSED = {
    "objective": ({"objective": "speed"}, "objective is one of throughput, latency: got 'speed'"),
    "pipelines": ({"pipelines": 0}, "pipelines is at least 1: got 0"),
    "too many": ({"pipelines": 17}, "pipelines is at most 16: got 17"),
    "latency": ({"objective": "latency", "pipelines": 2}, "pipelines is 1 with the objective latency: got 2"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_the_rule_and_the_value(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        plan_network(skip_network(), small_mesh(), **arguments)


# ---------------------------------------------------------------- plans as files


def written(tmp_path, change=lambda plain: None, network=None):
    network, plan = (
        on_eight_pes() if network is None else (network, plan_network(network, small_mesh(8, 1), pipelines=1))
    )
    plain = json.loads(plan_json(plan))
    change(plain)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plain))
    return path, network, plan


@pytest.mark.slow
def test_a_plan_that_is_written_and_read_is_the_same(tmp_path):
    path, network, plan = written(tmp_path)
    assert plan_json(read_plan(path, network, small_mesh(8, 1))) == plan_json(plan)


@pytest.mark.slow
def test_a_plan_fits_to_the_byte_and_one_less_is_refused(tmp_path):
    path, network, plan = written(tmp_path)
    mesh, figures = plan.placed
    fitting = replace(mesh, memory=mesh.memory - mesh.data + max(figures.nbytes))
    assert read_plan(path, network, fitting).channels == plan.channels
    with pytest.raises(PlanError, match=rf"PE .* has {max(figures.nbytes) - 1} bytes for data: its stages need"):
        read_plan(path, network, replace(fitting, memory=fitting.memory - 1))


def test_a_plan_without_channels_gets_those_that_it_needs(tmp_path):
    path, network, plan = written(tmp_path, lambda plain: plain.pop("channels"))
    again = read_plan(path, network, small_mesh(8, 1))
    assert again.channels == plan.channels


def starve(plain):
    inner = next(one for one in plain["channels"] if None not in (one["source"], one["target"]))
    inner["credits"] = 0


def doubled(plain):
    plain["stages"][-1]["pieces"].append(plain["stages"][0]["pieces"][0])


DAMAGED = {
    "format": (lambda plain: plain.update(format=9), InvalidInput, "format is a whole number from 1 to 1: got 9"),
    "generator": (lambda plain: plain.update(generator="x"), InvalidInput, "is a plan for a mesh"),
    "no stages": (lambda plain: plain.pop("stages"), InvalidInput, "stages is missing"),
    "other node": (
        lambda plain: plain["stages"][0]["pieces"][0].update(node="n"),
        InvalidInput,
        "stage 0: node is one of the network's: got 'n'",
    ),
    "no PE": (
        lambda plain: plain["stages"][2].update(pes=[[9, 0]]),
        InvalidInput,
        r"stage 2: PE \(9, 0\) can be used: it is not of 8 x 1 PEs",
    ),
    "credits": (starve, PlanError, "too few credits: .* waits for a credit of stage"),
    "channel": (lambda plain: plain["channels"].pop(0), InvalidInput, "channels are those that the stages need: none"),
    "twice": (doubled, PlanError, "computed twice"),
    "too many credits": (
        lambda plain: plain["channels"][0].update(credits=10000),
        PlanError,
        r"PE \(0, 0\) has \d+ bytes for data: its stages need",
    ),
}


@pytest.mark.parametrize(("change", "error", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_is_no_plan_of_the_network_is_refused_with_what_is_wrong(tmp_path, change, error, message):
    path, network, _ = written(tmp_path, change)
    with pytest.raises(error, match=message):
        read_plan(path, network, small_mesh(8, 1))


def test_channels_from_outside_have_the_whole_input():
    _, plan = on_eight_pes()
    rows = {row for one in plan.channels if one.source == OUTSIDE for row in range(*one.patch.rows)}
    assert rows == set(range(12))
    assert PE.activation_memory == plan.placed[0].pe.activation_memory


def test_stages_that_are_planned_have_the_cycles_of_their_programs():
    plan = plan_network(skip_network(blocks=1, size=8), small_mesh(3, 1), pipelines=1)
    planned = with_planned_cycles(plan)
    assert planned.channels == plan.channels
    assert plan.placed[1].planned
    costs = PieceCosts(plan.network, PE)
    for stage, quick, whole in zip(plan.stages, plan.placed[1].cycles, planned.placed[1].cycles, strict=True):
        assert sum(map(costs.cycles, stage.pieces)) <= whole <= 1.02 * quick
    assert simulate(planned.flow(), 60).period() == pytest.approx(planned.period, rel=0.01)


def built_bytes(plan, number):
    """The bytes for data of a stage's PE as its program is generated: constants, arena, buffers of channels."""
    accelerator = plan.placed[0].pe
    one = stage_program(plan.network, plan.stages, number, plan.channels, f"pe{number}")
    regions = {graph.name: plan_region(graph, accelerator) for graph in one.program.regions}
    memory = place_model(one.program, (), {name: region.memory for name, region in regions.items()}, 64, False)
    constants = sum(map(flash_bytes, regions.values()))
    return memory.ram + constants + channel_buffer_bytes(one, number, plan.channels)


@pytest.mark.slow
def test_programs_as_they_are_generated_fit_their_pes():
    mesh = small_mesh(8, 1)
    mesh = replace(mesh, memory=mesh.memory - mesh.data + 19 * 1024)
    plan = plan_network(skip_network(), mesh, pipelines=1)
    assert plan.placed[1].planned
    for number in range(len(plan.stages)):
        assert built_bytes(plan, number) <= mesh.data


def test_a_plan_fits_when_no_work_is_left_to_plan_its_stages_as_they_are_built(monkeypatch):
    monkeypatch.setattr(stage_cycles, "_PLANNED", 0)
    mesh = small_mesh(8, 1)
    mesh = replace(mesh, memory=mesh.memory - mesh.data + 18 * 1024)
    plan = plan_network(skip_network(), mesh, pipelines=1)
    for number in range(len(plan.stages)):
        assert built_bytes(plan, number) <= mesh.data


def test_a_stage_that_does_not_fit_as_it_is_planned_is_named_with_how_many_pes_would_do(monkeypatch):
    """By what is worked out of its pieces it fits."""
    network = skip_network(size=8)
    mesh = small_mesh(4, 1)
    costs = PieceCosts(network, PE)
    plan = plan_network(network, mesh, pipelines=1)
    cutter = StageCutter(costs, Units(costs, UnitWays(), costs.work() // 4, mesh.data).pieces, mesh)
    assert len(plan.stages) == len(cutter.best(4))
    small = replace(mesh, memory=mesh.memory - mesh.data + max(plan.placed[1].nbytes) // 2)
    with pytest.raises(PlanError, match=r"fits the \d+ bytes|with \d+ bytes each for data"):
        plan_network(network, small, pipelines=1)


def with_period(period):
    return lambda plain: plain.update(period=period)


def test_a_period_in_which_a_link_carries_its_load_is_taken_and_one_cycle_less_is_refused(tmp_path):
    network, plan = on_eight_pes()
    path, *_ = written(tmp_path, with_period(plan.link_load))
    assert read_plan(path, network, small_mesh(8, 1)).link_load == plan.link_load
    path, *_ = written(tmp_path, with_period(plan.link_load - 1))
    rule = rf"can with a frame every {plan.link_load - 1} cycles, \d+ bytes: its load is {plan.link_load} cycles"
    with pytest.raises(PlanError, match=rf"(the link from|the port) .* carries what it {rule}"):
        read_plan(path, network, small_mesh(8, 1))


@pytest.mark.slow
def test_links_that_carry_little_are_never_busy_for_longer_than_a_frame():
    _, quick = on_eight_pes()
    plan = plan_network(skip_network(), small_mesh(8, 1, link=Link(bytes_per_cycle=1)), pipelines=1)
    assert quick.link_load < quick.period
    assert plan.link_load <= plan.period
    assert simulate(plan.flow(), 200).period() == pytest.approx(plan.period, rel=0.01)


@pytest.mark.slow
def test_the_cycles_that_a_plan_has_are_those_of_its_stages_planned_in_full():
    """And cut again by them, the longest stage is no longer than of the cuts by jobs."""
    network = skip_network(blocks=1, size=8)
    mesh = small_mesh(3, 1)
    plan = plan_network(network, mesh, pipelines=1)
    costs = PieceCosts(network, PE)
    (cutter,) = [StageCutter(costs, Units(costs, UnitWays(), costs.work() // 3, mesh.data).pieces, mesh)]
    balance = Balance(cutter, mesh, StageCycles(costs, 1000, mesh.data))
    by_jobs = balance.of(cutter.best(3))
    assert max(plan.placed[1].cycles) <= by_jobs.longest
    again = balance.better(by_jobs, 3)
    assert again.longest <= by_jobs.longest
    assert again.cuts[0][0] == 0
    assert again.cuts[-1][1] == len(cutter.units)


@pytest.mark.slow
def test_a_stage_that_does_not_fit_at_once_has_the_fastest_plan_of_its_room():
    """Not the smallest one: tables of its regions, which are code, have no part in its room."""
    network, pe = skip_network(size=20), replace(PE, activation_memory=3072)
    whole = Stage(tuple(NodePiece(number) for number in range(len(network.nodes))))
    stage = program_of_pieces(network, whole, lambda _, made: made, "stage")
    fastest = plan_stage(stage, pe, network, 64, None)
    smallest = plan_stage(stage, pe, network, 64, 65)
    room = fastest.nbytes - 1
    fitted = plan_stage(stage, pe, network, 64, room)
    assert fitted.nbytes <= room
    assert fitted.cycles(pe) < smallest.cycles(pe)


def test_cuts_are_found_where_memory_makes_stages_shorter_and_these_have_more_cycles():
    network = skip_network()
    mesh, costs = small_mesh(8, 1), PieceCosts(network, PE)
    plain = StageCutter(costs, Units(costs, UnitWays(), costs.work() // 8, mesh.data).pieces, mesh)
    cutter = plain.with_extra(
        lambda first, stop: 9 * costs.work() if stop - first == 2 else 0,
        lambda first, stop: mesh.data if stop - first > 2 else 0,
    )
    tried, within = [], cutter.within

    def counted(*given):
        tried.append(given)
        assert len(tried) < 99
        return within(*given)

    cutter.within = counted
    count = len(cutter.units)
    cuts = cutter.best(-(-count // 2))
    assert [unit for first, stop in cuts for unit in range(first, stop)] == list(range(count))
    assert max(stop - first for first, stop in cuts) == 2


# ---------------------------------------------------------------- latency plans fit


def built_on_pes(plan):
    """For each PE its bytes for data, and for code, of all its stages as `build_mesh` counts them."""
    pe = plan.placed[0].pe
    data, stages, ports = {}, {}, {}
    for number, place in enumerate(plan.replicas[0]):
        one = stage_program(plan.network, plan.stages, number, plan.channels, f"pe{number}")
        buffers = channel_buffer_bytes(one, number, plan.channels)
        built = plan_stage(one, pe, plan.network, buffers, plan.placed[0].data)
        assert built.nbytes == plan.placed[1].nbytes[number]
        assert built.cycles(pe) == plan.placed[1].cycles[number]
        data.setdefault(place, []).append((built.nbytes, built.arena))
        stages.setdefault(place, []).append((built.program, built.regions))
        ports[place] = ports.get(place, 0) + sum(map(len, ports_of([number], plan.channels)))
    assert plan.pe_bytes == {place: bytes_of_pe(found) for place, found in data.items()}
    return plan.pe_bytes, {place: sum(code_owners(found, ports[place]).values()) for place, found in stages.items()}


def with_room(mesh, data=None, code=None):
    """The mesh with so many bytes for data and for code."""
    code = mesh.code if code is None else code
    data = mesh.data if data is None else data
    return replace(mesh, memory=mesh.memory - mesh.data - mesh.code + data + code, code=code)


@pytest.mark.parametrize("what", [pytest.param("data", marks=pytest.mark.slow), "code"])
def test_a_latency_plan_fits_as_it_is_built_and_with_one_byte_less_it_is_another_one(what):
    (network, plan), mesh = on_four_pes(), small_mesh(2, 2)
    used = max(built_on_pes(plan)[what == "code"].values())
    assert plan_network(network, with_room(mesh, **{what: used}), "latency").latency <= plan.latency
    small = with_room(mesh, **{what: used - 1})
    other = plan_network(network, small, "latency")
    assert plan_json(other) != plan_json(plan)
    assert max(built_on_pes(other)[0].values()) <= small.data
    assert max(built_on_pes(other)[1].values()) <= small.code


def test_a_latency_plan_is_refused_with_how_many_pes_would_do_and_they_do():
    network, mesh = skip_network(blocks=1, size=8), with_room(small_mesh(2, 1), data=6000)
    match = r"fit 2 PEs with 6000 bytes for data and 16384 for code of each: they have \d+ .*; \d+ PEs would do"
    with pytest.raises(PlanError, match=match) as error:
        plan_network(network, mesh, "latency")
    enough = int(str(error.value).split()[-4])
    plan = plan_network(network, replace(mesh, width=enough), "latency")
    assert max(built_on_pes(plan)[0].values()) <= 6000
    with pytest.raises(PlanError, match=rf"{enough} PEs would do"):
        plan_network(network, replace(mesh, width=enough - 1), "latency")


def test_a_latency_plan_names_a_part_of_a_layer_that_fits_no_pe():
    message = (
        r"stage \d+ of layer_.* fits the 600 bytes of a PE for data: with one credit a channel it has \d+; no number"
    )
    with pytest.raises(PlanError, match=message):
        plan_network(skip_network(blocks=1, size=8), with_room(small_mesh(), data=600), "latency")


def test_a_latency_plan_that_is_written_and_read_is_the_same(tmp_path):
    (network, plan), mesh = on_four_pes(), small_mesh(2, 2)
    path = tmp_path / "plan.json"
    path.write_text(plan_json(plan))
    assert plan_json(read_plan(path, network, mesh)) == plan_json(plan)
    small = with_room(mesh, data=max(built_on_pes(plan)[0].values()) - 1)
    with pytest.raises(PlanError, match=r"PE \(\d, \d\) .*bytes"):
        read_plan(path, network, small)
