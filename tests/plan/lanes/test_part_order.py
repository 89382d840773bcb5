"""Parts of a lane change their order where that takes fewer cycles, and where what they read allows it."""

from dataclasses import replace

import pytest
from plan_samples import Samples, graph_of
from test_chip_plans import check_on_chip

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.chip_choices import PartCut
from byoc_hw.plan.lanes import finishing
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.layer_forms import LayerForms
from byoc_hw.plan.lanes.part_order import parts_in_better_order
from byoc_hw.plan.lanes.together import Together
from byoc_hw.soc import Soc

CHIP = Soc((replace(REFERENCE, name="one"), replace(REFERENCE, name="two")))


def branches():
    """A layer, one that reads it, and one that reads the image."""
    samples = Samples(1)
    image = samples.tensor((1, 16, 16, 16))
    layers = [samples.conv2d(image, 16, (3, 3), padding=(1, 1, 1, 1))]
    layers.append(samples.conv2d(layers[0].ofm, 16, (3, 3), padding=(1, 1, 1, 1)))
    layers.append(samples.conv2d(image, 16, (3, 3), padding=(1, 1, 1, 1)))
    return graph_of([image], layers, [layers[1].ofm, layers[2].ofm])


def parts_on(*lanes):
    """Each layer of `branches` as a part of one accelerator."""
    graph = branches()
    costs = [dict.fromkeys((0, 1), best_cycles(layer, REFERENCE)) for layer in graph.layers]
    found = LayerForms(Region(graph), CHIP, costs)
    return [found.options(PartCut(lane, (at,)), 1)[0] for at, lane in enumerate(lanes)]


def test_a_part_that_can_begin_comes_before_one_that_waits():
    first, second, other = parts = parts_on(1, 0, 0)
    together = Together()
    assert parts_in_better_order(parts, together.cycles, 9) == [first, other, second]
    assert parts_in_better_order(parts, together.cycles, 0) == parts
    assert together.cycles([first, other, second]) < together.cycles(parts)


def test_parts_stay_behind_those_that_they_read():
    first, second, other = parts_on(0, 0, 0)

    def cycles(parts):
        return [parts.index(one) for one in (second, first, other)]  # the second part as early as possible

    assert parts_in_better_order([first, other, second], cycles, 9) == [first, second, other]


def test_a_part_stays_behind_what_makes_its_tensor_where_no_copy_is_left_that_loads_it():
    """Both share their memory: in estimates a tensor that is handed over is read and written by jobs alone, also
    where another tensor with the same bytes, an output, is stored."""
    samples = Samples(2)
    image = samples.tensor((1, 8, 8, 16))
    pooled = samples.pool(image)
    flat = samples.reshape(pooled.ofm, (1, 256))
    dense = samples.dense(flat.ofm, 8)
    graph = graph_of([image], [pooled, flat, dense], [dense.ofm, pooled.ofm])
    costs = [dict.fromkeys((0, 1), 100) for _ in graph.layers]
    chip = replace(CHIP, shared=(("one", "two"),))
    found = LayerForms(Region(graph), chip, costs, in_place=True)
    parts = [found.options(PartCut(0, layers), 1)[0] for layers in ((0, 1), (2,))]
    assert parts_in_better_order(parts, lambda some: some.index(parts[1]), 9) == parts


@pytest.mark.slow
def test_another_order_gives_the_same_bytes(monkeypatch):
    """Whatever the order of the layers, all of the parts on a lane may come in another one."""
    orders = []

    def last_first(parts, cycles, most):
        orders.append((list(parts), parts_in_better_order(parts, lambda some: [-parts.index(one) for one in some], 9)))
        return orders[-1][1]

    monkeypatch.setattr(finishing, "parts_in_better_order", last_first)
    check_on_chip(CHIP, branches())
    assert any(before != after for before, after in orders)
