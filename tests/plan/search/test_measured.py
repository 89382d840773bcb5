"""Runs of groups that are measured by themselves, and bounds of layers alone."""

from dataclasses import replace

from plan_samples import Samples, accelerator, graph_of

from byoc_hw.accelerator import TuningSpace
from byoc_hw.graph import Graph
from byoc_hw.plan.search import measured
from byoc_hw.plan.search.planner import mappings, packings
from byoc_hw.plan.tune.nearby import own_layout


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
        assert measured._least_alone(index, packed) <= own_layout(Graph.of_layer(layer), plain).cycles
