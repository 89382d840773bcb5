"""The API of the files in `patterns/`: `register_pattern`, `limit`; and the live table of patterns.

A pattern has the dataflow patterns that match one layer (`forms`), the function that reads a match as a
layer (`parse`), and its own limits (`limits`). Limits of the hardware are data of the `Accelerator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from byoc_hw.arguments import errors_of, shown
from byoc_hw.errors import PatternError
from byoc_hw.graph import Layer, Softmax
from byoc_hw.host_costs import host_instructions
from byoc_hw.limits import Check, Rule
from byoc_hw.soc import Hardware

__all__ = ["BrokenRule", "Check", "Form", "NotALayer", "Pattern", "Rejection", "limit", "patterns", "register_pattern"]


@dataclass(frozen=True)
class Form:
    """One way in which a layer appears in a model.

    `pattern` is a TVM dataflow pattern. `anchor` names its main operator, by default the innermost
    one. A model operator of that name that stays on the host is compared with this form to report how
    far the match got.
    """

    pattern: Any
    anchor: str = ""


@dataclass(frozen=True, eq=False)
class Pattern:
    """A registered composite. `parse(match)` returns the layer, or None if another pattern handles the match.

    `samples(rng)` is a random operator that it may match, as a Relay expression; None where its forms say enough.
    """

    name: str
    forms: tuple[Form, ...]
    parse: Callable[[Any], Layer | None]
    limits: tuple[Rule, ...]
    before: tuple[str, ...]
    document: str
    samples: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class BrokenRule:
    """A rule that an operator breaks, and the value found."""

    rule: str
    found: str

    def __str__(self) -> str:
        return f"{self.rule}: got {self.found}"


@dataclass(frozen=True)
class Rejection:
    """Why an operator did not become part of a composite: broken rules, or how far the match got."""

    composite: str
    broken: tuple[BrokenRule, ...] = ()
    near_miss: str = ""

    def __str__(self) -> str:
        reason = self.near_miss or "; ".join(map(str, self.broken))
        return f"{self.composite}: {reason}" if self.composite else reason


class NotALayer(Exception):
    """Raised by `parse` where a matched call cannot be represented as the layer; reported as a broken rule."""

    def __init__(self, rule: str, found: object) -> None:
        super().__init__(f"{rule}: got {found}")
        self.broken = BrokenRule(rule, str(found))


_table: dict[str, Pattern] = {}


def patterns() -> tuple[Pattern, ...]:
    """Every registered pattern, in the order of registration."""
    return tuple(_table.values())


def limit(rule: str) -> Callable[[Callable[[Any], Check]], Rule]:
    """Make a limit of a function from layer to `Check`; `rule` is its message and its documentation.

    Write it as the state that is required: "bias is a constant".
    """

    def decorate(check: Callable[[Any], Check]) -> Rule:
        return Rule(rule, check)

    return decorate


def register_pattern(
    name: str,
    forms: Any,
    *,
    parse: Callable[[Any], Layer | None],
    limits: Iterable[Rule] = (),
    before: Iterable[str] = (),
    document: str = "",
    samples: Callable[[Any], Any] | None = None,
) -> Pattern:
    """Add a composite to the live table; partitioning uses it from now on.

    `forms` is a TVM dataflow pattern, a `Form`, or a sequence of either. Those with more operators
    are tried first; `before` names patterns over the same operators that this one precedes.
    `parse(match)` returns the layer, None if another pattern handles the match, or raises `NotALayer`.
    `document` is shown in the generated table of supported operators. `samples(rng)`, with a numpy generator, returns a
    random operator that the pattern may match, as a Relay expression: for `check-pattern`, of forms with operators that
    it does not know.
    Raises `PatternError` for a name that is taken or that is no identifier, and for arguments of another type.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise PatternError(f"pattern name is an identifier: got {shown(name)}")
    if name in _table:
        raise PatternError(f"pattern {name!r} is registered twice")
    several = forms if isinstance(forms, Sequence) else (forms,)
    if not several:
        raise PatternError(f"pattern {name!r} has at least one form: got none")
    made = tuple(form if isinstance(form, Form) else Form(form) for form in several)
    rules, others = _listed(limits), _listed(before)
    for fits, rule, value in (
        (callable(parse), "parse is a function of the match", parse),
        (all(isinstance(one, Rule) for one in rules), "limits are functions that limit(...) decorates", limits),
        (all(isinstance(one, str) for one in others), "before is a list of names", before),
        (isinstance(document, str), "document is a string", document),
        (samples is None or callable(samples), "samples is a function of a generator, or None", samples),
    ):
        if not fits:
            raise PatternError(f"pattern {name!r}: {rule}: got {shown(value)}")
    pattern = Pattern(name, made, parse, rules, others, document, samples)
    _table[name] = pattern
    return pattern


def _listed(values: Any) -> tuple[Any, ...]:
    """The values of a list; of another thing one that nobody takes."""
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else (None,)


def unregister_pattern(name: str) -> None:
    """Remove a pattern from the table, for example when a notebook cell is run twice, or in a test."""
    if _table.pop(name, None) is None:
        raise PatternError(f"pattern {name!r} is not registered")


def broken_rules(pattern: Pattern, layer: Layer, accelerator: Hardware) -> tuple[BrokenRule, ...]:
    """Every limit of the hardware and of the pattern that the layer breaks, with the value found."""
    with _errors_of(f"pattern {pattern.name!r}: its layer {layer.name} is none"):
        unsound = tuple(BrokenRule(*problem) for problem in layer.unsound())
        if unsound:
            return unsound
        checks = [
            *accelerator.broken_rules(layer),
            *((rule, _checked(pattern, rule, layer)) for rule in pattern.limits),
        ]
        broken = [BrokenRule(rule.text, str(check.found)) for rule, check in checks if not check.allowed]
        return tuple(broken) or tuple(BrokenRule(*problem) for problem in layer.problems())


def _errors_of(what: str) -> AbstractContextManager[None]:
    """Let an error in what a pattern's author wrote be a `PatternError` that says so."""
    return errors_of(what, PatternError, but=(NotALayer,))


def _checked(pattern: Pattern, rule: Rule, layer: Layer) -> Check:
    """What a limit of a pattern says of a layer. `PatternError` where it fails, or says no `Check`."""
    what = f"pattern {pattern.name!r}: limit {rule.text!r} of {layer.name}"
    with _errors_of(what):
        check = rule.check(layer)
    if not isinstance(check, Check):
        raise PatternError(f"{what} returns a Check: got {shown(check)}")
    return check


def parsed(pattern: Pattern, match: Any) -> Layer | None:
    """The layer of a match by a pattern, or None. `PatternError` where its `parse` fails, or returns something else."""
    with _errors_of(f"pattern {pattern.name!r}: its parse fails"):
        layer = pattern.parse(match)
    if layer is None:
        return None
    if not isinstance(layer, Layer):
        raise PatternError(f"pattern {pattern.name!r}: its parse returns a layer, or None: got {shown(layer)}")
    if not isinstance(layer.name, str):
        raise PatternError(f"pattern {pattern.name!r}: the name of a layer is a string: got {shown(layer.name)}")
    if not isinstance(layer.source, tuple) or not all(isinstance(one, str) for one in layer.source):
        raise PatternError(
            f"pattern {pattern.name!r}: source of a layer is a tuple of names: got {shown(layer.source)}"
        )
    kind: Any = type(layer)
    hints = _hints(kind)
    for entry in fields(layer):
        value = getattr(layer, entry.name)
        if not _fits(value, hints[entry.name]):
            of = f"pattern {pattern.name!r}: {entry.name} of its layer {layer.name}"
            raise PatternError(f"{of} is of type {entry.type}: got {shown(value)}")
    return layer


_hints = cache(get_type_hints)


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a field's type."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        each = parts[:1] * len(value) if isinstance(value, tuple) and parts[-1] is Ellipsis else parts
        return isinstance(value, tuple) and len(value) == len(each) and all(map(_fits, value, each))
    if hint is int:
        return isinstance(value, int | np.integer)
    if hint is float:
        return isinstance(value, int | float | np.integer | np.floating)
    kind = origin or hint
    return not isinstance(kind, type) or isinstance(value, kind)


@dataclass
class Recorder:
    """The rejections of one partitioning by source operator, as plain data for the report.

    `instructions` has about what the host takes for a layer that was rejected, by the same operators.
    """

    rejections: dict[str, list[Rejection]] = field(default_factory=dict)
    instructions: dict[str, int] = field(default_factory=dict)

    def reject(self, sources: Iterable[str], rejection: Rejection, layer: Layer | None = None) -> None:
        """Record, without duplicates, that a composite does not cover these source operators, and the layer it is."""
        for source in sources:
            known = self.rejections.setdefault(source, [])
            if rejection not in known:
                known.append(rejection)
            if layer is not None and _is_computable(layer):
                self.instructions.setdefault(source, host_instructions(layer))


def _is_computable(layer: Layer) -> bool:
    """Whether the host can compute a layer: a softmax also in TVM's arithmetic, which is none of the layer's."""
    if any(layer.unsound()):
        return False
    return not any((replace(layer, rounding="tflite") if isinstance(layer, Softmax) else layer).problems())


@dataclass(frozen=True)
class Outcome:
    """Where one operator of the model file was placed, and why.

    `relay` lists the Relay operators that it was imported as. `placement` is "accelerator", "host",
    "split" (in part on each), "folded" (computed at compile time) or "stops" (the front end cannot import the
    operator, and so not the model; `rejections` say why). `composites` and `regions` name
    the composites and regions that contain it. `rejections` say why operators stayed on the host, and
    `uncovered` lists its Relay operators that are in no pattern. `host_instructions` is about what the host takes
    for the layer that was rejected, 0 if there is none. `macs` are its multiplications with additions, and `nbytes` the
    bytes of the tensors that it reads and writes; both are 0 where they are not known. `reads` are the operators whose
    results it reads. With numerics "tflite", `tvm_arithmetic` lists those on the host whose results are TVM's, and may
    not be TFLite's.
    """

    name: str
    relay: tuple[str, ...]
    placement: str
    composites: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    uncovered: tuple[str, ...] = ()
    tvm_arithmetic: tuple[str, ...] = ()
    host_instructions: int = 0
    macs: int = 0
    nbytes: int = 0
    reads: tuple[str, ...] = ()

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Outcome:
        """The inverse of `dataclasses.asdict`, also after a round trip through JSON. Other entries are left out."""
        known: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in _fields_of(cls, plain).items()
        }
        known["rejections"] = tuple(
            Rejection(
                entry["composite"],
                tuple(BrokenRule(**_fields_of(BrokenRule, rule)) for rule in entry["broken"]),
                entry["near_miss"],
            )
            for entry in plain["rejections"]
        )
        return cls(**known)


def _fields_of(kind: type[Outcome | BrokenRule], plain: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that a dataclass has fields for."""
    return {one.name: plain[one.name] for one in fields(kind) if one.name in plain}
