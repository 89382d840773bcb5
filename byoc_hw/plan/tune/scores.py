"""The scores of choices, worked out here or by the workers of an executor."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple, TypeVar

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.graph import Graph
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.search.within import Room, sized
from byoc_hw.plan.stages import lay_out
from byoc_hw.plan.steps import SCRATCH
from byoc_hw.plan.tune.space import SearchSpace
from byoc_hw.soc import Hardware, Soc, accelerators_of
from byoc_hw.tensor import Tensor


class Score(NamedTuple):
    """The score of a plan: accelerator cycles, then copies and jobs, then bytes of main memory."""

    cycles: int
    operations: int
    main_memory: int


class RegionScores:
    """The scores of choices of a region on one accelerator, whose plans `room` limits, or else RAM."""

    def __init__(self, graph: Graph, accelerator: Accelerator, room: Room | None = None) -> None:
        self._space, self._room = SearchSpace(graph, accelerator), room

    def __call__(self, choices: Choices, most: float = inf, near: float | None = None) -> Score | None:
        """The score of choices; None where they do not fit memory or have more than `most` operations. Operations are
        cut finely in plans alone that take up to `near` cycles otherwise."""
        mapped, room = self._space.groups_of(choices).mapped, self._room
        try:
            layout = lay_out(mapped, replace(choices, fine=choices.fine and near is None), exact=True, most=most)
            if choices.fine and near is not None and layout.cycles <= near:
                layout = lay_out(mapped, choices, exact=True, most=most)
        except PlanError:
            return None
        memory = sum(storage.nbytes for storage, home in layout.work.homes.items() if home.address.space == SCRATCH)
        constants = 0 if mapped.accelerator.dma_reads_flash else layout.flash.nbytes
        small = memory + constants <= mapped.accelerator.ram
        fits = small if room is None else room.holds(sized(layout, room.border))
        return Score(layout.cycles, len(layout.work.ops), memory) if fits else None


_Hardware = TypeVar("_Hardware", bound=Hardware)


@dataclass(frozen=True)
class _Problem:
    """A region without its values, the tensors that are constants by name, and who gives its choices scores."""

    scores: Callable[[Graph, Any, Room | None], Any]
    graph: Graph
    constants: frozenset[str]
    hardware: Hardware
    room: Room | None


def packed(
    scores: Callable[[Graph, _Hardware, Room | None], Any], graph: Graph, hardware: _Hardware, room: Room | None = None
) -> bytes:
    """A region for `evaluated`, with who gives its choices scores and the limits of its plans, and without values that
    plans do not depend on: small enough to send with each task.

    Raises `InvalidInput` for a description of the hardware with functions that cannot be sent.
    """
    constants = set[str]()
    bare: dict[Tensor, Tensor] = {}

    def strip(tensor: Tensor) -> Tensor:
        if tensor not in bare:
            if tensor.data is not None:
                constants.add(str(len(bare)))
            known = tensor.quantization  # what lies around packed rows; not the many scales of weights
            known = known if tensor.data is None or known is None or len(known.scale) == 1 else None
            bare[tensor] = replace(tensor, name=str(len(bare)), quantization=known, data=None)
        return bare[tensor]

    stripped = _changed(graph, strip)
    plain = [replace(one, limits=dict(one.limits)) for one in accelerators_of(hardware)]
    sent = replace(hardware, accelerators=tuple(plain)) if isinstance(hardware, Soc) else plain[0]
    try:
        return pickle.dumps(_Problem(scores, stripped, frozenset(constants), sent, room))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        rule = f"the description of {hardware.label} is sent to its workers, so each function in it is one of a module"
        raise InvalidInput(f"executor: {rule}: {error}") from error


def _changed(graph: Graph, change: Callable[[Tensor], Tensor]) -> Graph:
    return Graph(
        graph.name,
        tuple(map(change, graph.inputs)),
        tuple(map(change, graph.outputs)),
        tuple(replace(layer.with_tensors(change), source=()) for layer in graph.layers),
    )


def evaluated(problem: bytes, choices: object, most: float = inf, near: float | None = None) -> Score | None:
    """The score of choices of a region that was packed. Can run in another process."""
    score: Score | None = _opened(problem)(choices, most, near)
    return score


@lru_cache(maxsize=4)
def _opened(problem: bytes) -> Any:
    found: _Problem = pickle.loads(problem)
    known: dict[Tensor, Tensor] = {}

    def filled(tensor: Tensor) -> Tensor:
        zeros = np.broadcast_to(np.zeros((), tensor.dtype), tensor.shape) if tensor.name in found.constants else None
        return known.setdefault(tensor, replace(tensor, data=zeros))

    return found.scores(_changed(found.graph, filled), found.hardware, found.room)
