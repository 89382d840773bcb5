"""Reads a float function as a network: a value of each call, in order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.floats.computed import PAIRS, UNARY, run_of
from byoc_hw.frontend.relay.floats.products import Written, convolution_kind, operands_of, product_of, shape_of
from byoc_hw.frontend.relay.interface import output_values
from byoc_hw.frontend.relay.sources import calls_in_order, described, operator_name, source_names
from byoc_hw.quantize.grids import Grid
from byoc_hw.quantize.network import Dense, Network, Role, Value

_MOVED = frozenset(
    (
        *("reshape", "squeeze", "expand_dims", "nn.batch_flatten", "transpose", "strided_slice", "copy"),
        *("nn.depth_to_space", "nn.space_to_depth", "broadcast_to", "layout_transform"),
        *("nn.max_pool2d", "nn.global_max_pool2d", "max", "min", "nn.avg_pool2d"),
    )
)
"""Operators whose integer form is on the grid of what they read."""

_ELEMENTS = frozenset((*UNARY, "erf", "fast_erf", "fast_exp", "fast_tanh", "nn.leaky_relu", "atan", "cos", "sin"))
_SUMS = frozenset(("add", "subtract", "multiply", "mean", "nn.global_avg_pool2d", "nn.batch_matmul"))
"""Operators that are computed as int32, and requantized."""

_AVERAGES = frozenset(("mean", "nn.avg_pool2d", "nn.global_avg_pool2d"))

_GRIDS: dict[str, Grid] = {"nn.softmax": (1 / 256, -128), "sigmoid": (1 / 256, -128), "tanh": (1 / 128, 0)}
"""Scales of TFLite for operators whose results have a range of their own."""


class Reader:
    """Makes a value of each call, in order."""

    def __init__(self, main: relay.Function) -> None:
        self._main = main
        self._number: dict[relay.Expr, int] = {}
        self.nodes: list[relay.Expr] = []
        self.values: list[Value] = []
        self.products: dict[int, Written] = {}
        self._readers: dict[relay.Expr, list[relay.Call]] = {}

    def network(self) -> Network:
        for call in calls_in_order(self._main.body):
            for operand in operands_of(call):
                self._readers.setdefault(operand, []).append(call)
        for variable in self._main.params:
            if str(variable.checked_type.dtype) != "float32":
                raise InvalidInput(
                    f"quantize takes a float module: input {variable.name_hint} is float32: "
                    f"got {variable.checked_type.dtype}"
                )
            self._add(variable, Value(variable.name_hint, "input", shape_of(variable), "input"))
        outputs = output_values(self._main.body)
        relay.analysis.post_order_visit(self._main.body, self._visit)
        for place, output in enumerate(outputs):
            if output not in self._number:
                raise InvalidInput(f"quantize takes a module whose outputs are computed: output {place} is a constant")
        return Network(tuple(self.values), tuple(self._number[output] for output in outputs))

    def _add(self, node: relay.Expr, value: Value) -> None:
        self._number[node] = len(self.values)
        self.nodes.append(node)
        self.values.append(value)

    def _visit(self, node: relay.Expr) -> None:
        if isinstance(node, relay.Call):
            self._call(node)
        elif isinstance(node, relay.TupleGetItem) and node.tuple_value in self._number:
            self._item(node)

    def _item(self, node: relay.TupleGetItem) -> None:
        inner = self._number[node.tuple_value]
        tuples = self.values[inner]
        name = f"{tuples.name}_{node.index}"
        place = node.index
        role: Role = "moved" if tuples.operator == "split" else "other"
        self._add(node, Value(name, "item", shape_of(node), role, (inner,), lambda inputs: inputs[0][place]))

    def _call(self, call: relay.Call) -> None:
        name = operator_name(call)
        if not isinstance(call.op, tvm.ir.Op):
            raise InvalidInput(f"quantize takes a module of calls of operators: got {described(call)}")
        if name.startswith("qnn."):
            raise InvalidInput(f"quantize takes a float module, without operators of qnn: got {described(call)}")
        operands = [operand for operand in operands_of(call) if operand in self._number]
        if not operands:  # of constants alone
            return
        inputs = tuple(self._number[operand] for operand in operands)
        if self._is_bias(call):
            inner = self.nodes.index(call.args[0])
            self._with_bias(inner, call)
            return
        product = product_of(call)
        if product is not None and len(inputs) == 1:
            made, written = product
            self.products[len(self.values)] = written
            kind = "dense" if isinstance(made, Dense) else convolution_kind(made)
            self._add(
                call,
                Value(_name(call), name, shape_of(call), "product", inputs, None, made, kind, source_names(call.span)),
            )
            return
        role = _role(call, len(inputs))
        run = run_of(call, [operand in self._number for operand in operands_of(call)])
        self._add(
            call,
            Value(
                _name(call), name, shape_of(call), role, inputs, run, grid=_GRIDS.get(name), averages=name in _AVERAGES
            ),
        )

    def _is_bias(self, call: relay.Call) -> bool:
        """Whether a call adds a constant for each output to a product that nothing else reads."""
        if operator_name(call) not in ("nn.bias_add", "add"):
            return False
        total, bias = call.args
        number = self._number.get(total)
        if number is None or number not in self.products or len(self._readers[total]) != 1:
            return False
        written = self.products[number]
        if not isinstance(bias, relay.Constant) or written.total is not written.call or total in self._ends():
            return False
        if operator_name(call) == "nn.bias_add":
            return int(call.attrs.axis) % len(shape_of(call)) == written.bias_axis
        shape = shape_of(call)
        extents = (1,) * (len(shape) - len(shape_of(bias))) + shape_of(bias)
        return (
            len(extents) == len(shape)
            and shape_of(total) == shape
            and all(extent == 1 or place == written.bias_axis for place, extent in enumerate(extents))
        )

    def _ends(self) -> list[relay.Expr]:
        return list(output_values(self._main.body))

    def _with_bias(self, number: int, call: relay.Call) -> None:
        value, written = self.values[number], self.products[number]
        assert value.product is not None
        bias = call.args[1].data.numpy().reshape(-1)
        product = value.product.with_bias(np.broadcast_to(bias, value.product.bias.shape).astype(np.float32))
        self.values[number] = replace(value, product=product)
        self.products[number] = replace(written, total=call)
        self.nodes[number] = call
        self._number[call] = number


def _name(call: relay.Call) -> str:
    return ", ".join(source_names(call.span)) or operator_name(call)


def _role(call: relay.Call, inputs: int) -> Role:
    name = operator_name(call)
    if name in ("nn.relu", "clip"):
        return "bounded"
    if name in ("maximum", "minimum") and inputs == 1:
        return "bounded" if _scalar(call) is not None else "unary"
    if name in _MOVED:
        return "moved"
    if name in _SUMS and (inputs == 2 or name not in PAIRS):
        return "sum"
    return "unary" if name in _ELEMENTS or (name in PAIRS and inputs == 1) else "other"


def _scalar(call: relay.Call) -> float | None:
    """The one number among the operands of a call."""
    numbers = [argument.data.numpy() for argument in call.args if isinstance(argument, relay.Constant)]
    return float(numbers[0].reshape(-1)[0]) if len(numbers) == 1 and numbers[0].size == 1 else None
