"""Plans a module for a mesh. Connects the front end and the room `mesh`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc_hw.arguments import check_type
from byoc_hw.compiler import front_end, partition_for_hwlib
from byoc_hw.errors import InvalidInput
from byoc_hw.garbage import seldom_collected
from byoc_hw.mesh.machine import Mesh
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pipelines import plan_network
from byoc_hw.mesh.plan import MeshPlan
from byoc_hw.mesh.plan_file import read_plan
from byoc_hw.mesh_builder import mesh_network

if TYPE_CHECKING:
    import tvm


@seldom_collected()
def pipeline(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None,
    mesh: Mesh,
    *,
    objective: str = "throughput",
    pipelines: int | None = None,
    mapping: str | Path | None = None,
) -> MeshPlan:
    """Plan a Relay module for a mesh: stages of rows and channels of its layers, their PEs, and channels between them.

    A module that is not partitioned is partitioned for `mesh.pe`. With the objective "throughput" consecutive units of
    the network form the stages of a pipeline, and there are as many pipelines as give the most frames, or `pipelines`.
    With "latency" each layer is cut over PEs that take turns, so that one inference ends early. `mapping` is the file
    of a plan that another mapper made, as docs/mesh.md describes it: it is checked, and its figures are worked out.

    The plan prints throughput, latency, PEs and how far it is from the bound, in accelerator cycles; `plan.flow()` is
    what `simulate` runs. Raises `InvalidInput` for arguments that are none, a module for another accelerator, and a
    mapping that is not one of the module; `PlanError` for what does not fit the PEs, with how many would do, and for
    credits with which steps block each other.
    """
    check_type("mesh", mesh, Mesh, "a Mesh")
    network = partitioned_network(mod, params, mesh)
    if mapping is None:
        return plan_network(network, mesh, objective, pipelines)
    if objective != "throughput" or pipelines is not None:
        raise InvalidInput("a mapping has its own objective and pipelines: got objective or pipelines as well")
    check_type("mapping", mapping, str | Path, "a path")
    return read_plan(Path(mapping), network, mesh)


def partitioned_network(mod: tvm.IRModule, params: Mapping[str, Any] | None, mesh: Mesh) -> MeshNetwork:
    """The nodes of a module for the PEs of a mesh. A module that is not partitioned is partitioned for them."""
    found = front_end().partitioned(mod)
    if found is None:
        mod = partition_for_hwlib(mod, params, accelerator=mesh.pe)
    elif found.accelerator != mesh.pe:
        label = "none" if found.accelerator is None else found.accelerator.label
        raise InvalidInput(f"the module is partitioned for the mesh's PE, {mesh.pe.label}: it is for {label}")
    return mesh_network(mod, params)
