"""Which tiles a layer by itself is cut into."""

from plan_samples import Samples, accelerator

from byoc_hw.plan.search.single_layer import single_tiling


def test_whole_layer_where_it_fits():
    samples = Samples()
    tiling = single_tiling(samples.conv2d(samples.tensor((1, 20, 30, 8)), 24), accelerator())
    assert (tiling.rows, tiling.columns, tiling.channels, tiling.depth) == (18, 28, 24, 8)


def test_tiles_along_an_axis_are_as_high_as_each_other():
    samples = Samples()
    tiling = single_tiling(samples.conv2d(samples.tensor((1, 32, 16, 16)), 16, padding=(1, 1, 1, 1)), accelerator(8000))
    assert tiling.rows == 11  # three tiles of 11, 11 and 10; 14 rows fit


def test_rows_are_outer_where_weights_are_cheaper_to_load_again_than_inputs():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 40, 40, 64)), 64, kernel=(1, 1))
    tiling = single_tiling(layer, accelerator(60000, 3000))
    assert tiling.rows_outer
    assert tiling.channels < 64


def test_same_layer_gives_the_same_tiling():
    tilings = {
        single_tiling(Samples(7).conv2d(Samples(7).tensor((1, 30, 30, 20)), 50), accelerator(5000, 3000))
        for _ in range(3)
    }
    assert len(tilings) == 1
