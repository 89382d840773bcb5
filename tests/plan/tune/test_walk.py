"""Plans that are several random moves away from the planner's own."""

from dataclasses import replace

import pytest
from plan_check import check
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.search.planner import best_layout
from byoc_hw.plan.tune import nearby, walk
from byoc_hw.plan.tune.nearby import own_layout
from byoc_hw.plan.tune.walk import walked


def two_convolutions():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8, (3, 3), padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 16, (1, 1))
    return graph_of([first.ifm], [first, second], [second.ofm])


def two_additions():
    """Two sums of the same convolutions, and a branch beside them."""
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 6, 6, 8)), 16, (3, 3), padding=(1, 1, 1, 1))]
    layers.append(samples.conv2d(layers[0].ifm, 16, (3, 3), padding=(1, 1, 1, 1)))
    layers.append(samples.pool(layers[1].ofm, "max", (2, 2), (2, 2)))
    layers += [samples.add(layers[1].ofm, layers[0].ofm) for _ in range(2)]
    layers.append(samples.depthwise(layers[2].ofm, (3, 3), padding=(1, 1, 1, 1)))
    return graph_of([layers[0].ifm], layers, [layer.ofm for layer in layers[3:]])


HARDWARE = {
    "two_convolutions": (two_convolutions, {"array_rows": 4, "dma_width": 2}, 0.96),
    "two_additions": (two_additions, {"array_rows": 8, "array_columns": 32, "dma_width": 1, "dma_setup": 10}, 0.97),
}


@pytest.mark.parametrize(("graph", "changes", "part"), HARDWARE.values(), ids=HARDWARE)
def test_plans_a_few_moves_away_take_fewer_cycles(monkeypatch, graph, changes, part):
    graph = graph()
    memories = {"activation_memory": 8192, "weight_memory": 16384}
    hardware = replace(REFERENCE, **memories, depthwise_rows=changes["array_rows"], **changes)
    check(graph, hardware)
    found = own_layout(graph, hardware)
    assert own_layout(graph, hardware).choices == found.choices
    monkeypatch.setattr(nearby, "walked", lambda starts, good: [])
    other = own_layout(graph, hardware)
    assert found.cycles <= part * other.cycles


def test_the_work_is_limited():
    start = best_layout(two_additions(), replace(REFERENCE, array_rows=8))
    few = walk._FEWEST * len(start.work.ops)
    assert not walked([start], 0, few - 1)
    some = walked([start], 0, few)
    assert 0 < len(some) <= walk._FEWEST * 2
    assert len(walked([start], 0, 2 * few)) > len(some)


def test_a_plan_that_is_good_enough_ends_it():
    start = best_layout(two_additions(), replace(REFERENCE, array_rows=8))
    assert not walked([start], start.cycles)
    several = walked([start], 0)
    fastest = min(one.cycles for one in several)
    assert fastest < start.cycles
    ended = walked([start], fastest)
    assert len(ended) < len(several)
    assert ended[-1].cycles == fastest
