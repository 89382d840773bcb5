"""Shares that stay in the local memory of their lane, where a later part of it reads them."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from plan_samples import Samples, graph_of
from test_chip_plans import EXAMPLES, check_on_chip, chip_regions
from test_combinations import TWINS
from test_shared_memory import copied

from byoc_hw.plan.lanes import finishing, kept_shares
from byoc_hw.plan.steps import Job
from byoc_hw.soc import Soc

WORDS = Soc(tuple(replace(one, dma_alignment=8) for one in TWINS.accelerators))
"""Copies are whole words of the DMA: the last one of a tensor may end behind it."""


def with_and_without(chip, graph, monkeypatch):
    """The plan, and the one in which nothing is kept."""
    plan = check_on_chip(chip, graph)
    with monkeypatch.context() as patch:
        patch.setattr(finishing, "with_kept_shares", lambda parts, *_: parts)
        return plan, check_on_chip(chip, graph)


@pytest.mark.parametrize("chip", [pytest.param(TWINS, marks=pytest.mark.slow), WORDS], ids=["bytes", "words"])
def test_channels_are_written_where_the_next_layer_reads_them(chip, monkeypatch):
    """Each array makes half of the channels, where its next layer needs them, and loads those of the other one."""
    samples = Samples(6)
    value = samples.tensor((1, 2, 2, 256))
    first = samples.conv2d(value, 256, (1, 1))
    second = samples.conv2d(first.ofm, 256, (1, 1))
    graph = graph_of([value], [first, second], [second.ofm])
    plan, apart = with_and_without(chip, graph, monkeypatch)
    assert plan.handed_over == apart.handed_over == ()  # half of it lies in main memory
    assert copied(plan) == copied(apart) - first.ofm.nbytes
    assert plan.cycles < apart.cycles
    jobs = [step for part in plan.parts for step in part.plan.steps if isinstance(step, Job)]
    assert any(job.ofm_pixel == 256 > job.ofm_shape[-1] for job in jobs)


def keep_all(patch):
    """Let each plan cost less than what it is held against."""
    tried = count()
    patch.setattr(kept_shares._Keeper, "_cost", lambda *_: next(tried) % 2)


def test_a_buffer_in_which_one_tensor_stays_takes_no_second_one():
    """Tensors that are put together as they are loaded share one: where one of them lies says nothing of the other."""
    samples = Samples()
    one, other = samples.tensor((1, 1, 1, 8)), samples.tensor((1, 1, 1, 4))
    there = np.arange(8)
    assert kept_shares._lain(one, 8, (one, there)) is there
    assert (kept_shares._lain(other, 4, None) == kept_shares.NOWHERE).all()
    with pytest.raises(kept_shares._CannotStayError):
        kept_shares._lain(other, 4, (one, there))


@pytest.mark.slow
@given(chip_regions(most=8))
@settings(EXAMPLES, max_examples=10)
def test_any_graph_is_exact_where_all_that_can_stay_does(region):
    """Also what several buffers have, and what makes the plan slower."""
    with pytest.MonkeyPatch.context() as patch:
        keep_all(patch)
        check_on_chip(*region)
