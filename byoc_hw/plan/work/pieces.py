"""The copies and jobs of a unit in pieces, by rows: what is loaded first is computed first, and stored first.

Where the units of a group take turns, the next one has no room of its own: it is loaded over what the one before has
used. In pieces the first rows come while the array computes the last ones of the unit before, and are stored while it
goes on. Pieces of jobs cost the array nothing; each piece of a copy has a setup.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import groupby

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Layer
from byoc_hw.plan.choices import Group
from byoc_hw.plan.steps import ACTIVATIONS, WEIGHTS, Copy, Started
from byoc_hw.plan.work.halves import copy_cuts, copy_halves, row_cuts, row_halves
from byoc_hw.plan.work.merges import in_buffer
from byoc_hw.plan.work.ops import LocalBuffer, Op
from byoc_hw.plan.work.units import Unit

LayerPieces = list[list[Op]]
"""What is done for each piece of a layer."""


def units_in_pieces(
    units: Sequence[Unit], groups: Sequence[Group], layers: Sequence[Layer], accelerator: Accelerator
) -> Sequence[Unit]:
    """All units of a region, those of groups in pieces cut in them. What passes through the region is in no group."""
    if all(group.pieces == 1 for group in groups):
        return units
    users = Counter(_touched((*unit.loads, *unit.jobs, *unit.stores) for unit in units))
    shared = {buffer for buffer, count in users.items() if count > 1}
    return [
        _in_pieces(unit, groups[unit.group], shared, layers, accelerator)
        if unit.group < len(groups) and groups[unit.group].pieces > 1
        else unit
        for unit in units
    ]


def _in_pieces(
    unit: Unit, group: Group, shared: Set[LocalBuffer], layers: Sequence[Layer], accelerator: Accelerator
) -> Unit:
    """A unit with its jobs cut in up to `pieces` of its group, and its loads and stores where these begin and end.

    Where all weights of the group stay, a layer does all jobs of a piece before the next one. What it makes for stores
    alone, not in a buffer that is `shared` with other units, has a buffer for each piece then. Where units take turns,
    that is stored at once; else the next one, whose loads come before the jobs of this one, may read what is stored.
    """
    runs = [_pieces_of(list(some), group, layers, accelerator) for _, some in groupby(unit.jobs, key=_run)]
    needed: dict[LocalBuffer, list[int]] = {}  # ends of what the first run of a buffer reads, piece by piece
    made: dict[LocalBuffer, list[int]] = {}  # ends of what the last one writes
    for pieces in runs:
        needed = {**_ends(pieces, writes=False), **needed}
        made |= _ends(pieces, writes=True)
    loads = [one for op in unit.loads for one in _copy_pieces(op, needed, accelerator, early=False)]
    stores = [one for op in unit.stores for one in _copy_pieces(op, made, accelerator, early=True)]
    users = Counter(_touched([unit.loads, *map(_flat, runs)]))
    theirs = shared | {buffer for buffer, count in users.items() if count > 1}
    jobs = list[Op]()
    for run in runs:
        pieces = run
        for name in ("psum",) if unit.overlap else ("ofm", "psum"):
            pieces, stores = _in_own_buffers(pieces, name, stores, theirs, accelerator.dma_alignment)
        jobs += _flat(pieces)
    return replace(unit, loads=loads, jobs=jobs, stores=stores)


def _run(op: Op) -> tuple[int, bool]:
    """What follows each other and has this in common is cut together: jobs of a layer, and the loads of weights."""
    return op.layer, op.is_job or any(one.space == WEIGHTS for one in op.local.values())


def _flat(pieces: LayerPieces) -> list[Op]:
    return [op for some in pieces for op in some]


def _touched(parts: Iterable[Sequence[Op]]) -> Iterator[LocalBuffer]:
    """The buffers that some operations name, once for each part."""
    for ops in parts:
        yield from {buffer for op in ops for buffer in op.local.values()}


def _pieces_of(run: list[Op], group: Group, layers: Sequence[Layer], accelerator: Accelerator) -> LayerPieces:
    """Jobs of a layer in pieces. Weights that do not stay are used for all pieces before the next ones come."""
    cut = [list(_job_pieces(op, group.pieces, layers, accelerator)) for op in run]
    counts = {len(some) for op, some in zip(run, cut, strict=True) if op.is_job}
    if len(counts) != 1 or (sum(op.is_job for op in run) > 1 and not group.resident):
        return [_flat(cut)]
    return [[some[at] for some in cut if at < len(some)] for at in range(max(counts))]


def _in_own_buffers(
    pieces: LayerPieces, name: str, stores: list[Op], theirs: Set[LocalBuffer], alignment: int
) -> tuple[LayerPieces, list[Op]]:
    """The pieces of a layer, each with the stores of what it makes, in a buffer of its own; and the stores that are
    left. As they are where others use that buffer, too, or a store takes what two pieces make."""
    buffers = {op.local[name] for op in _flat(pieces) if name in op.local}
    if len(pieces) == 1 or len(buffers) != 1 or buffers & theirs:
        return pieces, stores
    (buffer,) = buffers
    spans = [_span(some, buffer) for some in pieces]
    if any(start == stop for start, stop in spans):
        return pieces, stores
    mine: LayerPieces = [[] for _ in pieces]
    left = list[Op]()
    for op in stores:
        local = _local(op)
        if local is None or local[0] != buffer:
            left.append(op)
            continue
        at = next((at for at, span in enumerate(spans) if span[0] <= local[1] and local[2] <= span[1]), None)
        if at is None or (local[1] - spans[at][0]) % alignment:
            return pieces, stores
        mine[at].append(op)
    found: LayerPieces = []
    for some, (start, stop), behind in zip(pieces, spans, mine, strict=True):
        part = LocalBuffer(buffer.name, buffer.space, stop - start)
        found.append([in_buffer(one, buffer, part, -start) for one in (*some, *behind)])
    return found, left


def _span(ops: Iterable[Op], buffer: LocalBuffer) -> tuple[int, int]:
    """The bytes of a buffer that operations touch; none where they touch none."""
    found = [one for op in ops for one in op.accesses if one.place == buffer]
    return min((one.start for one in found), default=0), max((one.stop for one in found), default=0)


def _job_pieces(op: Op, count: int, layers: Sequence[Layer], accelerator: Accelerator) -> Iterator[Op]:
    """A job in up to so many pieces of as many rows, or of as many pixels of its only row."""
    cuts = row_cuts(op, layers[op.layer], accelerator) if op.is_job else range(0)
    done = 0
    for number in sorted({len(cuts) * at // count for at in range(1, count)} if cuts else ()):
        cut = cuts[number] - done
        if cut > 0:
            first, op = row_halves(op, layers[op.layer], cut, accelerator)
            done += cut
            yield first
    yield op


def _ends(pieces: LayerPieces, *, writes: bool) -> dict[LocalBuffer, list[int]]:
    """The end of what each piece of a layer reads, or writes, of each buffer of activations."""
    found: dict[LocalBuffer, list[int]] = {}
    for some in pieces:
        ends: dict[LocalBuffer, int] = {}
        for one in (one for op in some for one in op.accesses if one.writes == writes):
            if isinstance(one.place, LocalBuffer) and one.place.space == ACTIVATIONS:
                ends[one.place] = max(one.stop, ends.get(one.place, 0))
        for place, end in ends.items():
            found.setdefault(place, []).append(end)
    return found


def _copy_pieces(op: Op, ends: dict[LocalBuffer, list[int]], accelerator: Accelerator, *, early: bool) -> Iterator[Op]:
    """A copy, cut so that each of the `ends` of its buffer is that of a piece: or, if `early`, as near before it as can
    be."""
    found = _local(op)
    if found is None:
        yield op
        return
    buffer, start, stop = found
    ahead = {end for end in ends.get(buffer, ()) if start < end < stop}
    for end in sorted(ahead):
        cuts = copy_cuts(op, accelerator)
        at = bisect_left(cuts, end + early - start, key=partial(_reach, op.step)) - early
        if 0 <= at < len(cuts):
            start += _begin(op.step, cuts[at])
            first, op = copy_halves(op, cuts[at], accelerator)
            yield first
    yield op


def _begin(step: Started, at: int) -> int:
    """The first byte in local memory behind a cut of a copy."""
    assert isinstance(step, Copy)
    return at * step.local_stride if step.rows > 1 else at


def _reach(step: Started, at: int) -> int:
    """The bytes in local memory that a copy reaches over up to a cut."""
    assert isinstance(step, Copy)
    return _begin(step, at - 1) + step.nbytes if step.rows > 1 else at


def _local(op: Op) -> tuple[LocalBuffer, int, int] | None:
    """The buffer of activations that a copy fills or reads, from its first byte to the last, if that is one piece."""
    found = [
        (one.place, one.start, one.stop)
        for one in op.accesses
        if isinstance(one.place, LocalBuffer) and one.place.space == ACTIVATIONS
    ]
    return found[0] if len(found) == 1 else None
