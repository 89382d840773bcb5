"""How far layers in stripes are, and the weights that they load again: small cases exactly."""

from math import inf

from plan_samples import Samples

from byoc_hw.plan.bound.in_stripes import InStripes


def two(side, most, kind="conv"):
    """A layer of 8 rows and 10 bytes of weights, and one with a kernel of so many rows and 20 bytes behind it."""
    samples = Samples(1)
    image = samples.tensor((1, 8, 8, 4))
    first = samples.conv2d(image, 4, (1, 1))
    last = samples.conv2d(first.ofm, 4, (side, side), (1, 1), (side // 2,) * 4)
    if kind == "pool":
        last = samples.pool(first.ofm, "avg", (8, 8), (8, 8))
    found = InStripes(0)
    assert found.add(1, last, 20.0, most[1], [])
    assert found.add(0, first, 10.0, most[0], [(1, last)])
    return found


def test_the_layer_with_the_fewest_rows_at_a_time_says_how_many_stripes_there_are():
    assert two(1, (2, 8)).loaded_again(15) == 3 * (30 - 15)
    assert two(1, (8, 2)).loaded_again(15) == 3 * (30 - 15)
    assert two(1, (8, 8)).loaded_again(15) == 0


def test_a_layer_has_fewer_stripes_where_all_of_it_is_needed_early():
    """Six rows of a 5 x 5 kernel need all eight: in the last two of eight stripes only the last layer has work."""
    assert two(5, (8, 1)).loaded_again(5) == 5 * (30 - 5) + 2 * (20 - 5)


def test_there_are_no_more_stripes_than_rows():
    assert two(1, (2, 1), "pool").loaded_again(0) == inf
    assert two(1, (8, 1), "pool").loaded_again(0) == 0
    assert two(1, (0, 8)).loaded_again(0) == inf


def test_what_another_layer_needs_may_be_unknown():
    samples = Samples(1)
    image = samples.tensor((1, 8, 8, 4))
    layer = samples.conv2d(image, 4, (1, 1))
    row = samples.reshape(layer.ofm, (1, 256))
    found = InStripes(0)
    assert found.add(1, row, 0.0, 1, [])
    assert not found.add(0, layer, 10.0, 8, [(1, row)])
