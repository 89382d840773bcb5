"""The live pattern table for `FuseOpsByPattern`: entries of (composite name, pattern, annotations, check)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.accelerators import by_name
from byoc_hw.frontend.connect import with_least_bits
from byoc_hw.frontend.pattern_files import forms_in_order, load_patterns
from byoc_hw.frontend.relax.qdq_forms import operator_of, operators_in
from byoc_hw.frontend.relax.qdq_match import QdqMatch
from byoc_hw.frontend.seam import FixedPoint
from byoc_hw.graph import Layer
from byoc_hw.numerics import in_numerics
from byoc_hw.pattern import Form, NotALayer, Pattern, Recorder, Rejection, broken_rules, parsed, patterns
from byoc_hw.soc import Hardware

Fusion = tuple[str, Any, dict[str, Any], Callable[[Any], bool]]


_IDLE = Rejection("reshape", near_miss="matches, but a region of nothing but reshapes is not worth a call")


@dataclass(frozen=True)
class QdqJob:
    """The state of one partitioning. `why_no_plan` is `Backend.why_no_plan`.

    `idle` are operators that were alone in a region of nothing but reshapes, and so stay on the host; `kept` says of
    others why they do.
    """

    accelerator: Hardware
    why_no_plan: Callable[[Layer, Hardware], str | None]
    arithmetic: FixedPoint | None = None
    deny: Sequence[str] = ()
    numerics: str = "relay"
    idle: frozenset[str] = frozenset()
    kept: Mapping[str, str] = field(default_factory=dict)
    recorder: Recorder = field(default_factory=Recorder)


def qdq_forms() -> tuple[tuple[Pattern, Form], ...]:
    """Every form of every pattern, the more specific before the more general."""
    load_patterns()
    return _sorted_forms(patterns())


@functools.lru_cache(maxsize=1)
def _sorted_forms(table: tuple[Pattern, ...]) -> tuple[tuple[Pattern, Form], ...]:
    return forms_in_order(table, operators_of)


def operators_of(form: Form) -> tuple[str, ...]:
    """The operators of a form, with those of all its alternatives."""
    return tuple(sorted(map(operator_of, operators_in(form.pattern))))


def fusions(job: QdqJob, only: str = "") -> list[Fusion]:
    """The table for one partitioning, or the forms of one pattern; its checks report rejections to the job's
    recorder."""
    return [
        (f"{job.accelerator.name}.{pattern.name}", form.pattern, {}, functools.partial(_check, pattern, form, job))
        for pattern, form in qdq_forms()
        if only in ("", pattern.name)
    ]


def _check(pattern: Pattern, form: Form, job: QdqJob, context: Any) -> bool:
    found = QdqMatch.of(form, context.matched_expr, dict(context.matched_bindings.items()))
    if found is None or _is_read_outside(context):
        return False
    if not any(isinstance(one, relax.Var) for one in found.inputs):  # constants are in their reader's layer
        return False
    if pattern.name == "reshape" and job.idle.intersection(found.sources):
        job.recorder.reject(found.sources, _IDLE)
        return False
    layer = None
    try:
        layer = layer_of(pattern, found)
    except NotALayer as error:
        rejection: Rejection | None = Rejection(pattern.name, (error.broken,))
    except Unsupported as error:
        rejection = Rejection(pattern.name, near_miss=str(error))
    else:
        if layer is None:
            return False
        layer = in_numerics(layer, job.numerics)
        rejection = rejection_of(pattern, found.sources, layer, job)
    if rejection is None:
        return True
    job.recorder.reject(found.sources, rejection, layer)
    return False


def _is_read_outside(context: Any) -> bool:
    """Whether a value inside a match is read by others, too: then the match is no layer, but a smaller one may be."""
    inside = set(context.matched_bindings)
    return any(
        not isinstance(variable, relax.DataflowVar) or not inside.issuperset(context.var_usages.get(variable, ()))
        for variable, value in context.matched_bindings.items()
        if not value.same_as(context.matched_expr)
    )


def rejection_of(pattern: Pattern, sources: Sequence[str], layer: Layer, job: QdqJob) -> Rejection | None:
    """Why a layer of some operators of the model file is not offloaded, or None."""
    for name in (pattern.name, *sources):
        if name in job.deny:
            return Rejection(pattern.name, near_miss=f"kept on the host by deny={name!r}")
    reason = next((job.kept[name] for name in sources if name in job.kept), None)
    if reason is not None:
        return Rejection(pattern.name, near_miss=reason)
    broken = broken_rules(pattern, layer, job.accelerator)
    if broken:
        return Rejection(pattern.name, broken)
    problem = job.why_no_plan(layer, job.accelerator)
    return Rejection(pattern.name, near_miss=problem) if problem else None


def layer_of(pattern: Pattern, found: QdqMatch) -> Layer | None:
    """The layer of a match, with its weights in the fewest bits that hold them."""
    layer = parsed(pattern, found)
    return None if layer is None else with_least_bits(layer)


def composite_layer(composite: str, root: Any, values: Mapping[Any, Any]) -> tuple[Layer, QdqMatch] | None:
    """The layer of a composite whose result is the call `root`, and the match that it was read from, or None."""
    for pattern, form in qdq_forms():
        if pattern.name != composite:
            continue
        found = QdqMatch.of(form, root, values)
        layer = layer_of(pattern, found) if found is not None else None
        if found is not None and layer is not None:
            return layer, found
    return None


class LiveFusions(Sequence[Fusion]):
    """The table of one compiler, evaluated at each use: it includes patterns that are registered later."""

    def __init__(self, compiler: str, why_no_plan: Callable[[Layer, Hardware], str | None]) -> None:
        self.compiler, self.why_no_plan = compiler, why_no_plan

    def __len__(self) -> int:
        return len(qdq_forms())

    def __getitem__(self, index: Any) -> Any:
        return self._entries()[index]

    def __iter__(self) -> Iterator[Fusion]:
        return iter(self._entries())

    def _entries(self) -> list[Fusion]:
        return fusions(QdqJob(by_name(self.compiler), self.why_no_plan))
