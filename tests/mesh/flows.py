"""Meshes and flows for tests."""

from dataclasses import replace

from byoc_hw.mesh.flow import Flow, FlowStep, Lane
from byoc_hw.mesh.machine import MESH_7296, Link, Mesh

PE = replace(MESH_7296.pe, label="PE")


def small_mesh(width=4, height=4, **others):
    return Mesh(PE, width, height, **others)


def chain_flow(cycles, nbytes=160, credits=2, skips=(), mesh=None):
    """A chain of steps on neighbours; `skips` are further lanes from one step to another."""
    mesh = mesh or small_mesh()
    steps = tuple(FlowStep(f"s{number}", mesh.alive[number], each) for number, each in enumerate(cycles))
    lanes = [Lane(number, number + 1, nbytes, credits) for number in range(len(cycles) - 1)]
    return Flow(mesh, steps, (*lanes, *(Lane(*ends, nbytes, credits) for ends in skips)))


def folded_flow(lag, credits=(9, 9, 9), mesh=None):
    """A skip on one PE: `first` and `last` share it, and `last` works on a frame that is `lag` older."""
    mesh = mesh or small_mesh(link=Link(hop_cycles=0))
    one, other = mesh.alive[:2]
    steps = (FlowStep("first", one, 100), FlowStep("last", one, 100, lag), FlowStep("middle", other, 100))
    return Flow(mesh, steps, (Lane(0, 2, 16, credits[0]), Lane(2, 1, 16, credits[1]), Lane(0, 1, 16, credits[2])))
