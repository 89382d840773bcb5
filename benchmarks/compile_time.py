"""Compile time: partition and build, compared with TVM's own build of the whole model.

Both generate C for the same model in the same process, the best of three runs each. TVM's build has the
same target, executor and options, and offloads nothing.

The second table shows the growth with the number of layers, one run each in a process of its own: chains of
convolutions, MobileNetV2 and ResNet-50 (`--networks`), on REFERENCE (LARGE) and on SMALL, both with more RAM and flash.
Seconds are of the processor; planning is part of partition and of build; memory is the most that the process has. With
--check, only these are made, and the exit code is 1 if one misses its goal.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import tvm
from networks import chain, mobilenet_v2, resnet50
from plans import compiled
from tables import models, options, show
from tvm import relay
from tvm.ir.memory_pools import WorkspaceMemoryPools, WorkspacePoolInfo

import byoc_hw
from byoc_hw.frontend.relay.host import golden_semantics, quiet
from byoc_hw.program import ALIGNMENT

LARGE = replace(byoc_hw.REFERENCE, label="LARGE", ram=16 << 20, flash=64 << 20)
SMALL = replace(byoc_hw.SMALL, label="SMALL", ram=16 << 20, flash=64 << 20)


@dataclass(frozen=True)
class Goal:
    """The most seconds of the processor for partition and build, and MB of memory if that is limited.

    A quarter of what a chain of 125 took before bodies of composites were hidden from TVM is 2.4 seconds.
    """

    seconds: float
    megabytes: int | None = None


GOALS = {
    "chain of 125 on LARGE": Goal(2.4),
    "chain of 1000 on LARGE": Goal(30),
    "mobilenet_v2 on LARGE": Goal(4),
    "mobilenet_v2 on SMALL": Goal(8),
    "resnet50 on LARGE": Goal(5, megabytes=500),
}
NETWORKS = ("chain of 60 on LARGE", *GOALS)

COLUMNS = ("model", "partition s", "build s", "TVM alone s", "ratio")
GROWTH = ("model", "layers", "partition s", "build s", "planning s", "ms a layer", "MB", "goal", "met")


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--networks", nargs="*", default=NETWORKS, metavar="NAME", help="rows of the second table")
    parser.add_argument("--check", action="store_true", help="the second table alone; exit 1 if a goal is missed")
    parser.add_argument("--one", metavar="NAME", help="one network in this process: its figures as JSON")
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(one(given.one)))
        return 0
    if not given.check:
        show("compile_time", COLUMNS, map(row, models(given.models)), into_document=given.update)
        print()
    missed = []

    def rows() -> Iterator[tuple[object, ...]]:
        for name in given.networks:
            found = grown(name)
            if found[-1] == "no":
                missed.append(name)
            yield found

    show("compile_time", GROWTH, rows(), into_document=given.update, part="growth")
    for name in missed:
        print(f"missed: {name}")
    return 1 if given.check and missed else 0


def grown(name: str) -> tuple[object, ...]:
    """One row of the second table, measured in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--one", name]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = json.loads(output.splitlines()[-1])
    seconds = figures["partition"] + figures["build"]
    times = (figures["partition"], figures["build"], figures["planning"], 1000 * seconds / figures["layers"])
    goal = GOALS.get(name)
    if goal is None:
        wanted, met = "", ""
    else:
        most = goal.megabytes
        wanted = f"{goal.seconds:g} s" + ("" if most is None else f", {most} MB")
        met = "yes" if seconds < goal.seconds and (most is None or figures["megabytes"] < most) else "no"
    return (name, figures["layers"], *(f"{value:.2f}" for value in times), figures["megabytes"], wanted, met)


def one(name: str) -> dict[str, float]:
    """The figures of a network on an accelerator, such as "chain of 125 on LARGE"."""
    network, _, label = name.rpartition(" on ")
    accelerator = {one.label: one for one in (LARGE, SMALL)}[label]
    compiled(chain(1), {}, accelerator)  # what is done once in a process, such as reading templates
    known = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2}
    mod = known[network]() if network in known else chain(int(network.removeprefix("chain of ")))
    made = compiled(mod, {}, accelerator, time.process_time)
    return {
        "layers": len(made.layers),
        "partition": made.partition,
        "build": made.build,
        "planning": made.planning,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def row(path: Path) -> tuple[str, ...]:
    """Seconds to partition and to build, those of TVM's build, and the ratio."""
    mod, params = byoc_hw.load_tflite(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params)
    partition = best(lambda: byoc_hw.partition_for_hwlib(mod, params))
    build = best(lambda: byoc_hw.build(partitioned))
    alone = best(lambda: tvm_alone(mod, params))
    return (path.stem, *(f"{value:.2f}" for value in (partition, build, alone, (partition + build) / alone)))


def best(job: Callable[[], object], runs: int = 3) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def tvm_alone(mod: tvm.IRModule, params: dict[str, tvm.nd.NDArray]) -> str:
    """TVM's C for the whole model, with the settings of frontend/relay/host.py."""
    target = tvm.target.Target("c")
    options = {"interface-api": "c", "unpacked-api": True, "workspace-byte-alignment": ALIGNMENT}
    config = {"tir.disable_vectorize": True, "tir.usmp.enable": True}
    with quiet(), golden_semantics(), tvm.transform.PassContext(opt_level=3, config=config):
        library = relay.build(
            mod,
            target,
            executor=relay.backend.Executor("aot", options),
            runtime=relay.backend.Runtime("crt"),
            params=params,
            workspace_memory_pools=WorkspaceMemoryPools([WorkspacePoolInfo("arena", [target])]),
        )
    return "".join(module.get_source() for module in library.lib.imported_modules)


if __name__ == "__main__":
    sys.exit(main())
