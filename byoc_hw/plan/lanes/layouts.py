"""Layouts of a part: as fast as it can be by itself, and in stripes, so that another accelerator can begin early."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf, lcm

from byoc_hw.accelerator import Accelerator, TuningSpace
from byoc_hw.errors import PlanError
from byoc_hw.integers import ceil_div, round_up
from byoc_hw.plan.array.cost import copy_cycles, is_pointwise
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.transfers import linear_chunks
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.order.copies import order
from byoc_hw.plan.search.all_held import all_fit, all_held
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.planner import ROOM, in_tiles, mapped_as, one_by_one, placements, whole_layout
from byoc_hw.plan.stages import Layout, lay_out
from byoc_hw.plan.steps import Copy
from byoc_hw.plan.tune.space import SearchSpace
from byoc_hw.plan.work.ops import Op

STRIPES = (1, 2, 4, 8)
"""The numbers of stripes that are tried."""

_PIECES = 4
"""The copies that load an input in pieces, where another accelerator makes it row by row."""

_LEAST = 2
"""A piece takes at least so many times the cycles that a copy takes to start."""

_SLOW = 1.5
"""Layouts of a part that local memory has no room for are left out where another one is so many times faster."""

_ENOUGH = 10_000
"""The copies and jobs of the layouts of such a part, beyond which no further one is made."""


def layouts(mapped: MappedGraph) -> Iterator[tuple[Layout, bool]]:
    """Layouts of a mapped part, the most promising first, without those of one that local memory has no room for that
    are far slower than others; each also with its inputs loaded in pieces, which the second value says."""
    if mapped.whole:
        with suppress(PlanError):
            yield whole_layout(mapped), False
        return
    found: set[tuple[int, int]] = set()
    fits = all_fit(mapped)
    for layout in _laid_out(mapped, _choices_of_whole(mapped)) if fits else _in_parts(mapped):
        for pieces in (False, True):
            one = in_pieces(layout) if pieces else layout
            key = one.cycles, len(one.work.ops)
            if key not in found:
                found.add(key)
                yield one, pieces


def _laid_out(mapped: MappedGraph, choices: Iterable[Choices], slow: float = inf) -> Iterator[Layout]:
    """The layouts of choices that can be carried out, and are not so many times slower than one before."""
    tried: set[Choices] = set()
    least = inf
    for one in _allowed(mapped, choices):
        if one not in tried:
            tried.add(one)
            with suppress(PlanError):  # another one fits
                layout = lay_out(mapped_as(mapped, one), one, below=slow * least)
                least = min(least, layout.cycles)
                yield layout


def _allowed(mapped: MappedGraph, choices: Iterable[Choices]) -> Iterator[Choices]:
    """Choices as the accelerator's tuning space allows them."""
    accelerator = mapped.accelerator
    if accelerator.tuning == TuningSpace():
        yield from choices
        return
    space = SearchSpace(mapped.graph, accelerator)
    for one in choices:
        with suppress(PlanError):  # others fit
            yield replace(space.canonical(one), copies_transpose=one.copies_transpose)


def _in_parts(mapped: MappedGraph) -> Iterator[Layout]:
    """Layouts of a part that local memory has no room for as a whole: the fastest, then the others. One that has none
    has its layers by themselves in tiles, whatever the tuning space allows."""
    found: list[Layout] = []
    for layout in _laid_out(mapped, _choices_in_parts(mapped), _SLOW):
        found.append(layout)
        if sum(len(one.work.ops) for one in found) > _ENOUGH:
            break
    if not found:
        with suppress(PlanError):  # then nothing fits
            choices = one_by_one(mapped)
            found.append(lay_out(mapped_as(mapped, choices), choices))
    fastest = min((one.cycles for one in found), default=0)
    near = (one for one in found if one.cycles <= _SLOW * fastest)
    yield from sorted(near, key=lambda one: one.cycles > fastest)


def _choices_in_parts(mapped: MappedGraph) -> Iterator[Choices]:
    """Choices for a part that local memory has no room for, groups first."""
    for placed in placements(mapped):
        grouping = Grouping(placed)
        yield from (choices for room in ROOM[:2] if (choices := grouping.best(room)) is not None)
    if len(mapped.graph.layers) == 1:
        yield from in_tiles(mapped)
        for stripes in STRIPES:
            yield Choices(mapped.mapping.swapped, (Group(1, stripes),), grouping.blocks, mapped.copies_transpose)
    if mapped.accelerator.tuning.tile:
        with suppress(PlanError):  # then nothing fits
            yield one_by_one(mapped)


def _choices_of_whole(mapped: MappedGraph) -> Iterator[Choices]:
    """Choices for a part that local memory has room for, the most promising first."""
    first = next(all_held(mapped))
    *_, last = range(len(first.groups))
    for before, behind in ((1, 1), (4, 4), (1, 4), (8, 8), (1, 8), (2, 4)):
        if last or before == behind:
            groups = list(first.groups)
            for at, count in ((0, before), (last, behind)):
                groups[at] = replace(groups[at], stripes=_stripes(mapped, at, count))
            yield replace(first, groups=tuple(groups))
    choices = Grouping(mapped).best(1.0)
    if choices is not None:
        yield choices
    if not last:
        yield replace(first, groups=(Group(1, _stripes(mapped, 0, 2)),))
    yield from (one for one in all_held(mapped) if one.blocks != first.blocks)


def _stripes(mapped: MappedGraph, index: int, count: int) -> int:
    """About so many stripes of a layer; of one whose rows are pixels, such that each fills the array's columns."""
    layer = mapped.mapping.layers[index]
    height, width, _ = extents(layer.ofm)
    if not is_pointwise(layer) or width > 1:
        return count
    filled = ceil_div(height, mapped.accelerator.array_columns)
    return ceil_div(filled, ceil_div(filled, count))


def in_pieces(layout: Layout) -> Layout:
    """The same work, with large loads of the part's inputs in several copies: the first ones can begin earlier."""
    ops = tuple(piece for op in layout.work.ops for piece in _pieces(op, layout.mapped.accelerator))
    if len(ops) == len(layout.work.ops):
        return layout
    return replace(layout, work=replace(layout.work, ops=ops), order=order(ops, layout.places))


def _pieces(op: Op, accelerator: Accelerator) -> Iterator[Op]:
    step = op.step
    main = next((access for access in op.accesses if isinstance(access.place, Storage)), None)
    count = min(_PIECES, op.cycles // (_LEAST * max(accelerator.dma_setup, 1)))
    if not isinstance(step, Copy) or not step.inward or main is None or count < 2:
        yield op
        return
    local = next(access for access in op.accesses if access is not main)
    rows = step.rows > 1
    total = step.rows if rows else step.nbytes
    unit = ceil_div(total, count) if rows else round_up(ceil_div(total, count), lcm(64, accelerator.dma_alignment))
    for first, size in linear_chunks(total, unit):
        source, target = (first * step.source_stride, first * step.target_stride) if rows else (first, first)
        if rows:
            piece = step._replace(source=step.source + source, target=step.target + target, rows=size)
            reach = (size - 1) * step.source_stride + step.nbytes, (size - 1) * step.target_stride + step.nbytes
        else:
            piece = step._replace(source=step.source + source, target=step.target + target, nbytes=size)
            reach = size, size
        yield replace(
            op,
            step=piece,
            accesses=(
                local._replace(start=local.start + target, stop=local.start + target + reach[1]),
                main._replace(start=main.start + source, stop=main.start + source + reach[0]),
            ),
            cycles=copy_cycles(piece.nbytes, piece.rows, accelerator),
        )
