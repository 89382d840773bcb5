"""Plans of a region on a chip under a bound on main memory: they fit, and lose few cycles where a little is missing."""

from dataclasses import replace
from itertools import permutations

import pytest
from chip_machine import check_chip_plan
from plan_chips import TWINS
from plan_samples import Samples, graph_of
from test_chip_plans import values_of

from byoc_hw.plan.lanes.within import SizedChipPlans, sized_on_chip
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.search.within import Border


def separable():
    """A convolution, then depthwise ones and those of single pixels in turn."""
    samples, same = Samples(), {"padding": (1, 1, 1, 1)}
    ifm = samples.tensor((1, 50, 10, 1))
    layers = [samples.conv2d(ifm, 64, (4, 4), strides=(2, 2), **same)]
    for _ in range(4):
        layers.append(samples.depthwise(layers[-1].ofm, (3, 3), **same))
        layers.append(samples.conv2d(layers[-1].ofm, 64, (1, 1)))
    return graph_of([ifm], layers, [layers[-1].ofm])


@pytest.mark.slow
def test_plans_fit_are_exact_and_lose_few_cycles_where_little_memory_is_missing():
    graph, border = separable(), Border({}, {})
    own = sized_on_chip(plan_region(graph, TWINS), border)
    plans = SizedChipPlans(graph, TWINS, border, {})
    inputs, expected = values_of(graph)
    cycles = []
    for part in (0.9, 0.5, 0.0):
        found = plans.within(int(part * own.ram))
        assert found is not None
        assert found.ram <= part * own.ram
        check_chip_plan(found.plan, expected, inputs, permutations(range(len(found.plan.parts))))
        again = plan_region(graph, TWINS, found.choices)
        assert replace(again, parts=found.plan.parts) == found.plan
        cycles.append(found.cycles)
    assert cycles == sorted(cycles)
    assert own.cycles == cycles[0] < 1.1 * own.cycles < cycles[-1]
