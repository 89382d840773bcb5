"""Copies and jobs are cut where one engine waits for the other: what is needed first comes first.

The cycles of a plan are those of a chain of copies and jobs, each of which begins when the one before it ends. Where
the chain goes from the DMA to the array, the job may need a part of the copies only, and a part of the job still less;
where it goes from the array to the DMA, a part of the job has made what the first copies take. A long copy may be in
the way of one on the chain that could begin earlier. Such cuts are tried, the longest wait first, and those that save
cycles are kept. Addresses stay as they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.order.copies import Order, order
from byoc_hw.plan.order.job_order import in_better_order
from byoc_hw.plan.order.joined_copies import OrderedWork, from_flash, joined
from byoc_hw.plan.work.flash import FlashImage
from byoc_hw.plan.work.halves import (
    Halves,
    channel_cuts,
    channel_halves,
    copy_cuts,
    copy_halves,
    row_cuts,
    row_halves,
    touches,
)
from byoc_hw.plan.work.ops import LocalBuffer, Op

MOST_ORDERED = 2000
"""The copies and jobs that are ordered in all: of a plan with more than half as many none is cut."""

CUT_SAVES = 5
"""Cycles that a copy or job more has to save: it is a row of tables in flash, and the core starts it."""

CutOps = dict[int, Halves]
"""What takes the place of some operations."""


def finer(work: OrderedWork, mapped: MappedGraph) -> OrderedWork:
    """The work with some copies joined, and some operations cut in two: of no more cycles than before."""
    accelerator = mapped.accelerator
    start = in_better_order(work, accelerator)
    joint = joined(start, accelerator)
    cut = with_cuts(start, mapped)
    ways = (
        with_cuts(in_better_order(joint, accelerator), mapped),
        joint if cut is start else joined(cut, accelerator),
    )
    return min(ways, key=lambda one: (one.order.cycles, len(one.ops)))


def finer_apart(
    pieces: Sequence[Sequence[Op]], flash: FlashImage, places: dict[LocalBuffer, int], mapped: MappedGraph
) -> tuple[list[Sequence[Op]], FlashImage, dict[LocalBuffer, int]]:
    """As `finer`, for each piece of work that shares nothing in local memory with the others: with the constants of all
    pieces, and their places. A piece of many copies and jobs stays as it is."""
    first, found, images = flash, list[Sequence[Op]](), list[FlashImage]()
    places = dict(places)
    for piece in pieces:
        moved = first.moved_to(flash)
        ops = tuple(from_flash(op, moved) for op in piece)
        if 2 * len(ops) <= MOST_ORDERED:
            one = finer(OrderedWork(ops, flash, places, order(ops, places)), mapped)
            ops, flash = one.ops, one.flash
            places |= one.places
        found.append(ops)
        images.append(flash)
    at_last = [image.moved_to(flash) for image in images]
    pieces = [[from_flash(op, moved) for op in ops] for ops, moved in zip(found, at_last, strict=True)]
    return pieces, flash, places


def with_cuts(work: OrderedWork, mapped: MappedGraph) -> OrderedWork:
    """The work with some operations cut in two, and its order: of no more cycles than before."""
    found = work
    left, improved = MOST_ORDERED - len(found.ops), True
    while improved:
        improved = False
        tried: set[tuple[tuple[int, tuple[int, ...]], ...]] = set()
        cuts = ChainCuts(found.ops, mapped.mapping.layers, found.places, mapped.accelerator, found.order)
        chains = found.ops, [0] * len(found.ops), found.order
        for parts in chain(cuts.of(chain_waits(*chains)), cuts.of_delays(chain_delays(*chains))):
            key = tuple((index, tuple(op.cycles for op in some)) for index, some in sorted(parts.items()))
            if key in tried:
                continue
            tried.add(key)
            left -= len(found.ops)
            if left < 0:
                return found
            more = tuple(op for index, one in enumerate(found.ops) for op in parts.get(index, (one,)))
            other = order(more, found.places)
            if other.cycles + CUT_SAVES * (len(more) - len(found.ops)) < found.order.cycles:
                found, improved = replace(found, ops=more, order=other), True
                break
    return found


@dataclass(frozen=True)
class ChainWait:
    """An operation that waits until one of the other engine has ended, and the cycles for which its engine does."""

    first: int
    then: int
    waits: int


def chain_waits(ops: Sequence[Op], lanes: Sequence[int], known: Order) -> list[ChainWait]:
    """Where one engine waits for another one, on the chains that take all cycles. `lanes` has the accelerator of each
    operation."""
    found = []
    for index, before, tight in _chain(ops, lanes, known):
        free = 0 if before is None else known.end[before]
        for one in tight:
            if ops[one].is_job != ops[index].is_job:
                found.append(ChainWait(one, index, known.start[index] - free))
    return found


def chain_delays(ops: Sequence[Op], lanes: Sequence[int], known: Order) -> list[ChainWait]:
    """The copies on these chains that could have begun while the one before on their DMA was under way, and the cycles
    by which they are late."""
    return [
        ChainWait(before, index, known.start[index] - known.ready[index])
        for index, before, _ in _chain(ops, lanes, known)
        if before is not None
        and not ops[index].is_job
        and known.end[before] == known.start[index]
        and known.start[before] < known.ready[index] < known.start[index]
    ]


def _chain(ops: Sequence[Op], lanes: Sequence[int], known: Order) -> Iterator[tuple[int, int | None, list[int]]]:
    """The operations on the chains that take all cycles, each with the one before it on its engine, and with those that
    it needs and that end when it begins."""
    before: dict[int, int] = {}  # on the same engine
    last: dict[tuple[int, bool], int] = {}
    for index in (*known.copies, *known.jobs):
        engine = lanes[index], ops[index].is_job
        if engine in last:
            before[index] = last[engine]
        last[engine] = index
    reached = [index for index, end in enumerate(known.end) if end == known.cycles]
    seen = set(reached)
    while reached:
        index = reached.pop()
        tight = {one for one in known.before[index] if known.end[one] == known.start[index]}
        yield index, before.get(index), sorted(tight)
        if index in before and known.end[before[index]] == known.start[index]:
            tight.add(before[index])
        reached += sorted(tight - seen)
        seen |= tight


def longest_first(edges: Sequence[ChainWait]) -> list[ChainWait]:
    """Waits in the order in which cuts are tried."""
    return sorted(edges, key=lambda edge: (-edge.waits, edge.then))


def out_of_the_way(op: Op, accelerator: Accelerator, waits: int) -> Halves | None:
    """A copy in two, the first part as large as can be until another one can begin, which waits so long for its end."""
    cuts = copy_cuts(op, accelerator)
    at = bisect_right(cuts, op.cycles - waits, key=lambda at: copy_halves(op, at, accelerator)[0].cycles)
    return copy_halves(op, cuts[max(at - 1, 0)], accelerator) if cuts else None


def _or_all(some: list[int], every: list[int]) -> list[list[int]]:
    """Some copies, and all of them where these are more."""
    return [every] if some == every else [some, every]


class ChainCuts:
    """The cuts to try of work in an order."""

    def __init__(
        self,
        ops: Sequence[Op],
        layers: Sequence[Layer],
        places: dict[LocalBuffer, int],
        accelerator: Accelerator,
        known: Order,
    ) -> None:
        self._ops, self._layers, self._places, self._accelerator = ops, layers, places, accelerator
        self._order = known
        self._at = {index: at for engine in (known.copies, known.jobs) for at, index in enumerate(engine)}

    def of(self, edges: Sequence[ChainWait]) -> Iterator[CutOps]:
        """Those for some waits, the longest first."""
        for edge in longest_first(edges):
            yield from self._early(edge) if self._ops[edge.then].is_job else self._late(edge)

    def of_delays(self, delays: Sequence[ChainWait]) -> Iterator[CutOps]:
        """Those of long copies in the way of others, the longest delay first."""
        for delay in longest_first(delays):
            halves = out_of_the_way(self._ops[delay.first], self._accelerator, delay.waits)
            if halves is not None:
                yield {delay.first: halves}

    def _before(self, index: int, by: int = 1) -> int | None:
        """The operation that the engine of this one does before it, or `by` others before or (-1) behind."""
        engine = self._order.jobs if self._ops[index].is_job else self._order.copies
        at = self._at[index] - by
        return engine[at] if 0 <= at < len(engine) else None

    def _busy(self, copy: int, by: int) -> list[int]:
        """The copies without a pause between them before this one, or behind it, with itself."""
        found, known = [copy], self._order
        while (other := self._before(found[-1], by)) is not None:
            first, then = (other, found[-1]) if by > 0 else (found[-1], other)
            if known.end[first] != known.start[then]:
                break
            found.append(other)
        return found

    # ------------------------------------------------------------ cuts

    def _early(self, edge: ChainWait) -> Iterator[CutOps]:
        """A job begins when the first part of the copies has come: itself as it is, or its first part. Those that it
        needs are cut, or also those that filled the same bytes before."""
        busy, needed = self._busy(edge.first, 1), self._order.before[edge.then]
        some = [one for one in busy if one in needed]
        for copies, halves in product(
            (some, busy) if some != busy else (busy,), (None, *self._halves(edge.then, late=False))
        ):
            first = self._ops[edge.then] if halves is None else halves[0]
            parts: CutOps = {} if halves is None else {edge.then: halves}
            for index in copies:
                cut = self._without_end(index, first)
                if cut is not None:
                    parts[index] = cut
            if parts:
                yield parts

    def _late(self, edge: ChainWait) -> Iterator[CutOps]:
        """Copies begin when the first part of a job is done: those that need it, or also those that touch the same
        bytes behind them."""
        busy, before = self._busy(edge.then, -1), self._order.before
        either = _or_all([one for one in busy if edge.first in before[one]], busy)
        for copies, halves in product(either, self._halves(edge.first, late=True)):
            parts: CutOps = {edge.first: halves}
            for index in copies:
                cut = self._without_beginning(index, halves[1])
                if cut is not None:
                    parts[index] = cut
            yield parts

    def _without_end(self, index: int, job: Op) -> Halves | None:
        """A copy in two, the second part as large as can be without a byte that a job needs."""
        op = self._ops[index]
        cuts = copy_cuts(op, self._accelerator)
        if not cuts or not self._touches(op, job):
            return None
        at = bisect_left(cuts, True, key=lambda at: not self._touches(self._cut(op, at)[1], job))
        return self._cut(op, cuts[at]) if at < len(cuts) else None

    def _without_beginning(self, index: int, job: Op) -> Halves | None:
        """A copy in two, the first part as large as can be without a byte that a job makes."""
        op = self._ops[index]
        cuts = copy_cuts(op, self._accelerator)
        if not cuts or not self._touches(op, job):
            return None
        at = bisect_left(cuts, True, key=lambda at: self._touches(self._cut(op, at)[0], job))
        return self._cut(op, cuts[at - 1]) if at > 0 else None

    def _halves(self, index: int, *, late: bool) -> Iterator[Halves]:
        """A job in two: in the middle, and with a small part at the beginning, or at the end where it is `late`."""
        op, accelerator = self._ops[index], self._accelerator
        layer = self._layers[op.layer]
        for cuts, halves in (
            (row_cuts(op, layer, accelerator), row_halves),
            (channel_cuts(op, layer, accelerator), channel_halves),
        ):
            if cuts:
                for at in dict.fromkeys((cuts[len(cuts) // 2], cuts[-1 if late else 0])):
                    yield halves(op, layer, at, accelerator)

    def _cut(self, op: Op, at: int) -> Halves:
        return copy_halves(op, at, self._accelerator)

    def _touches(self, one: Op, other: Op) -> bool:
        return touches(one, other, self._places)
