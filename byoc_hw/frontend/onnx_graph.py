"""An ONNX graph that is made anew, node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc_hw.errors import InvalidInput
from byoc_hw.tensor import Array

FOUR_BITS = {onnx.TensorProto.INT4: np.int8, onnx.TensorProto.UINT4: np.uint8}
"""Types of constants that are read as bytes: with their zero points they stand for the same values."""


@dataclass
class OnnxGraph:
    """A graph in the making: nodes so far, constants by name, known shapes and types by name; what its own names begin
    with."""

    constants: dict[str, Array]
    shapes: dict[str, tuple[int, ...]]
    types: Mapping[str, Any]
    opset: int
    own: str
    nodes: list[Any] = field(default_factory=list)
    count: int = 0
    _makers: dict[str, Any] = field(default_factory=dict)
    _known: int = 0

    def constant(self, array: Array) -> str:
        """The name of a new constant."""
        self.count += 1
        name = f"{self.own}_constant_{self.count}"
        self.constants[name] = array
        return name

    def node(self, like: Any, operator: str, inputs: Sequence[str], output: str = "", **attributes: object) -> str:
        """Add a node with the name of another; the name of its output."""
        if not output:
            self.count += 1
            output = f"{self.own}_value_{self.count}"
        self.nodes.append(helper.make_node(operator, inputs, [output], like.name, **attributes))
        return output

    def cut(self, like: Any, data: str, axis: int, first: int, stop: int) -> str:
        """A part of a value of known shape, from an index of an axis to another."""
        bounds = [self.constant(np.asarray([number], np.int64)) for number in (first, stop, axis)]
        part, shape = self.node(like, "Slice", [data, *bounds]), self.shapes[data]
        self.shapes[part] = (*shape[:axis], stop - first, *shape[axis + 1 :])
        return part

    def joined(self, like: Any, parts: Sequence[str], axis: int) -> str:
        """The parts, of known shapes, behind each other."""
        if len(parts) == 1:
            return parts[0]
        whole, shape = self.node(like, "Concat", parts, axis=axis), self.shapes[parts[0]]
        self.shapes[whole] = (*shape[:axis], sum(self.shapes[part][axis] for part in parts), *shape[axis + 1 :])
        return whole

    def maker(self, name: str) -> Any | None:
        """The node that gives a value, or None for inputs and constants."""
        for node in self.nodes[self._known :]:
            self._makers.update(dict.fromkeys(node.output, node))
        self._known = len(self.nodes)
        return self._makers.get(name)

    def dequantize_of(self, name: str) -> Any | None:
        """The DequantizeLinear with one scale that gives a value, perhaps in another shape, or None."""
        node = self.maker(name)
        while node is not None and node.op_type == "Reshape":
            node = self.maker(node.input[0])
        if node is None or node.op_type != "DequantizeLinear":
            return None
        return node if self.value(node, node.input[1], "scale").size == 1 else None

    def real_constant(self, name: str) -> Array | None:
        """The values of a constant, also of one behind a DequantizeLinear; None for what is computed at run time."""
        node = self.maker(name)
        if node is None or node.op_type != "DequantizeLinear":
            return self.constants.get(name)
        stored, scale, zero_point = (self.constants.get(one) for one in node.input)
        if stored is None or scale is None or zero_point is None:
            return None
        if scale.size > 1:
            shape = [1] * stored.ndim
            shape[attributes_of(node).get("axis", 1)] = -1
            scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
        return np.asarray((stored.astype(np.int32) - zero_point.astype(np.int32)).astype(np.float32) * scale)

    def value(self, node: Any, name: str, what: str) -> Array:
        """A constant that an operator needs; `InvalidInput` where it is computed at run time."""
        if name not in self.constants:
            raise InvalidInput(f"{node_text(node)}: {what} is a constant: got {name or 'none'}, computed at run time")
        return self.constants[name]


def node_text(node: Any) -> str:
    """A node in messages."""
    return f"{node.op_type} ({node.name})"


def attributes_of(node: Any) -> dict[str, Any]:
    """The attributes of a node by name."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def rewritten(
    model: Any, forms: Mapping[str, Callable[[OnnxGraph, Any], None]], opset: int, own: str
) -> tuple[Any, Mapping[str, tuple[int, ...]]]:
    """The model with each node replaced by what its form makes of it, and the shapes that are known."""
    constants = {tensor.name: _array(tensor) for tensor in model.graph.initializer}
    graph = OnnxGraph(constants, dict(_shapes(model.graph)), dict(_types(model.graph)), opset, own)
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        else:
            forms.get(node.op_type, as_it_is)(graph, node)
    made = onnx.GraphProto()
    made.CopyFrom(model.graph)
    for part, content in ((made.node, graph.nodes), (made.initializer, list(_initializers(graph)))):
        del part[:]
        part.extend(content)
    opsets = [helper.make_opsetid("", opset)]
    made_model = helper.make_model(made, opset_imports=opsets, ir_version=min(model.ir_version, 8))
    shapes = {name: array.shape for name, array in graph.constants.items()}
    return made_model, {**graph.shapes, **shapes}


def _array(tensor: Any) -> Array:
    values = numpy_helper.to_array(tensor)
    return np.asarray(values.astype(FOUR_BITS.get(tensor.data_type, values.dtype)))


def _initializers(graph: OnnxGraph) -> Iterator[Any]:
    used = {name for node in graph.nodes for name in node.input}
    for name, array in graph.constants.items():
        if name in used:
            yield numpy_helper.from_array(array, name)


def _shapes(graph: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    for info in (*graph.input, *graph.value_info, *graph.output):
        extents = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        if info.type.tensor_type.HasField("shape") and all(extents):
            yield info.name, tuple(extents)
    for tensor in graph.initializer:
        yield tensor.name, tuple(tensor.dims)


def _types(graph: Any) -> Iterator[tuple[str, Any]]:
    for info in (*graph.input, *graph.value_info):
        yield info.name, helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)


def as_it_is(graph: OnnxGraph, node: Any) -> None:
    """Add a node as it is."""
    graph.nodes.append(node)
