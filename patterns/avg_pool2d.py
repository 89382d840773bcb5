"""int8 average over a window, or over height and width -> Pool2d.

%0 = cast(%x, int32)
%1 = nn.avg_pool2d(%0)               or nn.avg_pool1d, nn.global_avg_pool2d
%2 = cast(%1, int8)
%3 = clip(%2)                        [optional]

%0 = cast(%x, int32)
%1 = mean(%0, axis=[1, 2])           height and width
%2 = qnn.requantize(%1)              int8
%3 = clip(%2)                        [optional]
"""

from tvm.relay.dataflow_pattern import DFPattern, is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Pool2d
from byoc_hw.pattern import Check, Form, limit, register_pattern


def _widened() -> DFPattern:
    return is_op("cast")(wildcard()).has_attr({"dtype": "int32"})


def _averaged(operator: str) -> DFPattern:
    return read.clipped(is_op("cast")(is_op(operator)(_widened())).has_attr({"dtype": "int8"}))


def _mean() -> DFPattern:
    return read.clipped(is_op("qnn.requantize")(is_op("mean")(_widened()), *read.constants(4)))


def to_avg_pool2d(match: Match) -> Pool2d:
    """The layer of a matched average, over a window."""
    line = match.get("nn.avg_pool1d")
    if line is not None:
        return read.pool1d(match, line, "avg", count_include_pad=bool(line.attrs.count_include_pad))
    pool = match["nn.avg_pool2d"]
    return read.pool2d(match, pool, "avg", count_include_pad=bool(pool.attrs.count_include_pad))


def to_mean(match: Match) -> Pool2d:
    """The layer of a matched mean over height and width, with its requantize."""
    mean, requantize = match["mean"], match["qnn.requantize"]
    layout = read.mean_layout(mean)
    name = read.layer_name(mean)
    act_min, act_max = read.clip_range(match)
    ifm = read.activation(
        match.inputs[0], f"{name}_ifm", layout, read.scalar_quantization(requantize.args[1], requantize.args[2])
    )
    ofm = read.activation(match.root, name, quantization=read.requantize_output(requantize))
    return Pool2d(
        name=name,
        source=match.sources,
        ifm=ifm,
        ofm=read.reshaped(ofm, (ifm.shape[0], 1, 1, ifm.shape[3])),
        mode="avg",
        kernel=(ifm.shape[1], ifm.shape[2]),
        rescaled=True,
        act_min=act_min,
        act_max=act_max,
    )


def to_global_avg_pool2d(match: Match) -> Pool2d:
    """The layer of a matched global average."""
    return read.global_pool2d(match, match["nn.global_avg_pool2d"])


@limit("a mean with its requantize is rounded upward: TFLite's own fixed point is another one")
def upward_mean(pool: Pool2d) -> Check:
    """TFLite folds the division by the count into the scale; the array divides first."""
    return Check(pool.rounding, not pool.rescaled or pool.rounding == "upward")


def _parse(match: Match) -> Pool2d:
    if match.get("mean") is not None:
        return to_mean(match)
    return to_avg_pool2d(match) if match.get("nn.global_avg_pool2d") is None else to_global_avg_pool2d(match)


register_pattern(
    "avg_pool2d",
    [
        Form(_averaged("nn.avg_pool2d"), anchor="nn.avg_pool2d"),
        Form(_averaged("nn.avg_pool1d"), anchor="nn.avg_pool1d"),
        Form(_averaged("nn.global_avg_pool2d"), anchor="nn.global_avg_pool2d"),
        Form(_mean(), anchor="mean"),
    ],
    parse=_parse,
    limits=[upward_mean],
    document="int8 average pooling, in one dimension and global too; mean over height and width with its requantize",
)
