"""How layers are shared: by what keeps an accelerator busy, and by what it has to do besides."""

from dataclasses import replace

from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.layer_forms import LayerForms
from byoc_hw.plan.lanes.sharing import _first_done
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc


def pair(one, two):
    """A chip of `REFERENCE` twice, with these changes."""
    return Soc((replace(REFERENCE, name="one", **one), replace(REFERENCE, name="two", **two)))


def test_channels_are_shared_by_the_time_that_their_weights_take():
    """Both arrays are equally fast, and wait for weights: the DMA of three times the width brings three fourths."""
    samples = Samples(1)
    layer = samples.dense(samples.tensor((1, 1024)), 256)
    plan = plan_region(graph_of([layer.ifm], [layer], [layer.ofm]), pair({"dma_width": 2}, {"dma_width": 6}))
    weights = layer.weights.nbytes + 256 * 12
    assert weights / 8 < plan.cycles < 1.2 * weights / 8


def test_a_border_between_shares_moves_to_where_both_end_together():
    """One accelerator alone can do a layer that takes half as long as another one: of that it has a fourth."""
    samples = Samples(1)
    image, other = (samples.tensor((1, 32, 16, 16)) for _ in range(2))
    shared = samples.conv2d(image, 16, (3, 3), padding=(1, 1, 1, 1))
    alone = samples.depthwise(other, (5, 5), padding=(2, 2, 2, 2))
    while best_cycles(alone, REFERENCE) < 0.4 * best_cycles(shared, REFERENCE):
        other = samples.tensor((1, other.shape[1] + 16, 16, 16))
        alone = samples.depthwise(other, (5, 5), padding=(2, 2, 2, 2))
    graph = graph_of([image, other], [shared, alone], [shared.ofm, alone.ofm])
    plan = plan_region(graph, pair({}, {"limits": {"conv2d": REFERENCE.limits["conv2d"]}}))
    half = (best_cycles(shared, REFERENCE) + best_cycles(alone, REFERENCE)) / 2
    assert half <= plan.cycles < 1.1 * half


def test_channels_of_a_depthwise_layer_are_cut_by_what_an_array_does_of_them_at_once():
    """An array with more rows than the layer has channels, which does these one by one, takes any number of them."""
    samples = Samples(1)
    layer = samples.depthwise(samples.tensor((1, 8, 8, 16)), (3, 3), padding=(1, 1, 1, 1))
    graph, one = graph_of([layer.ifm], [layer], [layer.ofm]), {"array_rows": 32, "depthwise_rows": 1}
    chip = pair(one, one)
    forms = LayerForms(Region(graph), chip, [dict.fromkeys((0, 1), best_cycles(layer, chip.accelerators[0]))])
    cuts = [[part[0].part.cut for part in form] for form in forms.of(0, 1)]
    assert [(0, 8), (8, 16)] in [[cut.rows for cut in form] for form in cuts if form[0].axis == 3]


def test_shares_of_pixels_from_channels_are_whole_blocks():
    """Five rows of blocks of three: half of these, or a row more or less."""
    samples = Samples(1)
    value = samples.conv2d(samples.tensor((1, 5, 16, 16)), 144, (1, 1))
    layers = [value, *samples.blocks_apart(value.ofm, (3, 3))]
    graph = graph_of([value.ifm], layers, [layers[-1].ofm])
    costs = [dict.fromkeys((0, 1), best_cycles(layer, REFERENCE)) for layer in layers]
    forms = LayerForms(Region(graph), pair({}, {}), costs)
    cuts = [[part[0].part.cut.rows for part in form] for form in forms.of(0, 4, more=True) if len(form) == 2]
    assert [rows for rows, _ in cuts] == [(0, 6), (0, 3), (0, 9)]


def test_shares_that_are_done_first_are_whole_units_of_each_accelerator():
    assert _first_done([2.0, 1.0], [16, 4], 48) == (0, 32, 48)
    assert _first_done([1.2, 1.0], [8, 2], 16) == (0, 8, 16)
    assert _first_done([1.0, 1.0, 2.0], [2, 2, 2], 16) == (0, 4, 8, 16)
    assert _first_done([3.0, 1.0], [16, 4], 48) == (0, 48, 48)  # the faster one by itself
