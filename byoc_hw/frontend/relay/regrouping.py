"""Sums and products of float that TVM's SimplifyExpr regroups, as `(x + 1) * 3` to `x * 3 + 3`.

They have other bits then, as each step is rounded. The pass takes a hundred times as long as one that infers types, so
it is left out where it changes no value.
"""

from __future__ import annotations

from collections import defaultdict

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, on_main, rebuild_calls, with_main
from byoc_hw.frontend.relay.constant_folding import fold_constants
from byoc_hw.frontend.relay.constant_values import without_plain_constants
from byoc_hw.frontend.relay.neutral import neutral_operand, without_neutral
from byoc_hw.frontend.relay.semantics import golden_semantics
from byoc_hw.frontend.relay.sources import calls_in_order, operator_name

_OF_ONE_VALUE = ("zeros", "ones", "full")
_MOVES = ("reshape", "contrib_reverse_reshape", "transpose", "layout_transform", "squeeze", "expand_dims")
"""Operators that may cancel each other: what is in front of them and what is behind may become neighbours."""


def regrouped(mod: tvm.IRModule, target: str) -> tuple[tvm.IRModule, list[str]]:
    """A module in the operators that TVM computes for a target, without those of QNN and of training and those that
    change nothing, and with its float regrouped; and the passes that `relay.build` leaves out then."""
    plain = [
        relay.qnn.transform.Legalize(),
        relay.qnn.transform.CanonicalizeOps(),
        relay.transform.InferType(),
        relay.transform.SimplifyInference(),
        relay.transform.EliminateCommonSubexpr(),
        relay.transform.InferType(),
        on_main(without_plain_constants, "PlainConstants"),
    ]
    regrouping = [
        fold_constants(),
        relay.transform.FoldScaleAxis(),
        relay.transform.SimplifyExpr(),
        on_main(_calling_regions_once, "RegionsOnce"),
    ]
    left_out = ["SimplifyExpr", "SimplifyExprPostAlterOp"]
    with tvm.target.Target(target), golden_semantics(), tvm.transform.PassContext(opt_level=3):
        mod = tvm.transform.Sequential(plain)(mod)
        if not _may_regroup(mod["main"]):
            return with_main(mod, without_neutral(mod["main"])), left_out
        return tvm.transform.Sequential(regrouping)(mod), [*left_out, "FoldScaleAxis"]


def _calling_regions_once(main: relay.Function) -> relay.Function:
    """SimplifyExpr may compute `x` twice where it has `x * 3 + 3`."""
    called: dict[tuple[object, ...], relay.Call] = {}

    def once(call: relay.Call, arguments: list[relay.Expr]) -> relay.Call:
        new = called_with(call, arguments)
        return called.setdefault((call.op, *arguments), new) if isinstance(call.op, relay.GlobalVar) else new

    return rebuild_calls(main, once)


def _may_regroup(main: relay.Function) -> bool:
    """Whether SimplifyExpr may change a value of a type-checked function in the operators that TVM computes."""
    known = _Known()
    return any(known.regroups(call) for call in calls_in_order(main))


class _Known:
    """What is known of the calls so far: which are constant, and which are sums and products."""

    def __init__(self) -> None:
        self._constant: set[relay.Expr] = set()
        self._forms: dict[relay.Expr, set[str]] = defaultdict(set)

    def regroups(self, call: relay.Call) -> bool:
        """Whether a call is regrouped with those in front of it."""
        name, arguments = operator_name(call), list(call.args)
        if all(self._is_constant(argument) for argument in arguments):
            self._constant.add(call)
            return name in _OF_ONE_VALUE and _is_float(call)
        forms = [self._forms[argument] for argument in arguments]
        of_all = set().union(*forms)
        if name in _MOVES or neutral_operand(call) is not None:
            self._forms[call] = of_all
            return False
        if name in ("zeros_like", "ones_like", "full_like"):
            return _is_float(call)
        if name not in ("add", "multiply", "power"):
            return False
        if not _is_float(call):
            return str(call.checked_type.dtype) == "bool"
        return self._sums_or_multiplies(call, name, forms, of_all)

    def _sums_or_multiplies(self, call: relay.Call, name: str, forms: list[set[str]], of_all: set[str]) -> bool:
        products = sum("product" in one for one in forms)
        found = self._forms[call]
        if any(self._is_constant(argument) for argument in call.args):
            before = {"add": {"constant sum"}, "multiply": {"constant sum", "constant product"}}
            if before.get(name, set()) & of_all:
                return True
            found.add("constant sum" if name == "add" else "constant product")
        if name != "add":
            found.add("product")
        elif products == len(forms):
            found.add("sum of products")
        return name == "add" and products > 0 and "sum of products" in of_all

    def _is_constant(self, argument: relay.Expr) -> bool:
        return isinstance(argument, relay.Constant) or argument in self._constant


def _is_float(call: relay.Call) -> bool:
    return "float" in str(call.checked_type.dtype)
