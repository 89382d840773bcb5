"""Operations of the parts of a chip are cut where an engine waits."""

from dataclasses import replace

from plan_samples import Samples, graph_of
from test_chip_plans import check_on_chip

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.lanes import planner, search
from byoc_hw.plan.lanes.finer_parts import parts_cut_finely
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc

SLOW = replace(REFERENCE, dma_width=1, dma_setup=10, array_rows=8, packed_rows=False)
TWINS = Soc(tuple(replace(SLOW, name=name) for name in ("one", "two")))


def wide():
    """A convolution of 32 channels over 16 x 16 pixels: its input and its output take long to copy."""
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 16, 16, 16)), 32, (3, 3), padding=(1, 1, 1, 1))
    last = samples.conv2d(layer.ofm, 16, (1, 1))
    return graph_of([layer.ifm], [layer, last], [last.ofm])


def test_parts_take_fewer_cycles_and_give_the_same_bytes(monkeypatch):
    monkeypatch.setattr(planner, "_FAR", 100)  # choices stay
    fine = plan_region(wide(), TWINS)
    check_on_chip(TWINS, wide())
    monkeypatch.setattr(search, "parts_cut_finely", lambda parts, *_: parts)
    plain = plan_region(wide(), TWINS)
    assert fine.cycles < plain.cycles
    assert sum(len(part.plan.steps) for part in fine.parts) > sum(len(part.plan.steps) for part in plain.parts)


def test_no_operation_is_cut_that_saves_less_than_it_costs(monkeypatch):
    tried = []

    def dear(parts, chip, cost):
        tried.append((parts, parts_cut_finely(parts, chip, 10**6)))
        return parts

    monkeypatch.setattr(search, "parts_cut_finely", dear)
    plan_region(wide(), TWINS)
    assert tried
    assert all(cut is parts for parts, cut in tried)
