"""Which indices of its inputs a share of a layer needs, and where pieces of tensors lie."""

from dataclasses import replace

import pytest
from plan_samples import Samples

from byoc_hw.plan.lanes.cut import Piece, boxes_of_piece, place_of, rows_of
from byoc_hw.tensor import Tensor

BLOCKS = (1, 6, 5, 2, 3, 4)
"""Pixels of 6 x 5 blocks of 2 x 3 each."""


def shapes(layer):
    return layer.ifm.shape, layer.ofm.shape


def test_a_share_of_a_reshape_is_whole_rows_on_both_sides():
    samples = Samples(1)
    pixels = samples.reshape(samples.tensor((1, 6, 2, 5, 3, 4)), (1, 12, 15, 4))
    layer, reads = rows_of(pixels, 1, (4, 10))
    assert (shapes(layer), reads) == (((1, 3, 2, 5, 3, 4), (1, 6, 15, 4)), ((2, 5),))
    blocks = samples.reshape(pixels.ofm, (1, 6, 2, 5, 3, 4))
    layer, reads = rows_of(blocks, 1, (2, 5))
    assert (shapes(layer), reads) == (((1, 6, 15, 4), (1, 3, 2, 5, 3, 4)), ((4, 10),))
    vector = samples.reshape(pixels.ofm, (1, 720))
    layer, reads = rows_of(vector, 1, (60, 180))
    assert (shapes(layer), reads) == (((1, 2, 15, 4), (1, 120)), ((1, 3),))


@pytest.mark.parametrize("rows", [(3, 10), (4, 9)])
def test_a_reshape_is_not_cut_inside_a_row_of_its_input(rows):
    samples = Samples(1)
    assert rows_of(samples.reshape(samples.tensor((1, 6, 2, 5, 3, 4)), (1, 12, 15, 4)), 1, rows) is None


def test_rows_stay_rows_in_a_transposition_of_what_is_in_them():
    samples = Samples(1)
    value = samples.tensor(BLOCKS)
    layer, reads = rows_of(samples.transpose(value, (0, 1, 3, 2, 4, 5)), 1, (2, 6))
    assert (shapes(layer), reads) == (((1, 4, 5, 2, 3, 4), (1, 4, 2, 5, 3, 4)), ((2, 6),))
    assert rows_of(samples.transpose(value, (0, 2, 1, 3, 4, 5)), 1, (2, 4)) is None


def test_reshapes_and_transpositions_are_cut_along_their_first_rows_alone():
    samples = Samples(1)
    image, batch = samples.tensor((1, 4, 6, 8)), samples.tensor((2, 4, 6, 8))
    for ifm, axis in ((image, 2), (image, 3), (batch, 1)):
        assert rows_of(samples.reshape(ifm, ifm.shape), axis, (0, 2)) is None
        assert rows_of(samples.transpose(ifm, (0, 1, 3, 2)), axis, (0, 2)) is None
    constant = replace(image, data=samples.values(image.shape))
    assert rows_of(samples.reshape(constant, image.shape), 1, (0, 2)) is None


def test_rows_of_any_tensor_lie_together():
    piece = Piece(Tensor("blocks", BLOCKS, "int8"), 1, 2)
    (box,) = boxes_of_piece(piece, (1, 3, *BLOCKS[2:]), swapped=False)
    assert place_of(piece, swapped=False) == box.start == 2 * 5 * 2 * 3 * 4


@pytest.mark.parametrize(("axis", "swapped", "place"), [(1, False, 60), (2, False, 10), (1, True, 10), (2, True, 40)])
def test_rows_and_columns_of_an_image_begin_where_its_order_has_them(axis, swapped, place):
    """An image of 4 rows of 6 pixels."""
    assert place_of(Piece(Tensor("image", (1, 4, 6, 5), "int8"), axis, 2), swapped) == place
