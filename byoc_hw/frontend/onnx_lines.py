"""ONNX operators over one dimension become those over two, of height 1.

    y = Conv(x, w)       x: (N, C, W)        y = Conv(x, w)       x: (N, C, 1, W)
    z = Relu(y)                              z = Relu(y)
    r = Transpose(z)                         r = Transpose(Reshape(z))

Windows over two dimensions have integer forms, and TVM's importer gives a MaxPool over one a wrong shape. Values stay
in four dimensions behind them, as long as operators are the same there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc_hw.tensor import Array

_WINDOWS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
_OF_A_HEIGHT = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1}
"""Attributes with a number for each dimension, and which one a height of 1 has."""

_BROADCASTING = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu")
_OF_ONE = (
    *("QuantizeLinear", "DequantizeLinear", "Identity", "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Clip", "Sigmoid"),
    *("HardSigmoid", "HardSwish", "Tanh", "Softplus", "Softsign", "Erf", "Exp", "Log", "Sqrt", "Abs", "Neg"),
    *("BatchNormalization", "InstanceNormalization"),
)
"""Element-wise operators whose first input alone is in the form of their output."""

_Form = Callable[[Any], bool]
"""Adds a node in four dimensions; whether it could."""


def with_planes(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The model without windows over one dimension; `shapes` are those that are known, by name. Opset 17 or older."""
    graph = model.graph
    if not any(node.op_type in _WINDOWS and len(shapes.get(node.input[0], ())) == 3 for node in graph.node):
        return model
    planes = _Planes(graph, shapes)
    made = onnx.GraphProto()
    made.CopyFrom(graph)
    del made.node[:]
    made.node.extend(planes.nodes)
    made.initializer.extend(numpy_helper.from_array(array, name) for name, array in planes.made.items())
    return helper.make_model(made, opset_imports=model.opset_import, ir_version=model.ir_version)


class _Planes:
    """The nodes so far, the constants that they need, and the name in four dimensions of each value that has one."""

    def __init__(self, graph: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.nodes: list[Any] = []
        self.made: dict[str, Array] = {}
        self._shapes = shapes
        self._constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self._dequantized = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
        self._planes: dict[str, str] = {}
        self._owed: dict[str, Any] = {}
        """By name the nodes whose values are there in four dimensions alone."""
        forms: dict[str, _Form] = {
            **dict.fromkeys(_WINDOWS, self._window),
            **dict.fromkeys(_BROADCASTING, self._broadcast),
            **dict.fromkeys(_OF_ONE, self._of_one),
            **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin"), self._reduction),
            **{"Concat": self._concat, "Split": self._split, "Slice": self._slice, "Pad": self._pad},
            **{"Flatten": self._flatten, "Resize": self._resize, "Expand": self._expand},
        }
        for node in graph.node:
            form = forms.get(node.op_type) if self._may_change(node) else None
            if form is None or not form(node):
                for name in node.input:
                    self._line(name)
                self.nodes.append(node)
        for output in graph.output:
            self._line(output.name)

    def _may_change(self, node: Any) -> bool:
        """Whether shapes are known, no value has more dimensions, and there is a reason to change."""
        if not all(name in self._shapes for name in (*filter(None, node.input), *node.output)):
            return False
        reason = node.op_type in _WINDOWS or any(name in self._planes for name in node.input)
        return reason and any(self._rank(name) == 3 for name in node.input)

    def _rank(self, name: str) -> int:
        return len(self._shapes[name])

    # ------------------------------------------------------------ values

    def _constant(self, array: Array) -> str:
        name = f"byoc_hw_plane_constant_{len(self.made)}"
        self.made[name] = array
        return name

    def _plane(self, name: str, reader: Any) -> str:
        """The name of a value of three dimensions in four."""
        if name not in self._planes:
            batch, channels, width = self._shapes[name]
            shape = (batch, channels, 1, width)
            if name in self._constants:
                self._planes[name] = self._constant(self._constants[name].reshape(shape))
            elif self._is_weight(name):
                self._of_one(self._dequantized[name])
                del self._owed[name]  # it is there in its own dimensions as well
            else:
                self._planes[name] = f"byoc_hw_plane_of_{name}"
                self._reshape(name, self._planes[name], shape, reader)
        return self._planes[name]

    def _is_weight(self, name: str) -> bool:
        """Whether a value is a dequantized constant, with one scale or one for each index of its first axes."""
        node = self._dequantized.get(name)
        return node is not None and node.input[0] in self._constants and self._is_in_one_form(node)

    def _line(self, name: str) -> None:
        """See that a value is there in its own dimensions."""
        node = self._owed.pop(name, None)
        if node is not None:
            self._reshape(self._planes[name], name, self._shapes[name], node)

    def _reshape(self, name: str, output: str, shape: tuple[int, ...], like: Any) -> None:
        inputs = [name, self._constant(np.asarray(shape, np.int64))]
        self.nodes.append(helper.make_node("Reshape", inputs, [output], like.name))

    def _put(self, node: Any, inputs: list[str], **changed: object) -> bool:
        """Add a node in four dimensions, with some attributes changed."""
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute} | changed
        outputs = []
        for name in node.output:
            if self._rank(name) != 3:
                outputs.append(name)
                continue
            self._planes[name] = f"byoc_hw_plane_of_{name}"
            self._owed[name] = node
            outputs.append(self._planes[name])
        self.nodes.append(helper.make_node(node.op_type, inputs, outputs, node.name, **attributes))
        return True

    # ------------------------------------------------------------ operators

    def _window(self, node: Any) -> bool:
        if len(node.output) > 1 or self._rank(node.input[0]) != 3:  # of a MaxPool: places in the flat tensor
            return False
        changed: dict[str, object] = {}
        for one in node.attribute:
            values = helper.get_attribute_value(one)
            if one.name in _OF_A_HEIGHT:
                changed[one.name] = [_OF_A_HEIGHT[one.name], *values]
            elif one.name == "pads":
                changed[one.name] = [0, values[0], 0, values[1]]
        return self._put(node, [*(self._plane(name, node) for name in node.input[:2]), *node.input[2:]], **changed)

    def _of_one(self, node: Any) -> bool:
        inputs = [self._plane(node.input[0], node), *node.input[1:]] if self._is_in_one_form(node) else []
        return bool(inputs) and self._put(node, inputs)

    def _is_in_one_form(self, node: Any) -> bool:
        """Whether the one output is in the form of the first input, and other inputs are as they are in four."""
        if len(node.output) > 1 or self._rank(node.input[0]) != 3:
            return False
        several = node.op_type in ("QuantizeLinear", "DequantizeLinear") and self._rank(node.input[1]) > 0
        axes = (helper.get_attribute_value(one) for one in node.attribute if one.name == "axis")
        return not several or next(axes, 1) in (0, 1)

    def _broadcast(self, node: Any) -> bool:
        inputs = []
        for name in node.input:
            rank = self._rank(name)
            if rank > 3 or (rank == 2 and name not in self._constants):
                return False
            if rank == 2:
                height, width = self._shapes[name]
                name = self._constant(self._constants[name].reshape(1, height, 1, width))
            inputs.append(self._plane(name, node) if rank == 3 else name)
        return self._put(node, inputs)

    def _reduction(self, node: Any) -> bool:
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if [axis % 3 for axis in attributes.get("axes", ())] != [2]:
            return False
        return self._put(node, [self._plane(node.input[0], node)], axes=[2, 3])

    def _concat(self, node: Any) -> bool:
        axis = helper.get_attribute_value(node.attribute[0])
        return self._put(node, [self._plane(name, node) for name in node.input], axis=_moved(axis))

    def _split(self, node: Any) -> bool:
        axis = next((helper.get_attribute_value(one) for one in node.attribute if one.name == "axis"), 0)
        return self._put(node, [self._plane(node.input[0], node), *node.input[1:]], axis=_moved(axis))

    def _slice(self, node: Any) -> bool:
        data, *operands = node.input
        if len(operands) < 2 or any(name and name not in self._constants for name in operands):
            return False
        if len(operands) > 2 and operands[2]:
            axes = self._constants[operands[2]]
        else:
            axes = np.arange(self._constants[operands[0]].size)
        moved = self._constant(np.asarray([_moved(int(axis)) for axis in axes], np.int64))
        return self._put(node, [self._plane(data, node), *operands[:2], moved, *operands[3:]])

    def _pad(self, node: Any) -> bool:
        if len(node.input) < 2 or node.input[1] not in self._constants:
            return False
        before, after = self._constants[node.input[1]].reshape(2, 3).tolist()
        widths = [*before[:2], 0, before[2], *after[:2], 0, after[2]]
        pads = self._constant(np.asarray(widths, np.int64))
        return self._put(node, [self._plane(node.input[0], node), pads, *node.input[2:]])

    def _flatten(self, node: Any) -> bool:
        axis = next((helper.get_attribute_value(one) for one in node.attribute), 1)
        return axis in (0, 1, 2) and self._put(node, [self._plane(node.input[0], node)])

    def _resize(self, node: Any) -> bool:
        operands = list(node.input[1:])
        if not operands or operands[0] or any(name and name not in self._constants for name in operands):
            return False
        for place, name in enumerate(operands):
            if name:
                batch, channels, width = self._constants[name].tolist()
                numbers = np.asarray([batch, channels, 1, width], self._constants[name].dtype)
                operands[place] = self._constant(numbers)
        return self._put(node, [self._plane(node.input[0], node), *operands])

    def _expand(self, node: Any) -> bool:
        data, shape = node.input
        if shape not in self._constants or self._constants[shape].size != 3 or self._rank(data) != 3:
            return False
        batch, channels, width = self._constants[shape].tolist()
        whole = self._constant(np.asarray([batch, channels, 1, width], np.int64))
        return self._put(node, [self._plane(data, node), whole])


def _moved(axis: int) -> int:
    """An axis of three dimensions in four."""
    return (0, 1, 3)[axis % 3]
