"""How near plans for a mesh come to what its PEs can do: each figure, its goal, and whether it is met.

`work` is the cycles of a network on one PE whose memory has no end, so work / PEs is the fewest cycles a frame that any
plan can have. Figures of throughput are this bound over what was found, with halo, links and credits counted. Stages
are planned with copies that jobs do not hide, the longest ones as they are built. Rows "to the cycle" have the cycles
of all programs as they are built; so has latency. Rows "by jobs" are without such copies. Planning time is CPU time.
Plans are also run by the simulator. "frames a second on 2 cores" is two seconds over the CPU time that all of 8 ranks
take for a frame of the demo's network, whatever else the computer does. With --check the exit code is 1 if a goal is
missed, and the rows are named.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from networks import chain, mobilenet_v2
from tables import MODELS, options, show

from byoc_hw import partition_for_hwlib
from byoc_hw.commands.arrays import random_samples
from byoc_hw.compiler import load_tflite
from byoc_hw.demo import model_path
from byoc_hw.mesh.events import simulate
from byoc_hw.mesh.machine import MESH_7296
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.pipelines import plan_network
from byoc_hw.mesh.plan import MeshPlan
from byoc_hw.mesh.predict import frames_to_fill
from byoc_hw.mesh.stage_cycles import with_planned_cycles
from byoc_hw.mesh_builder import build_mesh
from byoc_hw.mesh_pipeline import partitioned_network, pipeline

COLUMNS = ("network", "figure", "PEs", "pipelines", "found", "goal", "met")

CHIP, BOARD = 152, 7296
SMALL_IMAGE = 64  # pixels of a side of the images for MobileNetV2
LAYERS = 1000  # of the chain that shows how planning grows
RANKS, FRAMES, CORES = 8, 4000, 2  # of runs of the demo's network

Row = tuple[str, str, int, object, float, str, bool]


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    given = parser.parse_args()
    found: list[Row] = []

    def shown() -> Iterator[tuple[object, ...]]:
        for row in rows(list(given.models) or sorted(MODELS.glob("*.tflite"))):
            found.append(row)
            yield *row[:4], f"{row[4]:.3f}", row[5], "yes" if row[6] else "no"

    show("mesh", COLUMNS, shown(), into_document=given.update)
    missed = [f"{name}: {figure} on {pes} PEs" for name, figure, pes, *_, met in found if not met]
    if missed:
        print(f"missed: {'; '.join(missed)}", file=sys.stderr)
    return 1 if given.check and missed else 0


def rows(paths: list[Path]) -> Iterator[Row]:
    networks = {path.stem: partitioned_network(*load_tflite(path), MESH_7296) for path in paths}
    for name, network in networks.items():
        yield from throughput(name, network, {CHIP: 0.95, BOARD: 0.93})
        for count, goal in ((8, 0.93), (16, 0.88)):
            plan = plan_network(network, MESH_7296.of(count), pipelines=1)
            yield at_least(name, "one pipeline", plan, plan.efficiency, goal)
            exact = with_planned_cycles(plan)
            yield at_least(name, "one pipeline, to the cycle", exact, exact.efficiency, goal)
        yield from simulated(name, plan)
        plan = plan_network(network, MESH_7296.of(64))
        yield at_least(name, "found / bound", plan, plan.efficiency, 0.95)
        yield from sooner(name, network)
    large = partitioned_network(mobilenet_v2(SMALL_IMAGE), None, MESH_7296)
    yield from throughput("MobileNetV2", large, {CHIP: 0.90, BOARD: 0.88})
    long = partitioned_network(chain(LAYERS), None, MESH_7296)
    yield from throughput(f"{LAYERS} layers", long, {CHIP: 0.90})
    yield from on_ranks()


def throughput(name: str, network: MeshNetwork, goals: dict[int, float]) -> Iterator[Row]:
    for count, goal in goals.items():
        start = time.process_time()
        plan = plan_network(network, MESH_7296.of(count))
        seconds, most = time.process_time() - start, 10 if count == CHIP else 60
        yield at_least(name, "throughput", plan, plan.efficiency, goal)
        yield name, "seconds to plan", count, len(plan.replicas), seconds, f"< {most}", seconds < most


def on_ranks() -> Iterator[Row]:
    """Small frames through as many ranks as PEs: what the CPU time of all of them would give on idle cores."""
    module = partition_for_hwlib(*load_tflite(model_path()), accelerator=MESH_7296.pe)
    plan = pipeline(module, None, MESH_7296.of(RANKS), pipelines=1)
    with tempfile.TemporaryDirectory() as name:
        mesh = build_mesh(module, plan, output_dir=Path(name, "mesh"))
        tensors = [mesh.manifest.tensors[one] for one in mesh.manifest.inputs]
        result = mesh.run(random_samples(tensors, 0, FRAMES), ranks=RANKS, timeout=60.0)
    found = CORES / result.cpu_per_frame
    yield "digits", f"frames a second on {CORES} cores", RANKS, 1, found, ">= 2000", found >= 2000
    yield "digits", "share of CPU to wait", RANKS, 1, result.polling, "< 0.5", result.polling < 0.5


def at_least(name: str, figure: str, plan: MeshPlan, found: float, goal: float) -> Row:
    if not plan.placed[1].planned:
        figure = f"{figure}, by jobs"
    return name, figure, len(plan.placed[0].alive), len(plan.replicas), found, f">= {goal}", found >= goal


def simulated(name: str, plan: MeshPlan) -> Iterator[Row]:
    """The simulator's cycles between frames of a pipeline, over the plan's."""
    frames = 8 * frames_to_fill(plan.latency, plan.period) + 64
    found = simulate(plan.flow(1), frames).period() / plan.period
    pes = len(plan.placed[0].alive)
    yield name, "simulated / predicted", pes, 1, found, "0.99 to 1.01", abs(found - 1) <= 0.01


def sooner(name: str, network: MeshNetwork) -> Iterator[Row]:
    """How many times sooner an inference ends than on one PE, with layers cut over PEs."""
    plan = plan_network(network, MESH_7296.of(CHIP), "latency")
    found = plan.placed[1].work / simulate(plan.flow(), 1).latency()
    yield name, "latency, times sooner", CHIP, 1, found, "> 5.3", found > 5.3


if __name__ == "__main__":
    sys.exit(main())
