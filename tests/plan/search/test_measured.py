"""Runs of groups that are measured by themselves, and bounds of layers alone."""

from dataclasses import replace

from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import TuningSpace
from byoc_hw.graph import Graph
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.search import measured
from byoc_hw.plan.search.alike import Known
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.search.measured import MeasuredRuns
from byoc_hw.plan.search.planner import best_layout, mappings, packings
from byoc_hw.plan.tune import own_plan
from byoc_hw.plan.tune.layers_alone import LayersAlone
from byoc_hw.plan.tune.near_choices import near_groups
from byoc_hw.plan.tune.own_plan import in_runs, own_layout
from byoc_hw.plan.tune.space import SearchSpace


def test_layers_alone_take_no_fewer_cycles_than_their_bound_though_the_rows_of_their_band_are_packed():
    """The pixels of the pointwise layer are one row by themselves, without what lies between packed rows."""
    samples = Samples()
    wide = samples.conv2d(samples.tensor((1, 18, 18, 128)), 512, (1, 1))
    narrow = samples.conv2d(wide.ofm, 4, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([wide.ifm], [wide, narrow], [narrow.ofm])
    hardware = accelerator(512 * 1024, 128 * 1024, dma_width=64, array_columns=16)
    packed, _ = packings(mappings(graph, hardware)[0])
    assert packed.mapping.rows.layers == {0, 1}
    plain = replace(hardware, tuning=TuningSpace(swap=False, hold=False, pack=False))
    for index, layer in enumerate(graph.layers):
        assert measured.least_by_itself(index, packed) <= own_layout(Graph.of_layer(layer), plain).cycles


def large_weights():
    """Convolutions whose weights have no room together, on an accelerator whose DMA is slow."""
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 16, 16, 24)), 48, (3, 3), padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 48, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([first.ifm], [first, second, samples.add(second.ofm, first.ofm)], [])
    graph = replace(graph, outputs=(graph.layers[-1].ofm,))
    return graph, accelerator(12 * 1024, 16 * 1024, dma_width=2, array_rows=16, array_columns=16)


def test_runs_near_the_fastest_are_measured():
    graph, hardware = large_weights()
    mapped, alone = map_graph(graph, hardware), LayersAlone(hardware)
    found = [
        MeasuredRuns(mapped, alone, near, Known())
        for near in (lambda _, __: (), near_groups(SearchSpace(graph, hardware)))
    ]
    for one in found:
        one.best(None)
    assert found[1].cycles < found[0].cycles


def chain_of(count, side, channels, hardware):
    """Convolutions one after the other, mapped as they are in the model."""
    samples = Samples()
    image = made = samples.tensor((1, side, side, channels))
    layers = []
    for _ in range(count):
        layers.append(samples.conv2d(made, channels, (3, 3), padding=(1, 1, 1, 1)))
        made = layers[-1].ofm
    return MeasuredRuns(
        map_graph(graph_of([image], layers, [made]), hardware), LayersAlone(hardware), lambda _, __: (), Known()
    )


def test_no_more_is_measured_once_runs_take_few_enough_cycles():
    graph, hardware = large_weights()
    mapped, alone = map_graph(graph, hardware), LayersAlone(hardware)
    known, more = Known(), Known()
    thorough = MeasuredRuns(mapped, alone, lambda _, __: (), more)
    thorough.best(None)
    enough = 1.2 * thorough.cycles
    quick = MeasuredRuns(mapped, alone, lambda _, __: (), known, enough)
    assert quick.best(None)
    assert thorough.cycles <= quick.cycles <= enough
    assert len(known.measured) < len(more.measured)


def test_layers_alone_are_measured_at_first_where_the_way_may_get_a_good_deal_shorter():
    graph, hardware = large_weights()
    runs = MeasuredRuns(map_graph(graph, hardware), LayersAlone(hardware), lambda _, __: (), Known())
    for grouping in runs._groupings:
        runs._estimated(grouping)
    before = len(runs._bounds)
    runs._measures_alone(1.0)  # none saves all of it
    assert len(runs._bounds) == before
    runs._measures_alone(0)
    assert len(runs._bounds) < before


def test_fine_patches_are_estimated_where_runs_take_far_more_cycles_than_their_jobs(monkeypatch):
    graph, hardware = large_weights()
    tried = []
    path = Grouping.path
    monkeypatch.setattr(Grouping, "path", lambda one, doubt=1.0: tried.append(one.wanted.fine) or path(one, doubt))
    for far in (1.15, 100):
        monkeypatch.setattr(measured, "_FAR", far)
        tried.clear()
        MeasuredRuns(map_graph(graph, hardware), LayersAlone(hardware), lambda _, __: (), Known()).best(None)
        assert any(tried) == (far < 100)


def test_groups_that_keep_halos_are_as_long_as_there_may_be_where_runs_take_far_more_than_their_jobs(monkeypatch):
    hardware = accelerator(5 * 1024, 16 * 1024, dma_width=2, array_rows=16, array_columns=32)
    longer = chain_of(8, 24, 8, hardware)
    (choices, *_) = longer.best(None)
    assert [group.layers for group in choices.groups] == [8]
    monkeypatch.setattr(Grouping, "longer", lambda grouping: grouping)
    shorter = chain_of(8, 24, 8, hardware)
    shorter.best(None)
    assert longer.cycles < shorter.cycles


def test_runs_that_are_a_little_slower_are_measured_in_pieces(monkeypatch):
    hardware = accelerator(8 * 1024, 32 * 1024, dma_width=1, array_rows=16, array_columns=16)
    pieces = chain_of(8, 24, 16, hardware)
    pieces.best(None)
    monkeypatch.setattr(MeasuredRuns, "_nearby", lambda runs: None)
    fastest = chain_of(8, 24, 16, hardware)
    fastest.best(None)
    assert pieces.cycles < fastest.cycles


def test_what_is_measured_is_doubted():
    """Others that were estimated to take a little longer may take less."""
    graph, hardware = large_weights()
    grouping = Grouping(map_graph(graph, hardware)).further()
    known = grouping.path()
    for one in known:
        grouping.correct(one.key, one.cycles, one.group)
    assert grouping.path() == known
    assert not {one.key for one in grouping.path(1000)} & {one.key for one in known}


def test_runs_of_a_plan_far_from_the_bound_are_measured_though_layers_alone_take_longer(monkeypatch):
    graph, hardware = large_weights()
    found = best_layout(graph, hardware)
    monkeypatch.setattr(own_plan, "least_one_by_one", lambda mapped: found.cycles)
    assert not in_runs(found, LayersAlone(found.mapped.accelerator), far=found.cycles)
    assert in_runs(found, LayersAlone(found.mapped.accelerator), far=found.cycles - 1)
