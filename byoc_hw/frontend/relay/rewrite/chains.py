"""Chains: the element-wise operators between one 8-bit value and another that depends on it alone, found by dataflow.

A composite whose operators are all element-wise counts as one operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tvm import relay

from byoc_hw.frontend.chain_search import ChainStep, found_chains
from byoc_hw.frontend.relay.checks import HOST_TYPES
from byoc_hw.frontend.relay.read import constant, is_static
from byoc_hw.frontend.relay.sources import calls_in_order, calls_outside_composites, operator_name, source_names

_BROADCAST = 1  # TVM's OpPatternKind: element-wise is 0, with broadcasting 1
_QNN = (
    *("qnn.sigmoid", "qnn.tanh", "qnn.erf", "qnn.exp", "qnn.sqrt", "qnn.rsqrt", "qnn.log", "qnn.abs"),
    *("qnn.leaky_relu", "qnn.hardswish", "qnn.subtract"),
)
"""The element-wise ones of those operators whose kind TVM does not say."""

_OF_ANOTHER_SHAPE = ("broadcast_to", "expand_dims", "fixed_point_multiply_per_axis")
_OF_INTEGERS = (
    *("add", "subtract", "multiply", "maximum", "minimum", "negative", "abs", "clip", "nn.relu", "nn.bias_add"),
    *("cast", "where", "copy", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
    *("logical_and", "logical_or", "logical_not", "fixed_point_multiply"),
)
"""What TVM defines for integers too: no division by 0, no shift by more bits than there are."""


@dataclass(frozen=True)
class Chain:
    """The operators from `source` to the last of `calls`, in order; both values are int8 or uint8."""

    source: relay.Expr
    calls: tuple[relay.Call, ...]

    @property
    def result(self) -> relay.Call:
        return self.calls[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the source, of every value between, and of the result."""
        return tuple(int(extent) for extent in self.result.checked_type.shape)

    @property
    def channels(self) -> int:
        """The number of tables: one, or one for each index of the last dimension."""
        constants = _constants(*self.calls, *self.plain_calls)
        return self.shape[-1] if any(_size(one) > 1 for one in constants) else 1

    @property
    def sources(self) -> tuple[str, ...]:
        """The names that the model has for the operators."""
        return tuple(dict.fromkeys(name for call in self.plain_calls for name in source_names(call.span)))

    @property
    def plain_calls(self) -> list[relay.Call]:
        """The calls, and those inside composites in place of these."""
        return [inner for call in self.calls for inner in _plain(call)]


def chains(function: relay.Function, accepted: Callable[[Chain], bool]) -> list[Chain]:
    """Chains of a type-checked function that are accepted, the longest before shorter ones with the same result.

    They may share operators; no chain computes only what others leave unused.
    """
    steps = [step for call in calls_outside_composites(function) for step in _steps(call)]
    results = list(_values(function.body))
    steps += _parts(results)
    found = found_chains(steps, results, _is_8_bit, lambda one: accepted(Chain(one.source, one.values)))
    return [Chain(one.source, one.values) for one in found]


def _steps(call: relay.Call) -> Iterator[ChainStep]:
    """A call, element-wise if its operands are of its shape, behind the parts of tuples that it reads."""
    operands = [argument for argument in call.args if not isinstance(argument, relay.Constant)]
    yield from _parts(operands)
    plain = all(
        isinstance(one, relay.Call | relay.Var | relay.TupleGetItem) and _have_one_shape(one, call) for one in operands
    )
    reads = tuple(value for argument in operands for value in _values(argument))
    is_layer = isinstance(call.op, relay.Function)
    inside = plain and is_element_wise(call) and all(_is_by_channel(call, one) for one in _constants(call))
    yield ChainStep(call, reads, inside, _is_8_bit(call), is_layer)


def _parts(values: Iterable[relay.Expr]) -> Iterator[ChainStep]:
    """The parts of tuples among some values."""
    for one in values:
        if isinstance(one, relay.TupleGetItem):
            yield ChainStep(one, tuple(_values(one.tuple_value)), False, _is_8_bit(one), False)


def _values(expr: relay.Expr) -> Iterator[relay.Expr]:
    """The value of an expression, or of each field of a tuple."""
    if isinstance(expr, relay.Tuple):
        for field in expr.fields:
            yield from _values(field)
    else:
        yield expr


# ---------------------------------------------------------------- operators


def _plain(call: relay.Call) -> list[relay.Call]:
    return calls_in_order(call.op.body) if isinstance(call.op, relay.Function) else [call]


def is_element_wise(call: relay.Call) -> bool:
    """Whether each value of the result depends on the values at its place alone, and on constants by channel."""
    if isinstance(call.op, relay.Function):
        composite = str(call.op.attrs["Composite"]).partition(".")[2]
        return composite == "lookup" or all(map(is_element_wise, _plain(call)))
    name = operator_name(call)
    kind = getattr(call.op, "get_attr", lambda _: None)("TOpPattern")
    element_wise = name in _QNN or (kind is not None and kind <= _BROADCAST and name not in _OF_ANOTHER_SHAPE)
    defined = name.startswith("qnn.") or name in _OF_INTEGERS or all(map(_is_real, call.args))
    if not (element_wise and defined):
        return False
    of = call.checked_type
    plain = isinstance(of, relay.TensorType) and str(of.dtype) in HOST_TYPES
    return plain and all(_is_by_channel(call, one) for one in _constants(call))


def _constants(*calls: relay.Call) -> Iterable[relay.Constant]:
    return (argument for call in calls for argument in call.args if isinstance(argument, relay.Constant))


def _is_by_channel(call: relay.Call, operand: relay.Constant) -> bool:
    """Whether a constant is one number, or a vector along the last of at least two dimensions."""
    shape = constant(operand).shape
    if _size(operand) <= 1:
        return len(shape) <= len(call.checked_type.shape)
    rank = len(call.checked_type.shape)
    keys = call.attrs.keys() if call.attrs is not None else ()
    axes = [int(call.attrs[key]) % rank for key in keys if key.endswith("axis")] if rank else []
    along = all(axis == rank - 1 for axis in axes)
    return rank > 1 and along and shape[-1] == _size(operand) == int(call.checked_type.shape[-1])


def _size(operand: relay.Constant) -> int:
    return int(constant(operand).size)


# ---------------------------------------------------------------- types


def _is_8_bit(expr: relay.Expr) -> bool:
    of = expr.checked_type
    return isinstance(of, relay.TensorType) and of.dtype in ("int8", "uint8") and is_static(of)


def _is_real(expr: relay.Expr) -> bool:
    return isinstance(expr.checked_type, relay.TensorType) and "float" in str(expr.checked_type.dtype)


def _have_one_shape(one: relay.Expr, other: relay.Expr) -> bool:
    first, second = one.checked_type, other.checked_type
    tensors = isinstance(first, relay.TensorType) and isinstance(second, relay.TensorType)
    return tensors and is_static(first) and is_static(second) and list(first.shape) == list(second.shape)
