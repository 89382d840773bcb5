"""Boxes that copies move."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byoc_hw.plan.array.parcels import around, progressions


@given(*(st.tuples(*(st.integers(first, 4) for _ in range(3))) for first in (0, 1, 0)))
def test_boxes_around_an_image_are_each_element_that_it_leaves_free_once(at, inner, behind):
    outer = tuple(map(sum, zip(at, inner, behind, strict=True)))
    times = np.zeros(outer, int)
    for origin, shape in [(at, inner), *around(at, inner, outer)]:
        times[tuple(slice(first, first + size) for first, size in zip(origin, shape, strict=True))] += 1
    assert (times == 1).all()


@pytest.mark.parametrize(
    ("indices", "count"),
    [((0, 0, 1, 1), 2), ((0, 1, 2), 1), ((0, 2, 4), 1), ((0, 0, 1, 2, 2, 3, 4, 4, 5), 3), ((5,), 1), ((3, 1, 2), 3)],
)
def test_repeated_rows_are_the_fewest_progressions(indices, count):
    found = progressions(indices)
    assert len(found) == count
    places = {
        one.first + at * one.step: one.from_first + at * one.from_step for one in found for at in range(one.count)
    }
    assert tuple(places[place] for place in range(len(indices))) == indices
