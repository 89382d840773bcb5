"""What a layer stores in another order lies where the transposition of all of it puts it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_hw.plan.array.spread import MOST_RUNS, spread_within, spreads
from byoc_hw.plan.array.transfers import Box, Permutation


def stored(found, image, size):
    """What stores of all of an image leave in `size` bytes; -1 where nothing was stored, or twice."""
    values = np.arange(np.prod(image)).reshape(image)
    whole, often = np.full(size, -1), np.zeros(size, int)
    for one in found:
        run = values[:, :, one.first : one.stop]
        places = sum(
            np.arange(count).reshape([-1 if axis == at else 1 for axis in range(3)]) * stride
            for at, (count, stride) in enumerate(zip(run.shape, one.strides, strict=True))
        )
        whole[one.offset + places] = run
        np.add.at(often, one.offset + places, 1)
    return np.where(often == 1, whole, -1)


def copy(move, local, main):
    """Store what a copy moves."""
    for row in range(move.rows):
        to, of = move.main + row * move.main_stride, move.local + row * move.local_stride
        main[to : to + move.nbytes] = local[of : of + move.nbytes]


@st.composite
def transpositions(draw):
    """A shape, axes, and an image of as many elements: rows, columns and channels are some of its dimensions."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=3, max_size=6)))
    ends = sorted((draw(st.integers(0, len(shape))), draw(st.integers(0, len(shape)))))
    parts = shape[: ends[0]], shape[ends[0] : ends[1]], shape[ends[1] :]
    return shape, tuple(draw(st.permutations(range(len(shape))))), tuple(int(np.prod(part)) for part in parts)


@given(transpositions())
@settings(max_examples=200)
def test_runs_of_channels_lie_where_the_transposition_puts_them(drawn):
    shape, axes, image = drawn
    found = spreads(Permutation(shape, axes), image)
    if found is not None:
        wanted = np.arange(np.prod(shape)).reshape(shape).transpose(axes).ravel()
        np.testing.assert_array_equal(stored(found, image, wanted.size), wanted)


@pytest.mark.parametrize(
    ("shape", "axes", "image", "runs"),
    [
        ((1, 6, 5, 2, 3, 8), (0, 1, 3, 2, 4, 5), (6, 5, 48), 2),  # pixels from channels: columns stay beside each other
        ((1, 49, 2, 32), (0, 2, 1, 3), (1, 49, 64), 2),  # the heads of an attention
        ((49, 64), (1, 0), (1, 49, 64), 1),
        ((1, 6, 5, 2, 4), (0, 1, 2, 4, 3), (6, 5, 8), 2),  # channels are shuffled
        ((1, 6, 5, 8), (0, 2, 1, 3), (6, 5, 8), 1),
        ((30, 8), (1, 0), (6, 5, 8), 1),  # all pixels are one dimension
    ],
)
def test_there_is_a_run_for_channels_that_are_equally_far_apart(shape, axes, image, runs):
    assert len(spreads(Permutation(shape, axes), image)) == runs


@pytest.mark.parametrize(
    ("shape", "axes", "image"),
    [
        ((2, 3, 4, 5), (1, 0, 2, 3), (1, 6, 20)),  # columns are at two distances
        ((2, 2, 8), (1, 0, 2), (4, 1, 8)),  # so are rows
        ((4, 6), (1, 0), (2, 4, 3)),  # a row ends within a dimension, and so does a pixel
        ((2, MOST_RUNS + 1, 2), (1, 0, 2), (1, 2, 2 * (MOST_RUNS + 1))),
    ],
)
def test_what_lies_at_several_distances_or_in_too_many_runs_is_not_stored_so(shape, axes, image):
    assert spreads(Permutation(shape, axes), image) is None


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 4)),
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)),
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)),
)
def test_pixels_from_channels_lie_in_a_larger_tensor(sizes, before, behind):
    rows, columns, down, along, channels = sizes
    shape = rows, columns, down, along, channels
    part = rows * down, columns * along, channels
    whole = tuple(map(sum, zip(before, part, behind, strict=True)))
    found = spreads(Permutation(shape, (0, 2, 1, 3, 4)), (rows, columns, down * along * channels))
    inside = [two for one in found for two in spread_within(one, (rows, columns), part, whole, before)]
    box = tuple(slice(at, at + size) for at, size in zip(before, part, strict=True))
    wanted = np.full(whole, -1)
    wanted[box] = np.arange(np.prod(shape)).reshape(shape).transpose(0, 2, 1, 3, 4).reshape(part)
    made = stored(inside, (rows, columns, down * along * channels), wanted.size)
    np.testing.assert_array_equal(made, wanted.ravel())


def test_rows_that_are_put_one_behind_the_other_lie_at_several_distances_in_a_wider_tensor():
    """Two rows of three pixels in one row of four: the second one begins in the middle."""
    (one,) = spreads(Permutation((2, 3, 4), (0, 1, 2)), (2, 3, 4))
    assert spread_within(one, (2, 3), (3, 2, 4), (3, 2, 8), (0, 0, 4)) is None
    assert spread_within(one, (2, 3), (2, 3, 4), (2, 5, 8), (0, 1, 4)) is not None


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2), st.data())
def test_rows_that_lie_apart_are_copied_without_what_is_between_them(rows, columns, channels, between, data):
    image, pitch = (rows, columns, channels), columns + between
    axes = data.draw(st.sampled_from([(2, 0, 1), (0, 2, 1), (0, 1, 2)]))
    found = spreads(Permutation(image, axes), image)
    values = np.arange(np.prod(image)).reshape(image)
    local = np.full((rows, pitch, channels), -1)
    local[:, :columns] = values
    made = np.full(values.size, -1)
    for one in found:
        for move in one.of_rows(*image, pitch):
            copy(move, local.ravel()[one.first :], made[one.offset :])
    np.testing.assert_array_equal(made, values.transpose(axes).ravel())


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.data())
def test_the_copies_of_boxes_are_those_of_the_whole(rows, columns, channels, data):
    """Of tiles, and of pixels in a row, dense or with rows apart."""
    image = rows, columns, channels
    axes = data.draw(st.sampled_from([(2, 0, 1), (0, 2, 1), (0, 1, 2)]))
    found = spreads(Permutation(image, axes), image)
    values, wanted = np.arange(np.prod(image)).reshape(image), stored(found, image, int(np.prod(image)))
    in_line = data.draw(st.booleans())
    sizes = (1, rows * columns, channels) if in_line else image
    origin = tuple(data.draw(st.integers(0, size - 1)) for size in sizes)
    extents = tuple(data.draw(st.integers(1, size - at)) for size, at in zip(sizes, origin, strict=True))
    box = values.reshape(sizes)[tuple(slice(at, at + size) for at, size in zip(origin, extents, strict=True))]
    pitch = 0 if in_line else data.draw(st.integers(extents[1], extents[1] + 2))
    local = np.full((extents[0], pitch or extents[1], extents[2]), -1)
    local[:, : extents[1]] = box
    made = np.full(wanted.size, -1)
    for one in found:
        for move in one.of_box(Box(origin, extents), columns, pitch, in_line=in_line):
            copy(move, local.ravel(), made)
    np.testing.assert_array_equal(made, np.where(np.isin(wanted, box), wanted, -1))
