"""Estimates of groups in stripes that keep their halo."""

import pytest
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.halo_estimate import KeptHalos
from byoc_hw.plan.stages import lay_out

SAME = (1, 1, 1, 1)
LAYERS = 5


def separable():
    """Three windows and what lies between them, of 24 rows."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 24, 24, 8)), 16, padding=SAME)
    deep = samples.depthwise(first.ofm, padding=SAME)
    narrow = samples.conv2d(deep.ofm, 16, (1, 1))
    second = samples.depthwise(narrow.ofm, padding=SAME)
    added = samples.add(narrow.ofm, second.ofm)
    return graph_of([first.ifm], [first, deep, narrow, second, added], [added.ofm])


def planned(stripes, memory, room=None):
    """The estimated cycles of the network as one group that keeps all, and those of its plan."""
    mapped = map_graph(separable(), accelerator(memory, dma_width=4))
    grouping, nothing = Grouping(mapped), frozenset()
    kept = frozenset(range(1, LAYERS))
    estimated = KeptHalos(grouping.estimates, 0, LAYERS, nothing, nothing, nothing, kept).cycles(
        stripes, room or memory
    )
    made = Group(LAYERS, stripes, overlap=False, kept=kept)
    try:
        return estimated, lay_out(mapped, Choices(mapped.mapping.swapped, (made,), grouping.blocks)).cycles
    except PlanError:
        return estimated, None


@pytest.mark.parametrize("stripes", [2, 4, 6, 12])
@pytest.mark.parametrize("memory", [8 << 10, 10 << 10, 14 << 10, 1 << 20])
def test_cycles_are_about_those_of_the_plan(stripes, memory):
    estimated, found = planned(stripes, memory)
    assert estimated is None or estimated == pytest.approx(found, rel=0.2)


def test_what_fits_by_estimate_fits_almost_always():
    tried = [planned(stripes, memory << 10) for stripes in (3, 4, 6, 8, 12) for memory in (6, 7, 8, 10, 12, 14, 16)]
    fitting = [found for estimated, found in tried if estimated is not None]
    assert len(tried) > len(fitting) > 10
    assert fitting.count(None) <= 1


def test_the_array_waits_where_a_tile_has_no_room_beside_the_others():
    ample, _ = planned(6, 1 << 20)
    tight, _ = planned(6, 1 << 20, 6 << 10)
    assert ample < tight
