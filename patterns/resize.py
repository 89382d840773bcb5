"""int8 rows and columns repeated or left out -> Resize.

    %0 = image.resize2d(%x)              method nearest_neighbor

nn.upsampling is rewritten to it before (`rewrite/moves.py`). Which input pixel an output pixel is, TVM's own code
says: it runs on an image of the pixels' numbers.
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

_LARGEST = 1 << 22
"""The most pixels of an image: more are not worth the time to compute their numbers."""


def to_resize(match: Match) -> Resize:
    """The layer of a matched resize."""
    call, name = match["image.resize2d"], read.layer_name(match.root)
    layout, coordinates = str(call.attrs.layout), str(call.attrs.coordinate_transformation_mode)
    if str(call.attrs.method) != "nearest_neighbor":
        raise NotALayer("resize method is nearest_neighbor", call.attrs.method)
    ifm = read.activation(match.inputs[0], f"{name}_ifm", layout)
    ofm = read.activation(match.root, name, layout)
    size, target = (ifm.shape[1], ifm.shape[2]), (ofm.shape[1], ofm.shape[2])
    _check_size(size, target, coordinates)
    rows, columns = _rows_and_columns(size, target, coordinates, str(call.attrs.rounding_method))
    tflite = all(
        _of_tflite(extent, len(indices), coordinates) == indices
        for extent, indices in zip(size, (rows, columns), strict=True)
    )
    return Resize(name, match.sources, ifm, ofm, rows=rows, columns=columns, tflite=tflite)


def _check_size(size: Pair, target: Pair, coordinates: str) -> None:
    pixels = max(size[0] * size[1], target[0] * target[1])
    if pixels > _LARGEST:
        raise NotALayer(f"an image has at most {_LARGEST} pixels", pixels)
    if min(*size, *target) < 1:
        raise NotALayer("an image has pixels", f"{size[0]} x {size[1]} to {target[0]} x {target[1]}")
    if coordinates == "align_corners" and min(target) < 2:  # TVM divides by 0
        raise NotALayer("an image with aligned corners has at least 2 rows and columns", f"{target[0]} x {target[1]}")


@lru_cache(maxsize=256)
def _rows_and_columns(
    size: Pair, target: Pair, coordinates: str, rounding: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The input's row for each row of the output, and the column for each column, as TVM computes them."""
    image = relay.const(np.arange(size[0] * size[1], dtype="int32").reshape(1, *size, 1))
    resized = relay.image.resize2d(image, target, None, "NHWC", "nearest_neighbor", coordinates, rounding)
    with tvm.transform.PassContext(opt_level=3):
        folded = relay.transform.FoldConstant()(tvm.IRModule.from_expr(resized))["main"].body
    numbers: Array = read.constant(folded).reshape(target)
    rows, columns = numbers[:, 0] // size[1], numbers[0] % size[1]
    if (numbers != rows[:, np.newaxis] * size[1] + columns).any():
        raise NotALayer("rows and columns are chosen one apart from the other", "others")
    return tuple(map(int, rows)), tuple(map(int, columns))


def _of_tflite(extent: int, target: int, coordinates: str) -> tuple[int, ...]:
    """The index for each of `target` pixels, as TFLite's reference kernel computes it, in float32."""
    corners, offset = coordinates == "align_corners", np.float32(0.5 if coordinates == "half_pixel" else 0)
    scale = np.float32(extent - 1) / np.float32(target - 1) if corners else np.float32(extent) / np.float32(target)
    places = (np.arange(target, dtype=np.float32) + offset) * scale
    rounded = np.floor(places + np.float32(0.5)) if corners else np.floor(places)
    return tuple(int(min(index, extent - 1)) for index in rounded)


register_pattern(
    "resize",
    Form(is_op("image.resize2d")(wildcard())),
    parse=to_resize,
    document="int8 resize and upsampling by nearest neighbours, to any size",
)
