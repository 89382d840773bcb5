"""Checks one pattern with random operators: inside of every limit it takes them, bit for bit as Relay computes them;
just outside it declines them, and says the limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import tvm
from tvm import relay

from byoc_hw.accelerator import REFERENCE
from byoc_hw.arguments import asked, check_whole
from byoc_hw.authoring.knobs import ANY, Edge, Knobs, edges
from byoc_hw.authoring.operators import Maker
from byoc_hw.authoring.testing import QUICK, inputs_of, together
from byoc_hw.compiler import build, explain, partition_for_hwlib
from byoc_hw.errors import ByocHwError, InvalidInput
from byoc_hw.frontend.pattern_files import load_patterns
from byoc_hw.frontend.relay.failures import TvmFailed
from byoc_hw.frontend.relay.front_end import operator_module
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.operator_check import TFLITE_TOLERANCE
from byoc_hw.pattern import Pattern, patterns
from byoc_hw.report.capabilities import layer_kind
from byoc_hw.report.marks import markdown
from byoc_hw.soc import Hardware, accelerators_of

_TOGETHER = 16
"""Operators in one project: it takes about as long to build as one of them."""

_DRAWS = 6
"""Random operators that are drawn for each that is wanted: some break other limits."""


@dataclass(frozen=True)
class LimitCheck:
    """What was tried of one limit: operators inside that were taken and equal, and outside that were declined.

    `note` says what was found instead, where nothing could be tried. `failure` is the first case that is wrong.
    """

    limit: str
    inside: int
    outside: int
    note: str = ""
    failure: str = ""

    @property
    def result(self) -> str:
        return "wrong" if self.failure else self.note or "ok"


@dataclass(frozen=True)
class PatternCheck:
    """The limits of a pattern on an accelerator, as they were tried with one seed; true if all is right."""

    pattern: str
    label: str
    numerics: str
    seed: int
    limits: tuple[LimitCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether every operator inside was taken and equal, and every one outside declined for its limit."""
        return not any(one.failure for one in self.limits)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        rows = [(one.limit, str(one.inside), str(one.outside), one.result) for one in self.limits]
        wrong = [f"{one.limit}\n{one.failure}" for one in self.limits if one.failure]
        head = f"{self.pattern} on {self.label} (numerics {self.numerics}), seed {self.seed}"
        return "\n\n".join([head, markdown(("limit", "inside", "outside", "result"), rows), *wrong])


def check_pattern(name: str, accelerator: Hardware = REFERENCE, *, seed: int = 0, count: int = 4) -> PatternCheck:
    """Fuzz one registered pattern: `count` random operators inside, and as many just outside, of each limit.

    The limits are those of the accelerator for the layer kind, and the pattern's own. Operators are made of the
    pattern's forms, or of its `samples`. An operator inside is taken, and the C of its project gives what Relay gives,
    bit for bit; with the layer kind softmax, which follows TFLite, up to 1 step from it. The same seed tries the same.

    Raises `InvalidInput` for a name that is not registered and a layer kind that the accelerator lacks, `Unsupported`
    for forms with an operator that no random one is known of.
    """
    check_whole("seed", seed, 0)
    check_whole("count", count, 1)
    load_patterns()
    pattern = next((one for one in patterns() if one.name == name), None)
    if pattern is None:
        raise InvalidInput(f"a pattern is one of {', '.join(one.name for one in patterns())}: got {name!r}")
    kind = layer_kind(pattern)
    limits = accelerator.limits.get(kind)
    if limits is None:
        raise InvalidInput(f"{accelerator.label} has the layer kinds {', '.join(accelerator.limits)}: got {kind}")
    several = [one for one in accelerators_of(accelerator) if kind in one.limits]
    if any(one.limits[kind] != limits for one in several):
        names = ", ".join(one.name for one in several)
        raise InvalidInput(f"accelerators of a chip have the same limits of {kind}, or are checked one by one: {names}")
    tries = _Tries(pattern, accelerator, kind, seed)
    found = [tries.random(count * 2)]
    if pattern.samples is None:
        texts = [rule.text for rule in limits.rules()]
        for edge in edges(limits):
            text = edge.free or next((text for text in texts if text.startswith(edge.rule)), edge.rule)
            found += [one for one in [tries.edge(edge, text, count)] if one is not None]
    found += [tries.own_limit(rule.text, count) for rule in pattern.limits]
    return PatternCheck(name, accelerator.label, tries.numerics, seed, tries.computed(found))


@dataclass(frozen=True)
class _Trial:
    """A random operator, and what partitioning made of it: whether the pattern took it, else which rules it broke."""

    expr: relay.Expr
    taken: bool
    broken: tuple[str, ...]
    said: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    """The check of a limit, and the operators that are to be computed."""

    check: LimitCheck
    inside: list[_Trial]


class _Tries:
    """Tries random operators of one pattern."""

    def __init__(self, pattern: Pattern, accelerator: Hardware, kind: str, seed: int) -> None:
        self.pattern, self.accelerator, self.depthwise = pattern, accelerator, kind == "depthwise_conv2d"
        self.numerics = "tflite" if kind == "softmax" else "relay"
        self.company = kind == "reshape"  # a region of nothing else goes back to the host
        self.rng = np.random.default_rng(seed)
        kept = (pattern.name, _COMPANY) if self.company else (pattern.name,)
        self.others = [one.name for one in patterns() if one.name not in kept]

    # ------------------------------------------------ operators

    def trial(self, knobs: Knobs, knob: str) -> _Trial | None:
        """A random operator of these knobs, with one of them; None where there is none, as of a type that TVM lacks."""
        if self.pattern.samples is not None:
            what = f"samples of pattern {self.pattern.name}"
            return self.tried(operator_module(asked(what, self.pattern.samples, self.rng)))
        maker = Maker(self.rng, knobs, self.depthwise)
        form = self.pattern.forms[self.rng.integers(len(self.pattern.forms))]
        try:
            expr = maker.expr(form.pattern)
            mod = operator_module(_in_company(maker, expr) if self.company else expr)
        except (tvm.TVMError, TvmFailed):
            return None
        changed = {one.name for one in fields(knobs) if getattr(knobs, one.name) != getattr(ANY, one.name)}
        return self.tried(mod) if {*changed, *([knob] if knob else [])} <= maker.used else None

    def tried(self, mod: tvm.IRModule) -> _Trial:
        """What partitioning makes of an operator."""
        outcomes = explain(self.partitioned(mod)).outcomes
        rejections = [one for found in outcomes for one in found.rejections if one.composite == self.pattern.name]
        return _Trial(
            mod["main"].body,
            any(self.pattern.name in found.composites for found in outcomes),
            tuple(rule.rule for one in rejections for rule in one.broken),
            tuple(str(one) for one in rejections),
        )

    def partitioned(self, mod: tvm.IRModule) -> tvm.IRModule:
        """With this pattern alone: what others would take says nothing of it."""
        return partition_for_hwlib(mod, accelerator=self.accelerator, numerics=self.numerics, deny=self.others)

    def trials(self, some: Sequence[Knobs], count: int, knob: str = "") -> Iterator[_Trial]:
        """Random operators that have a knob, the values in turn."""
        for number in range(count * _DRAWS if some else 0):
            found = self.trial(some[number % len(some)], knob)
            if found is not None:
                yield found

    # ------------------------------------------------ limits

    def random(self, count: int) -> _Found:
        """Operators of any knobs that most hardware takes."""
        taken = [one for one in self.trials((ANY,), count) if one.taken][:count]
        failure = "" if taken else f"none of {count * _DRAWS} random operators is taken"
        return _Found(LimitCheck("any operator", len(taken), 0, "", failure), taken)

    def edge(self, edge: Edge, text: str, count: int) -> _Found | None:
        """One limit of the accelerator; None where no operator of the pattern has to do with it."""
        inside: list[_Trial] = []
        outside, failure, note = 0, "", ""
        wanted = max(count, len(edge.inside))
        for one in self.trials(edge.inside, wanted, edge.knob):
            if one.taken:
                inside.append(one)
            elif _broken(one, edge):
                failure = f"an operator inside is declined: {'; '.join(one.said)}\n{_text(one.expr)}"
            if failure or len(inside) == wanted:
                break
        wanted = max(count, len(edge.outside))
        for one in self.trials(edge.outside, wanted, edge.knob):
            if one.taken:
                failure = failure or f"an operator outside is taken:\n{_text(one.expr)}"
            elif _broken(one, edge):
                outside += 1
            elif one.said:
                note = f"outside: {one.said[0]}"
            if failure or outside == wanted:
                break
        if not (outside or note or failure or inside):
            return None
        note = "" if outside else note or "ok, nothing is outside"
        return _Found(LimitCheck(text, len(inside), outside, note, failure), inside)

    def own_limit(self, rule: str, count: int) -> _Found:
        """A limit of the pattern: what breaks it is declined with its text, and what does not is computed."""
        inside: list[_Trial] = []
        outside = 0
        for one in self.trials((ANY, Knobs(batch=2), Knobs(broadcast=True)), count * 2):
            if one.taken and len(inside) < count:
                inside.append(one)
            outside += rule in one.broken
        note = "" if outside else "ok, nothing outside came up"
        return _Found(LimitCheck(rule, len(inside), min(outside, count), note), inside)

    # ------------------------------------------------ results

    def computed(self, found: Sequence[_Found]) -> tuple[LimitCheck, ...]:
        """The checks of limits, with the first operator of each that was taken and is not computed as Relay does."""
        operators = [one.expr for limit in found for one in limit.inside]
        differing: dict[relay.Expr, str | None] = {}
        for first in range(0, len(operators), _TOGETHER):
            some = operators[first : first + _TOGETHER]
            difference = self.difference(some)
            if difference != "":
                alone = {expr: self.difference([expr]) for expr in some}
                wrong = any(alone.values()) or difference is None
                differing |= alone if wrong else {some[0]: f"{difference}, of {len(some)} operators in one project"}
        return tuple(_with_results(limit, differing) for limit in found)

    def difference(self, operators: Sequence[relay.Expr]) -> str | None:
        """How the results of operators differ from Relay's: "" if they do not, None where TVM itself has none."""
        mod = together([_renamed(expr, number) for number, expr in enumerate(operators)])
        inferences = inputs_of(mod)
        try:
            reference = Reference(mod)
            expected = [reference.run(inputs) for inputs in inferences]
        except TvmFailed:
            return None
        try:
            results = build(self.partitioned(mod)).run_batch(inferences, toolchain=QUICK)
        except ByocHwError as error:
            return f"the operator is taken, but {error}"
        tolerance = TFLITE_TOLERANCE if self.numerics == "tflite" else 0
        for wanted, result in zip(expected, results, strict=True):
            for got, want in zip(result.outputs, wanted, strict=True):
                far = np.abs(got.astype(np.float64) - want.astype(np.float64)) > tolerance
                if far.any():
                    where = tuple(int(index) for index in np.argwhere(far)[0])
                    return f"the result differs from Relay's at {where}: got {got[where]}, expected {want[where]}"
        return ""


def _with_results(limit: _Found, differing: Mapping[relay.Expr, str | None]) -> LimitCheck:
    """The check of a limit once its operators were computed; those of which TVM has no result do not count."""
    check, results = limit.check, [(one.expr, differing.get(one.expr, "")) for one in limit.inside]
    wrong = [f"{difference}\n{_text(expr)}" for expr, difference in results if difference]
    compared = sum(difference is not None for _, difference in results)
    note = check.note if compared == len(results) else f"TVM has no result of {len(results) - compared}"
    return replace(check, inside=compared, note=note, failure=check.failure or next(iter(wrong), ""))


_COMPANY = "pad"
"""The composite of what `_in_company` puts behind an operator."""


def _in_company(maker: Maker, expr: relay.Expr) -> relay.Expr:
    """An operator with a pad behind it."""
    shape, _ = maker.typed(expr)
    return relay.nn.pad(expr, [(0, 1)] * len(shape), 0.0)


def _broken(trial: _Trial, edge: Edge) -> list[str]:
    return [rule for rule in trial.broken if rule.startswith(edge.rule)]


def _renamed(expr: relay.Expr, number: int) -> relay.Expr:
    """The operator with inputs that are called otherwise than those of others."""
    names = {
        one: relay.Var(f"o{number}_{one.name_hint}", one.type_annotation) for one in relay.analysis.free_vars(expr)
    }
    return relay.bind(expr, names)


def _text(expr: relay.Expr) -> str:
    """An operator as Relay's text."""
    return str(operator_module(expr)["main"])
