"""Finds chains by dataflow: the element-wise steps between one 8-bit value and another that depends on it alone.

A front end says what each of its calls is. Values are what it has for them: anything that can be a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from byoc_hw.frontend.connect import Value

_MOST_ORIGINS = 64  # of one value: a longer chain becomes several


@dataclass(frozen=True)
class ChainStep:
    """A call: its value, what it reads beside constants, whether it is element-wise, whether its value has 8 bits, and
    whether it is a layer, which alone stays what it is."""

    value: Value
    reads: tuple[Value, ...]
    element_wise: bool
    is_8_bit: bool
    is_layer: bool


@dataclass(frozen=True)
class FoundChain:
    """The values from behind `source` to the result, in order."""

    source: Value
    values: tuple[Value, ...]


def found_chains(
    steps: Sequence[ChainStep],
    results: Iterable[Value],
    is_8_bit: Callable[[Value], bool],
    accepted: Callable[[FoundChain], bool],
) -> list[FoundChain]:
    """Chains that are accepted, the longest before shorter ones with the same result; the last result first.

    They may share steps; no chain computes only what others leave unused. `is_8_bit` is of values that no step has.
    """
    of = {step.value: step for step in steps}
    order = {step.value: place for place, step in enumerate(steps)}
    origins = _origins(steps, lambda value: of[value].is_8_bit if value in of else is_8_bit(value))
    found: list[FoundChain] = []
    needed = set(results)
    for step in reversed(steps):
        if step.value not in needed:
            continue
        candidates = _candidates(step, origins[step.value], of, order) if step.is_8_bit else iter(())
        chain = next(filter(accepted, candidates), None)
        if chain is None:
            needed.update(step.reads)
        else:
            found.append(chain)
            needed.add(chain.source)
    return found


def _origins(steps: Sequence[ChainStep], is_8_bit: Callable[[Value], bool]) -> dict[Value, tuple[Value, ...]]:
    """For each value the 8-bit ones that it depends on alone, the nearest first."""
    origins: dict[Value, tuple[Value, ...]] = {}
    for step in steps:
        common: list[Value] | None = None
        for read in step.reads if step.element_wise else ():
            own = [*([read] if is_8_bit(read) else []), *origins.get(read, ())]
            common = own if common is None else [one for one in common if one in own]
        origins[step.value] = tuple(common or ())[:_MOST_ORIGINS]
    return origins


def _candidates(
    step: ChainStep, origins: Sequence[Value], of: dict[Value, ChainStep], order: dict[Value, int]
) -> Iterator[FoundChain]:
    for source in reversed(origins):
        inside = {step.value}
        left = [step]
        while left:
            for read in left.pop().reads:
                if read not in inside and read != source:
                    inside.add(read)
                    left.append(of[read])
        if len(inside) > 1 or not step.is_layer:
            yield FoundChain(source, tuple(sorted(inside, key=order.__getitem__)))
