"""The commands `python -m byoc_hw mesh`: nodes, build, run."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np

from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.mesh.built_mesh import MESH_RUNNERS, MeshProject, MeshResult
from byoc_hw.mesh.mpi_ranks import under_mpi
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pieces import ALL, axes_of, piece_bytes
from byoc_hw.mesh.stage_check import StageValidation
from byoc_hw.tensor import Array
from byoc_hw.whole_file import check_file, write_whole


def add_run(parser: argparse.ArgumentParser) -> None:
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


def run_mesh(options: argparse.Namespace) -> None:
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
    print(f"{len(result.outputs)} frames in {result.seconds:.3f} s: {result.frames_per_second:.0f} a second")
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
        random = np.random.default_rng(0)
        return [
            {name: _random_values(tensors[name].shape, tensors[name].dtype, random) for name in names}
            for _ in range(options.random)
        ]
    loaded = np.load(options.input, allow_pickle=False)
    arrays = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else dict.fromkeys(names[:1], loaded)
    if set(arrays) != set(names):
        raise InvalidInput(f"{options.input} has the inputs {', '.join(names)}: got {', '.join(arrays)}")
    counts = {len(array) for array in arrays.values()}
    if len(counts) != 1:
        raise InvalidInput(f"{options.input} has as many frames of each input: got {sorted(counts)}")
    return [{name: array[frame] for name, array in arrays.items()} for frame in range(counts.pop())]


def _random_values(shape: tuple[int, ...], dtype: str, random: np.random.Generator) -> Array:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return random.standard_normal(shape).astype(kind)
    return random.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)


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
