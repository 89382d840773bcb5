"""Operators of newer versions of the operator set, which current exporters write, as those of older ones.

Gelu(x)                          Mul(Mul(0.5, x), Add(1, Erf(Mul(x, sqrt(0.5)))))
Gelu(x), approximate = tanh      Mul(Mul(0.5, x), Add(1, Tanh(Mul(sqrt(2 / pi), Add(x, Mul(0.044715, x * x * x))))))
Mish(x)                          Mul(x, Tanh(Softplus(x)))
Reshape(x, shape, allowzero = 1) Reshape(x, shape)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.onnx_graph import OnnxGraph, as_it_is, attributes_of, node_text


class _Function:
    """The nodes of a function of one node's input, with its name."""

    def __init__(self, graph: OnnxGraph, node: Any) -> None:
        self.graph, self.node, self.x = graph, node, str(node.input[0])

    def __call__(self, operator: str, *operands: str | float, last: bool = False) -> str:
        """The name of an operator's result, which is the node's if it is the last one."""
        dtype = self.graph.types.get(self.x, np.dtype(np.float32))
        names = [one if isinstance(one, str) else self.graph.constant(np.asarray(one, dtype)) for one in operands]
        result = self.graph.node(self.node, operator, names, self.node.output[0] if last else "")
        if self.x in self.graph.shapes:
            self.graph.shapes[result] = self.graph.shapes[self.x]
        return result


def _gelu(graph: OnnxGraph, node: Any) -> None:
    of, approximate = _Function(graph, node), attributes_of(node).get("approximate", b"none")
    if approximate == b"tanh":
        cube = of("Mul", of("Mul", of.x, of.x), of.x)
        bent = of("Tanh", of("Mul", math.sqrt(2 / math.pi), of("Add", of.x, of("Mul", 0.044715, cube))))
    else:
        bent = of("Erf", of("Mul", of.x, math.sqrt(0.5)))
    of("Mul", of("Mul", 0.5, of.x), of("Add", 1.0, bent), last=True)


def _mish(graph: OnnxGraph, node: Any) -> None:
    of = _Function(graph, node)
    of("Mul", of.x, of("Tanh", of("Softplus", of.x)), last=True)


def reshape(graph: OnnxGraph, node: Any) -> None:
    """A shape in which 0 stands for no elements: of tensors with elements it has none."""
    if not attributes_of(node).get("allowzero", 0):
        as_it_is(graph, node)
        return
    shape = graph.value(node, node.input[1], "a shape with allowzero=1")
    if not shape.all():
        raise InvalidInput(f"{node_text(node)}: a shape with allowzero=1 has no 0: got {shape.tolist()}")
    graph.node(node, "Reshape", list(node.input), node.output[0])


FUNCTIONS: dict[str, Callable[[OnnxGraph, Any], None]] = {"Gelu": _gelu, "Mish": _mish}
"""The forms of operators that opset 17 does not have."""
