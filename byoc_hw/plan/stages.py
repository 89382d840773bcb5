"""The stages of planning, in order: choices in, plan out.

    stage      room                          what it decides
    mapping    array/mapping.py, storage.py  which layers are swapped or packed, which tensors share bytes
    choices    search/ or tune/              groups, stripes, what stays in local memory, blocks of weights
    work       work/                         the copies and jobs of each stripe or tile, on buffers without addresses
    places     place/local.py                an address in local memory for each buffer
    order      order/copies.py               when the DMA does each copy
    steps      order/waits.py, calls.py      the waits that this needs, and the layer of each step
    memory     place/by_lifetime.py          an address in scratch for what goes to main memory and comes back
    flash      work/flash.py                 packed weights and parameters, as the steps read them

`search` and `tune` lay out many choices (`lay_out`); one is written down as a plan (`written`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from math import inf

from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.window import dense_place
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.order.apart import order_apart
from byoc_hw.plan.order.calls import calls_of
from byoc_hw.plan.order.copies import Order, order
from byoc_hw.plan.order.finer import finer, finer_apart
from byoc_hw.plan.order.joined_copies import OrderedWork
from byoc_hw.plan.order.memory_map import local_map, scratch_memory
from byoc_hw.plan.order.waits import with_waits
from byoc_hw.plan.place.by_lifetime import blocks_from_lifetimes, largest_sum, place
from byoc_hw.plan.place.local import apart, place_apart, place_local
from byoc_hw.plan.steps import ARGUMENT, FLASH, RegionPlan
from byoc_hw.plan.work.flash import FlashImage
from byoc_hw.plan.work.groups import region_work
from byoc_hw.plan.work.ops import Home, LocalBuffer, Op
from byoc_hw.plan.work.units import Work
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class Layout:
    """A region after all stages but the steps. Its cycles are final."""

    mapped: MappedGraph
    choices: Choices
    work: Work
    flash: FlashImage
    places: dict[LocalBuffer, int]
    order: Order

    @property
    def cycles(self) -> int:
        """Accelerator cycles of the region."""
        return self.order.cycles


STAGES: Mapping[str, Callable[[Layout], object]] = {
    "graph": lambda layout: layout.mapped.graph,
    "mapping": lambda layout: layout.mapped,
    "choices": lambda layout: layout.choices,
    "work": lambda layout: layout.work,
    "steps": lambda layout: written(layout),
}
"""The stages that can be printed, by name: each value has a text."""


def lay_out(
    mapped: MappedGraph, choices: Choices, *, exact: bool = False, most: float = inf, below: float = inf
) -> Layout:
    """Carry out choices on a mapped region, up to the order of copies. Raises `PlanError` where that is impossible.

    With `exact`, an exact search runs where the heuristics find no addresses in local memory. More than `most`
    copies and jobs are a `PlanError` as well, and an engine that is busy for `below` cycles or more.
    """
    work, flash = region_work(mapped, choices, most=most, below=below)  # in a valid order, not yet a good one
    return _placed(mapped, choices, work, flash, exact)


_MANY = 8000
"""The copies and jobs of a plan beyond which groups are apart: together they take longer to order, and more cycles."""


def laid_out_both_ways(mapped: MappedGraph, choices: Choices) -> Iterator[Layout]:
    """Choices carried out with all groups placed and ordered together, where they fit so and are not many copies and
    jobs, and with groups apart. Raises `PlanError` where they cannot be carried out."""
    work, flash = region_work(mapped, choices)  # the same for both
    for each in (False, True) if len(work.ops) <= _MANY else (True,):
        with suppress(PlanError):
            yield _placed(mapped, replace(choices, apart=each), work, flash, exact=False)


def _placed(mapped: MappedGraph, choices: Choices, work: Work, flash: FlashImage, exact: bool) -> Layout:
    """The work of choices with addresses in local memory, and in a good order."""
    if choices.apart:
        pieces = apart(work.ops, work.starts)
        places = place_apart(pieces, mapped.accelerator, exact=exact)
        if choices.fine:
            pieces, flash, places = finer_apart(pieces, flash, places, mapped)
            work = _with_ops(work, tuple(chain.from_iterable(pieces)), flash)
        return Layout(mapped, choices, work, flash, places, order_apart(pieces, places))
    places = place_local(work.ops, mapped.accelerator, exact=exact)  # by lifetime in that order
    if choices.fine:
        found = finer(OrderedWork(work.ops, flash, places, order(work.ops, places)), mapped)
        work = _with_ops(work, found.ops, found.flash)
        return Layout(mapped, choices, work, found.flash, found.places, found.order)
    return Layout(mapped, choices, work, flash, places, order(work.ops, places))  # copies as early as places allow


def _with_ops(work: Work, ops: tuple[Op, ...], flash: FlashImage) -> Work:
    """The work with other copies and jobs, and constants that may have moved."""
    homes = {storage: _where(home, flash) for storage, home in work.homes.items()}
    return replace(work, ops=ops, homes=homes, starts=())


def _where(home: Home, flash: FlashImage) -> Home:
    """The place of a storage in main memory, which in flash may have moved."""
    return home if home.address.space != FLASH else replace(home, address=flash.constant(home.storage.tensor))


def cycles_of_groups(mapped: MappedGraph, choices: Choices, first: int, stop: int) -> tuple[int, int]:
    """Cycles of the groups `first` to `stop` (not included) by themselves, and the number of their copies and jobs: no
    group before them, and none behind, shares local memory with them. Raises `PlanError` as `lay_out`."""
    work, _ = region_work(mapped, choices, range(first, stop))
    return order(work.ops, place_local(work.ops, mapped.accelerator)).cycles, len(work.ops)


def written(layout: Layout) -> RegionPlan:
    """The plan of a region that is laid out."""
    flash = layout.flash.contents(layout.mapped.mapping.layers)  # only now are the used blocks known
    return replace(without_constants(layout), flash=flash)


def without_constants(layout: Layout) -> RegionPlan:
    """The plan of a region that is laid out, but for its constant data: quick, to learn its sizes."""
    mapped, work, places = layout.mapped, layout.work, layout.places
    graph, storages = mapped.graph, mapped.storages
    steps = with_waits(work.ops, places, layout.order, mapped.accelerator.queue)
    calls, tail = calls_of(steps, len(graph.layers))
    memory = scratch_memory(mapped, work, calls, tail)
    if not mapped.accelerator.dma_reads_flash:
        memory = replace(memory, constants=layout.flash.nbytes)
    arena = place(blocks_from_lifetimes(memory.scratch, memory.alignment), largest_sum(memory.scratch))
    whole = [tensor for tensor in graph.tensors if _is_whole(storages.of[tensor], tensor)]
    homes = {tensor: work.homes[storages.of[tensor]] for tensor in whole if storages.of[tensor] in work.homes}
    plan = RegionPlan(
        graph=graph,
        layers=mapped.mapping.layers,
        calls=calls,
        flash=b"",
        scratch_bytes=arena.nbytes,
        tensors={tensor: home.address for tensor, home in homes.items()},
        tail=tail,
        memory=memory,
        local=tuple(local_map(work.ops, places, steps)),
        reordered=frozenset(
            ARGUMENT + argument.index
            for storage in storages.all
            for argument in (storage.source, *storage.sinks)
            if argument is not None and argument.strides != (storage.strides if not storage.swapped else None)
        ),
    )
    return plan.placed(arena.offsets)


def _is_whole(storage: Storage, tensor: Tensor) -> bool:
    """Whether a tensor is all of a storage in main memory."""
    return storage.packing is not None or storage.place(tensor) == dense_place(tensor)
