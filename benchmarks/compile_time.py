"""Compile time: partition and build, compared with TVM's own build of the whole model.

Both generate C for the same model in the same process, the best of three runs each. TVM's build has the
same target, executor and options, and offloads nothing.

The second table shows the growth with the number of layers: ResNet-50 and chains of convolutions
(`--sizes`), one run each, on an accelerator with enough memory. Planning is part of partition and of build.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import tvm
from networks import chain, resnet50
from plans import compiled
from tables import models, options, show
from tvm import relay
from tvm.ir.memory_pools import WorkspaceMemoryPools, WorkspacePoolInfo

import byoc_hw
from byoc_hw.frontend.relay.host import golden_semantics, quiet
from byoc_hw.program import ALIGNMENT

SIZES = (60, 125, 250, 500)
LARGE = replace(byoc_hw.REFERENCE, label="LARGE", ram=16 << 20, flash=64 << 20)

COLUMNS = ("model", "partition s", "build s", "TVM alone s", "ratio")
GROWTH = ("model", "layers", "partition s", "build s", "planning s", "ms a layer", "planning ms a layer")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES, help="convolutions in each chain")
    given = parser.parse_args()
    show("compile_time", COLUMNS, map(row, models(given.models)), into_readme=given.update)
    print()
    show("compile_time", GROWTH, growth(given.sizes), into_readme=given.update, part="growth")


def growth(sizes: Sequence[int]) -> Iterator[tuple[object, ...]]:
    """Seconds for each network, and milliseconds per layer, in total and for planning alone."""
    networks = {"resnet50": resnet50} | {f"chain of {size}": partial(chain, size) for size in sizes}
    for name, network in networks.items():
        made = compiled(network(), {}, LARGE)
        layers = len(made.layers)
        seconds = (made.partition, made.build, made.planning)
        each = (1000 * total / layers for total in (made.seconds, made.planning))
        yield (name, layers, *(f"{value:.2f}" for value in (*seconds, *each)))


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
    main()
