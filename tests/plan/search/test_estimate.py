"""Estimates of groups in stripes."""

from plan_samples import Samples, accelerator, graph_of

from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.search.estimate import Estimates

NOTHING = frozenset()


def test_what_did_not_fit_is_estimated_where_there_is_more_room():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 24, 24, 8)), 16, padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 16, padding=(1, 1, 1, 1))
    mapped = map_graph(graph_of([first.ifm], [first, second], [second.ofm]), accelerator(1 << 20))
    asked, fresh = Estimates(mapped), Estimates(mapped)
    rooms = (2000, 6000, 10000, 1 << 20)
    found = [asked.striped(0, 2, NOTHING, NOTHING, NOTHING, 4, False, room) for room in rooms]
    assert found[:2] == [None, None]
    assert found[3] is not None
    for room, cycles in zip(rooms[::-1], found[::-1], strict=True):
        assert fresh.striped(0, 2, NOTHING, NOTHING, NOTHING, 4, False, room) == cycles
