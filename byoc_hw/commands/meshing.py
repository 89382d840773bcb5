"""The commands `mesh`: nodes, plan, build, run."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from byoc_hw.commands.arrays import loaded_arrays, random_samples
from byoc_hw.commands.options import (
    Commands,
    add_command,
    add_model,
    add_numerics,
    partitioned_model,
    print_note,
)
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.mesh.built_mesh import MESH_RUNNERS, MeshProject, MeshResult
from byoc_hw.mesh.machine import MESH_7296
from byoc_hw.mesh.mpi_ranks import under_mpi
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pieces import ALL, axes_of, piece_bytes
from byoc_hw.mesh.pipelines import PIPELINE_OBJECTIVES
from byoc_hw.mesh.plan import MeshPlan
from byoc_hw.mesh.plan_file import plan_json
from byoc_hw.mesh.stage_check import StageValidation
from byoc_hw.mesh_builder import build_mesh, mesh_network
from byoc_hw.mesh_pipeline import pipeline
from byoc_hw.tensor import Array
from byoc_hw.whole_file import check_file, write_whole

if TYPE_CHECKING:
    import tvm


def add_meshing(commands: Commands) -> None:
    """Add `mesh`, with `nodes`, `plan`, `build` and `run`."""
    mesh = add_command(commands, "mesh", "run a model on many PEs", "run out/mesh --random 100")
    steps = mesh.add_subparsers(title="commands", required=True, metavar="COMMAND")
    nodes = add_command(steps, "nodes", "list the nodes of a model, which stages are made of", "model.tflite", "mesh ")
    plan = add_command(steps, "plan", "plan a model for PEs of MESH_7296", "model.tflite --pes 8", "mesh ")
    example = "model.tflite --pes 8 --output-dir out/mesh"
    make = add_command(steps, "build", "write and compile the programs of a mesh", example, "mesh ")
    for parser in (nodes, plan, make):
        add_model(parser)
        add_numerics(parser)
        parser.add_argument("--mod-name", help="what every C name starts with (that of the model's file)")
    nodes.set_defaults(command=_nodes)
    for parser in (plan, make):
        parser.add_argument("--pes", type=int, required=True, metavar="N", help="the number of PEs")
        text = "most frames, or one inference as early as possible (%(default)s)"
        parser.add_argument("--objective", choices=PIPELINE_OBJECTIVES, default=PIPELINE_OBJECTIVES[0], help=text)
        text = "the copies of one pipeline (as many as give the most frames)"
        parser.add_argument("--pipelines", type=int, metavar="N", help=text)
        parser.add_argument("--mapping", type=Path, metavar="FILE", help="a plan that another mapper made")
    plan.add_argument("--output", type=Path, metavar="FILE", help="where the plan goes, as JSON")
    plan.set_defaults(command=_plan)
    make.add_argument("--output-dir", type=Path, required=True, help="a new or empty directory, or an earlier mesh")
    make.set_defaults(command=_build)
    run = add_command(steps, "run", "send frames through a mesh", "out/mesh --random 100", "mesh ")
    _add_run(run)
    run.set_defaults(command=_run)


def _nodes(options: argparse.Namespace) -> None:
    print(nodes_text(mesh_network(partitioned_model(options, MESH_7296.pe))))


def _plan(options: argparse.Namespace) -> None:
    if options.output is not None:
        check_file(options.output)
    plan = _planned(options)[1]
    if options.output is not None:
        write_whole(options.output, plan_json(plan).encode())
    print(plan)


def _build(options: argparse.Namespace) -> None:
    mod, plan = _planned(options)
    mesh = build_mesh(mod, plan, output_dir=options.output_dir, progress=print_note)
    print(f"{mesh.directory}: {len(mesh.manifest.programs)} programs, {len(mesh.manifest.pes)} PEs")


def _planned(options: argparse.Namespace) -> tuple[tvm.IRModule, MeshPlan]:
    mesh = MESH_7296.of(options.pes)
    mod = partitioned_model(options, mesh.pe)
    objective, count = options.objective, options.pipelines
    return mod, pipeline(mod, None, mesh, objective=objective, pipelines=count, mapping=options.mapping)


def _add_run(parser: argparse.ArgumentParser) -> None:
    """The options of `mesh run`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="what mesh build wrote")
    inputs = parser.add_mutually_exclusive_group(required=True)
    text = "frames: an .npz with each input by its name, or the .npy of the only one; frames along the first dimension"
    inputs.add_argument("--input", type=Path, metavar="FILE", help=text)
    inputs.add_argument("--random", type=int, metavar="FRAMES", help="so many frames of random values")
    parser.add_argument("--output", type=Path, metavar="FILE.npz", help="where the outputs of all frames go")
    parser.add_argument("--on", choices=MESH_RUNNERS, default="processes", help="without mpirun (%(default)s)")
    parser.add_argument("--ranks", type=int, metavar="N", help="the number of processes (one for each PE, at most 8)")
    text = "the longest time without an output, after which a rank counts as lost (%(default)s)"
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help=text)
    text = "compare what every PE sends with the project of the whole model"
    parser.add_argument("--validate", action="store_true", help=text)
    text = "under mpirun: ranks on one machine send messages, as between machines"
    parser.add_argument("--messages", action="store_true", help=text)


def _run(options: argparse.Namespace) -> None:
    """`mesh run`: under mpirun this process is one of the ranks."""
    mesh = MeshProject(options.directory)
    if options.output is not None:
        check_file(options.output)
    frames = _frames(mesh, options)
    if under_mpi():
        result, found = mesh.run_on_mpi(
            frames, timeout=options.timeout, messages=options.messages, validate=options.validate
        )
        if result is None:
            return
    elif options.validate:
        result, found = None, mesh.validate(frames, options.on, ranks=options.ranks, timeout=options.timeout)
    else:
        result, found = mesh.run(frames, options.on, ranks=options.ranks, timeout=options.timeout), None
    _report(mesh, result, found, options.output)


def _report(mesh: MeshProject, result: MeshResult | None, found: StageValidation | None, output: Path | None) -> None:
    if found is not None:
        print(found)
        if not found:
            raise RunError(f"the mesh does not compute what the whole model does: {found.differences[0]}")
    if result is None:
        return
    print(result)
    if output is not None:
        names = mesh.manifest.outputs
        arrays = {name: np.stack([frame[at] for frame in result.outputs]) for at, name in enumerate(names)}
        data = io.BytesIO()
        np.savez(data, **arrays)
        write_whole(output, data.getvalue())


def _frames(mesh: MeshProject, options: argparse.Namespace) -> list[dict[str, Array]]:
    names, tensors = mesh.manifest.inputs, mesh.manifest.tensors
    if options.random is not None:
        if options.random < 1:
            raise InvalidInput(f"--random is at least one frame: got {options.random}")
        return random_samples([tensors[name] for name in names], 0, options.random)
    arrays = loaded_arrays(options.input, "--input is an .npz file with each input, or the .npy file of the only one")
    if isinstance(arrays, np.ndarray):
        arrays = dict.fromkeys(names[:1], arrays)
    if set(arrays) != set(names):
        raise InvalidInput(f"{options.input} has the inputs {', '.join(names)}: got {', '.join(arrays)}")
    counts = {len(array) for array in arrays.values()}
    if len(counts) != 1:
        raise InvalidInput(f"{options.input} has as many frames of each input: got {sorted(counts)}")
    return [{name: array[frame] for name, array in arrays.items()} for frame in range(counts.pop())]


def nodes_text(network: MeshNetwork) -> str:
    """A line for each node, for a mapper: number, kind, output, multiplications, bytes, and how it can be cut."""
    lines = [f"{'node':>4} {'kind':<17} {'output':<16} {'macs':>12} {'constants':>10} {'bytes':>9}  cut by"]
    for number, node in enumerate(network.nodes):
        kind = "host function" if node.layer is None else node.layer.kind
        shape = "x".join(map(str, network.tensors[node.outputs[0]].shape))
        sizes = piece_bytes(node, ALL)
        macs = 0 if node.layer is None else node.layer.macs
        cuts = ", ".join(axes_of(node)) or "nothing"
        lines.append(f"{number:>4} {kind:<17} {shape:<16} {macs:>12,} {sizes.weights:>10,} {sizes.outputs:>9,}  {cuts}")
    return "\n".join(lines)
