"""Estimates of groups in stripes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.array.weight_blocks import cut
from byoc_hw.plan.choices import Group
from byoc_hw.plan.search.estimate import Estimates
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.steps import SCRATCH, Copy
from byoc_hw.plan.work.groups import region_work
from byoc_hw.plan.work.rows_needed import RowsOfLayers, stripes_of

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


def test_next_number_of_stripes_is_never_cheaper_than_the_groups_that_are_chosen():
    """Weights that do not stay are loaded for each stripe: from some number on no more stripes are looked at."""
    samples, layers = Samples(), []
    first = tensor = samples.tensor((1, 32, 32, 8))
    for channels in (16, 16, 24, 16, 24, 8):
        layers.append(samples.conv2d(tensor, channels, padding=(1, 1, 1, 1)))
        tensor = layers[-1].ofm
    hardware = accelerator(12 * 1024, 2 * 1024, dma_width=4)
    grouping = Grouping(map_graph(graph_of([first], layers, [tensor]), hardware))
    striped, at = 0, 0
    for chosen in grouping.path():
        group, stop = chosen.group, at + chosen.group.layers
        larger = [count for count in sorted(hardware.tuning.stripes) if count > group.stripes]
        if group.stripes > 1 and not group.held and larger:
            striped += 1
            span, room = (at, stop, NOTHING, NOTHING, NOTHING), grouping.wanted.room
            others = [grouping.estimates.striped(*span, larger[0], overlap, room) for overlap in (True, False)]
            assert chosen.cycles <= min(cycles for cycles in others if cycles is not None)
        at = stop
    assert striped > 1


@given(st.integers(2, 6), st.integers(2, 6), st.sampled_from([(2, 2), (1, 2), (2, 1)]), st.integers(1, 6))
def test_stores_of_packed_rows_that_transpose_take_as_long_as_those_of_the_plan(height, width, by, stripes):
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, height, width, 4)), 16, padding=(1, 1, 1, 1))
    layers = [first, *samples.blocks_apart(first.ofm, by)]
    graph = graph_of([first.ifm], layers, [layers[-1].ofm])
    mapped = map_graph(graph, REFERENCE, (False,) * 3, stored=[2], packed=[0])
    assert mapped.storages.of[first.ofm].packing is not None
    cut = list(stripes_of(mapped.shared(RowsOfLayers).of([0]), stripes, NOTHING, NOTHING))
    found = Estimates(mapped).moved(0, 1, NOTHING, NOTHING, NOTHING, cut)
    work, _ = region_work(mapped, mapped.choices((Group(1, stripes), *[Group(1)] * 3), (None,) * 4))
    stores = [op.cycles for op in work.ops if isinstance(op.step, Copy) and op.step.target.space >= SCRATCH]
    assert sum(store for _, store in found) == sum(stores) > 0


@pytest.mark.parametrize(("dma_width", "blocks"), [(1, 2), (64, 3)])
def test_weights_come_in_larger_blocks_where_the_dma_is_busier_than_the_array(dma_width, blocks):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 4, 4, 64)), 64, padding=(1, 1, 1, 1))
    hardware = accelerator(1 << 14, 1 << 11, dma_width=dma_width, dma_setup=200)
    known = Estimates(map_graph(graph_of([layer.ifm], [layer], [layer.ofm]), hardware)).blocks
    assert known == (cut(layer, hardware, blocks),)
    assert cut(layer, hardware, 2) != cut(layer, hardware, 3)
