from hypothesis import given, settings
from hypothesis import strategies as st
from plan_samples import Samples, accelerator, single
from test_layers import SEEDS, SMALL_ACCELERATORS, windows

from byoc_hw.errors import PlanError
from byoc_hw.plan import plan_region
from byoc_hw.plan.choice import choose
from byoc_hw.plan.cost import timeline
from byoc_hw.plan.tiling import Tiler
from byoc_hw.plan.window import window_of


def tiling_of(layer, hardware):
    return choose(layer, hardware, lambda tiler, tiling: None)


@given(windows(), st.integers(1, 40), st.integers(1, 60), st.booleans(), SMALL_ACCELERATORS, SEEDS)
@settings(max_examples=150, deadline=None)
def test_cycles_that_a_tiling_is_chosen_by_are_those_of_its_plan(window, depth, channels, weighted, hardware, seed):
    geometry, height, width = window
    samples = Samples(seed)
    ifm = samples.tensor((1, height, width, depth))
    layer = samples.conv2d(ifm, channels, **geometry) if weighted else samples.pool(ifm, **geometry)
    try:
        plan = plan_region(single(layer), hardware)
    except PlanError:
        return
    tiling = tiling_of(layer, hardware)
    assert Tiler(window_of(layer), hardware).cycles(tiling) == timeline(plan, hardware).total


def test_whole_layer_where_it_fits():
    samples = Samples()
    tiling = tiling_of(samples.conv2d(samples.tensor((1, 20, 30, 8)), 24), accelerator())
    assert (tiling.rows, tiling.columns, tiling.channels, tiling.depth) == (18, 28, 24, 8)


def test_tiles_along_an_axis_are_as_high_as_each_other():
    samples = Samples()
    tiling = tiling_of(samples.conv2d(samples.tensor((1, 32, 16, 16)), 16, padding=(1, 1, 1, 1)), accelerator(8000))
    assert tiling.rows == 11  # three tiles of 11, 11 and 10; 14 rows fit


def test_rows_are_outer_where_weights_are_cheaper_to_load_again_than_inputs():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 40, 40, 64)), 64, kernel=(1, 1))
    tiling = tiling_of(layer, accelerator(60000, 3000))
    assert tiling.rows_outer
    assert tiling.channels < 64


def test_same_layer_gives_the_same_tiling():
    tilings = {
        tiling_of(Samples(7).conv2d(Samples(7).tensor((1, 30, 30, 20)), 50), accelerator(5000, 3000)) for _ in range(3)
    }
    assert len(tilings) == 1
