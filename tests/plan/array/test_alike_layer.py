"""Which layers are alike, and layers without their values."""

from dataclasses import replace

import numpy as np
import pytest
from plan_samples import Samples, accelerator

from byoc_hw.plan.array.alike_layer import AlikeLayer, layer_sizes, without_values
from byoc_hw.plan.search.single_layer import single_tiling


def layers(value=0):
    """One of several kinds, whose constants have this value."""
    samples = Samples()

    def filled(tensor):
        return replace(tensor, data=np.full(tensor.shape, value, np.int8))

    def weighted(layer):
        return replace(layer, weights=filled(layer.weights))

    image, constant = samples.tensor((1, 6, 6, 8)), filled(samples.tensor((1, 6, 6, 8)))
    return {
        "conv2d": weighted(samples.conv2d(image, 12)),
        "depthwise": weighted(samples.depthwise(image)),
        "dense": weighted(samples.dense(samples.tensor((1, 64)), 10)),
        "add": samples.add(image, constant),
        "twice": samples.add(image, image),
        "constant twice": samples.add(constant, constant),
    }


def tensors_of(layer):
    found = []
    layer.with_tensors(lambda tensor: found.append(tensor) or tensor)
    return found


KINDS = tuple(layers())
by_kind = pytest.mark.parametrize("kind", KINDS)


@by_kind
def test_layers_that_differ_in_their_values_are_alike(kind):
    one, other = (layers(value)[kind] for value in (1, 2))
    assert one is not other
    assert AlikeLayer.of(one) == AlikeLayer.of(other)


def test_layers_of_other_kinds_and_of_other_inputs_are_not():
    assert len(set(map(AlikeLayer.of, layers().values()))) == len(KINDS)


@by_kind
def test_constants_take_one_element_without_their_values(kind):
    layer = layers(3)[kind]
    bare = without_values(layer)
    before, after = map(tensors_of, (layer, bare))
    constants = [one.data for one in after if one.data is not None]
    assert [one.data is None for one in before] == [one.data is None for one in after]
    assert all(not any(data.strides) and not data.any() for data in constants)
    assert (bare is layer) == (not constants)
    assert without_values(bare) is bare


@by_kind
def test_what_is_planned_does_not_depend_on_the_values(kind):
    layer, hardware = layers(3)[kind], accelerator(600, 500)
    assert layer_sizes(without_values(layer)) == layer_sizes(layer)
    assert single_tiling(without_values(layer), hardware) == single_tiling(layer, hardware)
