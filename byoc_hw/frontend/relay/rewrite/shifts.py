"""Sums that are shifted to int8, as `relay.quantize` makes them, are requantized by powers of two.

    %0 = nn.conv2d(%x, W)                int32; or nn.dense
    %1 = add(%0, b)                      [optional; or nn.bias_add]
    %2 = nn.relu(%1)                     [optional]
    %3 = add(%2, 2^(s-1))                [optional]
    %4 = right_shift(%3, s)
    %5 = clip(%4, a, b)                  within -128 .. 127
    %6 = cast(%5, "int8")
    %7 = annotation.stop_fusion(%6)      [optional]

becomes

    %0 = qnn.conv2d(%x, W)               int32; or qnn.dense
    %1 = nn.bias_add(%0, c)              where c is not 0
    %2 = qnn.requantize(%1)              int8, by 2^-s: halves are rounded upward
    %3 = clip(%2, a, b)                  from f(0) on with a relu

Zero points are 0, activations have the scale 1, weights 2^-s. The shift f(v) = (v + r) >> s, r being what is added
before it, is the rounded quotient of v + r - 2^(s-1); so c = b + r - 2^(s-1). A shift alone rounds down: r = 0. As f
never decreases, f(max(v, 0)) is max(f(v), f(0)). All holds where no sum leaves 32 bits, which the weights tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with, on_main, rebuild_calls
from byoc_hw.frontend.relay.match import users_of
from byoc_hw.frontend.relay.read import constant, is_static
from byoc_hw.frontend.relay.session import Session
from byoc_hw.frontend.relay.sources import operator_name, operator_names, span_of_all, with_span
from byoc_hw.frontend.relay.table import offloads
from byoc_hw.tensor import Array

_SUMS = {"nn.conv2d": relay.qnn.op.conv2d, "nn.dense": relay.qnn.op.dense}
_INT8 = -128, 127


def shifted_sums(session: Session) -> tvm.transform.Pass:
    """Rewrite each shifted sum that is then offloaded in a session. Why another one is not is recorded there."""

    def rewritten(function: relay.Function) -> relay.Function:
        if "cast" not in operator_names(function):
            return function
        users = users_of(function)
        made: dict[relay.Expr, relay.Expr] = {}

        def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
            stops = operator_name(call) == "annotation.stop_fusion" and arguments[0] in made.values()
            if stops or _changes_nothing(call):
                return arguments[0]
            # With "tflite" a layer rounds twice, and a shift does not.
            if session.numerics == "tflite" or not _is_cast(call) or not isinstance(call.args[0], relay.Call):
                return called_with(call, arguments)
            clip = call.args[0]
            if clip not in made:
                found = _read(call)
                if found is None or not _alone(found, users):
                    return called_with(call, arguments)
                if not offloads(session, found.total.args[0], found.requantized):
                    return called_with(call, arguments)
                made[clip] = found.requantized(_below(arguments[0], found.places))
            return made[clip]  # the cast of a clip with several readers may stand there more than once

        return rebuild_calls(function, rebuild)

    return on_main(rewritten, "ShiftedSums")


@dataclass(frozen=True)
class _Shifted:
    """A shifted sum: `total` is the convolution or product, `inside` are the calls behind it up to the clip.

    `places` are the arguments that lead from the clip's argument to the sum's input. `added` and `shift` have a value
    for each output channel; `low` and `high` limit the result.
    """

    cast: relay.Call
    total: relay.Call
    inside: tuple[relay.Call, ...]
    places: tuple[int, ...]
    added: Array
    shift: Array
    low: int
    high: int

    @property
    def bias(self) -> Array:
        """What is added to a sum that is then rounded, halves upward."""
        return np.asarray(self.added - (1 << self.shift >> 1))

    def requantized(self, ifm: relay.Expr) -> relay.Expr:
        """The layer's operators on an input."""
        axis = channel_axis(self.total)
        shift = self.shift[0] if (self.shift == self.shift[0]).all() else self.shift
        scale, one, zero = np.exp2(-np.asarray(shift, np.float32)), np.float32(1), np.int32(0)
        total = _SUMS[operator_name(self.total)](
            ifm, self.total.args[1], *map(relay.const, (zero, zero, one, scale)), **_attributes(self.total)
        )
        total = with_span(total, self.total.span)
        *others, clip = reversed(self.inside)
        spans = [call.span for call in others]
        if self.bias.any():
            total = relay.nn.bias_add(total, relay.const(self.bias.astype(np.int32)), axis)
            total = with_span(total, spans[0])
        result = relay.qnn.op.requantize(
            total, *map(relay.const, (scale, zero, one, zero)), axis=axis, out_dtype="int8", rounding="UPWARD"
        )
        result = with_span(result, span_of_all(spans))
        return with_span(relay.clip(result, self.low, self.high), span_of_all((clip.span, self.cast.span)))


def channel_axis(total: relay.Call) -> int:
    """The dimension of a convolution's or a product's output that has the channels."""
    return 1 if operator_name(total) == "nn.dense" else str(total.attrs.data_layout).index("C")


def _attributes(total: relay.Call) -> dict[str, object]:
    attrs = total.attrs
    if operator_name(total) == "nn.dense":
        return {"units": total.checked_type.shape[1], "out_dtype": "int32"}
    kept = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")
    sizes = {
        "channels": total.checked_type.shape[channel_axis(total)],
        "kernel_size": [total.args[1].checked_type.shape[str(attrs.kernel_layout).index(letter)] for letter in "HW"],
    }
    return {name: attrs[name] for name in kept} | sizes | {"out_dtype": "int32"}


# ---------------------------------------------------------------- reading


def _changes_nothing(call: relay.Call) -> bool:
    return _is_cast(call) and call.args[0].checked_type.dtype == "int8"


def _is_cast(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Call) and operator_name(expr) == "cast" and str(expr.attrs.dtype) == "int8"


def _below(expr: relay.Expr, places: tuple[int, ...]) -> relay.Expr:
    for place in places:
        expr = expr.args[place]
    return expr


def _alone(found: _Shifted, users: dict[relay.Expr, list[relay.Expr]]) -> bool:
    """Whether nothing else reads what is inside; of the clip all readers are casts."""
    clip, *others = found.inside
    return all(len(users[call]) == 1 for call in (*others, found.total)) and all(map(_is_cast, users[clip]))


def _read(cast: relay.Call) -> _Shifted | None:
    """The shifted sum that a cast ends, None for another one, or one whose sums may leave 32 bits."""
    total, inside, places = _chain(cast.args[0])
    if total is None or not _is_plain(total):
        return None
    clip = inside[0]
    low, high = float(clip.attrs.a_min), float(clip.attrs.a_max)
    if not (low.is_integer() and high.is_integer() and _INT8[0] <= low <= high <= _INT8[1]):
        return None
    found = _Shifted(cast, total, inside, places, np.zeros(1, np.int64), np.full(1, -1), int(low), int(high))
    most = 128 * _largest_filter(total)
    for call, place in zip(inside[1:], places[1:], strict=False):
        values = None if operator_name(call) == "nn.relu" else _by_channel(call, place, total)
        after = _before(found, call, values)
        if after is None:
            return None
        found, most = after, most + (0 if values is None else int(np.abs(values).max()))
    if (found.shift < 0).any() or most + (1 << int(found.shift.max())) >= 1 << 31:
        return None
    ones = np.ones(int(total.checked_type.shape[channel_axis(total)]), np.int64)
    return replace(found, added=found.added * ones, shift=found.shift * ones)


def _chain(expr: relay.Expr) -> tuple[relay.Call | None, tuple[relay.Call, ...], tuple[int, ...]]:
    """The sum below a clip, the calls above it from the clip down, and which argument leads on from each."""
    inside, places = list[relay.Call](), list[int]()
    following = {"clip": 0, "right_shift": 0, "nn.relu": 0, "nn.bias_add": 0, "add": 0}
    while isinstance(expr, relay.Call):
        name = operator_name(expr)
        if name in _SUMS:
            begins = bool(inside) and operator_name(inside[0]) == "clip"
            return (expr if begins else None), tuple(inside), (*places, 0)
        if name not in following or (name == "clip" and inside):
            break
        place = 1 if name == "add" and isinstance(expr.args[0], relay.Constant) else following[name]
        inside.append(expr)
        places.append(place)
        expr = expr.args[place]
    return None, (), ()


def _before(found: _Shifted, call: relay.Call, values: Array | None) -> _Shifted | None:
    """What is found so far, and a call before it; None where the two are not a shifted sum together."""
    name, shifted = operator_name(call), (found.shift >= 0).all()
    if name == "nn.relu":
        least = found.added >> found.shift if shifted else np.zeros(1, np.int64)  # f(0)
        same = (least == least[0]).all()
        return replace(found, low=min(max(found.low, int(least[0])), found.high)) if same else None
    if values is None:
        return None
    if name == "right_shift":
        return None if shifted or values.min() < 0 or values.max() > 30 else replace(found, shift=values)
    return replace(found, added=found.added + values) if shifted else None


def _by_channel(call: relay.Call, place: int, total: relay.Call) -> Array | None:
    """The constant of a call, as one value or one for each output channel; None where it has others."""
    other = call.args[1 - place]
    if not isinstance(other, relay.Constant) or not is_static(total.checked_type):
        return None
    values, rank, axis = constant(other), len(total.checked_type.shape), channel_axis(total)
    if values.dtype != np.int32 or values.size == 1:
        return values.reshape(-1).astype(np.int64) if values.dtype == np.int32 else None
    if operator_name(call) == "nn.bias_add":
        return values.astype(np.int64) if int(call.attrs.axis) % rank == axis else None
    shape = (1,) * (rank - values.ndim) + values.shape
    along = all(extent == 1 for index, extent in enumerate(shape) if index != axis)
    return values.reshape(-1).astype(np.int64) if along else None


def _is_plain(total: relay.Call) -> bool:
    ifm, weights = total.args
    return (
        isinstance(weights, relay.Constant)
        and ifm.checked_type.dtype == weights.checked_type.dtype == "int8"
        and total.checked_type.dtype == "int32"
        and is_static(total.checked_type)
        and (operator_name(total) == "nn.dense" or _is_flat(total.attrs))
    )


def _is_flat(attrs: tvm.ir.Attrs) -> bool:
    return str(attrs.data_layout) in ("NHWC", "NCHW") and sorted(str(attrs.kernel_layout)) == sorted("OHWI")


def _largest_filter(total: relay.Call) -> int:
    """The largest sum of the magnitudes of a filter's weights, or of several filters of one channel."""
    weights = np.abs(constant(total.args[1]).astype(np.int64))
    first = 0 if operator_name(total) == "nn.dense" else str(total.attrs.kernel_layout).index("O")
    return int(np.moveaxis(weights, first, 0).reshape(weights.shape[first], -1).sum(axis=1).max())
