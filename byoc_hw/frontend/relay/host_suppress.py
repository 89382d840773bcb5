"""vision.non_max_suppression on the host, as one C function of ours: TVM orders the boxes by a function of its runtime.

    %0 = vision.non_max_suppression(%boxes, %valid_count, %indices, %most, %threshold)

becomes

    %0 = byoc_hw.host_suppress(%boxes, %valid_count, %most, %threshold)                       float32 boxes

or, with return_indices,

    %0 = byoc_hw.host_suppress_places(%boxes, %valid_count, %indices, %most, %threshold)      int32 places, counts
"""

from __future__ import annotations

from tvm import relay

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.host_operators import Kernel, kernel_called
from byoc_hw.frontend.relay.read import constant
from byoc_hw.frontend.relay.sources import described, operator_name
from byoc_hw.program import Suppress

_CORNERS = 4


def suppressed(call: relay.Call, arguments: list[relay.Expr], kernel: Kernel) -> relay.Expr | None:
    """What computes a non-maximum suppression with a function of ours; None for another call.

    `Unsupported` for operands of other types than float32 and int32, and for indices beyond a box.
    """
    if operator_name(call) != "vision.non_max_suppression":
        return None
    work = _suppress(call)
    problem = next(filter(None, (*_operand_problems(call, work), *_index_problems(work))), None)
    if problem is not None:
        raise Unsupported(f"{described(call)} on the host: {problem}")
    boxes, valid_count, indices, *limits = arguments
    read = [boxes, valid_count, *([indices] if work.places else []), *map(_vector, limits)]
    of = call.checked_type
    types = list(of.fields) if isinstance(of, relay.TupleType) else [of]
    return kernel_called(kernel(work), read, types, call.span)


def _suppress(call: relay.Call) -> Suppress:
    attrs = call.attrs
    batches, boxes, values = (int(extent) for extent in call.args[0].checked_type.shape)
    return Suppress(
        batches,
        boxes,
        values,
        int(attrs.top_k),
        int(attrs.coord_start),
        int(attrs.score_index),
        int(attrs.id_index),
        bool(attrs.force_suppress),
        bool(attrs.invalid_to_bottom),
        bool(attrs.return_indices),
    )


def _operand_problems(call: relay.Call, work: Suppress) -> list[str]:
    wanted = [("boxes", "float32"), ("valid_count", "int32")]
    wanted += [("indices", "int32" if work.places else "")]  # else they are not read
    wanted += [("max_output_size", "int32"), ("iou_threshold", "float32")]
    found = [str(operand.checked_type.dtype) for operand in call.args]
    return [
        f"{name} is {dtype}: got {given}"
        for (name, dtype), given in zip(wanted, found, strict=True)
        if dtype not in ("", given)
    ]


def _index_problems(work: Suppress) -> list[str]:
    last = work.values - 1
    places = {
        "coord_start": (work.coord_start, 0, work.values - _CORNERS),
        "score_index": (work.score_index, 0, last),
        "id_index": (work.id_index, -1, last),
    }
    return [
        f"{name} is from {low} to {high}, with {work.values} values a box: got {value}"
        for name, (value, low, high) in places.items()
        if not low <= value <= high
    ]


def _vector(number: relay.Expr) -> relay.Expr:
    """A number as a vector: TVM writes constants without a shape into expressions, and has no pointer to them."""
    if isinstance(number, relay.Constant):
        return relay.const(constant(number).reshape(1))
    return relay.reshape(number, (1,))
