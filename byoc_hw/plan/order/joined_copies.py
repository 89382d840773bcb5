"""Copies of neighbouring bytes in one: each copy costs a setup, and is a row of tables in flash.

Two copies between the same places are one where the second goes on where the first ends. Of two blocks of weights that
are loaded one after the other, also of two layers, the second is moved behind the first, in flash and in weight memory.
Images of packed rows of one size can lie one behind the other, with one row of zero points between them: a copy fills
what is around all of them. Or the second lies where the first was, and what is around it is still there. What makes the
plan no slower is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.plan.order.copies import Order, order
from byoc_hw.plan.place.local import place_local
from byoc_hw.plan.steps import ACTIVATIONS, FLASH, WEIGHTS, Address, Copy
from byoc_hw.plan.work.flash import FlashImage
from byoc_hw.plan.work.halves import touches
from byoc_hw.plan.work.merges import (
    around_both,
    fills_around,
    in_buffer,
    loads_weights,
    one_block,
    one_copy,
    writes_rows,
)
from byoc_hw.plan.work.ops import LocalBuffer, Op, activations

MOST_JOINED = 4000
"""The copies and jobs that are ordered for each kind of copies."""


@dataclass(frozen=True)
class OrderedWork:
    """Work with addresses in local memory and in flash, and its order."""

    ops: tuple[Op, ...]
    flash: FlashImage
    places: dict[LocalBuffer, int]
    order: Order


def joined(start: OrderedWork, accelerator: Accelerator) -> OrderedWork:
    """The work with fewer copies, and its order: of no more cycles than before."""
    for pairs, join in (
        (_blocks, _with_block),
        (_filled_again, _in_place),
        (_images, _with_image),
        (_neighbours, _with_copy),
    ):
        left, tried = MOST_JOINED, set[tuple[Op, Op]]()
        while (
            pair := next((one for one in pairs(start, accelerator) if _ops(start, one) not in tried), None)
        ) is not None:
            tried.add(_ops(start, pair))
            left -= len(start.ops)
            if left < 0:
                break
            with suppress(PlanError):  # a block of both may not fit weight memory
                found = join(start, pair, accelerator)
                start = found if found.order.cycles <= start.order.cycles else start
    return start


CopyPair = tuple[int, int]
"""Two copies that can be one, by index."""


def _ops(work: OrderedWork, pair: CopyPair) -> tuple[Op, Op]:
    return work.ops[pair[0]], work.ops[pair[1]]


# ---------------------------------------------------------------- blocks of weights


def _blocks(work: OrderedWork, accelerator: Accelerator) -> Iterator[CopyPair]:
    """Blocks of weights that are loaded once, one after the other. The last ones come first: what holds the array up is
    at the beginning."""
    loads = [index for index, op in enumerate(work.ops) if loads_weights(op)]
    often = _loaded_often(work.ops)
    yield from (pair for pair in reversed(list(pairwise(loads))) if often.isdisjoint(pair))


def _loaded_often(ops: Sequence[Op]) -> set[int]:
    """The copies of bytes in flash that another copy loads, too."""
    spans = sorted(
        (op.step.source.offset, op.step.source.offset + op.step.nbytes, index)
        for index, op in enumerate(ops)
        if isinstance(op.step, Copy) and op.step.source.space == FLASH
    )
    return {index for one, other in pairwise(spans) if other[0] < one[1] for index in (one[2], other[2])}


def _with_block(work: OrderedWork, pair: CopyPair, accelerator: Accelerator) -> OrderedWork:
    one, other = _ops(work, pair)
    assert isinstance(one.step, Copy)
    assert isinstance(other.step, Copy)
    flash, moved = work.flash.behind(
        one.step.source.offset, one.step.nbytes, other.step.source.offset, other.step.nbytes
    )
    ops = [from_flash(op, moved) for op in work.ops]
    distance = moved(other.step.source.offset) - moved(one.step.source.offset)
    load, buffer = one_block(ops[pair[0]], ops[pair[1]], distance, accelerator)
    ops[pair[0]] = load
    del ops[pair[1]]
    for old, offset in ((one.local["target"], 0), (other.local["target"], distance)):
        ops = [in_buffer(op, old, buffer, offset) for op in ops]
    places = _placed_again(work.places, ops, WEIGHTS, accelerator)
    return OrderedWork(tuple(ops), flash, places, order(ops, places))


def _placed_again(
    places: dict[LocalBuffer, int], ops: Sequence[Op], space: int, accelerator: Accelerator
) -> dict[LocalBuffer, int]:
    """Places in the memory whose buffers have changed, and in the other one as they were."""
    stay = {buffer: offset for buffer, offset in places.items() if buffer.space != space}
    return stay | place_local(ops, accelerator, spaces=(space,))


def from_flash(op: Op, moved: Callable[[int], int]) -> Op:
    """An operation with what it reads in flash at another place."""
    step = op.step
    if not isinstance(step, Copy) or step.source.space != FLASH:
        return op
    return replace(op, step=step._replace(source=Address(FLASH, moved(step.source.offset))))


# ---------------------------------------------------------------- room around images


def _filled_again(work: OrderedWork, accelerator: Accelerator) -> Iterator[CopyPair]:
    """Copies that fill two buffers of one size with the same at the same place, the second of which is used when the
    first no longer is."""
    used = _used(work.ops)
    last: dict[tuple[object, ...], int] = {}
    for index, op in enumerate(work.ops):
        step, filling = op.step, work.flash.filling(op.step)
        if not isinstance(step, Copy) or filling is None or step.target.space != ACTIVATIONS:
            continue
        buffer = op.local["target"]
        key = buffer.nbytes, step.target.offset, step.target_stride, step.nbytes, filling
        if key in last and used[work.ops[last[key]].local["target"]][1] < used[buffer][0]:
            yield last[key], index
        last[key] = index


def _used(ops: Sequence[Op]) -> dict[LocalBuffer, tuple[int, int]]:
    """The first and the last operation that uses each buffer."""
    found: dict[LocalBuffer, tuple[int, int]] = {}
    for index, op in enumerate(ops):
        for buffer in op.local.values():
            found[buffer] = found.get(buffer, (index, index))[0], index
    return found


def _in_place(work: OrderedWork, pair: CopyPair, accelerator: Accelerator) -> OrderedWork:
    """The second buffer where the first was, in which nothing else writes what was filled."""
    one, other = _ops(work, pair)
    for op in work.ops:
        if op is not one and op is not other and any(writes_rows(op, fill) for fill in (one, other)):
            raise PlanError("nothing else writes what is filled once")
    first, second = one.local["target"], other.local["target"]
    buffer = activations(f"{first.name} + {second.name}", first.nbytes)
    ops = [op for op in work.ops if op is not other]
    for old in (first, second):
        ops = [in_buffer(op, old, buffer, 0) for op in ops]
    places = _placed_again(work.places, ops, ACTIVATIONS, accelerator)
    return replace(work, ops=tuple(ops), places=places, order=order(ops, places))


def _images(work: OrderedWork, accelerator: Accelerator) -> Iterator[CopyPair]:
    """Copies that fill the room above and below images of one size, one after the other."""
    last: dict[tuple[int, int], int] = {}
    for index, op in enumerate(work.ops):
        if not fills_around(op) or work.flash.filling(op.step) is None:
            continue
        assert isinstance(op.step, Copy)
        key = op.step.nbytes, op.step.target_stride
        if key in last and op.step.target_stride % accelerator.buffer_alignment == 0:
            yield last[key], index
        last[key] = index


def _with_image(work: OrderedWork, pair: CopyPair, accelerator: Accelerator) -> OrderedWork:
    """One image behind the other: the room below the first is that above the second, if both hold the same."""
    one, other = _ops(work, pair)
    for op in work.ops:
        if op is not one and op is not other and any(writes_rows(op, fill) for fill in (one, other)):
            raise PlanError("what lies around two images is filled once")
    fill, flash, offset = around_both(one, other, work.flash, accelerator)
    ops = list(work.ops)
    ops[pair[0]] = fill
    del ops[pair[1]]
    for old, at in ((one.local["target"], 0), (other.local["target"], offset)):
        ops = [in_buffer(op, old, fill.local["target"], at) for op in ops]
    places = _placed_again(work.places, ops, ACTIVATIONS, accelerator)
    return OrderedWork(tuple(ops), flash, places, order(ops, places))


# ---------------------------------------------------------------- neighbouring bytes


def _neighbours(work: OrderedWork, accelerator: Accelerator) -> Iterator[CopyPair]:
    """Copies that a buffer has one after the other, the second of which goes on where the first ends."""
    last: dict[tuple[LocalBuffer, bool, bool], int] = {}
    for index, op in enumerate(work.ops):
        if isinstance(op.step, Copy):
            (buffer,) = op.local.values()
            key = buffer, op.step.inward, work.flash.filling(op.step) is not None
            if key in last and one_copy(work.ops[last[key]], op, work.flash, accelerator) is not None:
                yield last[key], index
            last[key] = index


def _with_copy(work: OrderedWork, pair: CopyPair, accelerator: Accelerator) -> OrderedWork:
    """Two copies at the place of the earlier one, or, where something between them prevents it, of the later one."""
    one, other = pair
    joint = one_copy(work.ops[one], work.ops[other], work.flash, accelerator)
    assert joint is not None, "they are neighbours"
    both, flash = joint
    between = work.ops[one + 1 : other]
    found = []
    if not any(touches(op, work.ops[other], work.places) for op in between):
        found.append((*work.ops[:one], both, *between, *work.ops[other + 1 :]))
    if not any(touches(op, work.ops[one], work.places) for op in between):
        found.append((*work.ops[:one], *between, both, *work.ops[other + 1 :]))
    if not found:
        raise PlanError("what lies between two copies needs one of them done and the other one not")
    tried = [replace(work, ops=ops, flash=flash, order=order(ops, work.places)) for ops in found]
    return min(tried, key=lambda one: one.order.cycles)
