"""The outcome of each source operator as plain data, from the module before and after partitioning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import tvm
from tvm import relay

from byoc_hw.frontend.relay.match import anchor_of, call_patterns, near_miss, pattern_operator, users_of
from byoc_hw.frontend.relay.qdq.operators import PRODUCTS
from byoc_hw.frontend.relay.record import regions
from byoc_hw.frontend.relay.sources import SourceOperator, calls_in_order, operator_name, source_names
from byoc_hw.frontend.relay.table import operators_of_forms, ordered_forms
from byoc_hw.frontend.source_operators import Placed
from byoc_hw.pattern import BrokenRule, Outcome, Recorder, Rejection


def outcomes(
    operators: Iterable[SourceOperator], before: relay.Function, after: tvm.IRModule, recorder: Recorder
) -> tuple[Outcome, ...]:
    """One outcome for each operator. `before` is `main` as it was matched against the patterns."""
    placed = _placed(after)
    reasons = _Reasons(before, recorder)
    return tuple(_outcome(operator, placed.get(operator.name, Placed()), reasons) for operator in operators)


def _placed(mod: tvm.IRModule) -> dict[str, Placed]:
    placed: dict[str, Placed] = {}
    for variable, region in regions(mod).items():
        for call in calls_in_order(region):
            if not isinstance(call.op, relay.Function):
                continue
            composite = str(call.op.attrs["Composite"]).partition(".")[2]
            for inner in calls_in_order(call.op):
                for name in source_names(inner.span):
                    entry = placed.setdefault(name, Placed())
                    entry.composites.append(composite)
                    entry.regions.append(variable.name_hint)
    for call in calls_in_order(mod["main"]):
        if isinstance(call.op, tvm.ir.Op):
            for name in source_names(call.span):
                placed.setdefault(name, Placed()).host.append(operator_name(call))
    return placed


def moved_outcomes(
    known: Iterable[Outcome], after: tvm.IRModule, said: Mapping[str, Sequence[Rejection]]
) -> tuple[Outcome, ...]:
    """Outcomes of operators of which some have moved to the host, for the reasons in `said`."""
    placed = _placed(after)
    found = []
    for outcome in known:
        now = placed.get(outcome.name, Placed())
        found.append(
            replace(
                outcome,
                placement=now.placement,
                composites=tuple(dict.fromkeys(now.composites)),
                regions=tuple(dict.fromkeys(now.regions)),
                rejections=tuple(dict.fromkeys((*outcome.rejections, *said.get(outcome.name, ())))),
            )
        )
    return tuple(found)


def _outcome(operator: SourceOperator, placed: Placed, reasons: _Reasons) -> Outcome:
    rejections, uncovered = reasons.of(operator.name, placed.host) if placed.host else ((), ())
    return Outcome(
        operator.name,
        operator.relay,
        placed.placement,
        tuple(dict.fromkeys(placed.composites)),
        tuple(dict.fromkeys(placed.regions)),
        rejections,
        uncovered,
        host_instructions=reasons.recorder.instructions.get(operator.name, 0) if placed.host else 0,
    )


_VIEWS = ("transpose", "reshape", "squeeze", "expand_dims", "nn.batch_flatten")


def _float_product(call: relay.Call) -> Rejection | None:
    """Why a convolution or matrix product that is no quantized operator stays on the host; None for other calls."""
    if operator_name(call) not in PRODUCTS or _of_integers(call):
        return None
    for what, operand in zip(("activations are", "weights are"), call.args, strict=False):
        while isinstance(operand, relay.Call) and operator_name(operand) in _VIEWS:
            operand = operand.args[0]
        if not isinstance(operand, relay.Call) or operator_name(operand) != "qnn.dequantize":
            rule = BrokenRule(f"{what} quantized to int8 or uint8", str(operand.checked_type.dtype))
            return Rejection(operator_name(call), (rule,))
        dtype = str(operand.args[0].checked_type.dtype)
        if dtype not in ("int8", "uint8"):
            return Rejection(operator_name(call), (BrokenRule(f"{what} quantized to int8 or uint8", dtype),))
        zero_point = operand.args[2]
        if isinstance(zero_point, relay.Constant) and len(set(zero_point.data.numpy().ravel().tolist())) > 1:
            rule = BrokenRule(f"{what} quantized with one zero point", "one for each channel")
            return Rejection(operator_name(call), (rule,))
    return Rejection(operator_name(call), (BrokenRule("its result is quantized", str(call.checked_type.dtype)),))


def _of_integers(call: relay.Call) -> bool:
    return operator_name(call) in PRODUCTS and call.args[0].checked_type.dtype in ("int8", "uint8")


_SHIFTED = Rejection(
    "",
    near_miss="a sum of integers is offloaded with its right_shift, clip and cast to int8, "
    'with numerics="relay", if it stays within 32 bits',
)


_REAL = {"qnn.quantize": "a real input", "qnn.dequantize": "a real output"}


_IDLE = "matches, but a region of nothing but reshapes is not worth a call"
_LEFT = "matches, but its parse leaves the operator to another pattern"


class _Reasons:
    """Why operators stayed on the host."""

    def __init__(self, function: relay.Function, recorder: Recorder) -> None:
        self.recorder = recorder
        self.forms = ordered_forms()
        self.covered = {name for _, operators in operators_of_forms() for name in operators}
        self.users: Mapping[relay.Expr, list[relay.Expr]] = users_of(function)
        self.calls: dict[str, list[relay.Call]] = {}
        for call in calls_in_order(function):
            for name in source_names(call.span):
                self.calls.setdefault(name, []).append(call)

    def of(self, source: str, host: list[str]) -> tuple[tuple[Rejection, ...], tuple[str, ...]]:
        """Rejections of the source operator, and its Relay operators that are in no pattern."""
        floats = [real for call in self.calls.get(source, ()) if (real := _float_product(call)) is not None]
        uncovered = tuple(dict.fromkeys(name for name in host if name not in self.covered and name not in PRODUCTS))
        recorded = self.recorder.rejections.get(source, [])
        if not recorded and any(map(_of_integers, self.calls.get(source, ()))):
            return (_SHIFTED,), uncovered
        if recorded or floats:
            return tuple(dict.fromkeys([*floats, *recorded])), uncovered
        misses = [
            miss for call in self.calls.get(source, ()) if operator_name(call) in host for miss in self._near(call)
        ]
        if not misses and not uncovered:
            misses = [Rejection("", near_miss=self._company(name)) for name in dict.fromkeys(host)]
        return tuple(misses), uncovered

    def _company(self, operator: str) -> str:
        """For an operator that is no anchor: the anchors with which it is offloaded."""
        if operator in _REAL:
            return f"{operator} is of {_REAL[operator]}: the accelerator has integers only"
        anchors = sorted(
            {
                anchor_of(form)
                for _, form in self.forms
                if operator in map(pattern_operator, call_patterns(form.pattern))
            }
        )
        return f"{operator} is offloaded only together with {', '.join(anchors)}"

    def _near(self, call: relay.Call) -> list[Rejection]:
        """The near miss of each pattern whose anchor is this operator, by the pattern's most general form."""
        misses: dict[str, str] = {}
        for pattern, form in self.forms:
            if anchor_of(form) == operator_name(call):
                misses[pattern.name] = near_miss(form, call, self.users)
        texts: dict[str, list[str]] = {}
        for composite, text in misses.items():
            texts.setdefault(text or (_IDLE if composite == "reshape" else _LEFT), []).append(composite)
        return [Rejection(" or ".join(composites), near_miss=text) for text, composites in texts.items()]
