"""Brings a module in QDQ form to integers.

In QDQ form, as PyTorch and onnxruntime write it, every value is quantized and dequantized at once, and operators
between are float. A `qnn.quantize` of such operators becomes the integer operators that the patterns match. Each
rewriting is the nearest that integers have: activations and maxima commute with quantizing exactly, sums become int32
and are requantized, with halves rounded upward as TVM does. What has no integer form here stays float between
`qnn.dequantize` and `qnn.quantize`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import called_with
from byoc_hw.frontend.relay.constant_folding import fold_constants
from byoc_hw.frontend.relay.match import users_of
from byoc_hw.frontend.relay.qdq.host_images import resized_in_nhwc
from byoc_hw.frontend.relay.qdq.operators import PICKS, PRODUCTS, RULES, WITH_PARTS, concatenated
from byoc_hw.frontend.relay.qdq.product_sums import real_numbers
from byoc_hw.frontend.relay.qdq.values import Grid, Quantizable, Real, Stored
from byoc_hw.frontend.relay.sources import calls_in_order, operands_of, operator_name, with_span
from byoc_hw.tensor import Array

_INTEGERS = ("int8", "uint8", "int16", "int32")
_MOVED = PICKS | {"nn.pad"}
"""What moves values, some of them constants that are quantized."""

_MOST_GRIDS = 8
"""Float values are moved again for each grid that they are quantized to, up to this number."""

_DEEPEST = 100
"""Operators between a dequantize and a quantize, in a chain; a longer one stays float."""


def integer_form(mod: tvm.IRModule) -> tvm.IRModule:
    """The integer form of a module in QDQ form, with its constants folded; other operators are unchanged."""
    mod = tvm.transform.Sequential([fold_constants(), relay.transform.InferType()])(mod)
    main = mod["main"]
    body = _Integers(users_of(main)).of(main.body)
    whole = relay.Function(main.params, body, None, main.type_params, main.attrs, main.span)
    mod = tvm.IRModule({**mod.functions, mod.get_global_var("main"): whole}, mod.type_definitions, attrs=mod.attrs)
    return tvm.transform.Sequential([relay.transform.InferType(), fold_constants(), relay.transform.InferType()])(mod)


def in_qdq_form(mod: tvm.IRModule) -> bool:
    """Whether a module has a float product of dequantized values."""
    return any(
        operator_name(call) in PRODUCTS and any(_dequantizes(argument) for argument in call.args)
        for call in calls_in_order(mod["main"])
    )


class _Integers:
    """The new expression of each node, and the value of each that has an integer form."""

    def __init__(self, users: Mapping[relay.Expr, Sequence[relay.Expr]]) -> None:
        self._users = users
        self._grids: dict[relay.Expr, frozenset[Grid] | None] = {}
        self._reals: dict[relay.Expr, Real] = {}
        self._new: dict[relay.Expr, relay.Expr] = {}
        self._values: dict[relay.Expr, Quantizable] = {}
        self._parts: dict[relay.Expr, list[Quantizable | None]] = {}
        """The values of operators with several results."""
        self._depth: dict[relay.Expr, int] = {}

    def of(self, body: relay.Expr) -> relay.Expr:
        """The new body of a function."""
        relay.analysis.post_order_visit(body, self._visit)
        return self._new[body]

    def _visit(self, node: relay.Expr) -> None:
        if isinstance(node, relay.Call):
            self._call(node)
        elif isinstance(node, relay.Tuple):
            self._new[node] = relay.Tuple([self._new[field] for field in node.fields], node.span)
        elif isinstance(node, relay.TupleGetItem):
            self._new[node] = relay.TupleGetItem(self._new[node.tuple_value], node.index, node.span)
            if node.tuple_value in self._parts and (part := self._parts[node.tuple_value][node.index]) is not None:
                self._moved(node, part, self._depth[node.tuple_value], node.tuple_value.span)
        else:
            self._new[node] = node

    def _call(self, call: relay.Call) -> None:
        name = operator_name(call)
        arguments = [_at(self._new[argument], call) for argument in call.args]
        self._new[call] = called_with(call, arguments)
        if name == "copy" and not isinstance(arguments[0], relay.Var):
            self._new[call] = arguments[0]
            if call.args[0] in self._values:
                self._values[call], self._depth[call] = self._values[call.args[0]], self._depth[call.args[0]]
            return
        if name == "nn.prelu" and (slope := self._one_slope(call)) is not None:
            leaky = with_span(relay.nn.leaky_relu(arguments[0], slope), call.span)
            self._new[call] = leaky
            return
        if name == "qnn.quantize":
            self._new[call] = self._quantized(call, arguments)
            return
        depth = 1 + max((self._depth.get(operand, 0) for operand in operands_of(call)), default=0)
        if depth > _DEEPEST:
            return
        if name in WITH_PARTS:
            values = [self._values.get(argument) for argument in call.args]
            parts = WITH_PARTS[name](call, self._operands(call, [call.args[0]]) if name == "split" else values)
            if parts is not None:
                self._parts[call], self._depth[call] = parts, depth
            return
        value = self._value(call, name)
        if value is None:
            return
        if name in PICKS:
            self._moved(call, value, depth, call.span)
        else:
            self._values[call], self._depth[call] = value, 0 if name == "qnn.dequantize" else depth

    def _one_slope(self, call: relay.Call) -> float | None:
        """The slope of a PReLU that has the same one for all channels; None for others."""
        slopes = real_numbers(self._values.get(call.args[1]), call.args[1])
        return None if slopes is None or (slopes != slopes.flat[0]).any() else float(np.float32(slopes.flat[0]))

    def _moved(self, node: relay.Expr, value: Quantizable, depth: int, span: object) -> None:
        """A value that picks among those of another: float operators that read it dequantize what is picked."""
        self._values[node], self._depth[node] = value, depth
        stored = value.stored()
        if stored is not None and stored.grid is not None and not isinstance(self._new[node], relay.Var):
            numbers = stored.grid.constants
            self._new[node] = with_span(relay.qnn.op.dequantize(stored.expr, *numbers, out_dtype="float32"), span)

    def _value(self, call: relay.Call, name: str) -> Quantizable | None:
        if name == "qnn.dequantize":
            return self._dequantized(call)
        if name == "concatenate" and isinstance(call.args[0], relay.Tuple):
            return concatenated(call, self._operands(call, list(call.args[0].fields)))
        rule = RULES.get(name)
        values = [self._values.get(argument) for argument in call.args]
        if name in _MOVED:
            values[0] = self._operands(call, [call.args[0]])[0]
        return rule(call, values) if rule is not None and any(value is not None for value in values) else None

    def _operands(self, call: relay.Call, operands: list[relay.Expr]) -> list[Quantizable | None]:
        """The values of operands that are moved: float ones too, where the result is only moved on and quantized."""
        values = [self._values.get(operand) for operand in operands]
        if all(value is not None for value in values):
            return values
        grids = self._grids_behind(call)
        if grids is None or not 0 < len(grids) <= _MOST_GRIDS:
            return values
        return [
            self._real(operand) if value is None else value for operand, value in zip(operands, values, strict=True)
        ]

    def _real(self, operand: relay.Expr) -> Real | None:
        if str(operand.checked_type.dtype) != "float32":
            return None
        return self._reals.setdefault(operand, Real(self._new[operand], operand.span))

    def _grids_behind(self, expr: relay.Expr) -> frozenset[Grid] | None:
        """The grids that a value is quantized to in the end, or None if others read it."""
        if expr not in self._grids:
            grids: set[Grid] = set()
            for reader in self._users.get(expr, ()):
                found = self._grids_of(reader)
                if found is None:
                    self._grids[expr] = None
                    return None
                grids |= found
            self._grids[expr] = frozenset(grids)
        return self._grids[expr]

    def _grids_of(self, reader: relay.Expr) -> frozenset[Grid] | None:
        if isinstance(reader, relay.Call):
            name = operator_name(reader)
            if name == "qnn.quantize":
                grid = _grid_of(reader)
                return None if grid is None else frozenset([grid])
            if name not in (*_MOVED, "concatenate", "split"):
                return None
        elif isinstance(reader, relay.Function):
            return None
        return self._grids_behind(reader)

    def _dequantized(self, call: relay.Call) -> Stored | None:
        data, scale, zero_point = call.args
        dtype = str(data.checked_type.dtype)
        if dtype not in _INTEGERS or not _constant(scale) or not _constant(zero_point):
            return None
        scales, zero_points = _numbers(scale), _numbers(zero_point)
        if (zero_points != zero_points.flat[0]).any() or not (np.isfinite(scales) & (scales > 0)).all():
            return None
        axis = int(call.attrs.axis) % max(len(data.checked_type.shape), 1)
        return Stored(self._new[data], scales, int(zero_points.flat[0]), dtype, axis, call.span)

    def _quantized(self, call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        data = call.args[0]
        value = self._values.get(data)
        kept = called_with(call, arguments)
        if isinstance(data, relay.Call) and not _dequantizes(data):
            kept = with_span(kept, data.span)  # the operator in the file has the name that matters
        grid = _grid_of(call)
        if grid is None:
            return kept
        if isinstance(data, relay.Constant):
            return relay.const(grid.levels(data.data.numpy()), grid.dtype)
        if value is not None:
            return value.quantized(grid)
        return kept if self._is_at_an_end(call) or len(self._users[data]) > 1 else resized_in_nhwc(kept)

    def _is_at_an_end(self, expr: relay.Expr) -> bool:
        """Whether a value is an output, or one when it is dequantized."""
        return all(
            isinstance(reader, relay.Function) or (_keeps(reader) and self._is_at_an_end(reader))
            for reader in self._users.get(expr, ())
        )


def _keeps(expr: relay.Expr) -> bool:
    """Whether an expression holds values as they are, or their real ones."""
    if isinstance(expr, relay.Call):
        return operator_name(expr) in ("qnn.dequantize", "copy")
    return isinstance(expr, relay.Tuple)


def _grid_of(quantize: relay.Call) -> Grid | None:
    """The grid that a quantize is to; None for one with several scales, or with computed ones."""
    _, scale, zero_point = quantize.args
    dtype = str(quantize.attrs.out_dtype)
    if dtype not in _INTEGERS or not _constant(scale) or not _constant(zero_point):
        return None
    scales, zero_points = _numbers(scale), _numbers(zero_point)
    if scales.ndim or zero_points.ndim or not scales > 0:
        return None
    return Grid(np.float32(scales), int(zero_points), dtype)


def _at(expr: relay.Expr, reader: relay.Call) -> relay.Expr:
    """An operand of a float operator: its dequantize has the name of the operator."""
    return with_span(expr, reader.span) if _dequantizes(expr) else expr


def _dequantizes(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Call) and operator_name(expr) == "qnn.dequantize"


def _constant(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Constant)


def _numbers(constant: relay.Constant) -> Array:
    """The numbers of a constant: equal ones, or only one, as a scalar."""
    numbers = np.asarray(constant.data.numpy())
    return numbers.reshape(-1)[0] if (numbers == numbers.reshape(-1)[0]).all() else numbers.reshape(-1)
