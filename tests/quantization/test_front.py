"""The front of widths: each point is the best of all choices within its cost."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_hw.quantization.front import Choice, front, within

choice = st.tuples(st.integers(0, 40), st.integers(0, 1000))
layers = st.lists(st.lists(choice, min_size=1, max_size=3), min_size=1, max_size=4)


def as_choices(drawn):
    return {
        number: tuple(Choice(8 >> place, cost, loss / 1000) for place, (cost, loss) in enumerate(layer))
        for number, layer in enumerate(drawn)
    }


def best_within(choices, budget):
    found = [
        (round(sum(one.loss for one in picked), 9), sum(one.cost for one in picked))
        for picked in itertools.product(*choices.values())
        if sum(one.cost for one in picked) <= budget
    ]
    return min(found, default=None)


@given(layers, st.integers(0, 120))
@settings(max_examples=60, deadline=None)
def test_the_least_loss_within_a_cost_and_of_these_the_cheapest(drawn, budget):
    choices = as_choices(drawn)
    found, expected = within(choices, budget), best_within(choices, budget)
    assert (found is None) == (expected is None)
    if found is not None:
        assert (round(found.loss, 9), found.cost) == expected


@given(layers)
@settings(max_examples=30, deadline=None)
def test_no_point_of_a_front_is_beaten(drawn):
    choices = as_choices(drawn)
    points = front(choices)
    for point in points:
        assert (round(point.loss, 9), point.cost) == best_within(choices, point.cost)
    assert [point.cost for point in points] == sorted({point.cost for point in points})
    assert list(np.diff([point.loss for point in points])) == sorted(np.diff([point.loss for point in points])) or all(
        later.loss < earlier.loss for earlier, later in itertools.pairwise(points)
    )


def test_a_network_without_weights_has_one_point():
    assert [dict(point.bits) for point in front({})] == [{}]
