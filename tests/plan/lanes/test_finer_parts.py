"""Operations of the parts of a chip are cut where an engine waits."""

from dataclasses import replace

import pytest
from plan_samples import Samples, graph_of
from test_chip_plans import check_on_chip
from test_patient_order import COPY, JOB, work_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.lanes import finishing, planner
from byoc_hw.plan.lanes.finer_parts import parts_cut_finely
from byoc_hw.plan.lanes.joint import patient_order
from byoc_hw.plan.order.finer import ChainCuts, chain_delays, out_of_the_way
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import FLASH, WEIGHTS, Address, Copy
from byoc_hw.soc import Soc

SLOW = replace(REFERENCE, dma_width=1, dma_setup=10, array_rows=8, packed_rows=False)
TWINS = Soc(tuple(replace(SLOW, name=name) for name in ("one", "two")))


def wide():
    """A convolution of 32 channels over 16 x 16 pixels: its input and its output take long to copy."""
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 16, 16, 16)), 32, (3, 3), padding=(1, 1, 1, 1))
    last = samples.conv2d(layer.ofm, 16, (1, 1))
    return graph_of([layer.ifm], [layer, last], [last.ofm])


@pytest.mark.slow
def test_parts_take_fewer_cycles_and_give_the_same_bytes(monkeypatch):
    monkeypatch.setattr(planner, "_FAR", 100)  # choices stay
    fine = plan_region(wide(), TWINS)
    check_on_chip(TWINS, wide())
    monkeypatch.setattr(finishing, "parts_cut_finely", lambda parts, *_: parts)
    plain = plan_region(wide(), TWINS)
    assert fine.cycles < plain.cycles
    assert sum(len(part.plan.steps) for part in fine.parts) > sum(len(part.plan.steps) for part in plain.parts)


def test_no_operation_is_cut_that_saves_less_than_it_costs(monkeypatch):
    tried = []

    def dear(parts, chip, cost):
        tried.append((parts, parts_cut_finely(parts, chip, 10**6)))
        return parts

    monkeypatch.setattr(finishing, "parts_cut_finely", dear)
    plan_region(wide(), TWINS)
    assert tried
    assert all(cut is parts for parts, cut in tried)


def test_a_long_copy_is_cut_out_of_the_way_of_one_that_could_begin_earlier():
    """The store of what the first job made is behind weights that are needed later, and another lane waits for it."""
    weights = Copy(Address(WEIGHTS), Address(FLASH), 90)

    def work(*cycles):
        loads = [(weights, 0, one, ()) for one in cycles]
        last = (JOB, 0, 10, tuple(range(3, 3 + len(cycles))))
        return work_of((JOB, 0, 60, ()), (COPY, 0, 10, (0,)), (JOB, 1, 200, (1,)), *loads, last)

    whole = work(100)
    known = patient_order(whole)
    (delay,) = chain_delays(whole.ops, whole.lanes, known)
    assert (delay.first, delay.then, delay.waits, known.cycles) == (3, 1, 40, 310)
    first, second = out_of_the_way(whole.ops[3], SLOW, delay.waits)
    assert (first.step.nbytes, first.cycles, second.step.nbytes, second.cycles) == (50, 60, 40, 50)
    assert patient_order(work(first.cycles, second.cycles)).cycles == 270
    (parts,) = ChainCuts(whole.ops, (), {}, SLOW, known).of_delays([delay])
    assert {index: [op.cycles for op in halves] for index, halves in parts.items()} == {3: [60, 50]}
