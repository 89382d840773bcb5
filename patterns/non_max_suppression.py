"""Non-maximum suppression of float32 boxes -> Suppression.

%0 = vision.non_max_suppression(%boxes, %valid_count, %indices, most, threshold)     boxes

or, with return_indices,

%0 = vision.non_max_suppression(%boxes, %valid_count, %indices, most, threshold)     places, and their numbers
%1 = %0.0

The pass `orders` counts the places anew, so that the numbers of the operator are not needed.
"""

from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, is_tuple_get_item, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Suppression
from byoc_hw.pattern import Form, NotALayer, register_pattern
from byoc_hw.tensor import Tensor


def to_suppression(match: Match) -> Suppression:
    """The layer of a matched suppression: `indices` are read for the places of boxes only."""
    call = match["vision.non_max_suppression"]
    attrs, name = call.attrs, read.layer_name(call)
    boxes, valid_count, indices, most, threshold = call.args
    placed = bool(attrs.return_indices)
    match.inputs[:] = [boxes, valid_count, *([indices] if placed else [])]
    for what, limit, dtype in (("max_output_size", most, "int32"), ("iou_threshold", threshold, "float32")):
        if str(limit.checked_type.dtype) != dtype:
            raise NotALayer(f"{what} is {dtype}", str(limit.checked_type.dtype))
    return Suppression(
        name,
        match.sources,
        read.activation(boxes, f"{name}_boxes"),
        _result(match.root, name),
        valid_count=read.activation(valid_count, f"{name}_count"),
        indices=read.activation(indices, f"{name}_indices") if placed else None,
        most=int(read.constant(most)),
        threshold=float(read.constant(threshold)),
        top_k=int(attrs.top_k),
        coord_start=int(attrs.coord_start),
        score_index=int(attrs.score_index),
        id_index=int(attrs.id_index),
        force_suppress=bool(attrs.force_suppress),
        invalid_to_bottom=bool(attrs.invalid_to_bottom),
    )


def _result(root: relay.Expr, name: str) -> Tensor:
    """Places and their numbers together are no layer: as a tensor without dimensions they break its rules."""
    return Tensor(name, (), "int32") if isinstance(root.checked_type, relay.TupleType) else read.activation(root, name)


def _suppressed() -> DFPattern:
    return is_op("vision.non_max_suppression")(wildcard(), wildcard(), wildcard(), is_constant(), is_constant())


register_pattern(
    "non_max_suppression",
    [Form(is_tuple_get_item(_suppressed(), 0)), Form(_suppressed())],
    parse=to_suppression,
    document="suppression of float32 boxes with constant limits, as behind detectors; boxes, or their places",
)
