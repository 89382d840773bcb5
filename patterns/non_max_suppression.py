"""Non-maximum suppression of float32 boxes -> Suppression.

%0 = vision.non_max_suppression(%boxes, %valid_count, %indices, most, threshold)     boxes, without their places
"""

from tvm.relay.dataflow_pattern import is_constant, is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Suppression
from byoc_hw.pattern import Form, NotALayer, register_pattern


def to_suppression(match: Match) -> Suppression:
    """The layer of a matched suppression: `indices` are for the places of boxes, and not read."""
    call, name = match["vision.non_max_suppression"], read.layer_name(match.root)
    attrs = call.attrs
    if bool(attrs.return_indices):
        raise NotALayer("boxes are returned", "their places")
    boxes, valid_count, _, most, threshold = call.args
    match.inputs[:] = [boxes, valid_count]
    for what, limit, dtype in (("max_output_size", most, "int32"), ("iou_threshold", threshold, "float32")):
        if str(limit.checked_type.dtype) != dtype:
            raise NotALayer(f"{what} is {dtype}", str(limit.checked_type.dtype))
    return Suppression(
        name,
        match.sources,
        read.activation(boxes, f"{name}_boxes"),
        read.activation(call, name),
        valid_count=read.activation(valid_count, f"{name}_count"),
        most=int(read.constant(most)),
        threshold=float(read.constant(threshold)),
        top_k=int(attrs.top_k),
        coord_start=int(attrs.coord_start),
        score_index=int(attrs.score_index),
        id_index=int(attrs.id_index),
        force_suppress=bool(attrs.force_suppress),
        invalid_to_bottom=bool(attrs.invalid_to_bottom),
    )


register_pattern(
    "non_max_suppression",
    Form(is_op("vision.non_max_suppression")(wildcard(), wildcard(), wildcard(), is_constant(), is_constant())),
    parse=to_suppression,
    document="suppression of float32 boxes with constant limits, as behind detectors",
)
