"""A kernel beyond the array's limit in parts: their jobs add up to the whole layer, in tiles and in stripes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_check import check
from plan_choices import estimated
from plan_samples import Samples, accelerator, single

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import PlanError
from byoc_hw.plan.choices import Blocks, Choices, Group, Tiling
from byoc_hw.plan.search.single_layer import single_tiling
from byoc_hw.plan.steps import FLASH, Copy, Job

SEEDS = st.integers(0, 2**32 - 1)


def limited(activations, weights, largest, **changes):
    """An accelerator whose convolutions have kernels of at most this size."""
    kinds = ("conv2d", "depthwise_conv2d")
    limits = REFERENCE.limits | {kind: replace(REFERENCE.limits[kind], max_kernel=largest) for kind in kinds}
    return accelerator(activations, weights, limits=limits, **changes)


NARROW = limited(256 * 1024, 64 * 1024, (3, 3))

TINY = st.builds(
    limited,
    st.integers(400, 3000) | st.just(262144),
    st.integers(400, 3000) | st.just(65536),
    st.sampled_from([(3, 3), (1, 4), (2, 2)]),
    array_columns=st.sampled_from([4, 16]),
    dma_alignment=st.sampled_from([1, 1, 4]),
)


@st.composite
def windows(draw):
    """Kernel, strides, padding, also wider than parts of the kernel, and dilation; an input height and width."""
    kernel = draw(st.sampled_from([(1, 15), (15, 1), (9, 9), (4, 5), (1, 4), (7, 2)]))
    strides = draw(st.tuples(*[st.sampled_from([1, 2])] * 2))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 3), (4, 1)]))
    reach = [(extent - 1) * step + 1 for extent, step in zip(kernel, dilation, strict=True)]
    padding = tuple(draw(st.sampled_from([0, 1, reach[side % 2] // 2, reach[side % 2] + 2])) for side in range(4))
    height, width = (
        max(1, reach[side] - padding[side] - padding[side + 2]) + draw(st.sampled_from([0, 0, 5])) for side in (0, 1)
    )
    window = {"kernel": kernel, "strides": strides, "padding": padding, "dilation": dilation}
    return window, height, width


def check_or_refused(layer, hardware):
    try:
        check(single(layer), hardware)
    except PlanError as error:
        assert "bytes needed" in str(error) or "multiples of 4 bytes" in str(error)  # noqa: PT017


def test_a_dilation_that_the_array_lacks_takes_an_element_of_the_kernel_at_a_time():
    """Along its axis alone: along the other one as much as there is in a kernel of the array."""
    parts = REFERENCE.limits["conv2d"].parts
    assert {part.size for part in parts((3, 5), (1, 4))} == {(3, 1)}
    assert {part.size for part in parts((3, 5), (2, 2))} == {(3, 5)}
    assert [part.size for part in parts((2, 2), (3, 3))] == [(1, 1)] * 4
    whole = replace(REFERENCE.limits["conv2d"], kernel_parts=False)
    assert [part.size for part in whole.parts((3, 5), (1, 4))] == [(3, 5)]


@pytest.mark.slow
@given(windows(), st.sampled_from([(1, 3, 5), (1, 9, 4), (3, 2, 2)]), st.sampled_from([8, 4, 2]), TINY, SEEDS)
@settings(max_examples=15, deadline=None)
def test_convolution_in_parts_is_the_convolution(window, sizes, bits, hardware, seed):
    geometry, height, width = window
    groups, inputs, outputs = sizes
    samples = Samples(seed)
    ifm = samples.tensor((1, height, width, groups * inputs))
    check_or_refused(samples.conv2d(ifm, groups * outputs, bits=bits, groups=groups, **geometry), hardware)


@given(windows(), st.sampled_from([1, 3, 8]), st.sampled_from([8, 4, 2]), TINY, SEEDS)
@settings(max_examples=15, deadline=None)
def test_depthwise_in_parts_is_the_depthwise(window, channels, bits, hardware, seed):
    geometry, height, width = window
    samples = Samples(seed)
    check_or_refused(samples.depthwise(samples.tensor((1, height, width, channels)), bits=bits, **geometry), hardware)


WHOLE = Choices((False,), (Group(1),), (None,))


def jobs_of(plan):
    return [step for step in plan.steps if isinstance(step, Job)]


def test_parts_are_few_and_of_about_the_same_size():
    samples = Samples()
    layer = samples.depthwise(samples.tensor((1, 20, 4, 8)), kernel=(15, 1), padding=(7, 0, 7, 0))
    jobs = jobs_of(check(single(layer), REFERENCE, choices=WHOLE))
    assert [(job.kernel, job.first, job.last) for job in jobs] == [((8, 1), True, False), ((7, 1), False, True)]
    assert [(job.ifm, job.ifm_shape[0], job.padding[0], job.padding[2]) for job in jobs] == [
        (0, 20, 7, 0),
        (4 * 8, 19, 0, 7),
    ]


def test_a_kernel_within_the_limit_is_one_job():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 13, 12, 3)), 4, kernel=(11, 11))
    (job,) = jobs_of(check(single(layer), REFERENCE, choices=WHOLE))
    assert (job.kernel, job.first, job.last) == ((11, 11), True, True)


def test_a_kernel_in_too_many_parts_is_refused():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 255, 100, 1)), 1, kernel=(255, 100))
    with pytest.raises(PlanError, match="at most 8192 jobs and copies are wanted: at least 25502 are needed"):
        single_tiling(layer, limited(256 * 1024, 64 * 1024, (1, 1)))


STRIPED = {
    "whole": (Group(1), None),
    "stripes": (Group(1, 3, frozenset(), True, False), None),
    "slices of channels": (Group(1, 2), Blocks(4, 3)),
    "blocks of groups": (Group(1), Blocks(5, 6)),
    "tiles": (Group(1, tiling=Tiling(3, 2, 3, 4)), None),
    "the input stays": (Group(1, tiling=Tiling(3, 9, 3, 4, rows_outer=True, whole_ifm=True)), None),
}


@pytest.mark.parametrize(("group", "blocks"), STRIPED.values(), ids=STRIPED)
def test_parts_go_with_every_other_cut(group, blocks):
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 11, 9, 12)), 12, kernel=(5, 4), padding=(2, 2, 2, 1), bits=4, groups=2)
    plan = check(single(layer), NARROW, choices=Choices((False,), (group,), (blocks,)))
    jobs = jobs_of(plan)
    assert {job.kernel for job in jobs} == {(3, 2), (2, 2)}
    assert len(jobs) % 4 == 0


def test_all_parts_of_a_block_of_weights_are_one_copy():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 9, 9, 4)), 8, kernel=(9, 9))
    plan = check(single(layer), NARROW, choices=estimated(single(layer), NARROW))
    loads = [step for step in plan.steps if isinstance(step, Copy) and step.source.space == FLASH]
    assert (len(jobs_of(plan)), len(loads)) == (9, 1)
