"""A float module as a network, and the integer module of what quantization makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.checks import check_module
from byoc_hw.frontend.relay.compose import called_with, rebuilt_values
from byoc_hw.frontend.relay.constant_folding import fold_constants
from byoc_hw.frontend.relay.floats.products import Written, static_shape
from byoc_hw.frontend.relay.floats.reader import Reader
from byoc_hw.frontend.relay.interface import output_values
from byoc_hw.frontend.relay.partition import prepare
from byoc_hw.frontend.relay.qdq.integers import integer_form
from byoc_hw.frontend.relay.record import record_of
from byoc_hw.frontend.relay.rewrite.moves import plain_moves
from byoc_hw.frontend.relay.serial import serial
from byoc_hw.frontend.relay.sources import with_span
from byoc_hw.quantization.grids import Int8Grid
from byoc_hw.quantization.layers import QuantizedNetwork, QuantizedProduct
from byoc_hw.quantization.network import Network


@dataclass(frozen=True, eq=False)
class RelayFloatModel:
    """A float module as a network. `nodes` are the expressions of its values, by number."""

    mod: tvm.IRModule
    network: Network
    nodes: tuple[relay.Expr, ...]
    products: Mapping[int, Written]
    folded: frozenset[relay.Call]

    @serial
    def written(self, quantized: QuantizedNetwork, integer_ends: bool) -> tvm.IRModule:
        """The integer module of a quantized network; with `integer_ends` its inputs and outputs are int8 too."""
        return _written(self, quantized, integer_ends)


@serial
def float_model(mod: tvm.IRModule, params: Mapping[str, Any] | None) -> RelayFloatModel:
    """Read a float module. `InvalidInput` names what no network can be made of."""
    check_module(mod)
    if record_of(mod) is not None:
        raise InvalidInput("the module is already partitioned: quantize the original module instead")
    passes = [
        relay.transform.InferType(),
        relay.transform.SimplifyInference(),
        fold_constants(),
        relay.transform.InferType(),
        plain_moves(),
        relay.transform.InferType(),
    ]
    with tvm.transform.PassContext(opt_level=3):
        mod = tvm.transform.Sequential(passes)(prepare(mod, params))
    reader = Reader(mod["main"])
    return RelayFloatModel(mod, reader.network(), tuple(reader.nodes), reader.products, frozenset(reader.folded))


def _written(model: RelayFloatModel, quantized: QuantizedNetwork, integer_ends: bool) -> tvm.IRModule:
    main = model.mod["main"]
    number = {node: place for place, node in enumerate(model.nodes)}
    calls = {written.call: place for place, written in model.products.items()}
    network = model.network
    grids = [quantized.grids[place] for place in network.inputs]
    if integer_ends:
        inputs = [relay.Var(old.name_hint, relay.TensorType(static_shape(old), "int8")) for old in main.params]
        values = [_dequantized(new, grid) for new, grid in zip(inputs, grids, strict=True)]
    else:
        inputs = [relay.Var(old.name_hint, old.checked_type) for old in main.params]
        values = [_on_grid(new, grid) for new, grid in zip(inputs, grids, strict=True)]

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        new = called_with(call, arguments)
        if call in calls:
            new = _with_weights(model.products[calls[call]], quantized.products[calls[call]], arguments[0])
        elif call in model.folded:  # its scale or bias is in the product
            new = arguments[0]
        grid = quantized.grids.get(number.get(call, -1))
        return new if grid is None else _on_grid(new, grid)

    new = rebuilt_values(main, values, rebuild)
    outputs = [new[output] for output in output_values(main.body)]
    if integer_ends:
        outputs = [
            _as_int8(output, network, quantized, place) for place, output in zip(network.outputs, outputs, strict=True)
        ]
    body = outputs[0] if len(outputs) == 1 and not isinstance(main.body, relay.Tuple) else relay.Tuple(outputs)
    mod = tvm.IRModule.from_expr(relay.Function(inputs, body))
    return integer_form(relay.transform.InferType()(mod))


def _as_int8(output: relay.Expr, network: Network, quantized: QuantizedNetwork, number: int) -> relay.Expr:
    """An output as it is stored; integers are as they are."""
    if network.stored[number]:
        return output.args[0]
    place = network.grid_at(number)
    return output if place is None else _quantized(output, quantized.grids[place])


def _with_weights(written: Written, product: QuantizedProduct, ifm: relay.Expr) -> relay.Expr:
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
    return with_span(total, span)


def _on_grid(expr: relay.Expr, grid: Int8Grid) -> relay.Expr:
    return _dequantized(_quantized(expr, grid), grid)


def _quantized(expr: relay.Expr, grid: Int8Grid) -> relay.Expr:
    scale, zero_point = _constants(grid)
    return with_span(relay.qnn.op.quantize(expr, scale, zero_point, out_dtype="int8"), expr.span)


def _dequantized(expr: relay.Expr, grid: Int8Grid) -> relay.Expr:
    return with_span(relay.qnn.op.dequantize(expr, *_constants(grid)), expr.span)


def _constants(grid: Int8Grid) -> tuple[relay.Constant, relay.Constant]:
    return relay.const(np.float32(grid[0])), relay.const(grid[1], "int32")
