"""The parts of a lane lie in its memories so that the first copies of one come while the one before is computed."""

from dataclasses import replace

import pytest
from plan_samples import Samples, graph_of
from test_chip_plans import check_on_chip

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.lanes import finishing, lane_places
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.joint import ordered_parts, side_by_side
from byoc_hw.plan.lanes.lane_places import best_placed
from byoc_hw.plan.lanes.layer_forms import LayerForms
from byoc_hw.soc import Soc

NARROW = replace(REFERENCE, weight_memory=6 * 1024, dma_width=4)
"""The weights of a small layer, and two blocks of those of a larger one, are more than its weight memory."""

CHIP = Soc((replace(NARROW, name="one"), replace(NARROW, name="two")))


def chain(*channels):
    """Convolutions of a small image."""
    samples = Samples(1)
    image = value = samples.tensor((1, 8, 16, 16))
    layers = []
    for count in channels:
        layers.append(samples.conv2d(value, count, (3, 3), padding=(1, 1, 1, 1)))
        value = layers[-1].ofm
    return graph_of([image], layers, [value])


def parts_of(graph):
    """Each layer as a part of the first accelerator."""
    costs = [dict.fromkeys((0, 1), best_cycles(layer, NARROW)) for layer in graph.layers]
    found = LayerForms(Region(graph), CHIP, costs)
    return [next(found.of(at, at + 1))[0][0].placed for at in range(len(graph.layers))]


def test_weights_of_a_part_come_while_the_one_before_is_computed():
    parts = parts_of(chain(16, 64))
    beside, placed = ordered_parts(side_by_side(parts), CHIP), best_placed(parts, CHIP)
    assert placed.order.cycles < beside.order.cycles
    for part in placed.parts:
        for buffer, at in part.layout.places.items():
            assert at + buffer.nbytes <= (NARROW.activation_memory, NARROW.weight_memory)[buffer.space]


def test_parts_that_fit_side_by_side_stay_there():
    parts = parts_of(chain(16, 16))
    beside, placed = ordered_parts(side_by_side(parts), CHIP), best_placed(parts, CHIP)
    assert [part.layout.places for part in placed.parts] == [part.layout.places for part in beside.parts]


@pytest.mark.slow
def test_parts_placed_at_once_give_the_same_bytes(monkeypatch):
    changed = []

    def at_once(parts, chip):
        for lane in (0, 1):
            placed = lane_places._placed_at_once(side_by_side(parts), lane)
            changed.append(placed is not None)
            parts = placed or parts
        return ordered_parts(parts, chip)

    monkeypatch.setattr(finishing, "best_placed", at_once)
    check_on_chip(CHIP, chain(64, 64, 64))
    assert any(changed)
