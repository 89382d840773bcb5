"""Modules whose images are NCHW, as importers of ONNX and PyTorch files make them, in NHWC.

Convolutions, pooling and resizing get their images in NHWC, and what is element-wise behind them follows; the others
get them back in NCHW. Dimensions are moved where values are stored. Transposes that meet cancel out. Of one spatial
dimension, NCW, values are images of height 1.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from byoc_hw.frontend.relax.bindings import (
    Assignment,
    call_on,
    operands_in,
    returned_by,
    steps_of,
    with_operands,
    with_steps,
    without_unused,
)
from byoc_hw.frontend.relax.real_functions import REAL_FUNCTIONS
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of, is_call, name_of

_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_LAYOUTS = {
    "nn.conv1d": ("data_layout", "NCW"),
    "nn.conv2d": ("data_layout", "NCHW"),
    **dict.fromkeys(("nn.max_pool1d", "nn.avg_pool1d"), ("layout", "NCW")),
    **dict.fromkeys(("nn.max_pool2d", "nn.avg_pool2d", "image.resize2d"), ("layout", "NCHW")),
}
"""Operators of images, their attribute with the order of the dimensions, and the order that is changed."""

_FOLLOWS = {*REAL_FUNCTIONS, "dequantize", "quantize"}
_REDUCED = {"max": relax.op.max, "mean": relax.op.mean, "sum": relax.op.sum}


def in_nhwc(function: Any) -> Any:
    """The function with all images of windowed operators in NHWC."""
    steps = [(variable, _with_windows(value)) for variable, value in steps_of(function)]
    if not any(_is_nchw(value) for _, value in steps):
        return with_steps(function, steps)
    moved = _Moved(dict(steps))
    for variable, value in steps:
        moved.step(variable, value)
    results = returned_by(function.body.body)
    by = {result: moved.plain(result, moved.values[result].span) for result in results if result in moved.twins}
    result = with_operands(function.body.body, by)
    return with_steps(function, without_unused(moved.steps, returned_by(result)), result)


def _is_nchw(value: Any) -> bool:
    if not is_call(value, *_LAYOUTS):
        return False
    attribute, layout = _LAYOUTS[name_of(value)]
    return str(getattr(value.attrs, attribute)) == layout


def _with_windows(value: Any) -> Any:
    """A pooling to a given size as one of windows, or as a mean, if all windows are of one size; else the value."""
    if not is_call(value, "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d"):
        return value
    layout, shape, results = str(value.attrs.layout), extents_of(value.args[0]), extents_of(value)
    places = [place for place, letter in enumerate(layout) if letter in "HW"]
    if any(shape[place] % results[place] for place in places):
        return value
    if all(results[place] == 1 for place in places):
        made = relax.op.mean(value.args[0], axis=places, keepdims=True)
    else:
        window = [shape[place] // results[place] for place in places]
        pool = relax.op.nn.avg_pool2d if len(places) > 1 else relax.op.nn.avg_pool1d
        made = pool(value.args[0], window, window, layout=layout)
    return call_on(made, made.args, value.ty, value.span)


class _Moved:
    """One pass over a function's bindings. `twins` are the NHWC forms of its variables, by variable."""

    def __init__(self, values: dict[Any, Any]) -> None:
        self.values = values
        self.twins: dict[Any, Any] = {}
        self.steps: list[Assignment] = []
        self._plain: dict[Any, Any] = {}

    def step(self, variable: Any, value: Any) -> None:
        """Add a binding, or its NHWC form alone."""
        made = self._nhwc(variable, value)
        if made is not None:
            self._bind(variable, made, value.span)
            return
        by = {one: self.plain(one, value.span) for one in operands_in(value) if one in self.twins}
        self.steps.append((variable, with_operands(value, by)))

    def plain(self, variable: Any, span: Any) -> Any:
        """The NCHW form of a variable that has one in NHWC."""
        if variable not in self._plain and self._is_call(variable, "dequantize"):
            call = self.values[variable]
            if call.args[0] in self.twins:
                stored = self.plain(call.args[0], span)
                self._plain[variable] = self._emitted(call, [stored, *call.args[1:]], variable.ty, span)
        if variable not in self._plain:
            moved = relax.op.permute_dims(self.twins[variable], list(_TO_NCHW))
            shape = _with_height(extents_of(variable))
            plain = self._emitted(moved, moved.args, relax.TensorType(shape, dtype_of(variable)), span)
            if len(extents_of(variable)) == 3:
                line = relax.op.reshape(plain, list(extents_of(variable)))
                plain = self._emitted(line, line.args, variable.ty, span)
            self._plain[variable] = plain
        return self._plain[variable]

    def _nhwc(self, variable: Any, value: Any) -> Any | None:
        """The call on NHWC forms, or None for one that stays as it is."""
        if not isinstance(value, relax.Call):
            return None
        name, span = name_of(value), value.span
        if _is_nchw(value):
            weights = self._kernel(value.args[1], span) if name == "nn.conv1d" else None
            if name == "nn.conv1d" and weights is None:
                return None
            return _windowed(value, self._twin(value.args[0], span), weights)
        tensors = [one for one in operands_in(value) if dtype_of(one)]
        if not any(one in self.twins for one in tensors):
            return None
        if name in _REDUCED and _is_over_height_and_width(value):
            return _REDUCED[name](self._twin(value.args[0], span), axis=[1, 2], keepdims=True)
        if name == "concat":
            axis = _places(len(extents_of(variable))).index(int(value.attrs.axis) % len(extents_of(variable)))
            return relax.op.concat([self._twin(one, span) for one in tensors], axis)
        if name == "nn.pad":
            given = [*map(int, value.attrs.pad_width), 0, 0]
            widths = [each for axis in _places(len(extents_of(variable))) for each in given[2 * axis :][:2]]
            mode, fill = str(value.attrs.pad_mode), float(value.attrs.pad_value)
            return relax.op.nn.pad(self._twin(value.args[0], span), widths, mode, fill)
        rank = len(extents_of(variable)) if name in _FOLLOWS else 0
        if rank not in (3, 4):
            return None
        operands = [self._operand(one, rank, span) if dtype_of(one) else one for one in value.args]
        return None if any(one is None for one in operands) else _again(value, operands)

    def _operand(self, operand: Any, rank: int, span: Any) -> Any | None:
        """An operand of an element-wise operator of some rank; None for one that has no form for NHWC."""
        bias = self._stored_bias(operand)
        if bias is not None:
            return bias
        constant = self._constant(operand)
        if constant is None:
            return self._twin(operand, span) if len(extents_of(operand)) == rank else None
        if constant.size == 1:
            return relax.const(constant.reshape(()))
        if constant.ndim < rank - 1 or constant.shape[1 - rank] != constant.size:
            return None
        return relax.const(constant.reshape(1, 1, 1, -1))

    def _stored_bias(self, operand: Any) -> Any | None:
        """The constant vector behind a dequantize that an operand has a value for each channel from, or None."""
        if not self._is_call(operand, "reshape"):
            return None
        vector = self.values[operand].args[0]
        if not self._is_call(vector, "dequantize") or not isinstance(self.values[vector].args[0], Literal):
            return None
        channels, shape = extents_of(vector), extents_of(operand)
        ones = ((1,), (1, 1))
        return vector if any(shape in ((*channels, *each), (1, *channels, *each)) for each in ones) else None

    def _constant(self, operand: Any) -> Any | None:
        """The values of a constant, perhaps under another shape."""
        if isinstance(operand, Literal):
            return array_of(operand)
        if self._is_call(operand, "reshape"):
            inner = self._constant(self.values[operand].args[0])
            return None if inner is None else inner.reshape(extents_of(operand))
        return None

    def _twin(self, variable: Any, span: Any) -> Any:
        if variable not in self.twins:
            if self._is_call(variable, "dequantize") and array_of(self.values[variable].args[1]).size == 1:
                call = self.values[variable]
                self._bind(variable, _again(call, [self._twin(call.args[0], call.span), *call.args[1:]]), call.span)
            else:
                image = variable
                if len(extents_of(variable)) == 3:
                    shape = _with_height(extents_of(variable))
                    made = relax.op.reshape(variable, shape)
                    image = self._emitted(made, made.args, relax.TensorType(shape, dtype_of(variable)), span)
                self._bind(variable, relax.op.permute_dims(image, list(_TO_NHWC)), span)
        return self.twins[variable]

    def _kernel(self, operand: Any, span: Any) -> Any | None:
        """Constant weights of a convolution over one dimension for one over images, or None for others."""
        value = self.values.get(operand, operand)
        stored = value.args[0] if is_call(value, "dequantize") else value
        if not isinstance(stored, Literal):
            return None
        data = array_of(stored)
        shape = (*data.shape[:2], 1, data.shape[2])
        weights = relax.const(data.reshape(shape))
        if value is stored:
            return weights
        made = relax.op.dequantize(weights, *value.args[1:], axis=int(value.attrs.axis) % 3)
        return self._emitted(made, made.args, relax.TensorType(shape, dtype_of(value)), value.span)

    def _bind(self, variable: Any, call: Any, span: Any) -> None:
        shape = _with_height(extents_of(variable))
        of = relax.TensorType([shape[axis] for axis in _TO_NHWC], dtype_of(variable))
        self.twins[variable] = self._emitted(call, call.args, of, span)

    def _emitted(self, call: Any, operands: Any, of: Any, span: Any) -> Any:
        made = call_on(call, operands, of, span)
        fresh = relax.DataflowVar(f"moved_{len(self.steps)}", of)
        self.steps.append((fresh, made))
        return fresh

    def _is_call(self, variable: Any, name: str) -> bool:
        return is_call(self.values.get(variable), name)


def _with_height(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an image of height 1 for one of three dimensions, NCW."""
    return shape if len(shape) == 4 else (*shape[:2], 1, *shape[2:])


def _places(rank: int) -> tuple[int, ...]:
    """The dimensions of NHWC as those of NCHW, or of NCW; the height that this lacks comes last."""
    return _TO_NHWC if rank == 4 else (0, 3, 2, 1)


def _is_over_height_and_width(reduction: Any) -> bool:
    """Whether a reduction of an NCHW image gives one of one pixel, or of NCW one value for each channel."""
    axes, rank = reduction.attrs.axis, len(extents_of(reduction.args[0]))
    places = axes is not None and sorted(int(axis) % rank for axis in axes)
    return bool(reduction.attrs.keepdims) and places == [2, 3][: rank - 2]


def _windowed(value: Any, image: Any, weights: Any = None) -> Any:
    """A convolution, pooling or resizing of an image in NHWC; of one dimension with these weights."""
    attrs, name = value.attrs, name_of(value)
    if name == "image.resize2d":
        modes = str(attrs.method), str(attrs.coordinate_transformation_mode), str(attrs.rounding_method)
        return relax.op.image.resize2d(image, value.args[1], None, "NHWC", *modes)
    line = _LAYOUTS[name][1] == "NCW"
    strides, dilation = ([*[1] * line, *map(int, given)] for given in (attrs.strides, attrs.dilation))
    padding = [int(width) for width in attrs.padding]
    if line:
        padding = [0, padding[0], 0, padding[1]]
    if name in ("nn.conv1d", "nn.conv2d"):
        layout = "OIHW" if line else str(attrs.kernel_layout)
        kernel = value.args[1] if weights is None else weights
        groups = int(attrs.groups)
        return relax.op.nn.conv2d(image, kernel, strides, padding, dilation, groups, "NHWC", layout, "NHWC")
    pool = relax.op.nn.max_pool2d if "max" in name else relax.op.nn.avg_pool2d
    window = [*[1] * line, *map(int, attrs.pool_size)]
    ends = bool(attrs.ceil_mode), bool(attrs.count_include_pad)
    return pool(image, window, strides, padding, dilation, *ends, "NHWC", "NHWC")


def _again(call: Any, operands: Any) -> Any:
    return relax.Call(call.op, list(operands), call.attrs, call.ty_args)
