"""Reads a float function as a network: a value of each call, in order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.floats.computed import PAIRS, UNARY, run_of
from byoc_hw.frontend.relay.floats.products import Written, convolution_kind, product_of, static_shape
from byoc_hw.frontend.relay.interface import output_values
from byoc_hw.frontend.relay.qdq.operators import MOVES
from byoc_hw.frontend.relay.sources import calls_in_order, described, operands_of, operator_name, source_names
from byoc_hw.names import distinct
from byoc_hw.quantization.grids import Int8Grid
from byoc_hw.quantization.network import FloatDense, Network, NetworkValue, Role

_MOVED = frozenset((*MOVES, "nn.avg_pool2d"))
"""Operators whose integer form is on the grid of what they read."""

_ELEMENTS = frozenset((*UNARY, "erf", "fast_erf", "fast_exp", "fast_tanh", "nn.leaky_relu", "atan", "cos", "sin"))
_SUMS = frozenset(("add", "subtract", "multiply", "mean", "nn.global_avg_pool2d", "nn.batch_matmul"))
"""Operators that are computed as int32, and requantized."""

_AVERAGES = frozenset(("mean", "nn.avg_pool2d", "nn.global_avg_pool2d"))

_GRIDS: dict[str, Int8Grid] = {"nn.softmax": (1 / 256, -128), "sigmoid": (1 / 256, -128), "tanh": (1 / 128, 0)}
"""Scales of TFLite for operators whose results have a range of their own."""


class Reader:
    """Makes a value of each call, in order."""

    def __init__(self, main: relay.Function) -> None:
        self._main = main
        self._number: dict[relay.Expr, int] = {}
        self.nodes: list[relay.Expr] = []
        self.values: list[NetworkValue] = []
        self.products: dict[int, Written] = {}
        self.folded: list[relay.Call] = []
        self._ends = list(output_values(main.body))
        self._readers: dict[relay.Expr, list[relay.Call]] = {}

    def network(self) -> Network:
        """The function as a network, whose layers with weights have names of their own."""
        for call in calls_in_order(self._main.body):
            for operand in operands_of(call):
                self._readers.setdefault(operand, []).append(call)
        for variable in self._main.params:
            if str(variable.checked_type.dtype) != "float32":
                raise InvalidInput(
                    f"quantize takes a float module: input {variable.name_hint} is float32: "
                    f"got {variable.checked_type.dtype}"
                )
            self._add(variable, NetworkValue(variable.name_hint, "input", static_shape(variable), "input"))
        relay.analysis.post_order_visit(self._main.body, self._visit)
        for place, output in enumerate(self._ends):
            if output not in self._number:
                raise InvalidInput(f"quantize takes a module whose outputs are computed: output {place} is a constant")
        places = [number for number, value in enumerate(self.values) if value.product is not None]
        for number, name in zip(places, distinct(self.values[number].name for number in places), strict=True):
            self.values[number] = replace(self.values[number], name=name)
        return Network(tuple(self.values), tuple(self._number[output] for output in self._ends))

    def _add(self, node: relay.Expr, value: NetworkValue) -> None:
        self._number[node] = len(self.values)
        self.nodes.append(node)
        self.values.append(value)

    def _visit(self, node: relay.Expr) -> None:
        if isinstance(node, relay.Call):
            self._call(node)
        elif isinstance(node, relay.TupleGetItem) and node.tuple_value in self._number:
            self._item(node)

    def _item(self, node: relay.TupleGetItem) -> None:
        inner, place = self._number[node.tuple_value], node.index
        name = f"{self.values[inner].name}_{place}"
        role: Role = "other" if str(node.checked_type.dtype) == "float32" else "plain"
        self._add(node, NetworkValue(name, "item", static_shape(node), role, (inner,), lambda inputs: inputs[0][place]))

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
        if self._folds(call):
            self._fold(call)
            return
        product = product_of(call)
        if product is not None and len(inputs) == 1:
            made, written = product
            self.products[len(self.values)] = written
            kind = "dense" if isinstance(made, FloatDense) else convolution_kind(made)
            self._add(
                call,
                NetworkValue(
                    _name(call), name, static_shape(call), "product", inputs, None, made, kind, source_names(call.span)
                ),
            )
            return
        role = _role(call, len(inputs))
        run = run_of(call, [operand in self._number for operand in operands_of(call)])
        self._add(
            call,
            NetworkValue(
                _name(call),
                name,
                static_shape(call),
                role,
                inputs,
                run,
                grid=_GRIDS.get(name),
                averages=name in _AVERAGES,
            ),
        )

    def _folds(self, call: relay.Call) -> bool:
        """Whether a call adds a constant for each output to a product, or multiplies with one, and nothing else reads
        the product: a bias, and what batch normalisation becomes."""
        if operator_name(call) not in ("nn.bias_add", "add", "multiply"):
            return False
        total, constant = call.args
        number = self._number.get(total)
        if number is None or number not in self.products or not isinstance(constant, relay.Constant):
            return False
        if total != self.nodes[number] or len(self._readers[total]) != 1 or total in self._ends:
            return False
        shape, axis = static_shape(call), self.products[number].bias_axis
        if operator_name(call) == "nn.bias_add":
            return int(call.attrs.axis) % len(shape) == axis
        extents = (1,) * (len(shape) - len(static_shape(constant))) + static_shape(constant)
        return static_shape(total) == shape and all(
            extent == 1 or place == axis for place, extent in enumerate(extents)
        )

    def _fold(self, call: relay.Call) -> None:
        number = self._number[call.args[0]]
        value = self.values[number]
        product = value.product
        assert product is not None
        constants = np.broadcast_to(call.args[1].data.numpy().reshape(-1), product.bias.shape).astype(np.float32)
        if operator_name(call) == "multiply":
            matrix = product.matrix()
            product = product.with_matrix(matrix * constants.reshape(*matrix.shape[:2], 1), product.bias * constants)
        else:
            product = product.with_bias(product.bias + constants)
        self.values[number] = replace(value, product=product)
        self.nodes[number] = call
        self._number[call] = number
        self.folded.append(call)


def _name(call: relay.Call) -> str:
    return ", ".join(source_names(call.span)) or operator_name(call)


def _role(call: relay.Call, inputs: int) -> Role:
    name = operator_name(call)
    if isinstance(call.checked_type, tvm.ir.TupleType) or str(call.checked_type.dtype) != "float32":
        return "plain"
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
