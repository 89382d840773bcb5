"""Tensors that are reordered by way of local memory: what is copied, and in how many copies."""

from dataclasses import replace
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.permuting import _by_way_of, permuting_copies
from byoc_hw.plan.array.transfers import Permutation, slabs

HEADS = Permutation((16, 16, 2, 16), (0, 2, 1, 3))
"""Windows of tokens with two heads each, to heads with tokens."""


def bytes_of(moves):
    """The rows of copies, in main memory and in local memory."""
    for move in moves:
        for row in range(move.rows):
            main, there = move.main + row * move.main_stride, move.local + row * move.local_stride
            yield slice(main, main + move.nbytes), slice(there, there + move.nbytes)


def moved(permutation, limit, accelerator):
    """The bytes of a tensor that counts up, reordered slab by slab."""
    source, target = np.arange(prod(permutation.shape)), np.full(prod(permutation.shape), -1)
    first = 0
    for origin, extents in slabs(permutation.shape, limit):
        copies, local = permuting_copies(permutation, extents, accelerator), np.full(prod(extents), -1)
        for main, there in bytes_of(copies.loads.transfers(first)):
            local[there] = source[main]
        start = sum(place * stride for place, stride in zip(origin, permutation.output_strides, strict=True))
        for main, there in bytes_of(copies.stores.transfers(start)):
            target[main] = local[there]
        first += prod(extents)
    return target


@st.composite
def permutations(draw):
    axes = draw(st.permutations(range(draw(st.integers(1, 4)))))
    return Permutation(tuple(draw(st.integers(1, 5)) for _ in axes), tuple(axes))


@given(permutations(), st.integers(1, 200), st.sampled_from([0, 10, 70]))
def test_every_byte_comes_to_its_place(permutation, limit, setup):
    expected = np.arange(prod(permutation.shape)).reshape(permutation.shape).transpose(permutation.axes)
    found = moved(permutation, limit, replace(REFERENCE, dma_setup=setup))
    np.testing.assert_array_equal(found, expected.ravel())


def test_loads_and_stores_do_a_part_each():
    """The loads put each head's tokens together, in two copies, and the stores each window's heads."""
    loads, stores = permuting_copies(HEADS, HEADS.shape, REFERENCE)
    assert (loads.copies, loads.rows, loads.nbytes) == (2, 256, 16)
    assert (stores.copies, stores.rows, stores.nbytes) == (2, 16, 256)


def test_it_never_takes_longer_than_stores_that_do_all():
    for shape, axes in (
        ((7, 5), (1, 0)),
        ((6, 4, 9), (2, 0, 1)),
        ((2, 8, 3, 4, 2), (4, 1, 3, 0, 2)),
        ((1,) * 8, range(8)),
    ):
        permutation = Permutation(shape, tuple(axes))
        stores = _by_way_of(range(len(shape)), permutation, shape)
        assert stores.loads.copies == stores.loads.rows == 1
        assert permuting_copies(permutation, shape, REFERENCE).cycles(REFERENCE) <= stores.cycles(REFERENCE)


def test_stores_to_several_targets_count_for_each():
    one = permuting_copies(HEADS, HEADS.shape, REFERENCE)
    stores = one.stores.copies * copy_cycles(one.stores.nbytes, one.stores.rows, REFERENCE)
    assert one.cycles(REFERENCE, 3) == one.cycles(REFERENCE) + 2 * stores
    turned = Permutation((4, 64), (1, 0))  # a load or a store of single bytes: for many targets the load
    assert permuting_copies(turned, turned.shape, REFERENCE, targets=3).stores.nbytes == 256


def test_copies_keep_the_alignment_of_the_dma():
    """Eight bytes at a time may be moved, and fewer may not."""
    strict = replace(REFERENCE, dma_alignment=8)
    assert all(one.keeps(8) for one in permuting_copies(HEADS, HEADS.shape, strict))
    bytewise = Permutation((8, 8), (1, 0))
    assert permuting_copies(bytewise, (8, 8), strict) == _by_way_of(range(2), bytewise, (8, 8))
