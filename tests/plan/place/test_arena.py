"""The arena of a whole model: what is live when, and regions that run inside it."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from plan_graphs import regions
from plan_machine import Machine
from plan_reference import run_graph
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.place.arena import place_model, ram_problem
from byoc_hw.plan.region import plan_region
from byoc_hw.program import Buffer, CopyCall, HostCall, Program, RegionCall, Workspace


def tensor(name, nbytes=160, role="intermediate"):
    return Buffer(name, nbytes, role, (nbytes,))


def chain(*sizes):
    """Host calls one after the other over buffers of these sizes, between an input and an output."""
    buffers = [
        tensor("x", role="input"),
        *(tensor(f"t{i}", n) for i, n in enumerate(sizes)),
        tensor("y", role="output"),
    ]
    calls = tuple(HostCall(f"f{i}", pair) for i, pair in enumerate(pairwise(buffers)))
    return Program("net", (buffers[0],), (buffers[-1],), calls)


def overlap(memory, one, other):
    sizes = {block.name: block.nbytes for block in memory.blocks}
    start, begin = memory.arena.offsets[one], memory.arena.offsets[other]
    return start < begin + sizes[other] and begin < start + sizes[one]


# ---------------------------------------------------------------- host calls


def test_neighbours_in_a_chain_are_apart_and_others_share():
    memory = place_model(chain(160, 320, 160), (), {}, 16)
    assert memory.arena.nbytes == memory.arena.lower_bound == 480
    assert not overlap(memory, "t0", "t1")


def test_a_function_may_write_its_output_over_an_input_that_is_dead_by_then():
    program = chain(160, 160)
    # The function copies its input to a workspace, then reads only that.
    moments = (frozenset({"t0", "pad"}), frozenset({"t1", "pad"}))
    calls = (program.calls[0], replace(program.calls[1], moments=moments), program.calls[2])
    memory = place_model(replace(program, calls=calls), [Workspace("pad", 64, 16)], {}, 16)
    assert memory.arena.nbytes == memory.arena.lower_bound == 160 + 64
    assert memory.arena.offsets["t0"] == memory.arena.offsets["t1"]


def test_a_tensor_that_a_function_does_not_touch_is_apart_from_its_workspace():
    x, t, u, y = tensor("x", role="input"), tensor("t"), tensor("u"), tensor("y", role="output")
    inside = (frozenset({"pad"}), frozenset({"u"}))
    calls = (HostCall("f", (x, t)), HostCall("g", (x, u), moments=inside), HostCall("h", (t, u, y)))
    memory = place_model(Program("net", (x,), (y,), calls), [Workspace("pad", 96, 16)], {}, 16)
    assert not overlap(memory, "t", "pad")
    assert not overlap(memory, "t", "u")
    assert memory.arena.nbytes == 320


def test_copies_of_inputs_and_outputs_need_no_arena():
    x, y = tensor("x", role="input"), tensor("y", role="output")
    assert place_model(Program("net", (x,), (y,), (CopyCall(x, y),)), (), {}, 16).arena.nbytes == 0


def test_interface_in_the_arena_keeps_inputs_apart_at_the_start_and_outputs_at_the_end():
    x, w = tensor("x", role="input"), tensor("w", role="input")
    t, y, z = tensor("t"), tensor("x", role="output"), tensor("z", role="output")
    calls = (HostCall("f", (x, t)), HostCall("g", (t, z)), HostCall("h", (w, y)))
    memory = place_model(Program("net", (x, w), (y, z), calls), (), {}, 16, interface=True)
    assert not overlap(memory, "input x", "input w")
    assert not overlap(memory, "output x", "output z")
    assert not overlap(memory, "input w", "output z")
    assert memory.arena.nbytes == 480


# ---------------------------------------------------------------- regions


def in_arena(graph, hardware):
    """A plan of a graph whose inputs and outputs lie in the arena as well, and that arena."""
    plan = plan_region(graph, hardware)
    inputs = tuple(tensor(f"in{index}", one.nbytes, "input") for index, one in enumerate(graph.inputs))
    outputs = tuple(tensor(f"out{index}", one.nbytes, "output") for index, one in enumerate(graph.outputs))
    program = Program("net", inputs, outputs, (RegionCall(graph, (*inputs, *outputs)),))
    memory = place_model(program, (), {graph.name: plan.memory}, 16, interface=True)
    return plan.placed(memory.scratch[graph.name][1]), memory


class ArenaMachine(Machine):
    """The machine with arguments and scratch in one memory."""

    def __init__(self, plan, memory, accelerator, inputs):
        super().__init__(plan, accelerator, inputs)
        data, written = np.zeros(memory.arena.nbytes, np.uint8), np.zeros(memory.arena.nbytes, bool)
        names = [f"input in{index}" for index in range(len(inputs))]
        names += [f"output out{index}" for index in range(len(plan.graph.outputs))]
        starts = [(4 + index, memory.arena.offsets[name]) for index, name in enumerate(names)]
        for space, start in [(3, memory.scratch[plan.graph.name][0]), *starts]:
            own = self.memories[space]
            part = slice(start, start + len(own.bytes))
            if own.written.any():
                data[part], written[part] = own.bytes, True
            own.bytes, own.written = data[part], written[part]


@pytest.mark.slow
@given(regions())
@settings(max_examples=30, deadline=None)
def test_a_network_whose_every_tensor_shares_one_arena_gives_the_reference(region):
    hardware, graph = region
    plan, memory = in_arena(graph, hardware)
    assert memory.arena.nbytes >= memory.arena.lower_bound
    random = np.random.default_rng(0)
    inputs = [random.integers(-128, 128, one.shape).astype(one.dtype) for one in graph.inputs]
    outputs = ArenaMachine(plan, memory, hardware, inputs).run()
    expected = run_graph(graph, inputs)
    for one, value in zip(graph.outputs, outputs, strict=True):
        np.testing.assert_array_equal(value, expected[one])


def test_a_regions_output_takes_the_bytes_of_its_input():
    samples = Samples()
    ifm = samples.tensor((1, 10, 10, 8))
    layers = [samples.conv2d(ifm, 8, padding=(1, 1, 1, 1))]
    for _ in range(4):
        layers.append(samples.conv2d(layers[-1].ofm, 8, padding=(1, 1, 1, 1)))
    _, memory = in_arena(graph_of([ifm], layers, [layers[-1].ofm]), REFERENCE)
    assert memory.arena.nbytes == 800


# ---------------------------------------------------------------- refused


def test_ram_that_is_exceeded_names_the_moment_and_what_is_alive_then():
    memory = place_model(chain(160, 320, 160), [], {}, 16)
    assert ram_problem(memory, 480) is None
    lines = ram_problem(memory, 400).splitlines()
    assert lines[0] == (
        "RAM is 400 bytes: 480 bytes needed, 80 too many; what is alive at once in f1 would have to shrink:"
    )
    assert [line.split(maxsplit=1) for line in lines[1:]] == [["320", "tensor: t1"], ["160", "tensor: t0"]]
