"""Float modules: read as a network that numpy computes, and written again with quantized values and weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.compose import called_with, rebuilt_values
from byoc_hw.frontend.relay.golden import golden_executor
from byoc_hw.frontend.relay.interface import output_values
from byoc_hw.frontend.relay.partition import prepare
from byoc_hw.frontend.relay.qdq.integers import integer_form
from byoc_hw.frontend.relay.read import padding
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.frontend.relay.sources import calls_in_order, described, operator_name, source_names, with_span
from byoc_hw.quantize import kernels
from byoc_hw.quantize.grids import Grid
from byoc_hw.quantize.layers import QuantizedNetwork, QuantizedProduct
from byoc_hw.quantize.network import Convolution, Dense, Network, Product, Role, Run, Value
from byoc_hw.tensor import Array

_MOVED = frozenset(
    """reshape squeeze expand_dims nn.batch_flatten transpose strided_slice copy nn.depth_to_space nn.space_to_depth
    broadcast_to layout_transform nn.max_pool2d nn.global_max_pool2d max min nn.avg_pool2d""".split()
)
"""Operators whose integer form is on the grid of what they read."""

_UNARY: dict[str, Callable[[Array], Array]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "negative": np.negative,
    "abs": np.abs,
    "round": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
}
_ELEMENTS = frozenset((*_UNARY, "erf", "fast_erf", "fast_exp", "fast_tanh", "nn.leaky_relu", "atan", "cos", "sin"))
_PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
}
_SUMS = frozenset(("add", "subtract", "multiply", "mean", "nn.global_avg_pool2d", "nn.batch_matmul"))
"""Operators that are computed as int32, and requantized."""

_AVERAGES = frozenset(("mean", "nn.avg_pool2d", "nn.global_avg_pool2d"))

_GRIDS: dict[str, Grid] = {"nn.softmax": (1 / 256, -128), "sigmoid": (1 / 256, -128), "tanh": (1 / 128, 0)}
"""Scales of TFLite for operators whose results have a range of their own."""


@dataclass(frozen=True, eq=False)
class FloatModel:
    """A float module as a network. `nodes` are the expressions of its values, by number."""

    mod: tvm.IRModule
    network: Network
    nodes: tuple[relay.Expr, ...]
    products: Mapping[int, _Written]

    @serial
    def written(self, quantized: QuantizedNetwork, integer_ends: bool) -> tvm.IRModule:
        """The integer module of a quantized network; with `integer_ends` its inputs and outputs are int8 too."""
        return _written(self, quantized, integer_ends)


@dataclass(frozen=True, eq=False)
class _Written:
    """Where a product's weights and bias stand: its call, the axis of the outputs, and how weights are laid out."""

    call: relay.Call
    total: relay.Call
    bias_axis: int
    weight_axis: int
    laid_out: Callable[[Array], Array]
    shared: int = 0  # outputs that share a scale, of depthwise weights with a multiplier


@serial
def float_model(mod: tvm.IRModule, params: Mapping[str, Any] | None) -> FloatModel:
    """Read a float module. `InvalidInput` names what no network can be made of."""
    passes = [
        relay.transform.InferType(),
        relay.transform.SimplifyInference(),
        relay.transform.FoldConstant(),
        relay.transform.FoldScaleAxis(),
        relay.transform.FoldConstant(),
        relay.transform.InferType(),
    ]
    with tvm.transform.PassContext(opt_level=3):
        mod = tvm.transform.Sequential(passes)(prepare(mod, params))
    reader = _Reader(mod["main"])
    return FloatModel(mod, reader.network(), tuple(reader.nodes), reader.products)


# ---------------------------------------------------------------- reading


class _Reader:
    """Makes a value of each call, in order."""

    def __init__(self, main: relay.Function) -> None:
        self._main = main
        self._number: dict[relay.Expr, int] = {}
        self.nodes: list[relay.Expr] = []
        self.values: list[Value] = []
        self.products: dict[int, _Written] = {}
        self._readers: dict[relay.Expr, list[relay.Call]] = {}

    def network(self) -> Network:
        for call in calls_in_order(self._main.body):
            for operand in _operands(call):
                self._readers.setdefault(operand, []).append(call)
        for variable in self._main.params:
            if str(variable.checked_type.dtype) != "float32":
                raise InvalidInput(
                    f"quantize takes a float module: input {variable.name_hint} is float32: "
                    f"got {variable.checked_type.dtype}"
                )
            self._add(variable, Value(variable.name_hint, "input", _shape(variable), "input"))
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
        self._add(
            node, Value(name, "item", _shape(node), role, (inner,), lambda inputs: inputs[0][place])
        )

    def _call(self, call: relay.Call) -> None:
        name = operator_name(call)
        if not isinstance(call.op, tvm.ir.Op):
            raise InvalidInput(f"quantize takes a module of calls of operators: got {described(call)}")
        if name.startswith("qnn."):
            raise InvalidInput(f"quantize takes a float module, without operators of qnn: got {described(call)}")
        operands = [operand for operand in _operands(call) if operand in self._number]
        if not operands:  # of constants alone
            return
        inputs = tuple(self._number[operand] for operand in operands)
        if self._is_bias(call):
            inner = self.nodes.index(call.args[0])
            self._with_bias(inner, call)
            return
        product = _product(call)
        if product is not None and len(inputs) == 1:
            made, written = product
            self.products[len(self.values)] = written
            kind = "dense" if isinstance(made, Dense) else _convolution_kind(made)
            self._add(call, Value(_name(call), name, _shape(call), "product", inputs, None, made, kind))
            return
        role = _role(call, len(inputs))
        run = _run(call, [operand in self._number for operand in _operands(call)])
        self._add(call, Value(_name(call), name, _shape(call), role, inputs, run, grid=_GRIDS.get(name), averages=name in _AVERAGES))

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
            return int(call.attrs.axis) % len(_shape(call)) == written.bias_axis
        shape = _shape(call)
        extents = (1,) * (len(shape) - len(_shape(bias))) + _shape(bias)
        return len(extents) == len(shape) and _shape(total) == shape and all(
            extent == 1 or place == written.bias_axis for place, extent in enumerate(extents)
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


def _operands(call: relay.Call) -> list[relay.Expr]:
    fields = (argument.fields if isinstance(argument, relay.Tuple) else [argument] for argument in call.args)
    return [field for several in fields for field in several]


def _shape(expr: relay.Expr) -> tuple[int, ...]:
    kind = expr.checked_type
    if isinstance(kind, tvm.ir.TupleType):
        return ()
    if not all(hasattr(extent, "value") for extent in kind.shape):
        raise InvalidInput(f"quantize takes a module of static shapes: got {kind}")
    return tuple(int(extent) for extent in kind.shape)


def _name(call: relay.Call) -> str:
    return ", ".join(source_names(call.span)) or operator_name(call)


def _product(call: relay.Call) -> tuple[Product, _Written] | None:
    """A call with constant weights, and where these stand."""
    name = operator_name(call)
    if name not in ("nn.conv2d", "nn.dense") or not isinstance(call.args[1], relay.Constant):
        return None
    weights = call.args[1].data.numpy()
    if weights.dtype != np.float32:
        return None
    if name == "nn.dense":
        written = _Written(call, call, len(_shape(call)) - 1, 0, lambda levels: levels)
        return Dense(weights, np.zeros(len(weights), np.float32)), written
    attrs = call.attrs
    layout, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    if layout not in ("NHWC", "NCHW") or sorted(kernel) != sorted("OHWI") or str(attrs.out_layout) not in ("", layout):
        return None
    ordered, filters = weights.transpose([kernel.index(axis) for axis in "OHWI"]), _shape(call)[layout.index("C")]
    channels, rows, columns, depth = ordered.shape
    multiplier = filters // channels
    if multiplier > 1:  # depthwise: (channels, multiplier) in the O and I dimensions
        ordered = ordered.transpose(0, 3, 1, 2).reshape(filters, rows, columns, 1)
    convolution = Convolution(
        np.ascontiguousarray(ordered),
        np.zeros(filters, np.float32),
        _pair(attrs.strides),
        padding(attrs.padding),
        _pair(attrs.dilation),
        int(attrs.groups),
        layout == "NCHW",
        multiplier > 1,
    )

    def laid_out(levels: Array) -> Array:
        if multiplier > 1:
            levels = levels.reshape(channels, multiplier, rows, columns).transpose(0, 2, 3, 1)
        return levels.transpose(["OHWI".index(axis) for axis in kernel])

    return convolution, _Written(call, call, layout.index("C"), kernel.index("O"), laid_out, multiplier if multiplier > 1 else 0)


def _convolution_kind(product: Product) -> str:
    depthwise = isinstance(product, Convolution) and product.groups > 1 and product.weights.shape[3] == 1
    return "depthwise_conv2d" if depthwise else "conv2d"


def _pair(values: Sequence[Any]) -> tuple[int, int]:
    height, width = (int(value) for value in values)
    return height, width


def _role(call: relay.Call, inputs: int) -> Role:
    name = operator_name(call)
    if name in ("nn.relu", "clip"):
        return "bounded"
    if name in ("maximum", "minimum") and inputs == 1:
        return "bounded" if _scalar(call) is not None else "unary"
    if name in _MOVED:
        return "moved"
    if name in _SUMS and (inputs == 2 or name not in _PAIRS):
        return "sum"
    return "unary" if name in _ELEMENTS or (name in _PAIRS and inputs == 1) else "other"


def _scalar(call: relay.Call) -> float | None:
    """The one number among the operands of a call."""
    numbers = [argument.data.numpy() for argument in call.args if isinstance(argument, relay.Constant)]
    return float(numbers[0].reshape(-1)[0]) if len(numbers) == 1 and numbers[0].size == 1 else None


# ---------------------------------------------------------------- computing


def _run(call: relay.Call, given: Sequence[bool]) -> Run:
    """What computes a call for samples. What numpy has no short form of, TVM computes sample by sample."""
    name, attrs = operator_name(call), call.attrs
    if name == "nn.relu":
        return lambda inputs: np.maximum(inputs[0], 0)
    if name == "clip":
        low, high = float(attrs.a_min), float(attrs.a_max)
        return lambda inputs: np.clip(inputs[0], low, high)
    if name in _UNARY:
        function = _UNARY[name]
        return lambda inputs: function(inputs[0])
    if name in _PAIRS:
        return _pairwise(call, given)
    if name in ("reshape", "squeeze", "expand_dims", "nn.batch_flatten", "copy"):
        shape = _shape(call)
        return lambda inputs: inputs[0].reshape(len(inputs[0]), *shape)
    if name == "transpose":
        rank = len(_shape(call))
        axes = [int(axis) % rank for axis in attrs.axes or reversed(range(rank))]
        return lambda inputs: inputs[0].transpose(0, *(axis + 1 for axis in axes))
    if name == "nn.softmax":
        axis = int(attrs.axis) % len(_shape(call)) + 1
        return lambda inputs: kernels.softmax(inputs[0], axis)
    if name == "concatenate":
        axis = int(attrs.axis) % len(_shape(call)) + 1
        return lambda inputs: np.concatenate(inputs, axis)
    if name in ("nn.avg_pool2d", "nn.max_pool2d") and str(attrs.layout) == "NHWC" and set(attrs.dilation) == {1}:
        return _pool(call)
    if name == "mean":
        return _mean(call)
    return _by_tvm(call, given)


def _pairwise(call: relay.Call, given: Sequence[bool]) -> Run:
    function, rank = _PAIRS[operator_name(call)], len(_shape(call))
    constants = [None if here else argument.data.numpy() for argument, here in zip(call.args, given, strict=True)]

    def run(inputs: Sequence[Array]) -> Array:
        rest = iter(inputs)
        sides = [_of_rank(next(rest), rank) if constant is None else constant for constant in constants]
        return np.asarray(function(*sides))

    return run


def _of_rank(samples: Array, rank: int) -> Array:
    """Samples of values with this many dimensions: new ones are in front."""
    shape = samples.shape[1:]
    return samples.reshape(len(samples), *(1,) * (rank - len(shape)), *shape)


def _pool(call: relay.Call) -> Run:
    attrs, (batch, rows, columns, channels) = call.attrs, _shape(call)
    mode = "max" if operator_name(call) == "nn.max_pool2d" else "avg"
    arguments = (mode, _pair(attrs.pool_size), _pair(attrs.strides), padding(attrs.padding), (rows, columns))
    ones = mode == "avg" and bool(attrs.count_include_pad)

    def run(inputs: Sequence[Array]) -> Array:
        flat = inputs[0].reshape(-1, *inputs[0].shape[2:])
        return kernels.pool2d(flat, *arguments, ones).reshape(-1, batch, rows, columns, channels)

    return run


def _mean(call: relay.Call) -> Run:
    rank, attrs = len(_shape(call.args[0])), call.attrs
    axes = {int(axis) % rank for axis in attrs.axis} if attrs.axis is not None else set(range(rank))
    chosen = tuple(axis + 1 for axis in range(rank) if (axis in axes) != bool(attrs.exclude))
    keepdims = bool(attrs.keepdims)
    return lambda inputs: inputs[0].mean(axis=chosen, keepdims=keepdims)


def _by_tvm(call: relay.Call, given: Sequence[bool]) -> Run:
    """TVM's own result, one sample after another."""
    operands = _operands(call)
    variables = {
        operand: relay.Var(f"input_{place}", operand.checked_type)
        for place, (operand, here) in enumerate(zip(operands, given, strict=True))
        if here
    }

    def replaced(expr: relay.Expr) -> relay.Expr:
        if isinstance(expr, relay.Tuple):
            return relay.Tuple([replaced(one) for one in expr.fields])
        return variables.get(expr, expr)

    body = relay.Call(call.op, [replaced(argument) for argument in call.args], call.attrs)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(list(variables.values()), body)))
    names = [variable.name_hint for variable in variables.values()]
    held: list[Any] = []

    @serial
    def run(inputs: Sequence[Array]) -> Array:
        if not held:
            held.append(golden_executor(mod))
        executor, found = held[0], []
        for sample in zip(*inputs, strict=True):
            executor.run(**dict(zip(names, sample, strict=True)))
            found.append([executor.get_output(place).numpy() for place in range(executor.get_num_outputs())])
        outputs = [np.stack(column) for column in zip(*found, strict=True)]
        return outputs[0] if len(outputs) == 1 else outputs

    return run


# ---------------------------------------------------------------- writing


def _written(model: FloatModel, quantized: QuantizedNetwork, integer_ends: bool) -> tvm.IRModule:
    main = model.mod["main"]
    number = {node: place for place, node in enumerate(model.nodes)}
    calls = {written.call: place for place, written in model.products.items()}
    network = model.network
    inputs = [relay.Var(variable.name_hint, variable.checked_type) for variable in main.params]
    values: list[relay.Expr] = list(inputs)
    if integer_ends:
        inputs = [relay.Var(variable.name_hint, relay.TensorType(_shape(variable), "int8")) for variable in main.params]
        values = [
            _dequantized(variable, quantized.grids[place]) for place, variable in zip(network.inputs, inputs, strict=True)
        ]
    else:
        values = [_on_grid(value, quantized.grids[place]) for place, value in zip(network.inputs, values, strict=True)]

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        new = called_with(call, arguments)
        if call in calls:
            new = _with_weights(model.products[calls[call]], quantized.products[calls[call]], arguments[0])
        elif call in number and number[call] in model.products:  # its bias is in the product
            new = arguments[0]
        place = number.get(call)
        return new if place not in quantized.grids else _on_grid(new, quantized.grids[place])

    new = rebuilt_values(main, values, rebuild)
    outputs = [new[output] for output in output_values(main.body)]
    if integer_ends:
        outputs = [
            output.args[0] if network.stored[place] else _quantized(output, quantized.grids[network.grid_at(place)])
            for place, output in zip(network.outputs, outputs, strict=True)
        ]
    body = outputs[0] if len(outputs) == 1 and not isinstance(main.body, relay.Tuple) else relay.Tuple(outputs)
    mod = tvm.IRModule.from_expr(relay.Function(inputs, body))
    return integer_form(relay.transform.InferType()(mod))


def _with_weights(written: _Written, product: QuantizedProduct, ifm: relay.Expr) -> relay.Expr:
    """A product with its integer weights, and its bias behind it."""
    span = written.call.span
    levels = relay.const(np.ascontiguousarray(written.laid_out(product.levels)), "int8")
    scales = product.scales if not written.shared else product.scales[:: written.shared]
    weights = with_span(
        relay.qnn.op.dequantize(
            levels, relay.const(scales, "float32"), relay.const(0, "int32"), axis=written.weight_axis
        ),
        span,
    )
    call = relay.Call(written.call.op, [ifm, weights], written.call.attrs, None, span)
    total = relay.nn.bias_add(call, relay.const(product.bias, "float32"), axis=written.bias_axis)
    return with_span(total, written.total.span)


def _on_grid(expr: relay.Expr, grid: Grid) -> relay.Expr:
    return _dequantized(_quantized(expr, grid), grid)


def _quantized(expr: relay.Expr, grid: Grid) -> relay.Expr:
    scale, zero_point = _constants(grid)
    return with_span(relay.qnn.op.quantize(expr, scale, zero_point, out_dtype="int8"), expr.span)


def _dequantized(expr: relay.Expr, grid: Grid) -> relay.Expr:
    return with_span(relay.qnn.op.dequantize(expr, *_constants(grid)), expr.span)


def _constants(grid: Grid) -> tuple[relay.Constant, relay.Constant]:
    return relay.const(np.float32(grid[0])), relay.const(grid[1], "int32")
