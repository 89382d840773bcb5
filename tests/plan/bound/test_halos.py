"""What portions share: no less than stripes and patches of plans do, and not much more."""

from itertools import combinations
from random import Random

import pytest
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.kinds import geometry
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.array.window import Axis
from byoc_hw.plan.bound.halos import lines_needed, shared, sizes
from byoc_hw.plan.work.patch_boxes import pieces

AXES = [Axis(12, 12, 3, 1, 1), Axis(12, 6, 3, 2, 1), Axis(9, 9, 5, 1, 2), Axis(8, 4, 2, 2, 0), Axis(7, 3, 5, 2, 1)]


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_stripes_share_no_fewer_rows(axis):
    for borders in range(axis.ofm):
        counts = []
        for cuts in combinations(range(1, axis.ofm), borders):
            ends = zip((0, *cuts), (*cuts, axis.ofm), strict=True)
            counts.append(sum(axis.extent(start, stop - start).ifm_size for start, stop in ends))
        assert shared(axis, borders) == min(counts) - axis.extent(0, axis.ofm).ifm_size
    assert shared(axis, axis.ofm) is None


@pytest.mark.parametrize("seed", range(6))
def test_patches_compute_no_fewer_rows(seed):
    """Each layer of a chain, in pieces of each size: those of a plan, which also go on where the one before ended."""
    drawn, samples = Random(seed), Samples(seed)
    image = value = samples.tensor((1, drawn.choice((9, 12, 17)), 12, 4))
    layers = []
    for _ in range(3):
        side, stride = drawn.choice(((1, 1), (3, 1), (3, 2), (5, 1)))
        layers.append(samples.conv2d(value, 4, (side, side), (stride, stride), (side // 2,) * 4))
        value = layers[-1].ofm
    mapped = map_graph(graph_of([image], layers, [value]), REFERENCE, copies_transpose=False)
    layers, of = mapped.mapping.layers, mapped.storages.of
    height = layers[-1].ofm.shape[1]
    cuts, needed = lines_needed(height), []
    for layer in reversed(layers):
        needed.append(cuts.lines())
        cuts = cuts.read(geometry(layer).rows)
    for at, size in enumerate(sizes(height)):
        found = list(pieces(layers, of, [0, 1, 2], ceil_div(height, int(size)), 0))
        for index, lines in zip((2, 1, 0), needed, strict=True):
            made = sum(stop - start for start, stop in (piece.made[index] for piece in found))
            assert 0 <= made - lines[at] <= layers[index].filter[0] * len(found)
        read = sum(stop - start for start, stop in (piece.read[of[image]] for piece in found))
        assert read >= cuts.lines()[at]
