"""Which rows of each layer a stripe takes."""

from plan_samples import Samples, accelerator, graph_of

from byoc_hw.plan.array.in_place import storages
from byoc_hw.plan.array.mapping import map_layers
from byoc_hw.plan.work.rows_needed import rows_of_layer, stripes_of


def rows_of(layers, count, whole=()):
    """For each stripe the rows of each layer, by place; `whole` are outputs of layers by place."""
    graph = graph_of([layers[0].ifm], layers, [layers[-1].ofm])
    found = storages(graph, map_layers(graph, accelerator(), [False])).of
    held = {found[layers[index].ofm].index for index in whole}
    rows = [rows_of_layer(layer, index, found, frozenset()) for index, layer in enumerate(layers)]
    return [dict(stripe.rows) for stripe in stripes_of(rows, count, held)]


def chain(*kernels, strides=(1, 1), height=12):
    samples = Samples()
    layers = []
    value = samples.tensor((1, height, 4, 2))
    for kernel in kernels:
        same = ((kernel - 1) // 2, 0, (kernel - 1) // 2, 0)
        layers.append(samples.conv2d(value, 2, (kernel, 1), strides, same))
        value = layers[-1].ofm
    return layers


def test_neighbouring_stripes_compute_the_halo_twice():
    assert rows_of(chain(1, 3), 3) == [{1: (0, 4), 0: (0, 5)}, {1: (4, 8), 0: (3, 9)}, {1: (8, 12), 0: (7, 12)}]


def test_layer_whose_output_lies_whole_computes_new_rows_only():
    assert rows_of(chain(1, 3), 3, whole=[0]) == [
        {1: (0, 4), 0: (0, 5)},
        {1: (4, 8), 0: (5, 9)},
        {1: (8, 12), 0: (9, 12)},
    ]


def test_whole_output_that_is_done_is_not_computed_again():
    layers = chain(1, 9, height=6)
    assert rows_of(layers, 3, whole=[0]) == [{1: (0, 2), 0: (0, 6)}, {1: (2, 4)}, {1: (4, 6)}]


def test_stride_takes_twice_the_rows():
    first, _ = chain(1, 3)
    strided = Samples(1).conv2d(first.ofm, 2, (3, 1), (2, 1), (1, 0, 1, 0))
    assert rows_of([first, strided], 2) == [{1: (0, 3), 0: (0, 6)}, {1: (3, 6), 0: (5, 12)}]


def test_rows_that_nothing_reads_are_computed_once_all_the_same():
    first, _ = chain(1, 1)
    strided = Samples(1).conv2d(first.ofm, 2, (1, 1), (2, 1))
    assert rows_of([first, strided], 3) == [{1: (0, 2), 0: (0, 3)}, {1: (2, 4), 0: (3, 7)}, {1: (4, 6), 0: (7, 12)}]


def test_layer_that_only_a_later_group_reads_is_computed_in_equal_shares():
    samples = Samples()
    ifm = samples.tensor((1, 4, 4, 2))
    aside, last = samples.pool(ifm, strides=(1, 1)), samples.conv2d(ifm, 2)
    assert rows_of([aside, last], 2) == [{1: (0, 1), 0: (0, 2)}, {1: (1, 2), 0: (2, 3)}]


def test_there_are_no_more_stripes_than_rows_and_none_is_empty():
    assert [stripe[0] for stripe in rows_of(chain(1, height=5), 4)] == [(0, 2), (2, 4), (4, 5)]
    assert len(rows_of(chain(1, height=2), 99)) == 2
