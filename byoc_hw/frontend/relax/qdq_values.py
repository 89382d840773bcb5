"""The tables of chains: what their operators give for all 256 values, as Relay's golden semantics or TFLite have it.

An operator of the file is what a quantize ends. One of two quantized operands, and one that only rescales and limits,
is fixed point. The others are float32, rounded with halves away from zero; with TFLite's numerics, its kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from byoc_hw.frontend.relax.bindings import names_in, steps_of
from byoc_hw.frontend.relax.forms import composite_layer
from byoc_hw.frontend.relax.qdq_chains import QdqChain
from byoc_hw.frontend.relax.qdq_match import importer_step
from byoc_hw.frontend.relax.real_functions import REAL_FUNCTIONS
from byoc_hw.frontend.relax.regions import composite_name
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, name_of, number_of
from byoc_hw.frontend.seam import FixedPoint
from byoc_hw.frontend.tflite_kernels import (
    ELU,
    EXP,
    GELU,
    SIGMOID,
    TANH,
    Scales,
    ValueKernel,
    absolute,
    half_away,
    hard_swish_of,
    inverse_root_of,
    leaky_relu,
    limited_between,
    quantized_again,
)
from byoc_hw.graph import Add, Layer, Lookup, Mul
from byoc_hw.numerics import in_numerics
from byoc_hw.pattern import NotALayer
from byoc_hw.tensor import Array, Pair, Quantization, Tensor


@dataclass(frozen=True)
class _Leaf:
    """A quantized tensor in an expression of real values: its stored ones as int64, of shape (256, channels) or (1,
    channels) of a constant, and its quantization."""

    name: Any
    stored: Array
    quantization: Quantization


_Tree = Any
"""An expression of real values: a leaf, an array of float32, or a tuple of an operator, operands and numbers."""


def tables_of(chain: QdqChain, numerics: str, by: FixedPoint) -> Array | str:
    """A chain's tables, uint8 of shape (channels, 256) by the input's byte; or why it has none."""
    dtype = dtype_of(chain.source)
    every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.int64)[:, np.newaxis]
    table = _Tables(chain, numerics, by, {chain.source: every})
    for variable, call in zip(chain.variables, chain.calls, strict=True):
        if dtype_of(variable) not in ("int8", "uint8"):
            continue
        try:
            found = table.kernel(call)
        except NotALayer as error:
            return f"{_described(call, chain)}: {error.broken}"
        if found is None:
            return f"{_described(call, chain)}: its arithmetic in TFLite is not known"
        limits = np.iinfo(dtype_of(variable))
        table.values[variable] = np.clip(found, limits.min, limits.max)
    result = table.values[chain.result].astype(dtype_of(chain.result))
    channels = chain.channels
    return np.ascontiguousarray(np.broadcast_to(result, (256, channels)).T).view(np.uint8)


def _described(call: Any, chain: QdqChain) -> str:
    names = names_in(call.span) or chain.sources
    return f"{name_of(call)} ({', '.join(names)})"


@dataclass
class _Tables:
    chain: QdqChain
    numerics: str
    by: FixedPoint
    values: dict[Any, Array]

    def kernel(self, call: Any) -> Array | None:
        """The values of a call with 8-bit results, or None where TFLite has no kernel."""
        if call.op in self.chain.composites:
            return self._composite(self.chain.composites[call.op], call)
        if name_of(call) == "clip":
            low, high = (number_of(bound) for bound in call.args[1:3])
            return np.clip(self.values[call.args[0]], low, max(low, high)).astype(np.int64)
        assert name_of(call) == "quantize", "the element-wise calls with 8-bit results"
        scale, zero_point = (array_of(argument).item() for argument in call.args[1:3])
        after = Quantization((float(np.float32(scale)),), (int(zero_point),))
        tree = self._tree(call.args[0], self.chain.values)
        bounds, inner = _limits(tree)
        if self.numerics == "float":
            return self._real(tree, after)
        if isinstance(inner, _Leaf):
            return self._rescaled(inner, bounds, after)
        if inner[0] in ("add", "subtract", "multiply") and all(isinstance(one, _Leaf) for one in inner[1:]):
            return self._pairwise(inner, bounds, after)
        return self._real(tree, after) if self.numerics == "relay" else self._by_tflite(tree, after)

    # ---------------------------------------------------------------- layers

    def _composite(self, composite: Any, call: Any) -> Array | None:
        inner = dict(steps_of(composite))
        parsed = composite_layer(composite_name(composite), inner[composite.body.body], inner)
        assert parsed is not None, "the table has matched it"
        layer, match = parsed
        arguments = dict(zip(composite.params, call.args, strict=True))
        operands = [self._operand(arguments.get(one, one)) for one in match.inputs]
        return self._layer(layer, *operands)

    def _operand(self, value: Any) -> Array:
        return _by_channel(array_of(value)) if isinstance(value, Literal) else self.values[value]

    def _layer(self, layer: Layer, first: Array, second: Array | None = None) -> Array | None:
        if isinstance(layer, Lookup):
            entries: Array = layer.tables[np.arange(len(layer.tables)), first & 0xFF]
            return entries.view(layer.ofm.dtype).astype(np.int64)
        if not isinstance(layer, Add | Mul) or second is None:
            return None
        return self.by.pairwise(in_numerics(layer, self.numerics), first, second)

    def _pairwise(self, tree: _Tree, bounds: Pair | None, after: Quantization) -> Array | None:
        operator, first, second = tree
        low, high = (-128, 127) if bounds is None else (importer_step(bound, after) for bound in bounds)
        quantizations = {"ifm": first.quantization, "ifm2": second.quantization, "ofm": after}
        fields: dict[str, Any] = {name: Tensor(name, (1,), quantization=of) for name, of in quantizations.items()}
        fields |= {"act_min": max(int(low), -128), "act_max": int(min(high, 127))}
        layer: Layer = Mul("", (), **fields)
        if operator != "multiply":
            layer = Add("", (), **fields, subtract="ifm2" if operator == "subtract" else "")
        return self._layer(layer, first.stored, second.stored)

    def _rescaled(self, leaf: _Leaf, bounds: Pair | None, after: Quantization) -> Array:
        of, ifm = Scales(leaf.quantization, after), leaf.stored - leaf.quantization.zero_point[0]
        if self.numerics == "tflite":
            kernel = quantized_again if bounds is None else limited_between(*bounds)
            return kernel(of, ifm, self.by) + after.zero_point[0]
        if bounds is not None:  # TVM's importer of Relay limits the input
            low, high = (importer_step(bound, of.before) for bound in bounds)
            ifm = np.clip(ifm, max(low, -128) - of.before.zero_point[0], min(high, 127) - of.before.zero_point[0])
        ratio = float(np.float32(of.before.scale[0])) / float(np.float32(after.scale[0]))
        return self.by.rescaled(ifm.astype(np.int64), ratio, "upward") + after.zero_point[0]

    # ---------------------------------------------------------------- real values

    def _tree(self, expr: Any, values: Mapping[Any, Any]) -> _Tree:
        if isinstance(expr, Literal):
            return _by_channel(array_of(expr))
        call = values[expr] if isinstance(expr, relax.Var) else expr
        if name_of(call) != "dequantize":
            operands = tuple(self._tree(one, values) for one in call.args if dtype_of(one))
            return (name_of(call), *operands, *_numbers(call))
        source, scale, zero_point = call.args
        of = Quantization((float(np.float32(array_of(scale).item())),), (int(array_of(zero_point).item()),))
        stored = self._operand(source).astype(np.int64)
        return _Leaf(id(source) if isinstance(source, Literal) else source, stored, of)

    def _real(self, tree: _Tree, after: Quantization) -> Array:
        """As TVM computes it with Relay's operators; with numerics "float" rounded as its `quantize` of Relax does."""
        with np.errstate(all="ignore"):
            real = _computed(tree)
            wrong = np.isnan(real)
            if wrong.any():
                raise NotALayer("values of all 256 inputs are numbers", "nan")
            units = _over(real, np.float32(after.scale[0])).astype(np.float64)
        rounded = (np.rint(units) if self.numerics == "float" else half_away(units)) + after.zero_point[0]
        return np.clip(rounded, -(1 << 31), (1 << 31) - 1).astype(np.int64)

    def _by_tflite(self, tree: _Tree, after: Quantization) -> Array | None:
        leaves = list(_leaves(tree))
        if any(leaf.name != leaves[0].name or leaf.quantization != leaves[0].quantization for leaf in leaves):
            return None
        kernel, leaf = _kernel_of(_plain(tree)), leaves[0]
        if kernel is None:
            return None
        ifm = leaf.stored - leaf.quantization.zero_point[0]
        return kernel(Scales(leaf.quantization, after), ifm, self.by) + after.zero_point[0]


def _by_channel(values: Array) -> Array:
    return values.reshape(1, -1)


def _numbers(call: Any) -> tuple[float, ...]:
    """What an operator has beside its operands: the bounds of clip, the slope of leaky ReLU, softplus' own."""
    if name_of(call) == "nn.leakyrelu":
        return (float(call.attrs.alpha),)
    if name_of(call) == "nn.softplus":
        return (float(call.attrs.beta), float(call.attrs.threshold))
    return tuple(number_of(bound) for bound in call.args[1:3]) if name_of(call) == "clip" else ()


def _limits(tree: _Tree) -> tuple[Pair | None, _Tree]:
    """The real bounds of an expression that is limited, and what is."""
    if isinstance(tree, tuple) and tree[0] == "nn.relu":
        return (0, math.inf), tree[1]  # type: ignore[return-value]
    if isinstance(tree, tuple) and tree[0] == "clip":
        return (tree[2], tree[3]), tree[1]
    return None, tree


def _leaves(tree: _Tree) -> Iterator[_Leaf]:
    if isinstance(tree, _Leaf):
        yield tree
    elif isinstance(tree, tuple):
        for one in tree[1:]:
            yield from _leaves(one)


# ---------------------------------------------------------------- float32, as TVM has it


def _computed(tree: _Tree) -> Array:
    if isinstance(tree, _Leaf):
        whole = (tree.stored - tree.quantization.zero_point[0]).astype(np.float32)
        return whole * np.float32(tree.quantization.scale[0])
    if not isinstance(tree, tuple):
        values: Array = np.asarray(tree, np.float32)
        return values
    operator, *operands = tree
    if operator == "divide" and isinstance(operands[1], np.ndarray):
        return _over(_computed(operands[0]), _computed(operands[1]))
    found = REAL_FUNCTIONS[operator](*(one if isinstance(one, float) else _computed(one) for one in operands))
    return found.astype(np.float32)


def _over(real: Array, constant: Array | np.float32) -> Array:
    """A quotient as TVM has it: by a constant it is a product with the reciprocal."""
    return (real * (np.float32(1) / constant)).astype(np.float32)


# ---------------------------------------------------------------- TFLite's kernels


def _plain(tree: _Tree) -> Any:
    """An expression of one value, which is "x", with numbers for constants of one element."""
    if isinstance(tree, _Leaf):
        return "x"
    if isinstance(tree, tuple):
        return (tree[0], *map(_plain, tree[1:]))
    if isinstance(tree, np.ndarray):
        return float(tree.item()) if tree.size == 1 else "constants"
    return tree


def _kernel_of(plain: Any) -> ValueKernel | None:
    if plain[0] == "nn.leakyrelu" and plain[1] == "x":
        return leaky_relu(plain[2])
    return _KERNELS.get(plain)


_HALF_ROOT = float(np.float32(math.sqrt(0.5)))
_KERNELS: Mapping[Any, ValueKernel] = {
    ("sigmoid", "x"): SIGMOID,
    ("tanh", "x"): TANH,
    ("exp", "x"): EXP,
    ("nn.gelu", "x"): GELU,
    ("abs", "x"): absolute,
    ("rsqrt", "x"): inverse_root_of,
    ("divide", ("multiply", "x", ("clip", ("add", "x", 3.0), 0.0, 6.0)), 6.0): hard_swish_of,
    ("subtract", ("nn.relu", "x"), ("nn.relu", ("subtract", 1.0, ("exp", "x")))): ELU,
    ("multiply", ("multiply", 0.5, "x"), ("add", 1.0, ("erf", ("multiply", "x", _HALF_ROOT)))): GELU,
}
"""The kernels of operators of one value."""
