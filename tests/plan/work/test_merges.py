"""Two copies in one: what it accesses, also where it is cut in two again."""

import pytest

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.steps import ACTIVATIONS, FLASH, Address, Copy
from byoc_hw.plan.work.flash import FlashImage
from byoc_hw.plan.work.halves import copy_cuts, copy_halves
from byoc_hw.plan.work.merges import one_copy
from byoc_hw.plan.work.ops import Access, Op, activations

STRIDE, NBYTES = 156, 12


def fill(buffer, first, rows, by_row):
    """A copy of some rows of a buffer, with one access, or one for each row."""
    offset = first * STRIDE
    step = Copy(Address(ACTIVATIONS, offset), Address(FLASH, first * NBYTES), NBYTES, rows, STRIDE, NBYTES)
    spans = [(at, at) for at in range(rows)] if by_row else [(0, rows - 1)]
    accesses = [Access(buffer, offset + start * STRIDE, offset + last * STRIDE + NBYTES, True) for start, last in spans]
    return Op(step, 0, tuple(accesses), {"target": buffer}, copy_cycles(NBYTES, rows, REFERENCE))


def rows_of(op):
    """The rows that a copy writes, and those that lie in what it says to access."""
    first, written = op.step.target.offset // STRIDE, [(one.start, one.stop) for one in op.accesses]
    said = {row for start, stop in written for row in range(20) if start <= row * STRIDE < stop}
    return set(range(first, first + op.step.rows)), said


@pytest.mark.parametrize("by_row", [(False, False), (False, True), (True, False), (True, True)])
def test_parts_of_a_copy_made_of_two_access_the_rows_that_they_write(by_row):
    buffer = activations("image", 10 * STRIDE)
    parts = fill(buffer, 2, 4, by_row[0]), fill(buffer, 6, 2, by_row[1])
    merged, _ = one_copy(*parts, FlashImage(REFERENCE, 4, 4), REFERENCE)
    assert merged.step.rows == 6
    assert len({*map(len, rows_of(merged))}) == 1
    for at in copy_cuts(merged, REFERENCE):
        for part in copy_halves(merged, at, REFERENCE):
            written, said = rows_of(part)
            assert written == said
