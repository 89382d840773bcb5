"""Estimates of groups in stripes that keep their halo."""

import pytest
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import REFERENCE
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


KEPT = frozenset(range(1, LAYERS))


def keeping_all(grouping):
    """The estimates of the network as one group that keeps all."""
    nothing = frozenset()
    return KeptHalos(grouping.estimates, 0, LAYERS, nothing, nothing, nothing, KEPT)


def planned(stripes, memory, room=None):
    """The estimated cycles of the network as one group that keeps all, and those of its plan."""
    mapped = map_graph(separable(), accelerator(memory, dma_width=4))
    grouping, kept = Grouping(mapped), KEPT
    estimated = keeping_all(grouping).cycles(stripes, room or memory)
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


def test_jobs_take_as_many_cycles_as_those_of_the_plan():
    mapped = map_graph(separable(), accelerator(1 << 20, dma_width=4))
    grouping = Grouping(mapped)
    for stripes in (2, 6, 12):
        made = Group(LAYERS, stripes, overlap=False, kept=KEPT)
        found = lay_out(mapped, Choices(mapped.mapping.swapped, (made,), grouping.blocks)).work
        assert keeping_all(grouping).jobs(stripes) == sum(op.cycles for op in found.ops if op.is_job)


def test_stripes_are_the_same_whichever_inputs_are_in_local_memory_in_full():
    estimates, nothing, held = Grouping(map_graph(separable(), REFERENCE)).estimates, frozenset(), frozenset({0})
    found = list(estimates.cut(0, LAYERS, nothing, 6, nothing))
    assert estimates.cut(0, LAYERS, held, 6, nothing) == found
    assert list(estimates.cut(0, LAYERS, frozenset({1}), 6, nothing)) != found


def test_what_fits_by_estimate_fits_almost_always():
    tried = [planned(stripes, memory << 10) for stripes in (3, 4, 6, 8, 12) for memory in (6, 7, 8, 10, 12, 14, 16)]
    fitting = [found for estimated, found in tried if estimated is not None]
    assert len(tried) > len(fitting) > 10
    assert fitting.count(None) <= 1


def test_the_array_waits_where_a_tile_has_no_room_beside_the_others():
    ample, _ = planned(6, 1 << 20)
    tight, _ = planned(6, 1 << 20, 6 << 10)
    assert ample < tight


def test_what_did_not_fit_may_fit_more_memory():
    grouping = Grouping(map_graph(separable(), accelerator(1 << 20, dma_width=4)))
    rooms = (1 << 10, 6 << 10, 1 << 20, 6 << 10, 1 << 10)
    one_by_one = [keeping_all(grouping).cycles(6, room) for room in rooms]
    group = keeping_all(grouping)
    assert [group.cycles(6, room) for room in rooms] == one_by_one
    assert one_by_one[0] is None
    assert None not in one_by_one[1:4]
