"""Copies of neighbouring bytes in one."""

from dataclasses import replace

from plan_check import check
from plan_choices import estimated
from plan_samples import Samples, activation, graph_of

from byoc_hw.accelerator import KIB, REFERENCE
from byoc_hw.plan.choices import Group
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.steps import FLASH, WEIGHTS, Copy

SLOW = replace(REFERENCE, label="SLOW", dma_width=1, dma_setup=200, packed_rows=False)


def pointwise(count, channels=8):
    """A chain of pointwise convolutions over 4 x 4 pixels."""
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 4, 4, channels)), channels, (1, 1))]
    while len(layers) < count:
        layers.append(samples.conv2d(layers[-1].ofm, channels, (1, 1)))
    return graph_of([layers[0].ifm], layers, [layers[-1].ofm])


def laid_out(graph, hardware, **changes):
    """The plans with whole layers, without joined copies and with them, after both were compared with the reference."""
    chosen = replace(estimated(graph, hardware), **changes)
    for fine in (False, True):
        check(graph, hardware, choices=replace(chosen, fine=fine))
    return [lay_out_region(graph, hardware, replace(chosen, fine=fine)) for fine in (False, True)]


def copies(layout, space):
    """The copies to a local memory, in the order of the work."""
    steps = [op.step for op in layout.work.ops]
    return [step for step in steps if isinstance(step, Copy) and step.target.space == space]


def test_weights_of_several_layers_come_in_one_copy():
    plain, fine = laid_out(pointwise(5), SLOW)
    assert len(copies(plain, WEIGHTS)) == 5
    assert len(copies(fine, WEIGHTS)) <= 2
    assert fine.cycles <= plain.cycles - 3 * SLOW.dma_setup


def test_joined_weights_lie_at_alignments_of_both_memories():
    hardware = replace(SLOW, dma_alignment=8, local_alignment=32)
    plain, fine = laid_out(pointwise(4, channels=24), hardware)
    assert len(copies(fine, WEIGHTS)) < len(copies(plain, WEIGHTS))
    jobs = [op.at(fine.places) for op in fine.work.ops if op.is_job]
    assert {job.weights % hardware.buffer_alignment for job in jobs} == {0}


def test_no_more_weights_come_together_than_weight_memory_holds():
    hardware = replace(SLOW, weight_memory=1 * KIB)
    plain, fine = laid_out(pointwise(3, channels=24), hardware)  # 864 bytes each
    assert 3 <= len(copies(fine, WEIGHTS)) < len(copies(plain, WEIGHTS))
    assert max(step.nbytes for step in copies(fine, WEIGHTS)) <= hardware.weight_memory


def test_constants_keep_their_values_where_weights_move():
    samples = Samples()
    image = samples.tensor((1, 4, 4, 8))
    first = samples.conv2d(image, 8, (1, 1))
    added = samples.add(first.ofm, samples.constant((1, 4, 4, 8)))
    last = samples.conv2d(added.ofm, 8, (1, 1))
    graph = graph_of([image], [first, added, last], [last.ofm])
    plain, fine = laid_out(graph, SLOW)
    assert len(copies(fine, WEIGHTS)) < len(copies(plain, WEIGHTS))


def test_an_output_is_stored_at_once_where_a_copy_costs_more_than_it_hides():
    layer = Samples().conv2d(Samples().tensor((1, 8, 8, 8)), 8, (1, 1))
    graph = graph_of([layer.ifm], [layer], [layer.ofm])
    plain, fine = laid_out(
        graph, replace(SLOW, dma_setup=5000), groups=(Group(1, 4, frozenset({0, 1})),), blocks=(None,)
    )
    assert [sum(not step.inward for step in stored(one)) for one in (plain, fine)] == [4, 1]
    assert fine.cycles < plain.cycles


def stored(layout):
    return [op.step for op in layout.work.ops if isinstance(op.step, Copy)]


def test_the_room_around_images_of_one_size_is_filled_in_one_copy():
    samples = Samples()
    layers = [samples.conv2d(samples.tensor((1, 8, 8, 8)), 8, (3, 3), padding=(1, 1, 1, 1))]
    for _ in range(3):
        layers.append(samples.conv2d(layers[-1].ofm, 8, (3, 3), padding=(1, 1, 1, 1)))
    graph = graph_of([layers[0].ifm], layers, [layers[-1].ofm])
    hardware = replace(SLOW, packed_rows=True, dma_width=8)
    groups = tuple(Group(1, held=frozenset({index, index + 1})) for index in range(4))
    plain, fine = laid_out(graph, hardware, groups=groups, blocks=(None,) * 4, packed=frozenset({0}))
    fills = [
        [step for step in stored(one) if step.source.space == FLASH and step.target.space != WEIGHTS]
        for one in (plain, fine)
    ]
    assert len(fills[1]) == len(fills[0]) - 2  # of three images; the input's is filled with its rows
    assert fine.cycles < plain.cycles


class AlikeSamples(Samples):
    """All tensors have one zero point."""

    def tensor(self, shape, data=None):
        return activation(self.name("tensor"), shape, zero_point=-5, data=data)


def test_the_room_around_an_image_where_another_one_was_is_not_filled_again():
    """Between two images that windows read lies one of which single pixels are read: the first is not used then."""
    samples = AlikeSamples()
    layers = [samples.conv2d(samples.tensor((1, 8, 8, 8)), 8, (1, 1))]
    for _ in range(2):
        layers.append(samples.conv2d(layers[-1].ofm, 8, (3, 3), padding=(1, 1, 1, 1)))
        layers.append(samples.conv2d(layers[-1].ofm, 8, (1, 1)))
    graph = graph_of([layers[0].ifm], layers, [layers[-1].ofm])
    hardware = replace(SLOW, packed_rows=True, dma_width=8, activation_memory=2 * KIB)
    groups = tuple(Group(1, held=frozenset({index, index + 1})) for index in range(5))
    plain, fine = laid_out(graph, hardware, groups=groups, blocks=(None,) * 5, packed=frozenset({0}))
    around = [
        [step for step in stored(one) if step.source.space == FLASH and step.nbytes == 10 * 8] for one in (plain, fine)
    ]
    assert list(map(len, around)) == [2, 1]  # above and below an image: a row with its padding, and one pixel more
    assert fine.cycles < plain.cycles
