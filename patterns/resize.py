"""int8 rows and columns repeated or left out -> Resize.

    %0 = image.resize2d(%x)              method nearest_neighbor; or nn.upsampling

Which input pixel an output pixel is, TVM's own code says: it runs on an image of the pixels' numbers.
"""

from functools import lru_cache

import numpy as np
import tvm
from tvm import relay
from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import Match
from byoc_hw.graph import Resize
from byoc_hw.pattern import Form, NotALayer, register_pattern
from byoc_hw.tensor import Array, Pair

OPERATORS = ("image.resize2d", "nn.upsampling")

_LARGEST = 1 << 22
"""The most pixels of an image: more are not worth the time to compute their numbers."""


def to_resize(match: Match) -> Resize:
    """The layer of a matched resize."""
    call, name, layout = match.calls[-1], read.layer_name(match.root), str(match.calls[-1].attrs.layout)
    if str(call.attrs.method) != "nearest_neighbor":
        raise NotALayer("resize repeats pixels (nearest_neighbor), without arithmetic", call.attrs.method)
    ifm = read.activation(match.inputs[0], f"{name}_ifm", layout)
    ofm = read.activation(match.root, name, layout)
    size, target = (ifm.shape[1], ifm.shape[2]), (ofm.shape[1], ofm.shape[2])
    pixels = max(size[0] * size[1], target[0] * target[1])
    if pixels > _LARGEST:
        raise NotALayer(f"an image has at most {_LARGEST} pixels", pixels)
    if min(*size, *target) < 1:
        raise NotALayer("an image has pixels", f"{ifm.shape} and {ofm.shape}")
    attrs = (
        tuple(str(call.attrs[key]) for key in ("coordinate_transformation_mode", "rounding_method"))
        if (match.get("image.resize2d"))
        else ()
    )
    numbers = _numbers(size, target, attrs)
    rows, columns = numbers[:, 0] // size[1], numbers[0] % size[1]
    if (numbers != rows[:, np.newaxis] * size[1] + columns).any():
        raise NotALayer("rows and columns are chosen one apart from the other", "others")
    return Resize(name, match.sources, ifm, ofm, rows=tuple(map(int, rows)), columns=tuple(map(int, columns)))


@lru_cache(maxsize=256)
def _numbers(size: Pair, target: Pair, attrs: tuple[str, ...]) -> Array:
    """The number of the input pixel at each pixel of the output."""
    image = relay.const(np.arange(size[0] * size[1], dtype="int32").reshape(1, *size, 1))
    if attrs:
        resized = relay.image.resize2d(image, target, None, "NHWC", "nearest_neighbor", *attrs)
    else:
        factors = target[0] / size[0], target[1] / size[1]
        resized = relay.nn.upsampling(image, *factors, layout="NHWC")
    with tvm.transform.PassContext(opt_level=3):
        folded = relay.transform.FoldConstant()(tvm.IRModule.from_expr(resized))["main"].body
    return read.constant(folded).reshape(target)


register_pattern(
    "resize",
    [Form(is_op(operator)(wildcard()), anchor=operator) for operator in OPERATORS],
    parse=to_resize,
    document="int8 resize and upsampling by nearest neighbours, to any size",
)
