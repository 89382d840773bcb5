"""sort, argsort and topk on the host: a C function of ours finds the places, for which TVM calls its runtime.

    %0 = topk(%x, k=3, axis=1)              values and places

becomes

    %0 = byoc_hw.host_order(%x)             int32 places of the first 3 along axis 1
    %1 = gather(%x, axis=1, %0)
    (%1, cast(%0))

and sort is its gather, argsort its places.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relay

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.host_operators import Kernel, kernel_called
from byoc_hw.frontend.relay.sources import described, operator_name, with_span
from byoc_hw.program import ORDERED_TYPES, Sort

_PLACES = ("int32", "int64", "float32")


def ordered(call: relay.Call, arguments: list[relay.Expr], kernel: Kernel) -> relay.Expr | None:
    """What computes a sort, argsort or topk with a function of ours; None for another call.

    `Unsupported` for elements or places of other types, for another axis, and for more elements than there are.
    """
    name = operator_name(call)
    if name not in ("sort", "argsort", "topk"):
        return None
    (data,) = arguments
    axis, work = _sort(call)
    shape = [int(extent) for extent in call.args[0].checked_type.shape]
    shape[axis] = work.count
    places = kernel_called(kernel(work), [data], [relay.TensorType(shape, "int32")], call.span)
    if name == "sort":
        return _gathered(data, axis, places, call)
    of_type = _of_type(places, call)
    if name == "argsort" or call.attrs.ret_type == "indices":
        return of_type
    if call.attrs.ret_type == "values":
        return _gathered(data, axis, places, call)
    return relay.Tuple([_gathered(data, axis, places, call), of_type], call.span)


def _gathered(data: relay.Expr, axis: int, places: relay.Expr, call: relay.Call) -> relay.Expr:
    return with_span(relay.gather(data, axis, places), call.span)


def _of_type(places: relay.Expr, call: relay.Call) -> relay.Expr:
    dtype = str(call.attrs.dtype)
    _check(call, dtype in _PLACES, f"places are one of {', '.join(_PLACES)}", dtype)
    return places if dtype == "int32" else with_span(relay.cast(places, dtype), call.span)


def _sort(call: relay.Call) -> tuple[int, Sort]:
    """The axis, and what is to be ordered along it."""
    of = call.args[0].checked_type
    shape, dtype = [int(extent) for extent in of.shape], str(of.dtype)
    _check(call, dtype in ORDERED_TYPES, f"elements are one of {', '.join(ORDERED_TYPES)}", dtype)
    rank, given = len(shape), int(call.attrs.axis)
    _check(call, -rank <= given < rank, f"axis is one of the {rank} of the elements", given)
    axis = given % rank
    extent = shape[axis]
    wanted = int(call.attrs.k) if operator_name(call) == "topk" else 0
    _check(call, wanted <= extent, f"k is at most the {extent} elements of axis {axis}", wanted)
    return axis, Sort(
        dtype,
        math.prod(shape[:axis]),
        extent,
        math.prod(shape[axis + 1 :]),
        wanted if wanted > 0 else extent,
        not bool(call.attrs.is_ascend),
    )


def _check(call: relay.Call, allowed: bool, rule: str, found: Any) -> None:
    if not allowed:
        raise Unsupported(f"{described(call)} on the host: {rule}: got {found}")
