"""Chains in Relax modules: element-wise operators between one 8-bit value and another that depends on it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import relax

from byoc_hw.frontend.chain_search import ChainStep, found_chains
from byoc_hw.frontend.relax.bindings import names_in, operands_in, returned_by, steps_of
from byoc_hw.frontend.relax.real_functions import REAL_FUNCTIONS
from byoc_hw.frontend.relax.regions import composite_name
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, extents_of, is_call, name_of


@dataclass(frozen=True)
class QdqChain:
    """The bindings from behind `source` to the last, in order; both values are int8 or uint8.

    `values` are those of all variables, `composites` the functions that calls may be of.
    """

    source: Any
    variables: tuple[Any, ...]
    values: Mapping[Any, Any]
    composites: Mapping[Any, Any]

    @property
    def result(self) -> Any:
        return self.variables[-1]

    @property
    def calls(self) -> list[Any]:
        return [self.values[variable] for variable in self.variables]

    @cached_property
    def plain_calls(self) -> list[Any]:
        """The calls, and those inside composites in place of these; each behind the constants that it reads."""
        found = []
        for call in self.calls:
            for operand in operands_in(call):
                if is_constant_real(self.values.get(operand)):
                    found.append(self.values[operand])
            found += plain_calls(call, self.composites)
        return found

    @property
    def sources(self) -> tuple[str, ...]:
        """The names that the model has for the operators."""
        return tuple(dict.fromkeys(name for call in self.plain_calls for name in names_in(call.span)))

    @property
    def channels(self) -> int:
        """The number of tables: one, or one for each index of the last dimension."""
        sizes = (array_of(one).size for call in self.plain_calls for one in _constants(call))
        return extents_of(self.result)[-1] if max(sizes, default=1) > 1 else 1


def qdq_chains(main: Any, composites: Mapping[Any, Any], accepted: Callable[[QdqChain], bool]) -> list[QdqChain]:
    """Chains that are accepted, the longest before shorter ones with the same result."""
    values = dict(steps_of(main))
    constants = {variable for variable, value in values.items() if is_constant_real(value)}
    steps = [
        ChainStep(
            variable,
            tuple(one for one in operands_in(value) if isinstance(one, relax.Var) and one not in constants),
            _is_element_wise(variable, values, composites),
            _is_8_bit(variable),
            isinstance(value, relax.Call) and value.op in composites,
        )
        for variable, value in values.items()
    ]

    def chain(found: Any) -> QdqChain:
        return QdqChain(found.source, found.values, values, composites)

    results = returned_by(main.body.body)
    return [chain(one) for one in found_chains(steps, results, _is_8_bit, lambda one: accepted(chain(one)))]


def plain_calls(call: Any, composites: Mapping[Any, Any]) -> list[Any]:
    """A call, or those inside the composite that it is of."""
    if call.op in composites:
        return [inner for _, inner in steps_of(composites[call.op]) if isinstance(inner, relax.Call)]
    return [call]


def is_constant_real(value: Any) -> bool:
    """Whether a value is a constant behind a dequantize."""
    return is_call(value, "dequantize") and isinstance(value.args[0], Literal)


def _is_element_wise(variable: Any, values: Mapping[Any, Any], composites: Mapping[Any, Any]) -> bool:
    """Whether each value of the result depends on the values at its place alone, and on constants by channel."""
    value = values[variable]
    if not isinstance(value, relax.Call) or not dtype_of(variable):
        return False
    shape = extents_of(variable)
    for one in operands_in(value):
        constant = values.get(one)
        if is_constant_real(constant):
            if not all(_is_by_channel(each, shape) for each in _constants(constant)):
                return False
        elif isinstance(one, relax.Var) and extents_of(one) != shape:
            return False
    if value.op in composites and composite_name(composites[value.op]) == "lookup":
        return True
    return all(_is_known(call, shape) for call in plain_calls(value, composites))


def _is_known(call: Any, shape: tuple[int, ...]) -> bool:
    name = name_of(call)
    if name in ("dequantize", "quantize"):
        return all(isinstance(one, Literal) and array_of(one).size == 1 for one in call.args[1:])
    whole = not dtype_of(call).startswith("float")
    if name not in REAL_FUNCTIONS or (whole and name != "clip"):
        return False
    return all(_is_by_channel(one, shape) for one in _constants(call))


def _constants(call: Any) -> list[Any]:
    return [one for one in call.args if isinstance(one, Literal)]


def _is_by_channel(operand: Any, shape: tuple[int, ...]) -> bool:
    """Whether a constant is one number, or a vector along the last of at least two dimensions."""
    found = array_of(operand).shape
    if array_of(operand).size <= 1:
        return len(found) <= len(shape)
    return len(shape) > 1 and found[-1] == array_of(operand).size == shape[-1]


def _is_8_bit(value: Any) -> bool:
    return dtype_of(value) in ("int8", "uint8")
