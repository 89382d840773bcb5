"""The functions that TVM looks up by compiler name: pattern table, optimize hook, and the codegen of a region.

`byoc_hw.build` lowers and plans the regions before TVM compiles the host. It marks them as planned, and the codegen
then returns an empty source. In a plain `relay.build` the codegen lowers the region and asks the backend for its C.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import tvm
from tvm import relay
from tvm.relay.op.contrib.register import get_pattern_table

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.accelerators import by_digest, by_name
from byoc_hw.frontend.relay.for_good import for_good
from byoc_hw.frontend.relay.lower import lower_region
from byoc_hw.frontend.relay.optimize import optimize
from byoc_hw.frontend.relay.record import ACCELERATOR_ATTRIBUTE, PLANNED_ATTRIBUTE, numerics_of
from byoc_hw.frontend.relay.table import register_table
from byoc_hw.frontend.seam import Backend
from byoc_hw.graph import Graph
from byoc_hw.soc import Hardware


def register(compiler: str, backend: Backend) -> None:
    """Register the functions of a compiler name with TVM. `InvalidInput` for a name that is TVM's, or another's."""
    if compiler not in _ours:
        _check_free(compiler)
        _ours.add(compiler)
    register_table(compiler, backend.why_no_plan)
    for name, hook in _hooks(compiler, backend).items():
        tvm.register_func(f"relay.ext.{compiler}{name}", hook, override=True)


_ours: set[str] = set()
"""The compiler names that are registered."""


@cache  # TVM never forgets them
def _hooks(compiler: str, backend: Backend) -> dict[str, Callable[..., Any]]:
    """What TVM calls by a compiler name, by what stands behind `relay.ext.<name>`."""
    hooks = {
        "": partial(_generate, compiler, backend),
        ".optimize": partial(optimize, compiler=compiler, why_no_plan=backend.why_no_plan),
        # Constants are part of the generated C: without this TVM would keep a second copy.
        ".constant_updater": _no_constants,
    }
    return for_good(f"hooks.{compiler}", {name: tvm.runtime.convert(hook) for name, hook in hooks.items()})


def _check_free(compiler: str) -> None:
    if compiler in tvm.target.Target.list_kinds():
        raise InvalidInput(f"accelerator name is none of TVM's targets: got {compiler!r}")
    taken = (tvm.get_global_func(f"relay.ext.{compiler}{hook}", allow_missing=True) for hook in ("", ".optimize"))
    if any(taken) or get_pattern_table(compiler) is not None:
        raise InvalidInput(f"accelerator name is none that another compiler of TVM has: got {compiler!r}")


def lowered(function: relay.Function, compiler: str) -> tuple[Graph, Hardware]:
    """The verified graph of a region, and its accelerator."""
    accelerator, numerics = _accelerator(function, compiler), numerics_of(function)
    accelerator.check_numerics(numerics)
    graph = lower_region(function, str(function.attrs["global_symbol"]), numerics)
    graph.verify()
    return graph, accelerator


def _generate(compiler: str, backend: Backend, function: relay.Function) -> tvm.runtime.Module:
    planned = PLANNED_ATTRIBUTE in function.attrs
    source = "" if planned else backend.region_source(*lowered(function, compiler))
    symbol = str(function.attrs["global_symbol"])
    return tvm.get_global_func("runtime.CSourceModuleCreate")(source, "c", [symbol], [])


def _accelerator(function: relay.Function, compiler: str) -> Hardware:
    if ACCELERATOR_ATTRIBUTE in function.attrs:
        return by_digest(str(function.attrs[ACCELERATOR_ATTRIBUTE]), compiler)
    return by_name(compiler)


def _no_constants(expr: relay.Expr, symbol: str) -> dict[str, tvm.nd.NDArray]:
    return {}
