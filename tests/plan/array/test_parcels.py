"""Boxes that copies move."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from byoc_hw.plan.array.parcels import around


@given(*(st.tuples(*(st.integers(first, 4) for _ in range(3))) for first in (0, 1, 0)))
def test_boxes_around_an_image_are_each_element_that_it_leaves_free_once(at, inner, behind):
    outer = tuple(map(sum, zip(at, inner, behind, strict=True)))
    times = np.zeros(outer, int)
    for origin, shape in [(at, inner), *around(at, inner, outer)]:
        times[tuple(slice(first, first + size) for first, size in zip(origin, shape, strict=True))] += 1
    assert (times == 1).all()
