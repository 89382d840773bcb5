"""Two copies in one: of neighbouring bytes between the same places, or of two blocks of weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from byoc_hw.accelerator import Accelerator
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.steps import ACTIVATIONS, FLASH, WEIGHTS, Address, Copy
from byoc_hw.plan.work.flash import FlashImage
from byoc_hw.plan.work.ops import Access, LocalBuffer, Op, activations, weights_copy, weights_op


def one_copy(one: Op, other: Op, flash: FlashImage, accelerator: Accelerator) -> tuple[Op, FlashImage] | None:
    """One copy of the bytes of two, where those of the second go on where the first ends: as a single row, or as rows
    of one size that are equally far apart. None for others. What it fills memory with may be new in the constants that
    come with it."""
    first, second = one.step, other.step
    if not isinstance(first, Copy) or not isinstance(second, Copy) or one.local != other.local:
        return None
    apart = _apart(first.target, second.target), _apart(first.source, second.source)
    if first.rows == second.rows == 1 and apart == (first.nbytes, first.nbytes):
        return _both(one, other, first._replace(nbytes=first.nbytes + second.nbytes), accelerator), flash
    target = _stride(first, second, apart[0], "target_stride")
    source, start = _stride(first, second, apart[1], "source_stride"), first.source
    if target is not None and source is None:
        filling = flash.filling(first), flash.filling(second)
        if filling[0] is not None and filling[1] is not None:
            flash, start = flash.with_filling(filling[0] + filling[1])
            source = first.nbytes
    if target is None or source is None:
        return None
    rows = first.rows + second.rows
    step = first._replace(source=start, rows=rows, target_stride=target, source_stride=source)
    return _both(one, other, step, accelerator), flash


def _apart(one: Address, other: Address) -> int:
    """Bytes from one address to another one, 0 where they are in different places."""
    same = (one.space, one.block) == (other.space, other.block)
    return other.offset - one.offset if same else 0


def _stride(first: Copy, second: Copy, distance: int, name: str) -> int | None:
    """Bytes from row to row of two copies on one side, the second `distance` bytes behind the first. None where their
    rows are not of one size, or not equally far apart."""
    strides = {getattr(copy, name) for copy in (first, second) if copy.rows > 1} or {distance}
    stride = min(strides)
    alike = len(strides) == 1 and first.nbytes == second.nbytes <= stride
    return stride if alike and distance == first.rows * stride else None


def _both(one: Op, other: Op, step: Copy, accelerator: Accelerator) -> Op:
    cycles = copy_cycles(step.nbytes, step.rows, accelerator)
    return replace(one, step=step, accesses=_together(one, other), cycles=cycles)


def _together(one: Op, other: Op) -> tuple[Access, ...]:
    """The accesses of two copies between the same places: one for each place, or one for each row where a copy has."""
    places = [[access.place for access in op.accesses] for op in (one, other)]
    if places[0] != places[1] or len(set(places[0])) < len(places[0]):
        return (*_by_row(one), *_by_row(other))
    return tuple(some._replace(stop=others.stop) for some, others in zip(one.accesses, other.accesses, strict=True))


def _by_row(op: Op) -> Iterator[Access]:
    """The accesses of a copy, one for each of its rows."""
    step = op.step
    assert isinstance(step, Copy)
    for access in op.accesses:
        if sum(one.place is access.place for one in op.accesses) > 1:
            yield access
            continue
        stride = step.target_stride if access.writes else step.source_stride
        for row in range(step.rows):
            start = access.start + row * stride
            yield access._replace(start=start, stop=start + step.nbytes)


def loads_weights(op: Op) -> bool:
    """Whether an operation is a copy that fills a buffer with a block of weights."""
    step = op.step
    if not isinstance(step, Copy) or step.target.space != WEIGHTS or step.source.space != FLASH:
        return False
    return step.rows == 1 and step.target.offset == 0 and step.nbytes == op.local["target"].nbytes


def one_block(one: Op, other: Op, distance: int, accelerator: Accelerator) -> tuple[Op, LocalBuffer]:
    """One copy of two blocks of weights, the second `distance` bytes behind the beginning of the first in flash and in
    the buffer for both, which comes with it."""
    first, second = one.local["target"], other.local["target"]
    buffer = LocalBuffer(f"{first.name} + {second.name}", WEIGHTS, distance + second.nbytes)
    assert isinstance(one.step, Copy), "it loads weights"
    step, cycles = weights_copy(one.step.source, buffer.nbytes, accelerator)
    return weights_op(one.layer, step, buffer, cycles), buffer


def fills_around(op: Op) -> bool:
    """Whether a copy to local memory has rows at the beginning and at the end of its buffer, and equally far apart."""
    step = op.step
    if not isinstance(step, Copy) or step.rows == 1 or step.target.space != ACTIVATIONS or step.target.offset:
        return False
    return (step.rows - 1) * step.target_stride + step.nbytes == op.local["target"].nbytes


def writes_rows(op: Op, fill: Op) -> bool:
    """Whether an operation writes any of the rows that a copy fills."""
    rows = [access for access in fill.accesses if access.writes]
    return any(
        access.writes and access.place is row.place and access.start < row.stop and row.start < access.stop
        for access in op.accesses
        for row in rows
    )


def around_both(one: Op, other: Op, flash: FlashImage, accelerator: Accelerator) -> tuple[Op, FlashImage, int]:
    """One copy for two that fill around images (`fills_around`), the constants that it needs, and where the second
    image begins in the buffer for both: its first row is the last one of the first, or the one behind that."""
    first, second = one.step, other.step
    assert isinstance(first, Copy)
    assert isinstance(second, Copy)
    above, below = flash.filling(first), flash.filling(second)
    assert above is not None, "it fills"
    assert below is not None, "it fills"
    stride, nbytes = first.target_stride, first.nbytes
    shared = above[-nbytes:] == below[:nbytes]
    rows = first.rows + second.rows - shared
    flash, source = flash.with_filling(above + below[nbytes * shared :])
    names = f"{one.local['target'].name} + {other.local['target'].name}"
    buffer = activations(names, (rows - 1) * stride + nbytes)
    step = Copy(Address(ACTIVATIONS), source, nbytes, rows, stride, nbytes)
    accesses = tuple(Access(buffer, row * stride, row * stride + nbytes, True) for row in range(rows))
    fill = Op(step, one.layer, accesses, {"target": buffer}, copy_cycles(nbytes, rows, accelerator))
    return fill, flash, (first.rows - shared) * stride


def in_buffer(op: Op, old: LocalBuffer, new: LocalBuffer, offset: int) -> Op:
    """An operation whose bytes of one buffer lie in another one, from a byte on."""
    fields = [name for name, buffer in op.local.items() if buffer is old]
    if not fields:
        return op
    accesses = tuple(
        one._replace(place=new, start=one.start + offset, stop=one.stop + offset) if one.place is old else one
        for one in op.accesses
    )
    step = op.step._replace(**{name: getattr(op.step, name) + offset for name in fields})
    local = {name: new if buffer is old else buffer for name, buffer in op.local.items()}
    return replace(op, step=step, accesses=accesses, local=local)
