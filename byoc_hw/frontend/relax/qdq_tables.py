"""Element-wise operators between two 8-bit values become one table, in the form of `patterns/lookup.py`.

What no composite takes is searched for chains (`qdq_chains.py`); their tables are what `qdq_values.py` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from byoc_hw.frontend.relax.bindings import (
    Assignment,
    named_call,
    returned_by,
    steps_of,
    typed_as,
    with_steps,
    without_unused,
)
from byoc_hw.frontend.relax.forms import QdqJob, rejection_of
from byoc_hw.frontend.relax.qdq_chains import QdqChain, qdq_chains
from byoc_hw.frontend.relax.qdq_match import name_of_layer
from byoc_hw.frontend.relax.qdq_values import tables_of
from byoc_hw.frontend.relax.regions import composites_in
from byoc_hw.frontend.relax.versions import dtype_of, extents_of, name_of
from byoc_hw.frontend.seam import FixedPoint
from byoc_hw.graph import Lookup
from byoc_hw.pattern import Pattern, Rejection, patterns
from byoc_hw.tensor import Array, Tensor

COMPOSITE = "lookup"

_LEAST_SHARE = 32
"""Tables by channel of one layer take at most this part of the flash."""


def with_qdq_tables(mod: tvm.IRModule, job: QdqJob) -> tvm.IRModule:
    """A module of composites with a table for each chain that the accelerator takes one for."""
    pattern = next((one for one in patterns() if one.name == COMPOSITE), None)
    if pattern is None:
        return mod
    arithmetic = job.arithmetic
    assert arithmetic is not None, "partitioning has the backend's"
    made: dict[Any, Array] = {}

    def accepted(chain: QdqChain) -> bool:
        if not (_pays(chain, job) and _is_allowed(chain, pattern, job)):
            return False
        tables = tables_of(chain, job.numerics, arithmetic)
        if isinstance(tables, str):
            job.recorder.reject(chain.sources, Rejection(COMPOSITE, near_miss=tables))
            return False
        made[chain.result] = tables
        return True

    return _tabled(mod, accepted, made)


def with_host_tables(mod: tvm.IRModule, numerics: str, by: FixedPoint) -> tvm.IRModule:
    """A module with a table for each chain that has real values inside, as Relay's operators give it, or Relax's.

    What is of integers alone the host computes in the loop that it has anyway.
    """
    made: dict[Any, Array] = {}

    def accepted(chain: QdqChain) -> bool:
        if chain.channels > 1 or not any(dtype_of(call).startswith("float") for call in chain.plain_calls):
            return False
        tables = tables_of(chain, "relay" if numerics == "tflite" else numerics, by)
        if not isinstance(tables, str):
            made[chain.result] = tables
        return not isinstance(tables, str)

    return _tabled(mod, accepted, made)


def _tabled(mod: tvm.IRModule, accepted: Callable[[QdqChain], bool], made: dict[Any, Array]) -> tvm.IRModule:
    main, variable = mod["main"], mod.get_global_var("main")
    chains = {chain.result: chain for chain in qdq_chains(main, composites_in(mod), accepted)}
    if not chains:
        return mod
    steps: list[Assignment] = []
    for result, value in steps_of(main):
        steps += _lookup(chains[result], made[result]) if result in chains else [(result, value)]
    results = returned_by(main.body.body)
    kept = with_steps(main, without_unused(steps, results))
    return tvm.IRModule({**mod.functions, variable: kept}, attrs=mod.attrs)


def _lookup(chain: QdqChain, tables: Array) -> list[Assignment]:
    """The bindings of a table, with the names of the chain's operators, that of the layer last."""
    signed = dtype_of(chain.source) == "int8"
    starts = 256 * np.arange(len(tables), dtype=np.int32) + (128 if signed else 0)
    by_value = np.roll(tables, 128, axis=1) if signed else tables
    entries = relax.const(np.ascontiguousarray(by_value).view(dtype_of(chain.result)).reshape(-1))
    of_index = relax.TensorType(extents_of(chain.result), "int32")

    name = name_of_layer(chain.plain_calls)
    names = (*(one for one in chain.sources if one != name), name)

    def named(call: Any, of: Any) -> Any:
        return typed_as(named_call(call, *names), of)

    index = relax.DataflowVar(f"{chain.result.name}_index", of_index)
    steps = [(index, named(relax.op.astype(chain.source, "int32"), of_index))]
    if starts.any():
        entry = relax.DataflowVar(f"{chain.result.name}_entry", of_index)
        start = relax.const(starts if len(tables) > 1 else starts[0])
        steps.append((entry, named(relax.op.add(index, start), of_index)))
        index = entry
    return [*steps, (chain.result, named(relax.op.take(entries, index, mode="clip"), chain.result.ty))]


# ---------------------------------------------------------------- what is worth a table


def _pays(chain: QdqChain, job: QdqJob) -> bool:
    """Whether a chain is worth its tables.

    What the host computes it goes on computing in integers, in the loop that it has anyway: a clip, for example.
    Tables by channel take little of the flash, and replace no other layer.
    """
    if chain.channels > 1:
        layers = any(call.op in chain.composites for call in chain.calls)
        if layers or 256 * chain.channels > job.accelerator.flash // _LEAST_SHARE:
            return False
    source = chain.values.get(chain.source)
    on_host = source is not None and not (isinstance(source, relax.Call) and source.op in chain.composites)
    return not (on_host and _is_whole(chain))


def _is_whole(chain: QdqChain) -> bool:
    """Whether Relay's importer has integers only for a chain: limits, and QUANTIZE of stored values."""
    return all(name_of(call) in ("clip", "dequantize", "nn.relu", "quantize") for call in chain.plain_calls)


def _is_allowed(chain: QdqChain, pattern: Pattern, job: QdqJob) -> bool:
    """Whether the accelerator takes such a table; the reason is recorded if it does not."""
    shape = extents_of(chain.result)
    ifm, ofm = (Tensor("x", shape, dtype_of(one)) for one in (chain.source, chain.result))
    tables = np.arange(256 * chain.channels).reshape(-1, 256).astype(np.uint8)
    layer = Lookup(name_of_layer(chain.plain_calls), chain.sources, ifm, ofm, tables=tables)
    rejection = rejection_of(pattern, chain.sources, layer, job)
    if rejection is not None:
        job.recorder.reject(chain.sources, rejection, layer)
    return rejection is None
