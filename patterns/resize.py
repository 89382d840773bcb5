"""int8 rows and columns repeated or left out -> Resize.

    %0 = image.resize2d(%x)              method nearest_neighbor

nn.upsampling is rewritten to it before (`rewrite/moves.py`). Which input pixel an output pixel is, TVM's own code
says: it runs on an image of the pixels' numbers. In Relax the same.
"""

from functools import lru_cache

import numpy as np
import tvm

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Resize
from byoc_hw.pattern import Form, NotALayer, register_pattern
from byoc_hw.tensor import Array, Pair, Tensor

DOCUMENT = "int8 resize and upsampling by nearest neighbours, to any size"

_LARGEST = 1 << 22
"""The most pixels of an image: more are not worth the time to compute their numbers."""


def resize_layer(
    name: str, sources: tuple[str, ...], tensors: tuple[Tensor, Tensor], method: str, coordinates: str, rounding: str
) -> Resize:
    """The layer of a resize from one image to another, both NHWC."""
    if method != "nearest_neighbor":
        raise NotALayer("resize method is nearest_neighbor", method)
    size, target = ((tensor.shape[1], tensor.shape[2]) for tensor in tensors)
    _check_size(size, target, coordinates)
    rows, columns = _rows_and_columns(size, target, coordinates, rounding)
    tflite = all(
        _of_tflite(extent, len(indices), coordinates) == indices
        for extent, indices in zip(size, (rows, columns), strict=True)
    )
    return Resize(name, sources, *tensors, rows=rows, columns=columns, tflite=tflite)


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
    image = np.arange(size[0] * size[1], dtype="int32").reshape(1, *size, 1)
    numbers = _resized(image, target, coordinates, rounding).reshape(target)
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


if HAS_RELAY:
    from tvm import relay
    from tvm.relay.dataflow_pattern import is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def to_resize(match: Match) -> Resize:
        """The layer of a matched resize."""
        call, name = match["image.resize2d"], read.layer_name(match.root)
        attrs, layout = call.attrs, str(call.attrs.layout)
        ifm = read.activation(match.inputs[0], f"{name}_ifm", layout)
        tensors = ifm, read.activation(match.root, name, layout)
        coordinates, rounding = str(attrs.coordinate_transformation_mode), str(attrs.rounding_method)
        return resize_layer(name, match.sources, tensors, str(attrs.method), coordinates, rounding)

    def _resized(image: Array, target: Pair, coordinates: str, rounding: str) -> Array:
        resized = relay.image.resize2d(
            relay.const(image), target, None, "NHWC", "nearest_neighbor", coordinates, rounding
        )
        with tvm.transform.PassContext(opt_level=3):
            return read.constant(relay.transform.FoldConstant()(tvm.IRModule.from_expr(resized))["main"].body)

    register_pattern(
        "resize",
        Form(is_op("image.resize2d")(wildcard())),
        parse=to_resize,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from tvm import relax

    from byoc_hw.frontend.relax.bindings import folded
    from byoc_hw.frontend.relax.qdq_forms import any_value, operator
    from byoc_hw.frontend.relax.qdq_match import QdqMatch
    from byoc_hw.frontend.relax.qdq_windows import check_nhwc

    def resize_of(match: QdqMatch) -> Resize | None:
        """The layer of a matched resize; None for one of real values."""
        attrs, name = match.root.attrs, match.name
        if match.is_real:
            return None
        check_nhwc(str(attrs.layout))
        tensors = match.activation(match.inputs[0], f"{name}_ifm"), match.activation(match.root, name)
        coordinates, rounding = str(attrs.coordinate_transformation_mode), str(attrs.rounding_method)
        return resize_layer(name, match.sources, tensors, str(attrs.method), coordinates, rounding)

    def _resized(image: Array, target: Pair, coordinates: str, rounding: str) -> Array:
        return folded(
            relax.op.image.resize2d(relax.const(image), target, None, "NHWC", "nearest_neighbor", coordinates, rounding)
        )

    register_pattern(
        "resize",
        Form(operator("image.resize2d", any_value(), any_value()), anchor="image.resize2d"),
        parse=resize_of,
        document=DOCUMENT,
    )
