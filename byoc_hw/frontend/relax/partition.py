"""Partitions a Relax module: the passes, in order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from byoc_hw.arguments import check_type, shown
from byoc_hw.errors import InvalidInput, Unsupported
from byoc_hw.frontend.accelerators import by_digest, remember
from byoc_hw.frontend.model_ends import End, Ends
from byoc_hw.frontend.partition_arguments import check_denied, checked_arguments
from byoc_hw.frontend.relax.bias_scales import with_stored_biases
from byoc_hw.frontend.relax.bindings import (
    each_its_own_dequantize,
    file_sources,
    in_order_of_use,
    names_in,
    returned_by,
    steps_of,
    with_names,
    with_steps,
)
from byoc_hw.frontend.relax.forms import QdqJob, fusions
from byoc_hw.frontend.relax.host_works import tvm_marks
from byoc_hw.frontend.relax.outcomes import outcomes_of
from byoc_hw.frontend.relax.own_composites import with_own_composites
from byoc_hw.frontend.relax.qdq_counted import with_counted_padding
from byoc_hw.frontend.relax.qdq_layout import in_nhwc
from byoc_hw.frontend.relax.qdq_moves import moves_of_stored
from byoc_hw.frontend.relax.qdq_parts import with_functions_of_parts
from byoc_hw.frontend.relax.qdq_patches import with_patches
from byoc_hw.frontend.relax.qdq_products import with_columns_last
from byoc_hw.frontend.relax.qdq_tables import COMPOSITE, with_qdq_tables
from byoc_hw.frontend.relax.qdq_transposed import with_blocks
from byoc_hw.frontend.relax.qdq_unsigned import with_signed_values
from byoc_hw.frontend.relax.regions import (
    ACCELERATOR_MARK,
    NUMERICS_MARK,
    QdqRecord,
    composite_name,
    composites_of,
    external,
    region_graph,
    with_symbols,
)
from byoc_hw.frontend.relax.tflite import STATED
from byoc_hw.frontend.relax.versions import dtype_of, extents_of, is_call, type_of
from byoc_hw.frontend.relax.work import work_of
from byoc_hw.frontend.seam import Backend
from byoc_hw.names import distinct
from byoc_hw.pattern import Recorder
from byoc_hw.soc import Hardware

_PREPARED = "byoc_hw_prepared"
"""The attribute of a partitioned module with the one that was partitioned."""


def partition_relax(
    mod: Any,
    params: Mapping[str, Any] | None,
    mod_name: str,
    *,
    accelerator: Hardware,
    numerics: str,
    deny: Iterable[str],
    backend: Backend,
) -> tvm.IRModule:
    """Partition a Relax module: see `byoc_hw.partition_for_hwlib`."""
    deny = checked_arguments(deny, mod_name, accelerator, numerics)
    mod = prepared(mod, params)
    check_denied(deny, [one.name for one in file_sources(mod["main"])])
    return _recorded(mod, mod_name, QdqJob(accelerator, backend.why_no_plan, backend.arithmetic, deny, numerics))


def with_host_layers(mod: tvm.IRModule, reasons: Mapping[str, Mapping[str, str]], backend: Backend) -> tvm.IRModule:
    """A partitioned module in which the host computes some layers, with the operators of the model file that they are
    of. `reasons` says why, by region and layer. Regions may have other numbers."""
    record = QdqRecord.of(mod)
    assert record is not None, "only a partitioned module has regions"
    kept: dict[str, str] = {}
    for symbol, layers in reasons.items():
        graph = region_graph(mod[symbol], symbol, record.numerics)
        for layer in graph.layers:
            if layer.name in layers:
                kept |= dict.fromkeys(layer.source, layers[layer.name])
    accelerator = by_digest(record.accelerator, record.label)
    job = QdqJob(accelerator, backend.why_no_plan, backend.arithmetic, record.deny, record.numerics, kept=kept)
    return _recorded(mod.attrs[_PREPARED], record.mod_name, job)


def _recorded(mod: tvm.IRModule, mod_name: str, job: QdqJob) -> tvm.IRModule:
    """The partitioned form of a prepared module, with its record."""
    main, moved = mod["main"], with_moves(mod)
    sources, work = file_sources(main), work_of(main)
    plain, patches = with_patches(moved, job)
    done = _regions_made(plain, job, mod_name)
    left = patches.intersection(_convolutions_of_main(done))
    if left:  # once more with these as they are
        job = replace(job, recorder=Recorder())
        plain, _ = with_patches(moved, job, left)
        done = _regions_made(plain, job, mod_name)
    idle = _idle_sources(done)
    if idle:  # once more without them: a reshape on the host needs no call of a region
        job = replace(job, idle=frozenset(idle), recorder=Recorder())
        done = _regions_made(plain, job, mod_name)
    found = outcomes_of(sources, done, job.recorder, work)
    if job.numerics == "tflite":
        marks = tvm_marks(done)
        found = tuple(replace(outcome, tvm_arithmetic=marks.get(outcome.name, ())) for outcome in found)
    ends, names = stated_ends(mod)
    of, deny = job.accelerator, tuple(job.deny)
    record = QdqRecord(remember(of), of.name, of.label, job.numerics, mod_name, found, ends, names, deny)
    return record.attached(done).with_attr(_PREPARED, mod)


def _regions_made(mod: tvm.IRModule, job: QdqJob, mod_name: str) -> tvm.IRModule:
    fuse = relax.transform.FuseOpsByPattern
    composed = with_own_composites(fuse(fusions(job), bind_constants=True)(mod), mod)
    tabled = with_qdq_tables(composed, job)
    tables = fuse(fusions(job, only=COMPOSITE), bind_constants=True, entry_functions=["main"])
    done = relax.transform.MergeCompositeFunctions()(with_own_composites(tables(tabled), tabled))
    prefix = f"tvmgen_{mod_name}_{job.accelerator.name}_main_"
    return with_symbols(done, prefix, {ACCELERATOR_MARK: remember(job.accelerator), NUMERICS_MARK: job.numerics})


def _convolutions_of_main(mod: tvm.IRModule) -> list[str]:
    """The operators of the model file that the convolutions outside of composites are of."""
    calls = (value for _, value in steps_of(mod["main"]) if is_call(value, "nn.conv2d"))
    return [name for call in calls for name in names_in(call.span)]


def _idle_sources(mod: tvm.IRModule) -> list[str]:
    """The operators of regions that hold only reshapes."""
    found: list[str] = []
    for function in external(mod).values():
        composites = composites_of(function).values()
        if all(composite_name(composite) == "reshape" for composite in composites):
            calls = (value for composite in composites for _, value in steps_of(composite))
            found += (name for call in calls for name in names_in(call.span))
    return found


# ---------------------------------------------------------------- what comes in


def check_relax_module(mod: object) -> None:
    """Raise `InvalidInput` unless `mod` is a module of Relax with a `main`."""
    if not isinstance(mod, tvm.IRModule):
        raise InvalidInput(f"mod is a tvm.IRModule: got {type(mod).__name__}")
    names = [variable.name_hint for variable in mod.get_global_vars()]
    if "main" not in names:
        raise InvalidInput(f"the module has a function main: got {', '.join(sorted(names)) or 'no function'}")
    if not isinstance(mod["main"], relax.Function):
        raise InvalidInput(f"main is a function of Relax: got {type(mod['main']).__name__}")


def prepared(mod: Any, params: Mapping[str, Any] | None) -> tvm.IRModule:
    """The checked module with its weights bound: one block of calls, each with a name, static shapes.

    Each dequantize has one reader, so that it can be part of that reader's layer.
    """
    check_relax_module(mod)
    if QdqRecord.of(mod) is not None or external(mod):
        raise InvalidInput("the module is already partitioned: partition the original module instead")
    others = [variable.name_hint for variable in mod.get_global_vars() if variable.name_hint != "main"]
    if others:
        raise Unsupported(f"a model is one function, main: the module has {', '.join(sorted(others))} too")
    if params:
        mod = _bound(mod, params)
    attrs = mod.attrs
    passes = [relax.transform.ConvertToDataflow(min_size=1), relax.transform.CanonicalizeBindings()]
    main = _flat(tvm.transform.Sequential(passes)(mod)["main"])
    for parameter in main.params:
        if not isinstance(type_of(parameter), relax.TensorType):
            raise InvalidInput(f"input {parameter.name} is a tensor: got {type_of(parameter)}")
    for value in (*main.params, *(variable for variable, _ in steps_of(main))):
        if dtype_of(value):
            extents_of(value)
    return tvm.IRModule({"main": each_its_own_dequantize(with_names(main))}, attrs=attrs)


def with_moves(mod: tvm.IRModule) -> tvm.IRModule:
    """The prepared module with images in NHWC, biases as integers, and operators that move values on stored ones."""
    main = each_its_own_dequantize(with_functions_of_parts(in_nhwc(with_blocks(with_signed_values(mod["main"])))))
    main = with_counted_padding(moves_of_stored(main))
    main = moves_of_stored(with_stored_biases(main))
    main = with_columns_last(each_its_own_dequantize(main))
    return tvm.IRModule({mod.get_global_var("main"): main}, attrs=mod.attrs)


def _bound(mod: tvm.IRModule, params: Mapping[str, Any]) -> tvm.IRModule:
    check_type("params", params, Mapping, "a mapping of names to arrays")
    known = {parameter.name: parameter for parameter in mod["main"].params}
    for name, value in params.items():
        if name not in known:
            raise InvalidInput(f"params are inputs of main by name: got {shown(name)}")
        check_type(f"params: {name}", value, np.ndarray | tvm.runtime.Tensor, "an array")
        shape, dtype = tuple(map(int, value.shape)), dtype_of(known[name])
        if str(value.dtype) != dtype:
            raise InvalidInput(f"params: {name}: dtype is {dtype}: got {value.dtype}")
        if shape != extents_of(known[name]):
            raise InvalidInput(f"params: {name}: shape is {extents_of(known[name])}: got {shape}")
    return relax.transform.BindParams("main", dict(params))(mod)


def _flat(main: Any) -> Any:
    """The function with its results in one flat tuple, with operands before what reads them, in order."""
    values = dict(steps_of(main))
    result = main.body.body
    if isinstance(type_of(result), relax.TupleType):
        result = relax.Tuple(list(_tensors_in(result, values)))
        if not result.fields:
            raise InvalidInput("a model has at least one output: main returns an empty tuple")
    steps = [(variable, values[variable]) for variable in in_order_of_use(values, returned_by(result))]
    flat = with_steps(main, steps, result)
    of = type_of(result) if not isinstance(result, relax.Tuple) else relax.TupleType(list(map(type_of, result.fields)))
    return relax.Function(flat.params, flat.body, of, flat.is_pure, flat.attrs, flat.span)


def _tensors_in(result: Any, values: dict[Any, Any]) -> Iterator[Any]:
    """The tensors of a result, also in tuples of tuples; `values` gets what takes one out of an operator's results."""
    value = values.get(result, result) if isinstance(result, relax.Var) else result
    if isinstance(value, relax.Var) and value is not result:
        yield from _tensors_in(value, values)
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from _tensors_in(field, values)
    elif isinstance(type_of(result), relax.TupleType):
        for index, of in enumerate(type_of(result).fields):
            part = relax.DataflowVar(f"{result.name}_{index}", of)
            values[part] = relax.TupleGetItem(result, index)
            yield from _tensors_in(part, values)
    else:
        yield result


def stated_ends(mod: tvm.IRModule) -> tuple[Ends, tuple[str, ...]]:
    """The scales of inputs and outputs, where the file states them, and the names of both."""
    main = mod["main"]
    values = [*main.params, *returned_by(main.body.body)]
    inputs = len(main.params)
    if mod.attrs and STATED in mod.attrs:
        stated = json.loads(str(mod.attrs[STATED]))
        types = [[list(extents_of(value)), dtype_of(value)] for value in values]
        if types == stated["types"]:
            return Ends.from_plain(stated["ends"]), tuple(distinct(stated["names"]))
    steps = dict(steps_of(main))
    names = [parameter.name for parameter in main.params]
    for place, value in enumerate(values[inputs:]):
        call = steps.get(value)
        sources = names_in(call.span) if isinstance(call, relax.Call) else ()
        names.append(next(reversed(sources), f"output_{place}"))
    unknown = Ends((End(),) * inputs, (End(),) * (len(values) - inputs))
    return unknown, tuple(distinct(names))
