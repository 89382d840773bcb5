"""What the stored values of a model's inputs and outputs stand for, found in its operators.

Types in Relay have no scales: the qnn operators at the ends of a model state them, for what they read and make.
Operators that only choose or move values, such as a reshape or a maximum, have one scale for what they read and make.
Where these do not say it, the model file may: see `Stated`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.model_ends import End, Ends, usable
from byoc_hw.frontend.relay.interface import output_values
from byoc_hw.frontend.relay.sources import operator_name
from byoc_hw.tensor import Quantization

_STATED_ATTRIBUTE = "byoc_hw_stated"

Node: TypeAlias = Any
"""A tensor: a `relay.Expr`, or a pair of one that is a tuple and the number of a field."""

_KEEP = """
reshape contrib_reverse_reshape squeeze expand_dims transpose layout_transform nn.batch_flatten copy reverse tile
repeat strided_slice split take nn.pad nn.mirror_pad nn.max_pool2d nn.global_max_pool2d nn.max_pool1d nn.relu clip max
min maximum minimum cast nn.avg_pool2d nn.global_avg_pool2d nn.avg_pool1d mean concatenate nn.depth_to_space
nn.space_to_depth nn.batch_to_space_nd nn.space_to_batch_nd image.resize2d image.resize1d broadcast_to reverse_sequence
gather gather_nd slice_like annotation.stop_fusion
"""
_KEEPING = frozenset(_KEEP.split())
"""Operators that make values of the scale of what they read first."""

_ALIKE = ("concatenate", "maximum", "minimum")
"""Those of which all operands have that scale. Others read sizes, indices and the like as well."""

# Of each operator: the arguments with scale and zero point of the first tensors that it reads, and of what it makes.
_SUMS = (((4, 2), (5, 3)), None)
_TWO = (((2, 3), (4, 5)), (6, 7))
_ONE = (((1, 2),), (3, 4))
_STATES: dict[str, tuple[tuple[tuple[int, int], ...], tuple[int, int] | None]] = {
    **dict.fromkeys(("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.batch_matmul"), _SUMS),
    **dict.fromkeys(("qnn.add", "qnn.subtract", "qnn.mul"), _TWO),
    **dict.fromkeys((f"qnn.{name}" for name in ("abs", "erf", "exp", "hardswish", "leaky_relu", "log")), _ONE),
    **dict.fromkeys((f"qnn.{name}" for name in ("rsqrt", "sigmoid", "softmax", "sqrt", "tanh", "avg_pool2d")), _ONE),
    "qnn.requantize": _ONE,
    "qnn.quantize": ((), (1, 2)),
    "qnn.dequantize": (((1, 2),), None),
}


@dataclass(frozen=True)
class Stated:
    """What the model file says of the ends: inputs by name, with type and shape; outputs by place."""

    types: tuple[tuple[str, str], ...]
    """Name and type of each input, then of each output; the name of an output is ""."""
    ends: Ends

    def attach(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The module with this as an attribute, which survives TVM's passes."""
        return mod.with_attr(_STATED_ATTRIBUTE, tvm.runtime.String(json.dumps(asdict(self))))

    @classmethod
    def of(cls, mod: tvm.IRModule) -> Stated | None:
        """What a module's file says of it; None for a module of another origin, or with other ends than its file."""
        if not mod.attrs or _STATED_ATTRIBUTE not in mod.attrs:
            return None
        plain = json.loads(str(mod.attrs[_STATED_ATTRIBUTE]))
        stated = cls(tuple((name, type_) for name, type_ in plain["types"]), Ends.from_plain(plain["ends"]))
        return stated if stated.types == tuple(end_types(mod["main"])) else None


def end_types(main: relay.Function) -> Iterator[tuple[str, str]]:
    """Name and type of each input, then of each output, of a type-checked function."""
    for parameter in main.params:
        yield parameter.name_hint, str(parameter.checked_type)
    for value in output_values(main.body):
        yield "", str(value.checked_type)


def ends_of(mod: tvm.IRModule) -> Ends:
    """The ends of a type-checked module as its operators state them, or else its file."""
    main, stated = mod["main"], Stated.of(mod)
    found = _Scales(main)
    outputs = [found.of(value) for value in output_values(main.body)]
    if isinstance(main.body.checked_type, tvm.ir.TupleType) and not isinstance(main.body, relay.Tuple):
        outputs = [found.of((main.body, index)) for index in range(len(main.body.checked_type.fields))]
    ends = Ends(tuple(End(found.of(one)) for one in main.params), tuple(map(End, outputs)))
    if stated is None:
        return ends
    return Ends(
        *(_together(*both) for both in ((ends.inputs, stated.ends.inputs), (ends.outputs, stated.ends.outputs)))
    )


def _together(found: Sequence[End], stated: Sequence[End]) -> tuple[End, ...]:
    pairs = zip(found, stated, strict=True)
    return tuple(End(one.quantization or other.quantization, other.name, other.state) for one, other in pairs)


class _Scales:
    """Sets of tensors of one scale, and what operators state of them."""

    def __init__(self, main: relay.Function) -> None:
        self._same: dict[Node, Node] = {}
        self._said: dict[Node, set[Quantization]] = defaultdict(set)
        said: list[tuple[Node, Quantization | None]] = []

        def visit(expr: relay.Expr) -> None:
            if isinstance(expr, relay.Call):
                self._join(expr)
                said.extend(_statements(expr))

        relay.analysis.post_order_visit(main.body, visit)
        for node, quantization in said:
            if quantization is not None:
                self._said[self._first(_tensor(node))].add(quantization)

    def of(self, node: Node) -> Quantization | None:
        """The quantization of a tensor; None where nothing states it, or operators do not agree."""
        node = _tensor(node)
        dtype = _dtype(node)
        found = self._said[self._first(node)]
        return usable(next(iter(found)), dtype) if len(found) == 1 else None

    def _first(self, node: Node) -> Node:
        while node in self._same:
            node = self._same[node]
        return node

    def _join(self, call: relay.Call) -> None:
        if operator_name(call) not in _KEEPING:
            return
        made: list[Node] = [call]
        if isinstance(call.checked_type, tvm.ir.TupleType):
            made = [(call, index) for index in range(len(call.checked_type.fields))]
        operands = call.args if operator_name(call) in _ALIKE else call.args[:1]
        read = [field for operand in operands for field in _fields(operand)]
        tensors = [_tensor(node) for node in (*read, *made)]
        kept = [node for node in tensors if not isinstance(node, relay.Constant) and _is_whole(_dtype(node))]
        for node in kept[1:]:
            one, other = self._first(kept[0]), self._first(node)
            if one != other:
                self._same[other] = one


def _statements(call: relay.Call) -> Iterator[tuple[Node, Quantization | None]]:
    """What a qnn operator states of the tensors that it reads and makes."""
    name = operator_name(call)
    if name == "qnn.concatenate":
        tensors, scales, zero_points, scale, zero_point = call.args
        for node, *of in zip(_fields(tensors), _fields(scales), _fields(zero_points), strict=True):
            yield node, _quantization(*of)
        yield call, _quantization(scale, zero_point)
    elif name in _STATES:
        reads, makes = _STATES[name]
        for argument, (scale, zero_point) in zip(call.args, reads, strict=False):
            yield argument, _quantization(call.args[scale], call.args[zero_point])
        if makes is not None:
            yield call, _quantization(*(call.args[place] for place in makes))


def _fields(expr: relay.Expr) -> list[Node]:
    """The tensors of an expression: its fields, if it is a tuple."""
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr.checked_type, tvm.ir.TupleType):
        return [(expr, index) for index in range(len(expr.checked_type.fields))]
    return [expr]


def _tensor(node: Node) -> Node:
    """The one name of a tensor: a field of a tuple is what was put there."""
    while True:
        if isinstance(node, relay.TupleGetItem):
            node = (node.tuple_value, node.index)
        elif isinstance(node, tuple) and isinstance(node[0], relay.Tuple):
            node = node[0].fields[node[1]]
        else:
            return node


def _dtype(node: Node) -> str:
    of = node[0].checked_type.fields[node[1]] if isinstance(node, tuple) else node.checked_type
    return str(getattr(of, "dtype", ""))


def _is_whole(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _quantization(scale: Node, zero_point: Node) -> Quantization | None:
    """One scale and zero point of a whole tensor; None for others, and for those computed at run time."""
    if not isinstance(scale, relay.Constant) or not isinstance(zero_point, relay.Constant):
        return None
    both = [np.unique(one.data.numpy()) for one in (scale, zero_point)]
    if any(values.size != 1 for values in both):
        return None
    return Quantization((float(both[0][0]),), (int(both[1][0]),))
