"""Copies and jobs of the parts of a chip are cut where one engine of a lane waits for the other one.

As in `order/finer.py`, but the chain that takes all the cycles goes through the engines of all lanes. Where it goes
from an engine of a part to the other one, the part's operations are cut; addresses stay. So is a long copy, weights as
a rule, in the way of one on the chain that could begin earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from byoc_hw.plan.lanes.joint import OrderedParts, PlacedPart, ordered_parts
from byoc_hw.plan.order.copies import Order, order
from byoc_hw.plan.order.finer import (
    CUT_SAVES,
    ChainCuts,
    ChainWait,
    chain_delays,
    chain_waits,
    longest_first,
    out_of_the_way,
)
from byoc_hw.plan.work.ops import Op
from byoc_hw.soc import Soc

_MOST_ORDERED = 10_000
"""The copies and jobs that are ordered in all."""


def parts_cut_finely(parts: OrderedParts, chip: Soc, cost: float) -> OrderedParts:
    """Parts with some operations cut in two, where each copy or job more saves at least so many cycles as it costs, and
    as on one accelerator."""
    best, left = parts, _MOST_ORDERED
    tried: set[tuple[int, tuple[int, ...]]] = set()
    improved = True
    while improved and left > 0:
        improved = False
        for at, ops in _cuts(best):
            key = at, tuple(op.cycles for op in ops)
            if key in tried:
                continue
            tried.add(key)
            left -= len(best.work.ops)
            if left < 0:
                break
            changed = [*best.parts[:at], _with_ops(best.parts[at], ops), *best.parts[at + 1 :]]
            other = ordered_parts(changed, chip, best)
            more = len(other.work.ops) - len(best.work.ops)
            if other.order.cycles + max(CUT_SAVES, cost) * more < best.order.cycles:
                best, improved = other, True
                break
    return best if best is parts else replace(best, uncut=parts.uncut or parts.parts)


def _cuts(placed: OrderedParts) -> Iterator[tuple[int, tuple[Op, ...]]]:
    """A part's number and its operations with some of them cut, for each cut: the longest waits first."""
    parts, work, known = placed.parts, placed.work, placed.order
    edges: dict[int, list[ChainWait]] = {}
    for edge in chain_waits(work.ops, work.lanes, known):
        if work.parts[edge.first] == work.parts[edge.then]:
            edges.setdefault(work.parts[edge.first], []).append(edge)
    for at in sorted(edges, key=lambda at: (-max(edge.waits for edge in edges[at]), at)):
        layout = parts[at].layout
        ops, mapped, base = layout.work.ops, layout.mapped, work.parts.index(at)
        local = [ChainWait(edge.first - base, edge.then - base, edge.waits) for edge in edges[at]]
        cuts = ChainCuts(
            ops, mapped.mapping.layers, layout.places, mapped.accelerator, order_of_part(known, base, len(ops))
        )
        for cut in cuts.of(local):
            yield at, tuple(op for index, one in enumerate(ops) for op in cut.get(index, (one,)))
    delays = chain_delays(work.ops, work.lanes, known)
    for delay in longest_first(delays):
        at = work.parts[delay.first]
        layout, base = parts[at].layout, work.parts.index(at)
        halves = out_of_the_way(work.ops[delay.first], layout.mapped.accelerator, delay.waits)
        if halves is not None:
            index = delay.first - base
            yield at, (*layout.work.ops[:index], *halves, *layout.work.ops[index + 1 :])


def order_of_part(known: Order, base: int, count: int) -> Order:
    """The order of the operations of a part, at the times that they have on the chip."""
    mine = range(base, base + count)
    before = [{one - base for one in known.before[index] if one in mine} for index in mine]
    copies, jobs = ([index - base for index in some if index in mine] for some in (known.copies, known.jobs))
    start, end, ready = (list(times[base : base + count]) for times in (known.start, known.end, known.ready))
    return Order(before, copies, jobs, start, end, ready)


def _with_ops(part: PlacedPart, ops: tuple[Op, ...]) -> PlacedPart:
    """A part with other operations in the same places."""
    layout = part.layout
    work = replace(layout.work, ops=ops, starts=())
    return replace(part, layout=replace(layout, work=work, order=order(ops, layout.places)))
