"""Boxes of tensors of any rank, by height, width and channels."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_check import check
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import DSP
from byoc_hw.plan.array.window import box_within, extents
from byoc_hw.plan.steps import Copy
from byoc_hw.tensor import Tensor


@st.composite
def boxes(draw):
    """A shape, and a box within it: its shape, where it begins, and its steps."""
    whole = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    begin = [draw(st.integers(0, size - 1)) for size in whole]
    steps = [draw(st.integers(1, 3)) for _ in whole]
    most = [(size - first - 1) // step + 1 for size, first, step in zip(whole, begin, steps, strict=True)]
    return tuple(whole), tuple(draw(st.integers(1, count)) for count in most), begin, steps


@given(boxes())
def test_a_box_is_where_its_elements_are(box):
    """And there is none only where rows are not equally far apart."""
    whole, shape, begin, steps = box
    cut = zip(begin, steps, shape, strict=True)
    elements = np.arange(np.prod(whole)).reshape(whole)[tuple(slice(a, a + (n - 1) * s + 1, s) for a, s, n in cut)]
    by_rows = elements.reshape(extents(Tensor("box", shape, "int8")))
    found = box_within(whole, shape, begin, steps)
    if found is None:
        assert len(set(np.diff(by_rows[:, 0, 0]))) > 1
        return
    image = np.arange(np.prod(whole)).reshape(extents(Tensor("whole", whole, "int8")))
    places = zip(*found, by_rows.shape, strict=True)
    np.testing.assert_array_equal(image[tuple(slice(a, a + (n - 1) * s + 1, s) for a, s, n in places)], by_rows)


@pytest.mark.parametrize(
    ("shape", "axis", "times"), [((7, 14), 0, 2), ((1, 7, 14), 1, 2), ((1, 2, 7, 7), 2, 2), ((7, 2, 7), 0, 4)], ids=str
)
def test_every_other_row_is_read_where_it_lies(shape, axis, times):
    """Of a tensor that is no image, too; pairs of rows are put one after the other before."""
    samples = Samples(0)
    ifm = samples.tensor(shape)
    rows = [*shape[:axis], (shape[axis] + 1) // 2, *shape[axis + 1 : -1], 2]
    part = samples.slice(ifm, [0] * len(shape), rows, [2 if one == axis else 1 for one in range(len(shape))])
    last = samples.softmax(part.ofm)
    plan = check(graph_of([ifm], [part, last], [last.ofm]), DSP)
    assert sum(step.nbytes * step.rows for step in plan.steps if isinstance(step, Copy)) == times * prod(rows)


def test_rows_of_batches_are_joined_where_they_lie():
    """Two tensors of 2 x 3 rows, along either dimension, and what makes and reads them."""
    for axis in (0, 1):
        samples = Samples(axis)
        ifms = [samples.tensor((2, 3, 8)) for _ in range(2)]
        makers = [samples.lookup(ifm) for ifm in ifms]
        joined = samples.concat([maker.ofm for maker in makers], axis)
        last = samples.softmax(joined.ofm)
        check(graph_of(ifms, [*makers, joined, last], [last.ofm]), DSP)
