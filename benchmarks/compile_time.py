"""How long compiling takes: partition and build, beside TVM's own build of the whole model.

Both make C for the same model in the same process, the best of three runs each. TVM's build has the
same target, executor and options, and nothing offloaded.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import tvm
from tvm import relay
from tvm.ir.memory_pools import WorkspaceMemoryPools, WorkspacePoolInfo

import byoc_hw
from byoc_hw.demo import model_path
from byoc_hw.frontend.relay.host import ALIGNMENT, golden_semantics, quiet

ROOT = Path(__file__).resolve().parents[1]
MODELS = Path(os.environ.get("BYOC_HW_MODELS", ROOT.parent / "shared" / "models"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="the digits model, and those in $BYOC_HW_MODELS")
    paths = parser.parse_args().models or [model_path(), *sorted(MODELS.glob("*.tflite"))]
    print(f"{'model':<28}  {'partition s':>11}  {'build s':>8}  {'together s':>10}  {'TVM alone s':>11}  {'ratio':>6}")
    for path in paths:
        mod, params = byoc_hw.load_tflite(path)
        partitioned = byoc_hw.partition_for_hwlib(mod, params)
        partition = best(lambda mod=mod, params=params: byoc_hw.partition_for_hwlib(mod, params))
        build = best(lambda partitioned=partitioned: byoc_hw.build(partitioned))
        alone = best(lambda mod=mod, params=params: tvm_alone(mod, params))
        both = partition + build
        row = f"{path.stem:<28}  {partition:>11.2f}  {build:>8.2f}  {both:>10.2f}  {alone:>11.2f}  {both / alone:>6.2f}"
        print(row, flush=True)


def best(job: Callable[[], object], runs: int = 3) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def tvm_alone(mod: tvm.IRModule, params: dict[str, tvm.nd.NDArray]) -> str:
    """TVM's C for the whole model, as frontend/relay/host.py has it made for what is left on the host."""
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
