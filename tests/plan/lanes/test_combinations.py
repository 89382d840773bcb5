"""The search for parts against all combinations of them, where these are few enough to be tried."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from test_chip_plans import EXAMPLES, chip_regions

from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.chip_plan import ElementBox
from byoc_hw.plan.lanes.cut import Piece, Region, boxes_of_piece
from byoc_hw.plan.lanes.joint import joint_order, joint_work, side_by_side
from byoc_hw.plan.lanes.search import _few, _Search
from byoc_hw.plan.region import plan_region
from byoc_hw.tensor import Tensor

MOST = 3000
"""The combinations that are tried."""


def best_combination(graph, chip):
    """The fewest cycles with each layer in any form, on each accelerator and cut over them, in a few layouts; None if
    there are none, or too many combinations."""
    costs = [
        {lane: best_cycles(layer, one) for lane, one in enumerate(chip.accelerators) if one in chip.supporting(layer)}
        for layer in graph.layers
    ]
    search = _Search(Region(graph), chip, costs)
    stops = [stop for stop in range(1, len(graph.layers) + 1) if search._may_stop(stop)]
    forms = [
        [form for options in search._forms(*span, more=True) for form in _few(options)]
        for span in zip([0, *stops], stops, strict=False)
    ]
    if not 0 < prod(map(len, forms)) <= MOST:
        return None
    best = min(product(*forms), key=search.cycles)
    parts = side_by_side([option.placed for form in best for option in form])
    return joint_order(joint_work(parts, chip)).cycles


@pytest.mark.slow
@given(chip_regions(most=4))
@settings(EXAMPLES, max_examples=25)
def test_plan_is_within_two_per_cent_of_every_combination(region):
    chip, graph = region
    assume(not Region(graph).copies)  # they are not among the combinations
    fewest = best_combination(graph, chip)
    assume(fewest is not None)
    assert plan_region(graph, chip).cycles <= 1.02 * fewest + 16  # tiny regions take some hundred cycles


@pytest.mark.parametrize("swapped", [False, True])
def test_pixels_of_a_piece_lie_in_boxes(swapped):
    """Each element of a piece, in the array's order, is the one of the tensor in the model's order."""
    tensor = Tensor("t", (1, 5, 7, 3), "int8")
    elements = np.arange(105).reshape(5, 7, 3)
    pixels = (elements.swapaxes(0, 1) if swapped else elements).reshape(35, 3)
    for start, stop in ((0, 35), (0, 4), (3, 20), (7, 21), (5, 15), (33, 35)):
        boxes = boxes_of_piece(Piece(tensor, 1, start, flat=True), (1, stop - start, 1, 3), swapped)
        assert [one for box in boxes for one in places(box)] == pixels[start:stop].ravel().tolist()
    boxes = boxes_of_piece(Piece(tensor, 3, 1, flat=True), (1, 35, 1, 2), swapped)
    assert [one for box in boxes for one in places(box)] == pixels[:, 1:].ravel().tolist()


def places(box: ElementBox):
    """The elements of the tensor that a box is, one after the other."""
    steps = np.indices(box.counts).reshape(len(box.counts), -1).T
    return (box.start + steps @ np.array(box.strides)).tolist()
