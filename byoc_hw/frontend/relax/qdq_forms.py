"""Pieces of dataflow patterns over Relax modules in QDQ form: float operators between dequantize and quantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.relax import dpl

from byoc_hw.pattern import Form


def operator(name: str, *operands: Any) -> Any:
    """A call of an operator, named without "relax."."""
    return dpl.is_op(f"relax.{name}")(*operands)


def any_value() -> Any:
    """An input of a layer, or an argument that is no tensor."""
    return dpl.wildcard()


def real(stored: Any = None) -> Any:
    """The real values of an input, or of what `stored` matches."""
    return operator("dequantize", dpl.wildcard() if stored is None else stored, dpl.is_const(), dpl.is_const())


def real_constant() -> Any:
    """The real values of a constant, which may be in another order or shape."""
    stored = dpl.is_const()
    moved = operator("permute_dims", dpl.is_const())
    return real(stored) | real(moved) | operator("reshape", real(dpl.is_const()), dpl.wildcard())


def bounded(value: Any) -> Any:
    """A real value, or its rectified one."""
    return operator("nn.relu", value) | operator("clip", value, dpl.wildcard(), dpl.wildcard()) | value


def with_bias(total: Any) -> Any:
    """A sum, or that with a constant bias."""
    return operator("add", total, real_constant()) | total


def stored_forms(value: Callable[[], Any], anchor: str) -> tuple[Form, Form]:
    """The forms of a real value that is quantized: with a clip of the stored values behind it, and without."""

    def quantized() -> Any:
        return operator("quantize", value(), dpl.is_const(), dpl.is_const())

    return clipped_forms(quantized, anchor)


def clipped_forms(stored: Callable[[], Any], anchor: str) -> tuple[Form, Form]:
    """The forms of stored values: with a clip, and without."""
    clipped = operator("clip", stored(), dpl.wildcard(), dpl.wildcard())
    return Form(clipped, anchor), Form(stored(), anchor)


# ---------------------------------------------------------------- forms of patterns


def product_forms(name: str) -> tuple[Form, Form]:
    """The forms of a convolution, or of a matrix product, of constant weights."""
    return stored_forms(lambda: bounded(with_bias(operator(name, real(), real_constant()))), name)


def convolution_forms_of_real() -> tuple[Form, ...]:
    """The forms of a convolution behind an explicit nn.pad, and of one with its own padding."""

    def padded() -> Any:
        return bounded(with_bias(operator("nn.conv2d", real(operator("nn.pad", any_value())), real_constant())))

    return *stored_forms(padded, "nn.conv2d"), *product_forms("nn.conv2d")


def sum_forms(name: str) -> tuple[Form, Form]:
    """The forms of an operator of two quantized tensors, element by element."""
    return stored_forms(lambda: bounded(operator(name, real(), real())), name)


def operators_in(pattern: Any) -> frozenset[Any]:
    """The patterns of calls inside a pattern, each once."""
    if isinstance(pattern, dpl.pattern.OrPattern):
        return operators_in(pattern.left) | operators_in(pattern.right)
    if isinstance(pattern, dpl.pattern.CallPattern):
        return frozenset((pattern,)).union(*(operators_in(argument) for argument in pattern.args))
    return frozenset()


def operator_of(call: Any) -> str:
    """The operator of a call in a pattern, without "relax."."""
    return str(call.op.expr.name).removeprefix("relax.")
