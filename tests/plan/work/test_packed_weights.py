"""Weights of 4 and 2 bits are packed for every form of a plan as a C function reads them by the words of the HAL.

The machine of `check` reads the weights of each job with packed_weights.c. All numbers of values are odd, so that the
weights of a channel end inside a byte.
"""

from dataclasses import replace

import pytest
from plan_check import check
from plan_samples import Samples, accelerator, single

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.choices import Blocks, Choices, Group, Tiling
from byoc_hw.plan.steps import Job

PARTS = replace(
    accelerator(),
    limits=REFERENCE.limits
    | {kind: replace(REFERENCE.limits[kind], max_kernel=(2, 2)) for kind in ("conv2d", "depthwise_conv2d")},
)
FORMS = {
    "whole": (Group(1), None, False, REFERENCE),
    "blocks of channels": (Group(1), Blocks(3, 5), False, REFERENCE),
    "slices of channels": (Group(1), Blocks(7, 3), False, REFERENCE),
    "blocks of channels and slices": (Group(1), Blocks(3, 1), False, REFERENCE),
    "stripes": (Group(1, 3, frozenset(), True, False), Blocks(2, 3), False, REFERENCE),
    "tiles": (Group(1, tiling=Tiling(3, 2, 3, 3)), None, False, REFERENCE),
    "rows outside": (Group(1, tiling=Tiling(3, 2, 3, 1, rows_outer=True)), None, False, REFERENCE),
    "height and width swapped": (Group(1), Blocks(3, 3), True, REFERENCE),
    "parts of the kernel": (Group(1), None, False, PARTS),
    "parts, blocks and slices": (Group(1, 2), Blocks(3, 3), False, PARTS),
    "parts, swapped": (Group(1), Blocks(5, 1), True, PARTS),
}


def jobs_of(layer, form):
    group, blocks, swapped, hardware = FORMS[form]
    plan = check(single(layer), hardware, choices=Choices((swapped,), (group,), (blocks,)))
    return [step for step in plan.steps if isinstance(step, Job)]


@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("form", FORMS)
def test_a_convolution(form, bits):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 9, 7, 5)), 7, kernel=(3, 3), padding=(1, 1, 1, 1), bits=bits)
    jobs = jobs_of(layer, form)
    group, blocks, _, hardware = FORMS[form]
    if blocks is not None:
        assert max(job.ofm_shape[2] for job in jobs) == blocks.channels
        assert max(job.ifm_shape[2] for job in jobs) == blocks.depth
    assert (len({job.kernel for job in jobs}) > 1) == (hardware is PARTS)
    assert len(jobs) >= group.stripes


@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("form", [name for name, form in FORMS.items() if "slices" not in name])
def test_a_depthwise_convolution(form, bits):
    """Its blocks have all of the depth."""
    samples = Samples()
    layer = samples.depthwise(samples.tensor((1, 9, 7, 7)), kernel=(3, 3), padding=(1, 1, 1, 1), bits=bits)
    group, blocks, swapped, hardware = FORMS[form]
    tiling = group.tiling and group.tiling._replace(depth=7)
    choices = Choices((swapped,), (replace(group, tiling=tiling),), (blocks and replace(blocks, depth=7),))
    plan = check(single(layer), hardware, choices=choices)
    if blocks is not None:
        jobs = [step for step in plan.steps if isinstance(step, Job)]
        assert max(job.ofm_shape[2] for job in jobs) == blocks.channels


@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("blocks", [None, Blocks(3, 33), Blocks(7, 5), Blocks(2, 7)])
def test_a_dense_layer(blocks, bits):
    samples = Samples()
    layer = samples.dense(samples.tensor((1, 33)), 7, bits=bits)
    check(single(layer), REFERENCE, choices=Choices((False,), (Group(1),), (blocks,)))
