"""The layouts of parts, and which accelerators have them in common."""

from dataclasses import replace

from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.layer_forms import LayerForms, Several
from byoc_hw.soc import Soc

TWINS = Soc((replace(REFERENCE, name="one"), replace(REFERENCE, name="two")))


def test_layouts_with_packed_rows_are_among_the_first():
    """The array does two rows of the image at once: what takes the fewest cycles comes first."""
    samples = Samples(1)
    layer = samples.conv2d(samples.tensor((1, 6, 7, 64)), 64, (3, 3), padding=(1, 1, 1, 1))
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    cycles = best_cycles(layer, REFERENCE)
    forms = LayerForms(Region(graph), TWINS, [{0: cycles, 1: cycles}])
    forms.packs = True
    for form in forms.of(0, 1):
        for options in form:
            first, second = options[:2]
            assert bool(first.profile.choices.packed) != bool(second.profile.choices.packed)
            assert first.profile.cycles <= second.profile.cycles


def test_accelerators_that_differ_in_names_alone_share_layouts():
    several = Several()
    one, two = TWINS.accelerators
    assert several.kind(one) == several.kind(two) != several.kind(replace(one, array_rows=4))
