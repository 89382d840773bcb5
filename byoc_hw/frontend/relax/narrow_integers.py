"""Integers narrower than int in C, with as many bits as TVM's llvm build gives them.

C computes their sums as int, so what is computed further of one that overflows is of another value. And TVM takes a
cast for one that changes no value, as int8 of a uint8, and then leaves out what it needs where that is negative. So
both become C's own casts, which TVM knows nothing of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm_ffi import structural

from byoc_hw.frontend.relax.versions import tir

_WIDE = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}
_SUMS = (tir.Add, tir.Sub, tir.Mul)
_BITS = (tir.BitwiseNot, tir.LShift)


def with_own_bits(function: Any) -> Any:
    """The function with casts in C behind sums, products, shifts and complements of narrow integers."""
    rules: list[tuple[Any, Callable[[Any], Any]]] = [(kind, _computed) for kind in (*_SUMS, *_BITS)]
    rules += [(tir.Cast, _cast), (tir.BufferStore, _stored)]
    return function.with_body(structural.structural_map(function.body, rules, order="post"))


def _computed(node: Any) -> Any:
    dtype = _dtype(node)
    if dtype not in _WIDE:
        return node
    operands = [node.a] if isinstance(node, tir.BitwiseNot) else [node.a, node.b]
    return _narrowed(type(node)(*(tir.Cast(_WIDE[dtype], operand) for operand in operands)), dtype)


def _cast(node: Any) -> Any:
    source = _dtype(node.value)
    if _dtype(node) not in _WIDE or not source.startswith(("int", "uint")) or source == _dtype(node):
        return node
    return _narrowed(node.value, _dtype(node))


def _stored(store: Any) -> Any:
    """What is stored has the bits of its type by that alone; a product of uint16 may be beyond int."""
    value = store.value
    if not _is_narrowed(value):
        return store
    inner, dtype = value.args[1], _dtype(value)
    if isinstance(inner, _SUMS) and not (isinstance(inner, tir.Mul) and dtype == "uint16"):
        sides = [side.value for side in (inner.a, inner.b) if isinstance(side, tir.Cast)]
        if len(sides) == 2 and all(_dtype(side) == dtype for side in sides):
            return tir.BufferStore(store.buffer, type(inner)(*sides), store.indices)
    return store


def _dtype(node: Any) -> str:
    return str(getattr(getattr(node, "ty", None), "dtype", ""))


def _narrowed(value: Any, dtype: str) -> Any:
    return tir.call_pure_extern(dtype, f"({dtype}_t)", value)


def _is_narrowed(value: Any) -> bool:
    return isinstance(value, tvm.ir.Call) and len(value.args) == 2 and str(value.args[0]).strip('"').startswith("(")
