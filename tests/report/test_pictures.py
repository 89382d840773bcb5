"""Pictures: what is in them, and that it is where it belongs."""

from dataclasses import replace

import pytest
from relay_samples import Conv, Dense, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.errors import InvalidInput

pytest.importorskip("matplotlib", reason="pip install byoc-hw[notebooks]")

LAYERS = 65


@pytest.fixture(scope="module")
def deep():
    """The schedule of 65 poolings, one after the other."""
    x = y = variable((1, 16, 16, 8))
    for _ in range(LAYERS):
        y = relay.nn.max_pool2d(y, (3, 3), padding=(1, 1, 1, 1), layout="NHWC")
    return byoc_hw.build(byoc_hw.partition_for_hwlib(module(y, x), accelerator=byoc_hw.SMALL)).schedule


def polygons(axes):
    """The left and right ends, the bottom, and the colour of each box that is drawn."""
    return [
        (path.vertices[:, 0].min(), path.vertices[:, 0].max(), path.vertices[0, 1], tuple(colour))
        for found in axes.collections
        for path, colour in zip(found.get_paths(), found.get_facecolors(), strict=False)
    ]


def test_layers_next_to_each_other_have_other_colours_at_65_layers(deep):
    assert len(deep.layers) == LAYERS
    (axes,) = deep.timeline().axes
    boxes = sorted(box for box in polygons(axes) if box[2] == pytest.approx(1.1))
    jobs = sorted((one.start, one.layer) for region in deep.regions for one in region.work if one.engine == "array")
    assert len(jobs) == len(boxes)
    for at in range(len(jobs) - 1):
        assert (boxes[at][3] == boxes[at + 1][3]) == (jobs[at][1] == jobs[at + 1][1])


def test_a_range_of_layers_is_the_time_in_which_they_work(deep):
    figure = deep.timeline(range(20, 24))
    (axes,) = figure.axes
    work = [one for region in deep.regions for one in region.work if one.layer in range(20, 24)]
    assert axes.get_xlim() == (min(one.start for one in work), max(one.end for one in work))
    (legend,) = figure.legends
    named = [text.get_text().split()[0] for text in legend.get_texts()]
    assert {"20", "21", "22", "23"} <= set(named)
    assert len(named) < 20
    labels = {text.get_text().split()[0] for text in axes.texts if text.get_text()}
    assert {"21", "22"} <= labels


@pytest.mark.parametrize("layers", [range(100, 110), ()])
def test_refuses_layers_that_are_not_there(deep, layers):
    with pytest.raises(InvalidInput, match="layers are some of those in regions, 0 to 64"):
        deep.timeline(layers)


def test_before_and_after_share_one_axis_of_time(deep):
    quick = byoc_hw.build(byoc_hw.partition_for_hwlib(Dense().module(), accelerator=byoc_hw.SMALL)).schedule
    above, below = deep.beside(quick).axes
    assert above.get_xlim() == below.get_xlim() == (0, deep.cycles)
    assert above.get_title(loc="left") == f"before: {deep.cycles:,} cycles"
    assert below.get_title(loc="left").endswith(f"of it: {quick.cycles:,} cycles")
    with pytest.raises(InvalidInput, match="other is a Schedule: got 3"):
        deep.beside(3)
    with pytest.raises(InvalidInput, match="nothing"):
        deep.beside(replace(quick, missing="nothing"))


@pytest.fixture(scope="module")
def page():
    x = variable((1, 16, 16, 8))
    conv = Conv(height=16, width=16, channels=8, filters=8)
    mod = module(conv.expr(conv.expr(x)), x)
    return byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=byoc_hw.SMALL)).summary()


def test_no_layer_is_above_the_roof(page):
    (axes,) = page.roofline().axes
    discs = [tuple(place) for found in axes.collections for place in found.get_offsets()]
    layers = [one for one in page.layers if one.macs and one.bound != "host"]
    assert len(discs) == len(layers) == 2
    for intensity, rate in discs:
        assert rate <= min(page.macs_per_cycle, intensity * page.dma_bytes_per_cycle)
    assert axes.get_legend().get_texts()[0].get_text() == "conv2d"


def test_a_roofline_needs_layers_with_macs(page):
    with pytest.raises(InvalidInput, match="a roofline is of layers with MACs on an accelerator: it has none"):
        replace(page, layers=()).roofline()
