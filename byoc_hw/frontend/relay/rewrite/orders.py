"""sort, argsort and topk in terms of int32 places and gather; a suppression without operands that it does not read.

    %0 = topk(%x, k=3, axis=1)              values and places

becomes

    %0 = topk(%x, k=3, axis=1)              int32 places
    %1 = gather(%x, axis=1, %0)
    (%1, cast(%0))

and sort is a gather at the places of an argsort. Of a suppression that returns places, with their numbers,

    %0 = vision.non_max_suppression(...)    places, then -1; and how many there are

the numbers are the count of those that are not -1, and only the places are its result. For chips with an accelerator
that puts in order, or suppresses.
"""

from __future__ import annotations

import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, each_call
from byoc_hw.frontend.relay.read import is_static
from byoc_hw.frontend.relay.session import Session
from byoc_hw.frontend.relay.sources import operator_name, with_span
from byoc_hw.graph import Ordering, Suppression
from byoc_hw.soc import Soc


def with_orders(job: Session) -> tvm.transform.Pass:
    """Rewrite each such operator whose result the session's accelerator may compute."""
    kinds = job.accelerator.limits if isinstance(job.accelerator, Soc) else ()

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        name = operator_name(call)
        if name in ("sort", "argsort", "topk") and Ordering.kind in kinds and is_static(call.args[0].checked_type):
            return _ordered(name, call, arguments[0])
        if name == "vision.non_max_suppression" and Suppression.kind in kinds:
            return _suppressed(call, arguments)
        return called_with(call, arguments)

    return each_call(rebuild, "WithOrders")


def _ordered(name: str, call: relay.Call, data: relay.Expr) -> relay.Expr:
    attrs = call.attrs
    axis, rises = int(attrs.axis), bool(attrs.is_ascend)
    if name == "topk":
        places = relay.topk(data, int(attrs.k), axis, "indices", rises, "int32")
    else:
        places = relay.argsort(data, axis, rises, "int32")
    places = with_span(places, call.span)
    if name == "argsort":
        return _of_type(places, call)
    values = with_span(relay.gather(data, axis % len(call.args[0].checked_type.shape), places), call.span)
    if name == "sort" or attrs.ret_type == "values":
        return values
    if attrs.ret_type == "indices":
        return _of_type(places, call)
    return relay.Tuple([values, _of_type(places, call)], call.span)


def _of_type(places: relay.Expr, call: relay.Call) -> relay.Expr:
    dtype = str(call.attrs.dtype)
    return places if dtype == "int32" else with_span(relay.cast(places, dtype), call.span)


def _suppressed(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    if call.attrs.return_indices:
        places = relay.TupleGetItem(called_with(call, arguments), 0, call.span)
        there = with_span(relay.greater_equal(places, relay.const(0)), call.span)
        counts = relay.sum(with_span(relay.cast(there, "int32"), call.span), axis=1, keepdims=True)
        return relay.Tuple([places, with_span(counts, call.span)], call.span)
    boxes, valid_count, _, *limits = arguments
    return called_with(call, [boxes, valid_count, valid_count, *limits])
