"""The search for parts improves a plan step by step."""

import pytest
from plan_chips import TWINS
from plan_samples import Samples, graph_of

from byoc_hw.plan.lanes.changes import Improvement
from byoc_hw.plan.region import plan_region


@pytest.mark.slow
def test_changes_of_all_layers_of_a_larger_region_are_tried(monkeypatch):
    """Of 16 blocks of a convolution and a depthwise one."""
    samples, layers = Samples(1), []
    value = image = samples.tensor((1, 12, 12, 16))
    for _ in range(16):
        layers.append(samples.conv2d(value, 16, (1, 1)))
        layers.append(samples.depthwise(layers[-1].ofm, (3, 3), padding=(1, 1, 1, 1)))
        value = layers[-1].ofm
    graph = graph_of([image], layers, [value])
    changed, nearby = set(), Improvement._nearby

    def noted(self, plan, at):
        changed.update(range(*plan[at][0].span))
        yield from nearby(self, plan, at)

    monkeypatch.setattr(Improvement, "_nearby", noted)
    plan_region(graph, TWINS)
    assert changed == set(range(len(layers)))
