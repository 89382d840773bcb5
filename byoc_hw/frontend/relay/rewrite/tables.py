"""Element-wise operators between two 8-bit values become one table.

What no composite takes is searched for chains (`chains.py`). A chain's table is what its own operators give for all
256 values: as TVM computes them, or as TFLite's kernels do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, rebuild_calls, with_main
from byoc_hw.frontend.relay.opaque import merge_composites, show_bodies
from byoc_hw.frontend.relay.rewrite.chains import Chain, chains, is_element_wise
from byoc_hw.frontend.relay.rewrite.table_values import tvm_tables
from byoc_hw.frontend.relay.rewrite.tflite_tables import tflite_tables
from byoc_hw.frontend.relay.session import Session
from byoc_hw.frontend.relay.sources import calls_outside_composites, span_of_all, with_span
from byoc_hw.frontend.relay.table import entries
from byoc_hw.pattern import Rejection
from byoc_hw.soc import Hardware
from byoc_hw.tensor import Array

_COMPOSITE = "lookup"

_LEAST_SHARE = 32
"""Tables by channel of one layer take at most this part of the flash."""


def with_tables(job: Session) -> list[tvm.transform.Pass]:
    """The passes that make tables of what is left after the pattern table was matched."""
    check = [entry for entry in entries(job) if entry[0].partition(".")[2] == _COMPOSITE]
    if not check:
        return []

    @tvm.transform.module_pass(opt_level=0, name="byoc_hw.Tables")  # type: ignore[untyped-decorator]
    def apply(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        calls = calls_outside_composites(mod["main"])
        if not any(is_element_wise(job.bodies.shown_call(call, call.args)) for call in calls):
            return mod
        mod = show_bodies(job.bodies)(mod)
        tabled = _tabled(mod["main"], job, lambda expr: any(allowed(expr) for _, _, allowed in check))
        return merge_composites(check, job.bodies)(with_main(mod, tabled))

    return [apply]


def _tabled(function: relay.Function, job: Session, allowed: Callable[[relay.Expr], bool]) -> relay.Function:
    made: dict[relay.Expr, tuple[Chain, Array]] = {}

    def accepted(chain: Chain) -> bool:
        if not (_pays(chain, job.accelerator) and _is_allowed(chain, allowed)):
            return False
        if job.numerics != "tflite":
            return True
        assert job.arithmetic is not None, "partitioning has the backend's"
        return keep(chain, tflite_tables(chain, job.arithmetic))

    def keep(chain: Chain, tables: Array | str) -> bool:
        if isinstance(tables, str):
            job.recorder.reject(chain.sources, Rejection(_COMPOSITE, near_miss=tables))
            return False
        made[chain.result] = chain, tables
        return True

    found = chains(function, accepted)
    if not found:
        return function
    if job.numerics != "tflite":
        for chain, tables in zip(found, tvm_tables(found), strict=True):
            keep(chain, tables)
    new: dict[relay.Expr, relay.Expr] = {}

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        new.update(zip(call.args, arguments, strict=True))
        if call not in made:
            return called_with(call, arguments)
        chain, tables = made[call]
        return _lookup(chain, new[chain.source], tables)

    return rebuild_calls(function, rebuild)


def _pays(chain: Chain, accelerator: Hardware) -> bool:
    """Whether a chain is worth its tables.

    What the host computes it goes on computing in integers, in the loop that it has anyway: a clip, for example.
    Tables by channel take little of the flash, and replace no other layer.
    """
    if chain.channels > 1:
        layers = any(isinstance(call.op, relay.Function) for call in chain.calls)
        if layers or 256 * chain.channels > accelerator.flash // _LEAST_SHARE:
            return False
    source = chain.source
    on_host = isinstance(source, relay.Call) and not isinstance(source.op, relay.Function)
    real = any("float" in str(call.checked_type.dtype) for call in chain.plain_calls)
    return real or not on_host


def _is_allowed(chain: Chain, allowed: Callable[[relay.Expr], bool]) -> bool:
    """Whether the accelerator takes such a table; the reason is recorded if it does not."""
    source = relay.Var("x", chain.source.checked_type)
    shown = _lookup(chain, source, np.arange(256 * chain.channels).reshape(-1, 256).astype(np.uint8))
    function = relay.Function([source], shown)
    return allowed(relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"].body)


def _lookup(chain: Chain, source: relay.Expr, tables: Array) -> relay.Expr:
    """The form of `patterns/lookup.py`, with the names of the chain's operators."""
    signed = str(chain.source.checked_type.dtype) == "int8"
    starts = 256 * np.arange(len(tables), dtype=np.int32) + (128 if signed else 0)
    by_value = np.roll(tables, 128, axis=1) if signed else tables
    dtype = str(chain.result.checked_type.dtype)
    entries_of = np.ascontiguousarray(by_value).view(dtype).reshape(-1)
    span = span_of_all(call.span for call in chain.plain_calls)

    def named(call: relay.Call) -> relay.Call:
        return with_span(call, span)

    index = named(relay.cast(source, "int32"))
    if starts.any():
        index = named(relay.add(index, relay.const(starts if len(tables) > 1 else starts[0], "int32")))
    return named(relay.take(relay.const(entries_of, dtype), index))
