"""int8 average over a window, or over neighbouring axes -> Pool2d.

%0 = cast(%x, int32)
%1 = nn.avg_pool2d(%0)               or nn.avg_pool1d, nn.global_avg_pool2d
%2 = cast(%1, int8)
%3 = clip(%2)                        [optional]

%0 = cast(%x, int32)
%1 = mean(%0, axis=[1, 2])           height and width, or other axes that are neighbours
%2 = qnn.requantize(%1)              int8; or cast
%3 = clip(%2)                        [optional]

In Relax:

%0 = astype(%x, int32)
%1 = nn.avg_pool2d(%0)
%2 = astype(%1, int8)
%3 = clip(%2)                        [optional]

%0 = mean(dequantize(%x))            or nn.avg_pool2d
%1 = quantize(%0)                    int8
%2 = clip(%1)                        [optional]
"""

from typing import Any

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Pool2d
from byoc_hw.pattern import Form, register_pattern

DOCUMENT = "int8 average pooling, in one dimension and global too; mean over neighbouring axes, with its requantize"

if HAS_RELAY:
    from tvm.relay.dataflow_pattern import DFPattern, is_op

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match
    from byoc_hw.frontend.relay.reduction import reduced

    def _averaged(operator: str) -> DFPattern:
        return read.clipped(is_op("cast")(is_op(operator)(read.widened())).has_attr({"dtype": "int8"}))

    def to_avg_pool2d(match: Match) -> Pool2d:
        """The layer of a matched average, over a window."""
        line = match.get("nn.avg_pool1d")
        if line is not None:
            return read.pool1d(match, line, "avg", count_include_pad=bool(line.attrs.count_include_pad))
        pool = match["nn.avg_pool2d"]
        return read.pool2d(match, pool, "avg", count_include_pad=bool(pool.attrs.count_include_pad))

    def to_global_avg_pool2d(match: Match) -> Pool2d:
        """The layer of a matched global average."""
        return read.global_pool2d(match, match["nn.global_avg_pool2d"])

    def _parse(match: Match) -> Pool2d:
        if match.get("mean") is not None:
            return reduced(match, match["mean"], "avg")
        return to_avg_pool2d(match) if match.get("nn.global_avg_pool2d") is None else to_global_avg_pool2d(match)

    register_pattern(
        "avg_pool2d",
        [
            Form(_averaged("nn.avg_pool2d"), anchor="nn.avg_pool2d"),
            Form(_averaged("nn.avg_pool1d"), anchor="nn.avg_pool1d"),
            Form(_averaged("nn.global_avg_pool2d"), anchor="nn.global_avg_pool2d"),
            Form(read.rescaled(is_op("mean")(read.widened())), anchor="mean"),
            Form(_averaged("mean"), anchor="mean"),
        ],
        parse=_parse,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import any_value, clipped_forms, operator, real, stored_forms
    from byoc_hw.frontend.relax.qdq_match import QdqMatch
    from byoc_hw.frontend.relax.qdq_windows import pool2d_of, reduced_of

    def avg_pool2d_of(match: QdqMatch) -> Pool2d:
        """The layer of a matched average, over a window or over axes."""
        if match.get("mean") is not None:
            return reduced_of(match, "mean", "avg")
        return pool2d_of(match, "nn.avg_pool2d", "avg")

    def averaged() -> Any:
        """An average of int32, as stored values."""
        widened = operator("astype", any_value())
        return operator("astype", operator("nn.avg_pool2d", widened))

    register_pattern(
        "avg_pool2d",
        [
            *clipped_forms(averaged, "nn.avg_pool2d"),
            *stored_forms(lambda: operator("nn.avg_pool2d", real()), "nn.avg_pool2d"),
            *stored_forms(lambda: operator("mean", real()), "mean"),
        ],
        parse=avg_pool2d_of,
        document=DOCUMENT,
    )
