"""Brings an ONNX graph to the form that TVM's importer reads as the graph means it: to opset 17, in QDQ form.

TVM's importer stops at what onnxruntime writes with `QuantFormat.QOperator`: it makes float operators of `QLinearConv`
and the like, and adds their int32 bias. Here each becomes its float operator between `DequantizeLinear` and
`QuantizeLinear`, which is what it means. Names of nodes stay, as the names of operators in reports.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, shape_inference

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.installed import HAS_RELAX
from byoc_hw.frontend.onnx_factors import FACTORS
from byoc_hw.frontend.onnx_functions import FUNCTIONS, reshape
from byoc_hw.frontend.onnx_gather import gather
from byoc_hw.frontend.onnx_graph import FOUR_BITS, OnnxGraph, as_it_is, attributes_of, node_text, rewritten
from byoc_hw.frontend.onnx_lines import with_planes
from byoc_hw.frontend.onnx_pads import WINDOWS, pad

OPSET = 17
"""The newest version of the operator set that TVM's importer reads."""

_MICROSOFT = "com.microsoft"
_DOMAINS = ("", "ai.onnx", _MICROSOFT)

# Newer versions of these differ from that of opset 17 in types only, or in attributes and inputs that are checked.
_SAME = {
    *("QuantizeLinear", "DequantizeLinear", "Cast", "CastLike", "Constant", "ConstantOfShape", "Identity"),
    *("Shape", "Size", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Equal", "Conv"),
    *("ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization"),
    *("Dropout", "HardSwish", "HardSigmoid", "Elu", "Selu", "Softplus", "Softsign", "ThresholdedRelu", "Sin"),
    *("Cos", "Pad", "Resize", "Split", "LpPool", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"),
    *("ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
    *("ScatterElements", "ScatterND", "Mod", "BatchNormalization", "Round"),
}
_NEW_ATTRIBUTES: dict[str, dict[str, object]] = {
    "Resize": {"antialias": 0, "keep_aspect_ratio_policy": b"stretch"},
    "AveragePool": {"dilations": [1, 1]},
    "Cast": {"saturate": 1},
    "CastLike": {"saturate": 1},
    "QuantizeLinear": {"saturate": 1, "block_size": 0, "output_dtype": 0},
    "DequantizeLinear": {"block_size": 0},
}
"""By operator: attributes that the importer does not read, and the value that they may have."""


def importable_form(model: Any) -> Any:
    """The model with one opset, 17 or older, and no QLinear operators. `InvalidInput` names what cannot be read.

    Its inputs have static shapes, and its nodes unique names.
    """
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), OPSET)
    narrow = {tensor.name for tensor in model.graph.initializer if tensor.data_type in FOUR_BITS}
    for node in model.graph.node:
        _check(node, opset)
        if node.op_type != "DequantizeLinear" and narrow.intersection(node.input):
            found = next(name for name in node.input if name in narrow)
            raise InvalidInput(
                f"{node_text(node)}: constants of 4 bits are read by DequantizeLinear alone: got {found}"
            )
    model, _ = rewritten(model, _QUANTIZED, opset, "byoc_hw_float")
    try:
        model = shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # onnx's own, where shapes do not agree
        raise InvalidInput(f"shapes of the model agree: {str(error).strip()}") from error
    return with_planes(*rewritten(model, _PLAIN, min(opset, OPSET), "byoc_hw_plain"))


def _check(node: Any, opset: int) -> None:
    if node.domain not in _DOMAINS:
        raise InvalidInput(f"{node_text(node)}: domain is one of ai.onnx, {_MICROSOFT}: got {node.domain}")
    if node.domain == _MICROSOFT:
        if node.op_type not in _OWN:
            raise InvalidInput(f"{node_text(node)}: operator of {_MICROSOFT} is one of {', '.join(_OWN)}: got another")
        return
    if opset > OPSET and onnx.defs.has(node.op_type, ""):
        since = onnx.defs.get_schema(node.op_type, opset, "").since_version
        if since > OPSET and node.op_type not in (*_SAME, *FUNCTIONS):
            raise InvalidInput(
                f"{node_text(node)}: its version is of opset {OPSET} or older: got {since} (export with opset {OPSET})"
            )
    attributes = attributes_of(node)
    for name, allowed in _NEW_ATTRIBUTES.get(node.op_type, {}).items():
        if attributes.get(name, allowed) != allowed:
            raise InvalidInput(f"{node_text(node)}: {name} is {allowed!r}: got {attributes[name]!r}")


# ---------------------------------------------------------------- operators as they are, with details


def _quantizer(graph: OnnxGraph, node: Any) -> None:
    """QuantizeLinear or DequantizeLinear with all three inputs; one scale in a vector is a scalar."""
    inputs = [*node.input, *[""] * (3 - len(node.input))]
    scale = graph.value(node, inputs[1], "scale")
    if inputs[2]:
        zero_point = graph.value(node, inputs[2], "zero point")
    elif node.op_type == "QuantizeLinear":
        zero_point = np.zeros(scale.shape, np.uint8)
    else:
        held = graph.constants.get(inputs[0])
        zero_point = np.zeros(scale.shape, np.uint8 if held is None else held.dtype)
    if scale.size == 1:
        scale, zero_point = scale.reshape(()), zero_point.reshape(-1)[:1].reshape(())
    axis = attributes_of(node).get("axis", 1)
    graph.node(
        node,
        node.op_type,
        [inputs[0], graph.constant(scale.astype(np.float32)), graph.constant(zero_point)],
        node.output[0],
        axis=axis,
    )


def _reduction(graph: OnnxGraph, node: Any) -> None:
    """A reduction with its axes as an attribute, as before opset 18; ReduceSum has them as an input since 13."""
    attributes = attributes_of(node)
    if len(node.input) < 2 or not node.input[1] or node.op_type == "ReduceSum":
        as_it_is(graph, node)
        return
    axes = [int(axis) for axis in graph.value(node, node.input[1], "axes")]
    attributes.pop("noop_with_empty_axes", None)
    graph.node(node, node.op_type, node.input[:1], node.output[0], axes=axes, **attributes)


def _split(graph: OnnxGraph, node: Any) -> None:
    """A split into equal parts, which opset 18 counts."""
    attributes = attributes_of(node)
    parts = attributes.pop("num_outputs", None)
    if parts is None:
        as_it_is(graph, node)
        return
    axis = attributes.get("axis", 0)
    extent = _shape(graph, node, node.input[0])[axis]
    size = -(-extent // parts)
    sizes = np.asarray([size] * (parts - 1) + [extent - size * (parts - 1)], np.int64)
    graph.nodes.append(
        helper.make_node("Split", [node.input[0], graph.constant(sizes)], node.output, node.name, axis=axis)
    )


def _with_known_inputs(
    count: int, read: Callable[[OnnxGraph, Any], None] = as_it_is
) -> Callable[[OnnxGraph, Any], None]:
    """An operator whose inputs after the first `count` are new in opset 18, and are not read."""

    def form(graph: OnnxGraph, node: Any) -> None:
        if any(node.input[count:]):
            raise InvalidInput(f"{node_text(node)}: has at most {count} inputs, without axes: got {len(node.input)}")
        if "axes" in attributes_of(node):
            raise InvalidInput(f"{node_text(node)}: axes are all: got {attributes_of(node)['axes']}")
        read(graph, node)

    return form


def _matmul(graph: OnnxGraph, node: Any) -> None:
    """A product of a tensor of more than two dimensions with a matrix: of a matrix with as many rows."""
    left, right = (graph.shapes.get(name) for name in node.input)
    if left is None or right is None or len(left) <= 2 or len(right) != 2:
        as_it_is(graph, node)
        return
    rows = graph.constant(np.asarray([prod(left[:-1]), left[-1]], np.int64))
    whole = graph.constant(np.asarray([*left[:-1], right[1]], np.int64))
    flat = graph.node(node, "Reshape", [node.input[0], rows])
    product = graph.node(node, "MatMul", [flat, node.input[1]])
    graph.node(node, "Reshape", [product, whole], node.output[0])


def _shape(graph: OnnxGraph, node: Any, name: str) -> tuple[int, ...]:
    if name not in graph.shapes:
        raise InvalidInput(f"{node_text(node)}: the shape of its input {name} is static: it is not known")
    return graph.shapes[name]


# ---------------------------------------------------------------- operators of integers


def _dequantized(graph: OnnxGraph, node: Any, data: str, scale: str, zero_point: str, axis: int = 1) -> str:
    """The float value of integers, as a new node of a quantized operator."""
    numbers = np.atleast_1d(graph.value(node, scale, "scale"))
    if zero_point:
        zero_points = np.atleast_1d(graph.value(node, zero_point, "zero point"))
    else:
        held = graph.constants.get(data)
        zero_points = np.zeros(1, np.uint8 if held is None else held.dtype)
    if numbers.size == 1:
        numbers, zero_points = numbers.reshape(()), zero_points.reshape(-1)[:1].reshape(())
    else:
        zero_points = np.ascontiguousarray(np.broadcast_to(zero_points, numbers.shape))
    names = [graph.constant(numbers.astype(np.float32)), graph.constant(zero_points)]
    return graph.node(node, "DequantizeLinear", [data, *names], axis=axis)


def _requantized(graph: OnnxGraph, node: Any, value: str, scale: str, zero_point: str) -> None:
    """The integers that a quantized operator gives, of its float result."""
    numbers = graph.value(node, scale, "output scale").reshape(-1)[:1].reshape(())
    zero = graph.value(node, zero_point, "output zero point") if zero_point else np.zeros(1, np.uint8)
    names = [graph.constant(numbers.astype(np.float32)), graph.constant(zero.reshape(-1)[:1].reshape(()))]
    graph.node(node, "QuantizeLinear", [value, *names], node.output[0])


def _bias(graph: OnnxGraph, node: Any, bias: str, scales: tuple[str, str], factor: float = 1.0) -> str:
    """The float value of an int32 bias: its scale is the product of those of the operands."""
    left, right = (graph.value(node, scale, "scale").astype(np.float32).reshape(-1) for scale in scales)
    product = np.asarray(left * right * np.float32(factor), np.float32)
    zero_points = np.zeros(product.shape, np.int32)
    if product.size == 1:
        product, zero_points = product.reshape(()), zero_points.reshape(())
    names = [graph.constant(product), graph.constant(zero_points)]
    return graph.node(node, "DequantizeLinear", [bias, *names], axis=0)


def _inputs(node: Any, count: int) -> list[str]:
    return [*node.input, *[""] * (count - len(node.input))]


def _qlinear_conv(graph: OnnxGraph, node: Any) -> None:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias = _inputs(node, 9)
    operands = [_dequantized(graph, node, x, x_scale, x_zero), _dequantized(graph, node, w, w_scale, w_zero, axis=0)]
    if bias:
        operands.append(_bias(graph, node, bias, (x_scale, w_scale)))
    result = graph.node(node, "Conv", operands, **attributes_of(node))
    _requantized(graph, node, result, scale, zero)


def _qlinear_matmul(graph: OnnxGraph, node: Any) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = _inputs(node, 8)
    columns = graph.constants[b].ndim - 1 if b in graph.constants else 1
    operands = [_dequantized(graph, node, a, a_scale, a_zero), _dequantized(graph, node, b, b_scale, b_zero, columns)]
    _requantized(graph, node, graph.node(node, "MatMul", operands), scale, zero)


def _qgemm(graph: OnnxGraph, node: Any) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, bias, scale, zero = _inputs(node, 9)
    attributes = attributes_of(node)
    axis = 0 if attributes.get("transB", 0) else 1
    operands = [_dequantized(graph, node, a, a_scale, a_zero), _dequantized(graph, node, b, b_scale, b_zero, axis)]
    if bias:
        operands.append(_bias(graph, node, bias, (a_scale, b_scale), attributes.get("alpha", 1.0)))
    result = graph.node(node, "Gemm", operands, **attributes)
    if scale:
        _requantized(graph, node, result, scale, zero)
    else:
        graph.node(node, "Identity", [result], node.output[0])


def _qlinear_concat(graph: OnnxGraph, node: Any) -> None:
    scale, zero, *rest = node.input
    parts = [
        _dequantized(graph, node, *rest[place : place + 3])
        for place in range(0, len(rest), 3)  # data, scale, zero
    ]
    _requantized(graph, node, graph.node(node, "Concat", parts, **attributes_of(node)), scale, zero)


def _qlinear(operator: str, operands: int) -> Callable[[OnnxGraph, Any], None]:
    """A quantized operator whose inputs are so many operands, with scale and zero point, and the output's two."""

    def form(graph: OnnxGraph, node: Any) -> None:
        inputs = _inputs(node, 3 * operands + 2)
        attributes = attributes_of(node)
        if attributes.pop("channels_last", 0):
            raise InvalidInput(f"{node_text(node)}: channels_last is 0: got 1")
        if operator == "Softmax":
            attributes.pop("opset", None)
        triples = (inputs[3 * place : 3 * place + 3] for place in range(operands))
        floats = [_dequantized(graph, node, data, scale, zero) for data, scale, zero in triples]
        _requantized(graph, node, graph.node(node, operator, floats, **attributes), *inputs[3 * operands :])

    return form


_OWN: dict[str, Callable[[OnnxGraph, Any], None]] = {
    "QuantizeLinear": _quantizer,
    "DequantizeLinear": _quantizer,
    "QGemm": _qgemm,
    "QLinearConcat": _qlinear_concat,
    "QLinearAdd": _qlinear("Add", 2),
    "QLinearMul": _qlinear("Mul", 2),
    "QLinearAveragePool": _qlinear("AveragePool", 1),
    "QLinearGlobalAveragePool": _qlinear("GlobalAveragePool", 1),
    "QLinearReduceMean": _qlinear("ReduceMean", 1),
    "QLinearSigmoid": _qlinear("Sigmoid", 1),
    "QLinearLeakyRelu": _qlinear("LeakyRelu", 1),
    "QLinearSoftmax": _qlinear("Softmax", 1),
}
"""The operators of com.microsoft."""

_QUANTIZED: dict[str, Callable[[OnnxGraph, Any], None]] = {
    **_OWN,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
}

_PLAIN: dict[str, Callable[[OnnxGraph, Any], None]] = {
    **FUNCTIONS,
    "Gather": gather,
    "MatMul": _matmul,
    "Reshape": reshape,
    "Split": _split,
    "Pad": _with_known_inputs(3, pad if HAS_RELAX else as_it_is),
    "Resize": _with_known_inputs(4),
    **dict.fromkeys(sorted(name for name in _SAME if name.startswith("Reduce")), _reduction),
    **({**WINDOWS, **FACTORS} if HAS_RELAX else {}),
}
