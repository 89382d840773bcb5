"""First constants of a region that the region before it copies: while its last jobs run, and while the host goes on.

Regions are planned one by one, each from empty local memories. Here the regions of an inference are joined, in their
order. Copies of a region that bring constants (weights, parameters, zero points, constant activations) to bytes that
nothing of it has touched before move to the region in front of it:

- Into a time in which the DMA has nothing to do, if it is long enough and the bytes are free by then. These copies have
  ended when the region has: it waits for a copy behind them.
- Behind its last copy, if functions of the host come next. The region returns without a wait for them, and the next one
  waits where it needs them.

Nothing else changes its place in the order of its engine, so no operation of the region in front begins later. Local
memory of the next region may be put together anew, of runs of bytes between which no buffer lies, where bytes are free
earlier so. It takes no more cycles than before if the host takes no time between both, which is tried; and the longer
the host takes, the fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from math import lcm

import numpy as np
import numpy.typing as npt

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import round_up
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import Product, Run, geometry
from byoc_hw.plan.order.apart import NOTHING_BEGUN, timed
from byoc_hw.plan.order.calls import calls_of
from byoc_hw.plan.order.copies import Order
from byoc_hw.plan.order.dependencies import dependencies
from byoc_hw.plan.order.timeline import timelines
from byoc_hw.plan.order.waits import Handover, Owned, with_waits
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.plan.steps import ACTIVATIONS, FLASH, WEIGHTS, Address, Copy, Job, PlacedBuffer, RegionPlan
from byoc_hw.plan.work.ops import Access, LocalBuffer, Op, job_cost, job_op
from byoc_hw.program import HostCall, Program, RegionCall, WaitCall

MOST_AHEAD = 8
"""The most copies behind the last one of a region: each has a token, of which both regions need others."""

_UNIT = 16
"""A run moves in local memory by a multiple of so many bytes, with which offsets stay as round as they are."""

_MOST_ROWS = 10_000
"""The most rows of a region's copies that are told apart. Of more, what lies between them counts as touched as well."""

_MOST_RUNS = 4
"""The most runs of which all orders are tried; of more those that begin with another one."""


def with_copies_ahead(
    program: Program, regions: Mapping[str, PlannedRegion], accelerator: Accelerator
) -> dict[str, PlannedRegion]:
    """The regions of a program with constants copied ahead, where that saves cycles. No region takes more of them."""
    calls = [call for call in program.calls if isinstance(call, RegionCall)]
    plans = [plan for call in calls if isinstance(plan := regions[call.graph.name], RegionPlan)]
    if len(plans) < max(len(calls), 2) or len({plan.graph.name for plan in plans}) < len(plans):
        return dict(regions)
    joined = _joined(plans, list(_host_between(program)), accelerator)
    found, known = (timelines(some, accelerator) for some in (joined, plans))
    if any(one.total > other.total for one, other in zip(found, known, strict=True)):
        return dict(regions)
    return {**regions, **{plan.graph.name: plan for plan in joined}}


def _host_between(program: Program) -> Iterator[bool]:
    """For each region but the last, whether the host has something to do between its end and the next region."""
    host, regions = False, 0
    for call in program.calls:
        if isinstance(call, RegionCall) and regions:
            yield host
        if isinstance(call, RegionCall | WaitCall):
            host, regions = False, regions + isinstance(call, RegionCall)
        host = host or isinstance(call, HostCall)


# ---------------------------------------------------------------- a region with its times


@dataclass(frozen=True)
class _Region:
    """The copies and jobs of a plan in order, on local memory in `runs`, which lie `offsets` from where the plan has
    them, and their times.

    `steps` are their places among the plan's steps, None for those of the next region. The first copies are `begun` by
    the region before, at these times. `ahead` are those for the next region behind all others, and `held` the buffers
    that copies for the next region fill.
    """

    plan: RegionPlan
    runs: Sequence[LocalBuffer]
    ops: Sequence[Op]
    steps: Sequence[int | None]
    offsets: Mapping[LocalBuffer, int]
    order: Order
    begun: Mapping[int, tuple[int, int]]
    ahead: Sequence[int] = ()
    held: Sequence[tuple[int, PlacedBuffer]] = ()

    @property
    def cycles(self) -> int:
        """Cycles to the end of all that is its own."""
        return max((end for index, end in enumerate(self.order.end) if index not in self.ahead), default=0)

    def target(self, index: int) -> Address:
        """Where a copy to local memory writes, in the plan."""
        step = self.ops[index].step
        assert isinstance(step, Copy), "others have no target"
        return step.target

    def moved(self, held: PlacedBuffer) -> PlacedBuffer:
        """A buffer of the plan where it lies here."""
        return replace(held, offset=held.offset + self.offsets[_run_at(self.runs, held.space, held.offset)])


def _region(plan: RegionPlan, accelerator: Accelerator) -> _Region:
    runs = _runs(plan, accelerator.buffer_alignment)
    layers = [call.index for call in plan.calls for _ in call.steps] + [len(plan.layers)] * len(plan.tail)
    by_row = sum(step.rows for step in plan.steps if isinstance(step, Copy)) <= _MOST_ROWS
    started = [
        (at, _op(step, layer, plan.layers, runs, accelerator, by_row=by_row))
        for at, (step, layer) in enumerate(zip(plan.steps, layers, strict=True))
        if isinstance(step, Copy | Job)
    ]
    steps, ops = [at for at, _ in started], [op for _, op in started]
    offsets = dict.fromkeys(runs, 0)
    copies, jobs = ([at for at, op in enumerate(ops) if op.is_job is job] for job in (False, True))
    return _Region(plan, runs, ops, steps, offsets, timed(ops, dependencies(ops, offsets), copies, jobs), NOTHING_BEGUN)


def _op(
    step: Copy | Job,
    layer: int,
    layers: Sequence[Layer],
    runs: Sequence[LocalBuffer],
    accelerator: Accelerator,
    *,
    by_row: bool,
) -> Op:
    """A step with the bytes of local memory that it touches, those of a copy `by_row`, or from the first row to
    the last. Copies keep their order: main memory does not matter."""
    if isinstance(step, Job):
        cost = job_cost(layers[layer], step, accelerator)
        return job_op(layer, layers[layer], step, _fields(step, layers[layer], runs), cost)
    buffer, start = _run_at(runs, step.local.space, step.local.offset), step.local.offset
    starts = [start + row * step.local_stride for row in range(step.rows)]
    spans = [(at, at) for at in starts] if by_row else [(start, starts[-1])]
    accesses = tuple(Access(buffer, first, last + step.nbytes, step.inward) for first, last in spans)
    cycles = copy_cycles(step.nbytes, step.rows, accelerator)
    return Op(step, layer, accesses, {"target" if step.inward else "source": buffer}, cycles)


def _run_at(runs: Sequence[LocalBuffer], space: int, offset: int) -> LocalBuffer:
    return next(one for one in runs if one.space == space and 0 <= offset - int(one.name) < one.nbytes)


def _fields(job: Job, layer: Layer, runs: Sequence[LocalBuffer]) -> dict[str, LocalBuffer]:
    """The run of each address that a job has."""
    form = geometry(layer)
    names = ["ifm", "ofm"]
    if isinstance(form, Product) or (isinstance(form, Run) and len(layer.inputs) > 1):
        names.append("ifm2")
    if not (job.first and job.last):
        names.append("psum")
    found = {name: _run_at(runs, ACTIVATIONS, getattr(job, name)) for name in names}
    if isinstance(layer, Weighted):
        found |= {name: _run_at(runs, WEIGHTS, getattr(job, name)) for name in _params(job)}
    return found


def _params(job: Job) -> tuple[str, ...]:
    """The addresses in local weights that a job reads."""
    return ("weights", "params") if job.first or job.last else ("weights",)


def _runs(plan: RegionPlan, unit: int) -> list[LocalBuffer]:
    """The local memories in runs of bytes, by address: no buffer of the region lies across the end of one. A run is
    called by its address."""
    found: list[LocalBuffer] = []
    for space in (ACTIVATIONS, WEIGHTS):
        begin = end = 0
        for held in sorted((one for one in plan.local if one.space == space), key=lambda one: one.offset):
            if held.offset >= end > begin:
                found.append(LocalBuffer(str(begin), space, end - begin))
            begin = held.offset if held.offset >= end else begin
            end = max(end, round_up(held.offset + held.nbytes, unit))
        if end > begin:
            found.append(LocalBuffer(str(begin), space, end - begin))
    return found


def _elsewhere(
    here: _Region, following: _Region, movable: Sequence[int], accelerator: Accelerator
) -> Iterator[_Region]:
    """The following region where it is, and with its runs where copies find their bytes free early: the first of them
    above all."""
    yield following
    sizes = {ACTIVATIONS: accelerator.activation_memory, WEIGHTS: accelerator.weight_memory}
    unit = lcm(accelerator.buffer_alignment, _UNIT)
    offsets = dict(following.offsets)
    for space in {following.target(index).space for index in movable}:
        runs = [run for run in following.runs if run.space == space]
        moved = [index for index in movable if following.target(index).space == space]
        used = _used(here, space)
        found = [
            (tuple(_last_use(replace(following, offsets=shifts), index, used) for index in moved), at, shifts)
            for at, shifts in enumerate(_arrangements(runs, accelerator.whole_words(sizes[space]), unit))
        ]
        offsets.update(min(found, key=lambda one: one[:2])[2])
    if offsets != following.offsets:
        yield replace(following, offsets=offsets)


def _arrangements(runs: list[LocalBuffer], size: int, unit: int) -> Iterator[dict[LocalBuffer, int]]:
    """The runs of a memory as they are, and in other orders from its start on, or up to its end: how far each moves."""
    yield dict.fromkeys(runs, 0)
    few = len(runs) <= _MOST_RUNS
    for order in permutations(runs) if few else (runs[at:] + runs[:at] for at in range(len(runs))):
        room = size - sum(round_up(run.nbytes, unit) for run in order)
        for at in {0, room // unit * unit} if room >= 0 else ():
            shifts = {}
            for run in order:
                shifts[run] = at - int(run.name)
                at += round_up(run.nbytes, unit)
            yield shifts


def _used(here: _Region, space: int) -> npt.NDArray[np.int64]:
    """The bytes of a local memory that a region touches: start, stop, and the end of the copy or job."""
    rows = [
        (here.offsets[one.place] + one.start, here.offsets[one.place] + one.stop, end)
        for op, end in zip(here.ops, here.order.end, strict=True)
        for one in op.accesses
        if isinstance(one.place, LocalBuffer) and one.place.space == space
    ]
    return np.array(rows or [(0, 0, 0)]).T


def _last_use(following: _Region, index: int, used: npt.NDArray[np.int64]) -> int:
    """The cycle at which the bytes that a copy fills are used for the last time."""
    first, *_, last = following.ops[index].accesses * 2
    assert isinstance(first.place, LocalBuffer), "copies are for local memory"
    start, stop, end = used
    shift = following.offsets[first.place]
    touched = end[(start < shift + last.stop) & (stop > shift + first.start)]
    return int(touched.max(initial=0))


# ---------------------------------------------------------------- two regions


def _joined(plans: Sequence[RegionPlan], host: Sequence[bool], accelerator: Accelerator) -> list[RegionPlan]:
    """The plans with copies ahead."""
    if len(plans) < 2:
        return list(plans)
    found: list[RegionPlan] = []
    here, slots, after = _region(plans[0], accelerator), dict[int, int](), ""
    for (_, plan), between in zip(pairwise(plans), host, strict=True):
        pair = _pair(here, _region(plan, accelerator), between, accelerator)
        ahead = plan.graph.name if pair is not None else ""
        here, following = pair or (here, _region(plan, accelerator))
        written, given = _written(here, slots, accelerator)
        found.append(replace(written, ahead=ahead, after=after) if ahead or after else here.plan)
        here, slots, after = following, dict(enumerate(given)), here.plan.graph.name if ahead else ""
    written, _ = _written(here, slots, accelerator)
    return [*found, replace(written, after=after) if after else here.plan]


def _pair(here: _Region, following: _Region, between: bool, accelerator: Accelerator) -> tuple[_Region, _Region] | None:
    """Both regions with copies ahead; None where that saves nothing."""
    movable = _movable(following)
    found = [
        pair
        for moved in _elsewhere(here, following, movable, accelerator)
        for pair in _pairs(here, moved, movable, between, accelerator)
    ]
    best = min(found, key=lambda one: one[0], default=None)
    return best[1:] if best is not None and best[0] < following.cycles * (1 + between) else None


def _pairs(
    here: _Region, following: _Region, movable: Sequence[int], between: bool, accelerator: Accelerator
) -> Iterator[tuple[int, _Region, _Region]]:
    """Both regions with copies ahead, and the cycles of the second one: with those where the host is slow, if the host
    is `between`."""
    within, copies = _within(here, following, movable)
    left = [index for index in movable if index not in within]
    joint = _joint(here, following, [*within, *left], copies)
    for count in range(min(len(left), MOST_AHEAD, accelerator.queue) + 1 if between else 1):
        first = len(here.ops) + len(within)
        begun = {
            index: (joint.start[first + at] - here.cycles, joint.end[first + at] - here.cycles)
            for at, index in enumerate(left[:count])
        }
        after = _without(following, {*within}, begun)
        if after.cycles <= following.cycles:
            late = _without(following, {*within, *begun}, {}).cycles if between else 0
            yield after.cycles + late, _with(here, following, [*within, *begun], joint, count), after


def _movable(region: _Region) -> list[int]:
    """The copies of constants to bytes that nothing else has touched before, in the order of the DMA."""
    found: list[int] = []
    for index in region.order.copies:
        step = region.ops[index].step
        assert isinstance(step, Copy)
        if step.source.space == FLASH and region.order.before[index] <= {*found}:
            found.append(index)
    return found


def _within(here: _Region, following: _Region, movable: Sequence[int]) -> tuple[list[int], list[int]]:
    """The copies that fit times in which the DMA has nothing to do, and the order of all copies with them: they are
    numbered behind the operations of `here`."""
    ops = [*here.ops, *(_ahead(following.ops[index], here.plan) for index in movable)]
    before = dependencies(ops, {**here.offsets, **following.offsets})
    copies, start, end = (list(some) for some in (here.order.copies, here.order.start, here.order.end))
    found: list[int] = []
    number = {at: at for at in copies}
    for at, index in enumerate(movable, len(here.ops)):
        start.append(0)
        end.append(0)
        needed = before[at]
        if not {one for one in needed if not ops[one].is_job} <= {*copies}:
            continue
        ready = max((end[one] for one in needed if ops[one].is_job), default=0)
        first = max((place + 1 for place, one in enumerate(copies) if one in needed), default=0)
        for place in range(max(first, len(here.begun)), len(copies)):
            begin = max(end[copies[place - 1]] if place else 0, ready)
            if begin + ops[at].cycles <= start[copies[place]]:
                start[at], end[at] = begin, begin + ops[at].cycles
                copies.insert(place, at)
                number[at] = len(here.ops) + len(found)
                found.append(index)
                break
    return found, [number[one] for one in copies]


def _joint(here: _Region, following: _Region, ahead: Sequence[int], copies: Sequence[int]) -> Order:
    """The times of a region with copies of the following one behind its operations: those that are not in the order
    `copies` come behind all others."""
    ops = [*here.ops, *(_ahead(following.ops[index], here.plan) for index in ahead)]
    before = dependencies(ops, {**here.offsets, **following.offsets})
    behind = [at for at in range(len(here.ops), len(ops)) if at not in copies]
    return timed(ops, before, [*copies, *behind], here.order.jobs, here.begun)


def _ahead(op: Op, plan: RegionPlan) -> Op:
    """A copy as one of the region in front."""
    assert isinstance(op.step, Copy)
    source = op.step.source._replace(space=plan.ahead_space)
    return replace(op, step=op.step._replace(source=source), layer=len(plan.layers))


def _with(here: _Region, following: _Region, ahead: Sequence[int], joint: Order, count: int) -> _Region:
    """The region with copies ahead, `count` of them behind its own, at the times of both regions together."""
    number = len(here.ops) + len(ahead)
    order = Order(
        joint.before[:number],
        [index for index in joint.copies if index < number],
        joint.jobs,
        joint.start[:number],
        joint.end[:number],
        joint.ready[:number],
    )
    return replace(
        here,
        ops=[*here.ops, *(_ahead(following.ops[index], here.plan) for index in ahead)],
        steps=[*here.steps, *(None for _ in ahead)],
        offsets={**here.offsets, **following.offsets},
        order=order,
        ahead=range(number - count, number),
        held=[(at, _holder(following, index)) for at, index in enumerate(ahead, len(here.ops))],
    )


def _holder(region: _Region, index: int) -> PlacedBuffer:
    """The buffer that a copy of the region fills."""
    target, at = region.target(index), region.steps[index]
    assert at is not None, "they are the region's own"
    return next(
        region.moved(held)
        for held in region.plan.local
        if held.space == target.space
        and held.first <= at <= held.last
        and held.offset <= target.offset < held.offset + held.nbytes
    )


def _without(region: _Region, gone: set[int], begun: Mapping[int, tuple[int, int]]) -> _Region:
    """The region where some copies are done before it begins, and others have `begun`, at these times."""
    kept = [*begun, *(index for index in range(len(region.ops)) if index not in gone and index not in begun)]
    number = {index: at for at, index in enumerate(kept)}
    ops = [region.ops[index] for index in kept]
    copies = [*begun, *(index for index in region.order.copies if index in number and index not in begun)]
    order = timed(
        ops,
        dependencies(ops, region.offsets),
        [number[index] for index in copies],
        [number[index] for index in region.order.jobs],
        {number[index]: times for index, times in begun.items()},
    )
    steps = [region.steps[index] for index in kept]
    return replace(region, ops=ops, steps=steps, order=order, begun={number[one]: begun[one] for one in begun})


# ---------------------------------------------------------------- steps again


def _written(region: _Region, slots: Mapping[int, int], accelerator: Accelerator) -> tuple[RegionPlan, list[int]]:
    """The plan with the steps of a region, and the slots of the copies that it starts ahead. `slots` are those of the
    copies that have begun."""
    border = Handover(slots, frozenset(region.ahead))
    owned = with_waits(region.ops, region.offsets, region.order, accelerator.queue, border)
    calls, tail = calls_of(owned, len(region.plan.layers))
    given = {one.op: one.step.slot for one in owned if one.op is not None and isinstance(one.step, Copy)}
    plan = replace(region.plan, calls=calls, tail=tail, local=tuple(_local_map(region, owned)))
    return plan, [given[index] for index in region.ahead]


def _local_map(region: _Region, owned: Sequence[Owned]) -> Iterator[PlacedBuffer]:
    """The map of the local memories. What is there before the region is so from its first copy or job on."""
    at = {one.op: number for number, one in enumerate(owned) if one.op is not None}
    moved = {step: at[index] for index, step in enumerate(region.steps) if step is not None and index in at}
    first, last = min(at.values(), default=0), max(at.values(), default=0)
    for held in region.plan.local:
        if held.last in moved:
            yield replace(region.moved(held), first=moved.get(held.first, first), last=moved[held.last])
    filled: dict[PlacedBuffer, int] = {}
    for index, buffer in region.held:
        filled[buffer] = min(filled.get(buffer, last), at[index])
    for buffer, begin in filled.items():
        yield replace(buffer, first=begin, last=last)
