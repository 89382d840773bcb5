"""`relay.ext.<name>`: each region to a `Graph`, and the graph to whoever builds code from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import tvm
from tvm import relay

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.accelerators import by_fingerprint, by_name
from byoc_hw.frontend.relay.lower import lower_region
from byoc_hw.frontend.relay.optimize import optimize
from byoc_hw.frontend.relay.record import ACCELERATOR_ATTRIBUTE, numerics_of
from byoc_hw.frontend.relay.table import register_table
from byoc_hw.graph import Graph

Builder = Callable[[Graph, Accelerator], str]
"""C source of a region's function, from its graph."""

_builder: ContextVar[Builder] = ContextVar("byoc_hw.builder")


@contextmanager
def building_with(builder: Builder) -> Iterator[None]:
    """Regions that TVM meets meanwhile go to this builder."""
    token = _builder.set(builder)
    try:
        yield
    finally:
        _builder.reset(token)


def install(compiler: str, default: Builder | None = None) -> None:
    """Register pattern table, optimize hook and codegen with TVM under a compiler name.

    `default` builds the regions of a plain `tvm.relay.build`.
    """
    if default is not None:
        global _default
        _default = default
    register_table(compiler)
    hooks = {
        f"relay.ext.{compiler}": partial(_generate, compiler),
        f"relay.ext.{compiler}.optimize": partial(optimize, compiler=compiler),
        # Constants are part of the generated C: without this TVM would keep a second copy.
        f"relay.ext.{compiler}.constant_updater": _no_constants,
    }
    for name, hook in hooks.items():
        tvm.register_func(name, hook, override=True)


_default: Builder | None = None


def _generate(compiler: str, function: relay.Function) -> tvm.runtime.Module:
    symbol = str(function.attrs["global_symbol"])
    accelerator, numerics = _accelerator(function, compiler), numerics_of(function)
    accelerator.check_numerics(numerics)
    graph = lower_region(function, symbol, numerics)
    graph.verify()
    builder = _builder.get(_default)
    if builder is None:
        raise InvalidInput(f"region {symbol}: no code builder is installed; import byoc_hw first")
    source = builder(graph, accelerator)
    return tvm.get_global_func("runtime.CSourceModuleCreate")(source, "c", [symbol], [])


def _accelerator(function: relay.Function, compiler: str) -> Accelerator:
    if ACCELERATOR_ATTRIBUTE in function.attrs:
        return by_fingerprint(str(function.attrs[ACCELERATOR_ATTRIBUTE]), compiler)
    return by_name(compiler)


def _no_constants(expr: relay.Expr, symbol: str) -> dict[str, tvm.nd.NDArray]:
    return {}
