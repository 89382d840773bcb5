"""Products of two matrices that are computed: the order of their dimensions, and the layer that they are."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import relax

from byoc_hw.frontend.relax.bindings import Assignment, call_on, steps_of, with_steps
from byoc_hw.frontend.relax.qdq_match import QdqMatch
from byoc_hw.frontend.relax.qdq_moves import permutation_of
from byoc_hw.frontend.relax.versions import Literal, dtype_of, extents_of, is_call
from byoc_hw.graph import MatMul
from byoc_hw.pattern import NotALayer
from byoc_hw.tensor import Quantization, Tensor


def with_columns_last(function: Any) -> Any:
    """The function with the second operand of each product of computed matrices behind a permute_dims.

    The accelerator reads the second matrix by columns. Where nothing exchanges its dimensions they are exchanged twice:
    the first time is a layer of its own, the second one is part of the product.
    """
    values = dict(steps_of(function))
    needed = {value.args[1] for value in values.values() if is_call(value, "matmul") and _is_plain(value, values)}
    steps: list[Assignment] = []
    for variable, value in values.items():
        if variable in needed:
            source = value.args[0]
            for _ in range(2):
                made = relax.op.permute_dims(source, _exchanged(len(extents_of(source))))
                shape = [extents_of(source)[axis] for axis in permutation_of(made)]
                turned = relax.DataflowVar(f"{variable.name}_turned", relax.TensorType(shape, dtype_of(source)))
                steps.append((turned, call_on(made, made.args, turned.ty, value.span)))
                source = turned
            value = call_on(value, [source, *value.args[1:]], value.ty)
        steps.append((variable, value))
    return with_steps(function, steps)


def _exchanged(rank: int) -> list[int]:
    """The last two dimensions exchanged."""
    return [*range(rank - 2), rank - 1, rank - 2]


def _is_plain(product: Any, values: dict[Any, Any]) -> bool:
    """Whether both operands are computed int8 matrices, and the second one is in its own order of dimensions."""
    operands = [values.get(one) for one in product.args[:2]]
    stored = [one.args[0] for one in operands if is_call(one, "dequantize")]
    computed = [one for one in stored if not isinstance(one, Literal) and dtype_of(one) == "int8"]
    if len(computed) < 2 or any(len(extents_of(one)) < 2 for one in computed):
        return False
    before = values.get(stored[1])
    return not (is_call(before, "permute_dims") and permutation_of(before) == _exchanged(len(extents_of(before))))


def matmul_of(match: QdqMatch) -> MatMul:
    """The layer of a matched product of two computed matrices, or of as many pairs of them."""
    product, name = match["matmul"], match.name
    one, other = (match.stored(operand) for operand in product.args[:2])
    turned = match.value(other.expr)
    if permutation_of(turned) != _exchanged(len(extents_of(turned))):
        raise NotALayer("the last two dimensions of the second operand are exchanged", permutation_of(turned))
    source = turned.args[0]
    *batch, rows, depth = extents_of(one.expr)
    *others, vectors, _ = extents_of(source)
    if prod(others) == 1:  # one second operand for all items: they are one item
        items, rows = 1, prod(batch) * rows
    elif batch == others:
        items = prod(batch)
    else:
        raise NotALayer("the second operand has one item, or as many as the first", f"{others} for {batch}")
    scale = np.float32(one.quantization.scale[0]) * np.float32(other.quantization.scale[0])
    act_min, act_max = match.stored_bounds()

    def tensor(expr: Any, of: str, shape: tuple[int, ...], grid: Quantization) -> Tensor:
        return Tensor(of, shape, dtype_of(expr), quantization=grid)

    return MatMul(
        name=name,
        source=match.sources,
        ifm=tensor(one.expr, f"{name}_ifm", (items, rows, 1, depth), one.quantization),
        ifm2=tensor(source, f"{name}_ifm2", (items, vectors, depth), other.quantization),
        ofm=tensor(match.root, name, (items, rows, 1, vectors), match.output),
        accumulator=Quantization((float(scale),), (0,)),
        act_min=act_min,
        act_max=act_max,
    )
