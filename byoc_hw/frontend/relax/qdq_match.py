"""What a pattern matched in a Relax module, and the reading of it into the fields of a layer.

Shapes are in the layout of `graph.py` (activations NHWC, weights OHWI).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import dpl

from byoc_hw.frontend.dead_channels import HARMLESS_RATIO, is_dead
from byoc_hw.frontend.relax.bindings import names_in
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of, is_call, name_of, number_of
from byoc_hw.pattern import Form, NotALayer
from byoc_hw.tensor import Array, Padding, Pair, Quantization, Tensor


@dataclass(frozen=True)
class StoredTensor:
    """A quantized tensor where it becomes real: what is stored, its scales and zero points, and their axis."""

    expr: Any
    scales: Array
    zero_points: Array
    axis: int

    @property
    def quantization(self) -> Quantization:
        """One scale and one zero point of the whole tensor; vectors of equal values count as one."""
        return Quantization((_one("scale", self.scales),), (int(_one("zero point", self.zero_points)),))


@dataclass(frozen=True)
class QdqMatch:
    """A matched expression: `calls` from the innermost to the outermost, `inputs` what the wildcards matched, in order.

    An input that is read twice is there twice. `values` are those of the variables that are bound before it.
    """

    root: Any
    calls: tuple[Any, ...]
    inputs: list[Any]
    values: Mapping[Any, Any]

    @classmethod
    def of(cls, form: Form, root: Any, values: Mapping[Any, Any]) -> QdqMatch | None:
        """The match of a form at a call, or None."""
        found = form.pattern.extract_matched_expr(root, values)
        if found is None:
            return None
        inside = [one for pattern, one in found.items() if isinstance(pattern, dpl.pattern.CallPattern)]
        free = [one for pattern, one in found.items() if isinstance(pattern, dpl.pattern.WildcardPattern)]
        calls: dict[Any, None] = {}
        inputs: list[Any] = []

        def visit(expr: Any) -> None:
            value = values.get(expr, expr) if isinstance(expr, relax.Var) else expr
            if any(value.same_as(one) for one in inside):
                for argument in value.args:
                    visit(argument)
                calls[value] = None
            elif isinstance(value, relax.Tuple):
                for field in value.fields:
                    if dtype_of(field):
                        inputs.append(field)
            elif dtype_of(expr) and any(one.same_as(expr) or one.same_as(value) for one in free):
                inputs.append(expr)

        visit(root)
        return cls(root, tuple(calls), inputs, values)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The operators of the model file that were matched, in order."""
        return tuple(dict.fromkeys(name for call in self.calls for name in names_in(call.span)))

    @cached_property
    def name(self) -> str:
        """The name of the layer: the operator of the file that the last call is of, before it is quantized."""
        return name_of_layer(self.calls)

    @property
    def is_real(self) -> bool:
        """Whether the result is floating point."""
        return dtype_of(self.root).startswith("float")

    def get(self, operator: str) -> Any | None:
        """The last matched call of an operator, or None."""
        return next((call for call in reversed(self.calls) if name_of(call) == operator), None)

    def __getitem__(self, operator: str) -> Any:
        """The last matched call of an operator; `KeyError` without one."""
        call = self.get(operator)
        if call is None:
            raise KeyError(operator)
        return call

    def value(self, expr: Any) -> Any:
        """What an expression is: of a variable its value, if it is bound before."""
        return self.values.get(expr, expr) if isinstance(expr, relax.Var) else expr

    # ---------------------------------------------------------------- tensors

    def activation(self, expr: Any, name: str, quantization: Quantization | None = None) -> Tensor:
        """An activation."""
        value = self.value(expr)
        data = array_of(value) if isinstance(value, Literal) else None
        return Tensor(name, extents_of(expr), dtype_of(expr), quantization=quantization, data=data)

    def stored(self, expr: Any) -> StoredTensor:
        """What a dequantize, perhaps under another shape, makes real; `NotALayer` for anything else."""
        call = self.value(expr)
        if is_call(call, "reshape"):
            call = self.value(call.args[0])
        if not is_call(call, "dequantize"):
            raise NotALayer("operands are quantized", dtype_of(expr))
        source, scale, zero_point = call.args
        return StoredTensor(source, array_of(scale), array_of(zero_point), int(call.attrs.axis))

    def constant(self, expr: Any) -> Array:
        """The values of a constant, which may be in another order."""
        value = self.value(expr)
        if isinstance(value, Literal):
            return array_of(value)
        assert name_of(value) == "permute_dims", "the forms have no other calls on constants"
        axes = value.attrs.axes
        return self.constant(value.args[0]).transpose(None if axes is None else [int(axis) for axis in axes])

    @cached_property
    def output(self) -> Quantization:
        """The quantization of the result."""
        scale, zero_point = (array_of(argument) for argument in self["quantize"].args[1:3])
        return Quantization((_one("scale", scale),), (int(_one("zero point", zero_point)),))

    def stored_bounds(self) -> Pair:
        """The range of the stored result: of the clip behind it, and of what bounds the real one before.

        A real bound is rounded as TVM's importer rounds those of fused activations.
        """
        low, high = -128.0, 127.0
        for call in self.calls:
            if name_of(call) == "nn.relu":
                low = max(low, importer_step(0.0, self.output))
            elif name_of(call) == "clip":
                bounds = [number_of(argument) for argument in call.args[1:3]]
                if any(math.isnan(bound) for bound in bounds):
                    raise NotALayer("bounds of clip are numbers", f"{bounds[0]:g} and {bounds[1]:g}")
                if dtype_of(call) != "int8":
                    bounds = [importer_step(bound, self.output) for bound in bounds]
                low, high = max(low, bounds[0]), min(high, bounds[1])
        first, last = (int(min(max(bound, -128), 127)) for bound in (low, high))
        return first, max(first, last)

    # ---------------------------------------------------------------- layers of two operands

    def pairwise(self, operator: str) -> dict[str, Any]:
        """The fields of an element-wise layer of two tensors.

        The operand that is broadcast becomes the second input, also of the match.
        """
        call, name = self[operator], self.name
        operands = [self.stored(argument) for argument in call.args[:2]]
        if math.prod(extents_of(operands[0].expr)) < math.prod(extents_of(operands[1].expr)):
            operands.reverse()
        self.inputs[:] = [one.expr for one in operands]
        for one in operands:
            if isinstance(self.value(one.expr), Literal) and math.prod(extents_of(one.expr)) == 1:
                raise NotALayer("a constant operand has several values: with one the layer is a table", "1")
        ofm = self.activation(self.root, name, self.output)
        ifm, ifm2 = (
            self.activation(one.expr, f"{name}_{what}", one.quantization)
            for what, one in zip(("ifm", "ifm2"), operands, strict=True)
        )
        act_min, act_max = self.stored_bounds()
        return {
            "name": name,
            "source": self.sources,
            "ifm": replace(ifm, shape=ofm.shape) if ifm.elements == ofm.elements else ifm,
            "ifm2": ifm2,
            "ofm": ofm,
            "act_min": act_min,
            "act_max": act_max,
        }

    # ---------------------------------------------------------------- sums of products

    def product(self, operator: str, weights: Array, axis: int) -> dict[str, Any]:
        """The fields of a layer of constant weights, which are given with the output channels first.

        `axis` is that of the output channels in the weights as they become real.
        """
        call, name = self[operator], self.name
        ifm, kernel = (self.stored(argument) for argument in call.args[:2])
        quantization, sums = self._scales(ifm, kernel, len(weights), axis)
        bias = self._bias(sums, len(weights))
        dead = np.array([is_dead(scale, self.output.scale[0]) for scale in sums])
        if dead.any():
            zero_point = quantization.zero_point[0]
            each = dead.reshape(-1, *[1] * (weights.ndim - 1))
            weights = np.where(each, zero_point, weights).astype(weights.dtype)
            bias = bias if bias is None else np.where(dead, 0, bias).astype(np.int32)
            harmless = np.float32(self.output.scale[0]) * HARMLESS_RATIO
            sums = tuple(map(float, np.where(dead, harmless, sums).astype(np.float32)))
        act_min, act_max = self.stored_bounds()
        stored = np.ascontiguousarray(weights)
        return {
            "name": name,
            "source": self.sources,
            "ifm": self.activation(ifm.expr, f"{name}_ifm", ifm.quantization),
            "ofm": self.activation(self.root, name, self.output),
            "weights": Tensor(
                f"{name}_weights", stored.shape, str(stored.dtype), quantization=quantization, data=stored
            ),
            "bias": None if bias is None else Tensor(f"{name}_bias", (len(weights),), "int32", 32, data=bias),
            "accumulator": Quantization(sums, (0,), axis=None if len(sums) == 1 else -1),
            "act_min": act_min,
            "act_max": act_max,
        }

    def _scales(
        self, ifm: StoredTensor, kernel: StoredTensor, channels: int, axis: int
    ) -> tuple[Quantization, tuple[float, ...]]:
        """The quantization of the weights, and the scales of the sums: one, or one for each output channel."""
        scales = kernel.scales.astype(np.float32).ravel()
        if scales.size > 1 and kernel.axis != axis:
            raise NotALayer(f"scales of weights lie along axis {axis}, the output channels", kernel.axis)
        if scales.size not in (1, channels):
            raise NotALayer(f"scales of weights are one, or one for each of {channels} channels", scales.size)
        zero_point = int(_one("weight zero point", kernel.zero_points))
        sums = (np.float32(ifm.quantization.scale[0]) * scales).astype(np.float32)
        return Quantization(tuple(map(float, scales)), (zero_point,), axis=0), tuple(map(float, sums))

    def _bias(self, sums: Sequence[float], channels: int) -> Array | None:
        call = self.get("add")
        if call is None:
            return None
        stored = self.stored(call.args[1])
        values = self.constant(stored.expr)
        if str(values.dtype) != "int32":
            raise NotALayer("bias is int32", values.dtype)
        if values.size not in (1, channels) or (values.ndim > 1 and values.shape[-1] != values.size):
            raise NotALayer("bias lies along the output channels", f"shape {values.shape}")
        if stored.zero_points.any():
            raise NotALayer("zero point of the bias is 0", stored.zero_points.flat[0])
        scales = stored.scales.astype(np.float64).ravel()
        if not np.allclose(scales, np.array(sums), rtol=1e-4, atol=0):
            raise NotALayer("scale of the bias is the input's times the weights'", f"{scales[0]:g} for {sums[0]:g}")
        return np.ascontiguousarray(np.broadcast_to(values.reshape(-1), (channels,)).astype(np.int32))


def name_of_layer(calls: Sequence[Any]) -> str:
    """The operator of the model file that the last of some calls is of: one that computes, if there is any."""
    computing = [call for call in calls if name_of(call) not in ("dequantize", "quantize")]
    return next(reversed(names_in((computing or calls)[-1].span)), "layer")


def importer_step(bound: float, of: Quantization) -> float:
    """A real bound as a stored value, not limited to int8: rounded as TVM's importers round those of activations."""
    quotient = bound / of.scale[0]
    return quotient if math.isinf(quotient) else float(round(quotient) + of.zero_point[0])


def pair_of(values: Sequence[Any]) -> Pair:
    """Two extents, height and width."""
    height, width = (int(value) for value in values)
    return height, width


def padding_of(values: Sequence[Any]) -> Padding:
    """Top, left, bottom, right."""
    top, left, bottom, right = (int(value) for value in values)
    return top, left, bottom, right


def _one(what: str, values: Array) -> float:
    if not np.array_equal(values, np.full_like(values, values.flat[0])):
        raise NotALayer(f"one {what} for the whole tensor", f"{values.size} different ones")
    return float(values.flat[0])
