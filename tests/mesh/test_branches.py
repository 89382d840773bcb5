"""The exact division of small graphs against all divisions, one by one."""

import random
from itertools import product

import pytest

from byoc_hw.errors import PlanError
from byoc_hw.mesh.branches import closed_sets, exact_stages


def series_parallel(drawn, most):
    """What comes before each unit of a random series-parallel graph."""
    before = [[]]
    ends = [0]
    while len(before) < most:
        start = ends[-1]
        if drawn.random() < 0.5 or most - len(before) < 4:
            before.append(list(ends))
            ends = [len(before) - 1]
        else:
            tips = []
            for _ in range(2):
                tip = start
                for _ in range(drawn.randint(1, 2)):
                    before.append([tip])
                    tip = len(before) - 1
                tips.append(tip)
            ends = tips
    return before


def everything(before, stages, cycles, fits):
    """The longest stage of the best assignment of units to stages, of all there are."""
    best = None
    for given in product(range(stages), repeat=len(before)):
        if any(given[other] > given[unit] for unit, others in enumerate(before) for other in others):
            continue
        sets = [sum(1 << unit for unit, stage in enumerate(given) if stage == at) for at in range(stages)]
        used = [units for units in sets if units]
        if all(map(fits, used)):
            longest = max(map(cycles, used))
            best = longest if best is None else min(best, longest)
    return best


@pytest.mark.parametrize("seed", range(16))
def test_no_division_of_a_small_graph_is_better(seed):
    drawn = random.Random(seed)
    before = series_parallel(drawn, drawn.randint(5, 7))
    costs = [drawn.randint(1, 30) for _ in before]
    weights = [drawn.randint(1, 10) for _ in before]
    room = drawn.randint(12, 30)

    def total(values, units):
        return sum(value for unit, value in enumerate(values) if units >> unit & 1)

    def cycles(units):
        return total(costs, units)

    def fits(units):
        return total(weights, units) <= room

    for stages in (2, 3, 4):
        found = exact_stages(before, stages, cycles, fits)
        best = everything(before, stages, cycles, fits)
        assert (None if found is None else max(map(cycles, found))) == best
        if found is not None:
            check_order(before, found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_division_of_ten_units_is_better(seed):
    drawn = random.Random(100 + seed)
    before = series_parallel(drawn, 10)[:10]
    costs = [drawn.randint(1, 30) for _ in before]

    def cycles(units):
        return sum(value for unit, value in enumerate(costs) if units >> unit & 1)

    found = exact_stages(before, 3, cycles, lambda units: True)
    assert max(map(cycles, found)) == everything(before, 3, cycles, lambda units: True)


def check_order(before, stages):
    done = 0
    for units in stages:
        assert not units & done
        done |= units
        assert all(done >> other & 1 for unit, others in enumerate(before) if units >> unit & 1 for other in others)
    assert done == (1 << len(before)) - 1


def test_a_graph_with_too_many_orders_is_refused():
    before = [[] for _ in range(14)]
    assert closed_sets(before) is None
    with pytest.raises(PlanError, match="at most 4096 closed sets: it has more"):
        exact_stages(before, 2, lambda units: 1, lambda units: True)
