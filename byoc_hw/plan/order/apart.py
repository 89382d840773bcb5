"""The order of work in pieces that share nothing in local memory: each as if it were all, one behind the other, or all
together.

With the orders of the pieces every operation begins as early as it can. Nothing begins later than it would with the
pieces one after the other: an operation waits only for what comes before it there. Ordered together, the first loads
of a piece may come before the last stores of the one before, while the array computes there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from byoc_hw.plan.order.copies import Order, in_need
from byoc_hw.plan.order.dependencies import dependencies
from byoc_hw.plan.work.ops import LocalBuffer, Op

NOTHING_BEGUN: Mapping[int, tuple[int, int]] = {}


def order_apart(pieces: Sequence[Sequence[Op]], offsets: Mapping[LocalBuffer, int]) -> Order:
    """Order the copies of each piece, or of all pieces, whichever takes fewer cycles. Jobs keep their order."""
    ops = list(chain.from_iterable(pieces))
    before = dependencies(ops, offsets)
    copies: list[int] = []
    jobs: list[int] = []
    first = 0
    for piece in pieces:
        inside = [{index - first for index in before[first + at] if index >= first} for at in range(len(piece))]
        found = in_need(piece, inside)
        copies += [first + index for index in found.copies]
        jobs += [first + index for index in found.jobs]
        first += len(piece)
    return min(timed(ops, before, copies, jobs), in_need(ops, before), key=lambda one: one.cycles)


def timed(
    ops: Sequence[Op],
    before: list[set[int]],
    copies: list[int],
    jobs: list[int],
    begun: Mapping[int, tuple[int, int]] = NOTHING_BEGUN,
) -> Order:
    """The times of operations that both engines do in these orders, each as early as possible. The first copies may
    have been `begun` before: with their start and their end."""
    start, end, ready = ([0] * len(ops) for _ in range(3))
    done = [index in begun for index in range(len(ops))]
    for index, (first, last) in begun.items():
        start[index], end[index] = first, last
    following, free = [len(begun), 0], [max([0, *(last for _, last in begun.values())]), 0]
    while any(at < len(engine) for at, engine in zip(following, (copies, jobs), strict=True)):
        for number, engine in enumerate((copies, jobs)):
            while following[number] < len(engine) and all(done[one] for one in before[engine[following[number]]]):
                index = engine[following[number]]
                other = [end[one] for one in before[index] if ops[one].is_job != ops[index].is_job]
                ready[index] = max(other, default=0)
                start[index] = max(free[number], ready[index])
                free[number] = end[index] = start[index] + ops[index].cycles
                done[index] = True
                following[number] += 1
    return Order(before, copies, jobs, start, end, ready)
