"""A region of a chip is planned once in a program."""

from dataclasses import replace

import numpy as np
import pytest
from plan_chips import PAIR
from plan_samples import Samples, graph_of

from byoc_hw.objective import Energy
from byoc_hw.plan.lanes import known_plan as known
from byoc_hw.plan.lanes.planner import plan_on_chip
from byoc_hw.remembered import Remembered


def region(names=0):
    samples = Samples(0)
    samples.count = names
    image = samples.tensor((1, 8, 8, 8))
    layer = samples.conv2d(image, 8, (3, 3), padding=(1, 1, 1, 1))
    return graph_of([image], [layer], [layer.ofm])


@pytest.fixture
def searched(monkeypatch):
    """The regions that are searched, of which some are remembered."""
    found = []

    def noted(graph, chip, place, objective):
        found.append((graph, place, objective))
        return plan_on_chip(graph, chip, place, objective)

    monkeypatch.setattr(known, "plan_on_chip", noted)
    monkeypatch.setattr(known, "_plans", Remembered(8))
    return found


def test_an_equal_region_is_not_searched_again(searched):
    one, other = region(), region()
    first, second = known.known_plan(one, PAIR), known.known_plan(other, PAIR)
    assert len(searched) == 1
    assert (first.graph, second.graph) == (one, other)
    assert replace(second, graph=one) == first
    assert known.known_plan(one, PAIR) is first


def test_another_region_wish_objective_or_chip_is(searched):
    """Other names, too: plans have those of their layers."""
    first, second = (one.name for one in PAIR.accelerators)
    (layer,) = region().layers
    weights = replace(layer.weights, data=np.roll(layer.weights.data, 1))
    others = (
        replace(region(), layers=(replace(layer, weights=weights),)),
        region(names=40),
        replace(region(), name="other"),
    )
    energy = [Energy({first: 1.0, second: 2.0}, copied, 1.0) for copied in (1.0, 3.0)]
    found = [known.known_plan(graph, PAIR) for graph in (region(), *others)]
    found += [known.known_plan(region(), PAIR, place={layer.kind: one}) for one in (first, second)]
    found += [known.known_plan(region(), PAIR, objective=one) for one in ("latency", *energy)]
    found.append(known.known_plan(region(), replace(PAIR, ram=PAIR.ram // 2)))
    assert len(searched) == len(found) == 10
    assert found[4].parts[0].lane == 0
    assert found[5].parts[0].lane == 1


def test_the_oldest_is_forgotten(searched, monkeypatch):
    monkeypatch.setattr(known, "_plans", Remembered(2))
    for names in (0, 40, 80, 80, 40, 0):
        known.known_plan(region(names), PAIR)
    assert len(searched) == 4
    assert len(known._plans) == 2
