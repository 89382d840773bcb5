"""Takes layers out of the regions of a partitioned module: they are operators of the host again.

region_0(conv2d, softmax, dense)   without softmax   region_0(conv2d), softmax, region_1(dense)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import tvm
from tvm import relay
from tvm.relay.op.annotation import compiler_begin, compiler_end

from byoc_hw.frontend.relay.compose import applied, called_with, rebuild_calls, rebuilt_values
from byoc_hw.frontend.relay.host_tflite import tvm_arithmetic
from byoc_hw.frontend.relay.lower import layer_values
from byoc_hw.frontend.relay.outcome import moved_outcomes
from byoc_hw.frontend.relay.partition import without_idle_regions
from byoc_hw.frontend.relay.record import record_of, regions
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.frontend.relay.sources import calls_in_order, operator_name, source_names
from byoc_hw.pattern import Rejection


@serial
def host_again(mod: Any, reasons: Mapping[str, Mapping[str, str]]) -> tvm.IRModule:
    """A partitioned module in which the host computes some layers. `reasons` says why, by region and layer.

    What stays in regions is partitioned once more, so regions may have other numbers.
    """
    record = record_of(mod)
    assert record is not None, "only a partitioned module has regions"
    mod = relay.transform.InferType()(mod)
    said: dict[str, list[Rejection]] = {}
    bodies = {
        variable.name_hint: _marked(function, record.compiler, reasons.get(variable.name_hint, {}), said)
        for variable, function in regions(mod).items()
    }

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        body = bodies.get(operator_name(call))
        return _on(_HOST, call, arguments) if body is None else applied(body, arguments)

    main = rebuild_calls(mod["main"], rebuild)
    alone = tvm.IRModule({mod.get_global_var("main"): main}, mod.type_definitions, attrs=mod.attrs)
    passes = [
        relay.transform.InferType(),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(record.mod_name),
        relay.transform.InferType(),
    ]
    partitioned = without_idle_regions(tvm.transform.Sequential(passes)(alone))
    found = moved_outcomes(record.outcomes, partitioned, said)
    if record.numerics == "tflite":
        marks = tvm_arithmetic(partitioned)
        found = tuple(replace(outcome, tvm_arithmetic=marks.get(outcome.name, ())) for outcome in found)
    return replace(record, outcomes=found).attach(partitioned)


def _marked(
    region: relay.Function, compiler: str, gone: Mapping[str, str], said: dict[str, list[Rejection]]
) -> relay.Function:
    """A region's function with TVM's marks around each layer: of the compiler, or of the host for what is gone.

    Adds to `said`, by operator of the model, the reason for what is gone.
    """
    values = {value: gone[name] for name, value in layer_values(region).items() if name in gone}

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        if call not in values:
            return _on(compiler, call, arguments)
        composite = isinstance(call.op, relay.Function)
        name = str(call.op.attrs["Composite"]).partition(".")[2] if composite else operator_name(call)
        for inner in calls_in_order(call.op.body) if composite else [call]:
            for source in source_names(inner.span):
                said.setdefault(source, []).append(Rejection(name, near_miss=values[call]))
        on_host = partial(_on, _HOST)
        return rebuilt_values(call.op, arguments, on_host)[call.op.body] if composite else on_host(call, arguments)

    return rebuild_calls(region, rebuild)


_HOST = "default"
"""TVM's name for what no compiler takes. Unless that is marked as well, regions are merged in circles."""


def _on(target: str, call: relay.Call, arguments: list[relay.Expr]) -> relay.Call:
    return compiler_end(called_with(call, [compiler_begin(argument, target) for argument in arguments]), target)
