"""A convolution whose windows lie side by side is one of single pixels, of which each has all values of a window.

    %0 = dequantize(%x)                              %0 = strided_slice(%x)      where rows or columns are left over
    %1 = nn.conv2d(%0, %w, strides = kernel)         %1 = reshape, permute_dims, reshape
                                                     %2 = dequantize(%1)
                                                     %3 = nn.conv2d(%2, %v)      1 x 1

So where the accelerator lacks such strides, as for the patches that vision transformers begin with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from byoc_hw.frontend.relax.bindings import (
    Assignment,
    call_on,
    names_in,
    returned_by,
    steps_of,
    with_steps,
    without_unused,
)
from byoc_hw.frontend.relax.forms import QdqJob
from byoc_hw.frontend.relax.qdq_match import padding_of, pair_of
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of, is_call


def with_patches(
    mod: tvm.IRModule, job: QdqJob, besides: frozenset[str] = frozenset()
) -> tuple[tvm.IRModule, frozenset[str]]:
    """The module with such convolutions in the second form, and their names in the model file; `besides` stay."""
    besides |= frozenset(job.kept)
    limits, main = job.accelerator.limits.get("conv2d"), mod["main"]
    if limits is None or limits.strides is None:
        return mod, frozenset()
    values = dict(steps_of(main))
    steps: list[Assignment] = []
    names: set[str] = set()
    for variable, value in values.items():
        if _is_of_patches(value, values, limits.strides) and besides.isdisjoint(names_in(value.span)):
            names.update(names_in(value.span))
            value = _Patches(variable, value, values, steps).convolution()
        steps.append((variable, value))
    if not names:
        return mod, frozenset()
    kept = without_unused(steps, returned_by(main.body.body))
    return tvm.IRModule({mod.get_global_var("main"): with_steps(main, kept)}, attrs=mod.attrs), frozenset(names)


def _is_of_patches(call: Any, values: Mapping[Any, Any], strides: tuple[int, ...]) -> bool:
    if not is_call(call, "nn.conv2d") or set(pair_of(call.attrs.strides)) <= set(strides):
        return False
    image, kernel = (values.get(one) for one in call.args)
    if not is_call(image, "dequantize") or not is_call(kernel, "dequantize"):
        return False
    attrs, layout = call.attrs, str(call.attrs.kernel_layout)
    side = [extents_of(kernel)[layout.index(letter)] for letter in "HW"]
    by_filter = array_of(kernel.args[1]).size == 1 or int(kernel.attrs.axis) % 4 == layout.index("O")
    return (
        (str(attrs.data_layout), str(attrs.out_layout)) in (("NHWC", "NHWC"), ("NHWC", ""))
        and pair_of(side) == pair_of(attrs.strides)
        and int(attrs.groups) == 1
        and pair_of(attrs.dilation) == (1, 1)
        and not any(padding_of(attrs.padding))
        and array_of(image.args[1]).size == 1
        and isinstance(kernel.args[0], Literal)
        and dtype_of(image.args[0]) == dtype_of(kernel.args[0]) == "int8"
        and by_filter
    )


class _Patches:
    """One convolution of patches; the calls that its new form needs are added to `steps`."""

    def __init__(self, variable: Any, conv: Any, values: Mapping[Any, Any], steps: list[Assignment]) -> None:
        self._variable, self._conv, self._steps = variable, conv, steps
        self._image, self._kernel = (values[one] for one in conv.args)

    def convolution(self) -> Any:
        """The convolution of 1 x 1."""
        pixels = self._pixels()
        image = self._bound(self._image, [pixels, *self._image.args[1:]], extents_of(pixels), dtype_of(self._image))
        layout = str(self._conv.attrs.kernel_layout)
        weights = array_of(self._kernel.args[0]).transpose([layout.index(letter) for letter in "OHWI"])
        flat = relax.const(np.ascontiguousarray(weights.reshape(len(weights), -1, 1, 1)))
        real = relax.op.dequantize(flat, *self._kernel.args[1:], axis=0)
        kernel = self._bound(real, real.args, extents_of(flat), dtype_of(self._kernel), self._kernel.span)
        made = relax.op.nn.conv2d(image, kernel, data_layout="NHWC", kernel_layout="OIHW", out_layout="NHWC")
        return call_on(made, made.args, self._variable.ty, self._conv.span)

    def _pixels(self) -> Any:
        """The stored values of each window as the channels of a pixel."""
        stored, (down, along) = self._image.args[0], pair_of(self._conv.attrs.strides)
        batch, _, _, channels = extents_of(stored)
        _, height, width, _ = extents_of(self._variable)
        used = (batch, height * down, width * along, channels)
        if used != extents_of(stored):
            stored = self._moved(relax.op.strided_slice(stored, [1, 2], [0, 0], used[1:3], [1, 1]), used)
        split = (batch, height, down, width, along, channels)
        order = (0, 1, 3, 2, 4, 5)
        stored = self._moved(relax.op.reshape(stored, split), split)
        stored = self._moved(relax.op.permute_dims(stored, list(order)), tuple(split[axis] for axis in order))
        joined = (batch, height, width, down * along * channels)
        return self._moved(relax.op.reshape(stored, joined), joined)

    def _moved(self, call: Any, shape: tuple[int, ...]) -> Any:
        return self._bound(call, call.args, shape, "int8")

    def _bound(self, call: Any, operands: Any, shape: tuple[int, ...], dtype: str, span: Any = None) -> Any:
        fresh = relax.DataflowVar(f"{self._variable.name}_patches", relax.TensorType(shape, dtype))
        self._steps.append((fresh, call_on(call, operands, fresh.ty, span or self._conv.span)))
        return fresh
