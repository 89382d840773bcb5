"""Which tensors are the same bytes, and where these come from and go to."""

from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.array.in_place import storages
from byoc_hw.plan.array.mapping import map_layers


def stored(inputs, layers, outputs, **options):
    graph = graph_of(inputs, layers, outputs)
    return storages(graph, map_layers(graph, REFERENCE, **options))


def test_reshapes_of_a_tensor_are_its_bytes_and_neither_read_nor_make_them():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 4, 4, 8)), 8)
    flat = samples.reshape(first.ofm, (1, 32))
    again = samples.reshape(flat.ofm, (32, 1))
    last = samples.dense(flat.ofm, 10)
    found = stored([first.ifm], [first, flat, again, last], [last.ofm, again.ofm])
    one = found.of[first.ofm]
    assert one is found.of[flat.ofm] is found.of[again.ofm]
    assert (one.maker, one.readers, one.last) == (0, [3], 3)
    assert [sink.index for sink in one.sinks] == [2]
    assert len(found.all) == 3


def test_tensors_of_a_mapped_layer_are_the_graph_s():
    samples = Samples()
    layer = samples.conv2d(samples.tensor((1, 32, 4, 8)), 8)
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    mapping = map_layers(graph, REFERENCE)
    found = storages(graph, mapping)
    assert mapping.swapped == (True,)
    assert found.of[mapping.layers[0].ifm] is found.of[layer.ifm]
    assert found.of[layer.ofm].extents == (2, 30, 8)
    assert found.of[layer.ofm].reordered


def test_layer_that_reads_a_tensor_twice_is_one_reader():
    samples = Samples()
    layer = samples.add(*[samples.tensor((1, 4, 4, 8))] * 2)
    assert stored([layer.ifm], [layer], [layer.ofm]).of[layer.ifm].readers == [0]


def test_tensor_goes_to_each_output_that_it_is():
    samples = Samples()
    layer = samples.pool(samples.tensor((1, 4, 4, 8)))
    found = stored([layer.ifm], [layer], [layer.ofm, layer.ifm, layer.ofm])
    assert [sink.index for sink in found.of[layer.ofm].sinks] == [1, 3]
    assert [sink.index for sink in found.of[layer.ifm].sinks] == [2]
    assert found.of[layer.ifm].source.index == 0


def test_constant_comes_from_nowhere_and_an_input_that_nothing_reads_goes_nowhere():
    samples = Samples()
    unused, ifm = samples.tensor((1, 7)), samples.tensor((1, 4))
    layer = samples.add(ifm, samples.constant((1, 4)))
    found = stored([unused, ifm], [layer], [layer.ofm])
    assert [found.of[tensor].constant for tensor in (*layer.inputs, layer.ofm)] == [False, True, False]
    assert found.of[unused].last == -1


def test_transposition_at_the_border_is_the_argument_in_another_order():
    samples = Samples()
    before = samples.transpose(samples.tensor((1, 3, 4, 5)), (0, 2, 3, 1))
    layer = samples.conv2d(before.ofm, 6, (1, 1))
    after = samples.transpose(layer.ofm, (0, 3, 1, 2))
    found = stored([before.ifm], [before, layer, after], [after.ofm])
    assert found.of[before.ofm].source.strides == (5, 1, 20)
    assert found.of[after.ofm] is found.of[layer.ofm]
    assert [sink.strides for sink in found.of[layer.ofm].sinks] == [(5, 1, 20)]
    apart = stored([before.ifm], [before, layer, after], [after.ofm], copies_transpose=False)
    assert len(apart.all) == 4
    assert not any(one.reordered for one in apart.all)
