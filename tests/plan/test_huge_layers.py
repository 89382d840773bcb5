"""Layers far beyond the memories: each has an answer at once, not after minutes of searching."""

import time
from dataclasses import replace

import pytest
from plan_samples import Samples

from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.graph import Transpose
from byoc_hw.plan.array.tiling import _distinct
from byoc_hw.plan.array.window import Axis
from byoc_hw.plan.region import why_no_plan
from byoc_hw.plan.search.single_layer import MOST_STEPS

SECONDS = 5
"""Each takes well under one second alone; machines that run tests have other things to do."""


def conv(height, width, channels, filters, kernel=3):
    samples = Samples()
    return samples.conv2d(samples.tensor((1, height, width, channels)), filters, (kernel, kernel))


def add(shape):
    samples = Samples()
    return samples.add(samples.tensor(shape), samples.tensor(shape))


def pool(side):
    samples = Samples()
    return samples.pool(samples.tensor((1, side, side, 4)))


def dense(inputs, outputs):
    samples = Samples()
    return samples.dense(samples.tensor((1, inputs)), outputs)


def transpose(side):
    samples = Samples()
    ifm = samples.tensor((1, side, side, 4))
    return Transpose("t", (), ifm, samples.tensor((1, 4, side, side)), axes=(0, 3, 1, 2))


TOO_LARGE = {
    "conv2d": lambda: conv(20_000, 20_000, 4, 8),
    "conv2d of one channel": lambda: conv(20_000, 20_000, 1, 1),
    "pool2d": lambda: pool(40_000),
    "add": lambda: add((1, 10**9)),
    "transpose": lambda: transpose(20_000),
}


@pytest.mark.parametrize("make", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_huge_layer_is_declined_at_once(make):
    layer, start = make(), time.monotonic()
    for accelerator in (REFERENCE, SMALL):
        reason = why_no_plan(layer, accelerator)
        assert f"{layer.name}: at most {MOST_STEPS} jobs and copies are wanted: at least " in reason
    assert time.monotonic() - start < SECONDS


OF_ONE_ROW = {
    "conv2d": lambda: conv(1, 4_000_000, 1, 1, kernel=1),
    "add": lambda: add((1, 10**6)),
    "dense": lambda: dense(1, 10**5),
    "dense of many inputs": lambda: dense(10**5, 1),
}


@pytest.mark.parametrize("make", OF_ONE_ROW.values(), ids=OF_ONE_ROW)
def test_a_long_layer_is_planned_soon(make):
    layer, start = make(), time.monotonic()
    assert why_no_plan(layer, REFERENCE) is None
    assert time.monotonic() - start < SECONDS


def test_a_kernel_as_large_as_its_image_names_the_memory():
    assert "the smallest tile fits local" in why_no_plan(conv(300, 300, 1, 1, kernel=299), REFERENCE)


def test_small_memories_allow_fewer_steps():
    layer = add((1, 10**6))
    assert "at least" in why_no_plan(layer, replace(REFERENCE, activation_memory=1024))


@pytest.mark.parametrize("axis", [Axis(100, 98, 3, 1, 0), Axis(100, 100, 3, 1, 1), Axis(101, 51, 5, 2, 2)], ids=str)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 100])
def test_tiles_are_counted_as_if_each_were_cut(axis, size):
    cut = [(extent.size, extent.ifm_size) for extent in axis.cut(size)]
    counted = {(extent.size, extent.ifm_size): count for extent, count in _distinct(axis, size)}
    assert counted == {sizes: cut.count(sizes) for sizes in cut}
