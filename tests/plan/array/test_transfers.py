import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_hw.plan.array.transfers import Box, Permutation, canonical, slabs, tile_pieces, tile_transfers


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_box_is_moved_whole_and_lies_dense(data):
    shape = data.draw(st.tuples(*[st.integers(1, 6)] * 3))
    extents = tuple(data.draw(st.integers(1, size)) for size in shape)
    origin = tuple(data.draw(st.integers(0, size - part)) for size, part in zip(shape, extents, strict=True))
    tensor = np.arange(np.prod(shape), dtype=np.int64)
    local = np.full(np.prod(extents), -1)
    transfers = list(tile_transfers(Box(origin, extents), shape[1], shape[2]))
    for move in transfers:
        for row in range(move.rows):
            main, to = move.main + row * move.main_stride, move.local + row * move.local_stride
            assert (local[to : to + move.nbytes] == -1).all()
            local[to : to + move.nbytes] = tensor[main : main + move.nbytes]
    box = tuple(slice(start, start + part) for start, part in zip(origin, extents, strict=True))
    np.testing.assert_array_equal(local.reshape(extents), tensor.reshape(shape)[box])
    pieces = tile_pieces(extents, shape[1], shape[2])
    assert {(move.rows, move.nbytes) for move in transfers} == {(pieces.rows, pieces.nbytes)}
    assert len(transfers) == pieces.copies


def test_whole_rows_of_all_channels_are_one_plain_copy():
    assert [move.rows for move in tile_transfers(Box((2, 0, 0), (3, 8, 4)), 8, 4)] == [1]


def test_a_narrow_tile_of_some_channels_takes_a_copy_for_each_row():
    assert len(list(tile_transfers(Box((0, 1, 2), (3, 4, 2)), 8, 4))) == 3


def test_permutations_lose_dimensions_that_stay_neighbours():
    assert canonical((1, 3, 16, 20), (0, 2, 3, 1)) == Permutation((3, 320), (1, 0))
    assert canonical((1, 16, 20, 3), (0, 3, 1, 2)) == Permutation((320, 3), (1, 0))
    assert canonical((1, 4, 1, 5), (3, 1, 2, 0)) == Permutation((4, 5), (1, 0))
    assert canonical((2, 3, 4), (2, 1, 0)) == Permutation((2, 3, 4), (2, 1, 0))
    assert canonical((1, 1, 7), (1, 2, 0)) == Permutation((7,), (0,))
    assert canonical((1, 1), (1, 0)) == Permutation((1,), (0,))


def test_bytes_of_an_element_stay_together():
    assert canonical((3, 5), (1, 0), itemsize=4) == Permutation((3, 5, 4), (1, 0, 2))


def test_slabs_are_contiguous_and_as_large_as_fits():
    assert list(slabs((4, 6), 12)) == [((0, 0), (2, 6)), ((2, 0), (2, 6))]
    assert list(slabs((2, 6), 4)) == [((0, 0), (1, 4)), ((0, 4), (1, 2)), ((1, 0), (1, 4)), ((1, 4), (1, 2))]


@st.composite
def permutations(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=3, max_size=6)))
    return Permutation(shape, tuple(draw(st.permutations(range(len(shape))))))


@given(permutations(), permutations(), st.booleans())
@settings(max_examples=200)
def test_two_permutations_are_one(one, other, same):
    """Where both shapes are made of the same dimensions."""
    made = np.arange(np.prod(one.shape)).reshape(one.shape).transpose(one.axes)
    shape = made.shape if same else other.shape
    if np.prod(shape) != made.size:
        return
    then = Permutation(shape, tuple(reversed(range(len(shape)))))
    both = one.then(then)
    assert both is not None or not same
    if both is not None:
        wanted = made.reshape(shape).transpose(then.axes).ravel()
        found = np.arange(made.size).reshape(both.shape).transpose(both.axes).ravel()
        np.testing.assert_array_equal(found, wanted)


def test_heads_that_are_transposed_are_one_permutation():
    heads = Permutation((1, 49, 2, 32), (0, 2, 1, 3))
    assert heads.then(Permutation((2, 49, 32), (0, 2, 1))) == Permutation((49, 2, 32), (1, 2, 0))


def test_dimensions_that_overlap_are_not_one():
    assert Permutation((6, 4), (1, 0)).then(Permutation((3, 8), (1, 0))) is None
