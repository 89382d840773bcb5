"""Partitions a Relay module: the passes, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.accelerators import remember
from byoc_hw.frontend.partition_arguments import check_denied, checked_arguments
from byoc_hw.frontend.relay.checks import bound, check_module, checked
from byoc_hw.frontend.relay.codegen import register
from byoc_hw.frontend.relay.compose import inline_regions
from byoc_hw.frontend.relay.constant_folding import fold_constants
from byoc_hw.frontend.relay.dead import zero_dead_channels
from byoc_hw.frontend.relay.ends import ends_of
from byoc_hw.frontend.relay.host_tflite import tvm_arithmetic
from byoc_hw.frontend.relay.interface import plain_interface
from byoc_hw.frontend.relay.opaque import merge_composites, show_bodies
from byoc_hw.frontend.relay.operator_work import operator_work
from byoc_hw.frontend.relay.optimize import NoNHWC
from byoc_hw.frontend.relay.outcome import outcomes
from byoc_hw.frontend.relay.record import Record, record_of, regions
from byoc_hw.frontend.relay.rewrite.adaptive_pools import global_pools
from byoc_hw.frontend.relay.rewrite.moves import plain_moves
from byoc_hw.frontend.relay.rewrite.orders import with_orders
from byoc_hw.frontend.relay.rewrite.patch_convolution import patch_convolutions
from byoc_hw.frontend.relay.rewrite.shifts import shifted_sums
from byoc_hw.frontend.relay.rewrite.tables import with_tables
from byoc_hw.frontend.relay.rewrite.transposed_convolution import blockwise_convolutions
from byoc_hw.frontend.relay.rewrite.unsigned import sign_unsigned
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.frontend.relay.session import Session, session
from byoc_hw.frontend.relay.sources import calls_in_order, source_operators
from byoc_hw.frontend.relay.table import entries
from byoc_hw.frontend.relay.tuples import HostTuples
from byoc_hw.frontend.seam import Backend
from byoc_hw.pattern import Recorder
from byoc_hw.soc import Hardware


@serial
def partition(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None,
    mod_name: str,
    *,
    accelerator: Hardware,
    numerics: str,
    deny: Iterable[str],
    backend: Backend,
) -> tvm.IRModule:
    """Partition a Relay module: see `byoc_hw.partition_for_hwlib`."""
    deny = checked_arguments(deny, mod_name, accelerator, numerics)
    check_module(mod)
    if numerics == "float":
        raise InvalidInput("numerics 'float' is that of a Relax module's floats: Relay's operators are of integers")
    if record_of(mod) is not None or regions(mod):
        raise InvalidInput("the module is already partitioned: partition the original module instead")
    register(accelerator.name, backend)
    mod = prepare(mod, params)
    operators, work = source_operators(mod["main"]), operator_work(mod["main"])
    check_denied(deny, [operator.name for operator in operators])
    job = Session(accelerator, backend.why_no_plan, deny, numerics, arithmetic=backend.arithmetic)
    folded = tvm.transform.Sequential([*signing(job), *folding(numerics), *rewriting(job)])(mod)
    try:
        partitioned = _partitioned(folded, mod_name, job)
    except NoNHWC as error:  # then all NCHW operators stay on the host, and the report says why
        job = replace(job, no_nchw=str(error), recorder=Recorder())
        partitioned = _partitioned(folded, mod_name, job)
    found = tuple(
        replace(outcome, **vars(work[outcome.name]))
        for outcome in outcomes(operators, folded["main"], partitioned, job.recorder)
    )
    if numerics == "tflite":
        marks = tvm_arithmetic(partitioned)
        found = tuple(replace(outcome, tvm_arithmetic=marks.get(outcome.name, ())) for outcome in found)
    return Record(
        remember(accelerator),
        accelerator.name,
        accelerator.label,
        numerics,
        mod_name,
        found,
        ends_of(mod),
    ).attach(partitioned)


def _partitioned(folded: tvm.IRModule, mod_name: str, job: Session) -> tvm.IRModule:
    token = session.set(job)
    try:
        return without_idle_regions(tvm.transform.Sequential(partitioning(folded["main"], job, mod_name))(folded))
    finally:
        session.reset(token)


def prepare(mod: tvm.IRModule, params: Mapping[str, Any] | None, *, again: bool = False) -> tvm.IRModule:
    """The checked module with its weights bound (`again`: perhaps they are), and a source name for every operator.

    Its inputs have names of their own, its outputs are in one flat tuple.
    """
    main = bound(mod["main"], params, again=again)
    functions = {**mod.functions, mod.get_global_var("main"): main}
    return plain_interface(checked(tvm.IRModule(functions, mod.type_definitions, attrs=mod.attrs)))


def signing(job: Session) -> list[tvm.transform.Pass]:
    """The passes that bring uint8 to int8."""
    limits = job.accelerator.limits.get("depthwise_conv2d")
    window = (0, 0) if limits is None else limits.max_kernel or (255, 255)
    return [fold_constants(), sign_unsigned(job.numerics, window)]


def folding(numerics: str = "relay") -> list[tvm.transform.Pass]:
    """The passes that run on every type-checked model, partitioned or not, before its constants are read."""
    return [
        global_pools(),
        plain_moves(),
        fold_constants(qnn=numerics == "relay"),  # after moves, which requantize constants
        zero_dead_channels(),  # after folding: weights and scales must be constants
    ]


def rewriting(job: Session) -> list[tvm.transform.Pass]:
    """The passes that run where the accelerator then takes what they make."""
    return [
        shifted_sums(job),
        blockwise_convolutions(job),
        patch_convolutions(job),
        with_orders(job),
    ]


def partitioning(main: relay.Function, job: Session, mod_name: str) -> list[tvm.transform.Pass]:
    """The partitioning passes, in order, for a model whose function is `main`."""
    tuples = HostTuples()
    return [
        merge_composites(entries(job, main), job.bodies),
        *with_tables(job),
        tuples.hide(),
        # Tuples are not annotated: they would become external functions that do nothing.
        relay.transform.AnnotateTarget(job.accelerator.name, include_non_call_ops=False),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(mod_name),  # runs relay.ext.<accelerator>.optimize on each region
        tuples.show(),
        show_bodies(job.bodies),
    ]


def without_idle_regions(mod: tvm.IRModule) -> tvm.IRModule:
    """Moves regions that hold only reshapes back to the host, where a reshape needs neither work nor a call."""
    idle = {
        variable: function
        for variable, function in regions(mod).items()
        if all(
            str(call.op.attrs["Composite"]).endswith(".reshape")
            for call in calls_in_order(function)
            if isinstance(call.op, relay.Function)
        )
    }
    return relay.transform.InferType()(inline_regions(mod, idle)) if idle else mod
