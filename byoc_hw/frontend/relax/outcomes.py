"""The outcome of each operator of the model file as plain data, from the partitioned module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tvm
from tvm import relax

from byoc_hw.frontend.relax.bindings import FileSource, names_in, steps_of
from byoc_hw.frontend.relax.forms import operators_of, qdq_forms
from byoc_hw.frontend.relax.regions import composite_name, composites_of, external
from byoc_hw.frontend.relax.versions import name_of
from byoc_hw.frontend.source_operators import OperatorWork, Placed
from byoc_hw.pattern import Outcome, Recorder, Rejection


def outcomes_of(
    sources: Iterable[FileSource],
    after: tvm.IRModule,
    recorder: Recorder,
    work: Mapping[str, OperatorWork],
) -> tuple[Outcome, ...]:
    """One outcome for each operator; `after` is the partitioned module."""
    found, sources = _placements(after), list(sources)
    stored = {source.name for source in sources if "dequantize" in source.operators}
    return tuple(
        _outcome(
            source,
            found.get(source.name, Placed()),
            recorder,
            work[source.name],
            real=stored.isdisjoint((source.name, *work[source.name].reads)),
        )
        for source in sources
    )


def _placements(mod: tvm.IRModule) -> dict[str, Placed]:
    found: dict[str, Placed] = {}
    for variable, region in external(mod).items():
        for composite in composites_of(region).values():
            for _, call in steps_of(composite):
                for name in names_in(call.span):
                    entry = found.setdefault(name, Placed())
                    entry.composites.append(composite_name(composite))
                    entry.regions.append(variable.name_hint)
    for _, call in steps_of(mod["main"]):
        if isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op):
            for name in names_in(call.span):
                found.setdefault(name, Placed()).host.append(name_of(call))
    return found


def _outcome(source: FileSource, found: Placed, recorder: Recorder, work: OperatorWork, real: bool) -> Outcome:
    rejections, uncovered = _reasons(source.name, found.host, recorder, real) if found.host else ((), ())
    return Outcome(
        source.name,
        source.operators,
        found.placement,
        tuple(dict.fromkeys(found.composites)),
        tuple(dict.fromkeys(found.regions)),
        rejections,
        uncovered,
        host_instructions=recorder.instructions.get(source.name, 0) if found.host else 0,
        macs=work.macs,
        nbytes=work.nbytes,
        reads=work.reads,
    )


_BORDERS = {"quantize": "a real input", "dequantize": "a real output"}


_PRODUCTS = ("nn.conv2d", "matmul")
_REAL = "activations are quantized to int8 or uint8: got float32"


def _reasons(
    source: str, host: list[str], recorder: Recorder, real: bool
) -> tuple[tuple[Rejection, ...], tuple[str, ...]]:
    """Why an operator is on the host, and its Relax operators that are in no pattern. `real` is one that reads no
    dequantized value."""
    covered = {name for _, form in qdq_forms() for name in operators_of(form)}
    uncovered = tuple(name for name in dict.fromkeys(host) if name not in covered)
    recorded = recorder.rejections.get(source, [])
    if recorded or uncovered:
        return tuple(recorded), uncovered
    products = [name for name in dict.fromkeys(host) if name in _PRODUCTS]
    if real and products:
        return tuple(Rejection("", near_miss=f"{name}: {_REAL}") for name in products), ()
    return tuple(Rejection("", near_miss=_company(name, host)) for name in dict.fromkeys(host)), ()


def _company(operator: str, host: list[str]) -> str:
    """Why an operator that is in patterns was matched by none: with which others it is offloaded."""
    if operator in _BORDERS and set(host) <= set(_BORDERS):
        return f"{operator} is of {_BORDERS[operator]}: the accelerator has integers only"
    anchors = sorted({form.anchor for _, form in qdq_forms() if operator in operators_of(form)})
    if operator in anchors:
        return f"{operator} is offloaded between dequantize and quantize of int8, with constant weights if it has any"
    return f"{operator} is offloaded only together with {', '.join(anchors)}"
