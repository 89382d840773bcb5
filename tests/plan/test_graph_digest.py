"""Graphs that differ in names alone have one digest; those that differ in anything else have others."""

from dataclasses import fields, replace

import numpy as np
import pytest
from plan_samples import Samples, graph_of

from byoc_hw.graph_digest import graph_digest
from byoc_hw.tensor import Quantization, Tensor


def layers_of(names=0):
    """Layers of a few kinds; the names of their tensors and their own count up from a number."""
    samples = Samples(3)
    samples.count = names
    image = samples.tensor((1, 6, 6, 4))
    first = samples.conv2d(image, 8, (3, 3), padding=(1, 1, 1, 1))
    second = samples.lookup(first.ofm)
    third = samples.add(first.ofm, second.ofm)
    return image, [first, second, third, samples.pool(third.ofm, kernel=(2, 2))]


def graph(names=0):
    image, layers = layers_of(names)
    return graph_of([image], layers, [layers[-1].ofm])


def with_layer(at, change):
    image, layers = layers_of()
    layers[at] = change(layers[at])
    return graph_of([image], layers, [layers[-1].ofm])


def test_names_do_not_count():
    one, other = graph(), replace(graph(names=40), name="another")
    assert one.layers[0].name != other.layers[0].name
    assert graph_digest(one) == graph_digest(other)
    sources = tuple(replace(layer, source=("some", "operator")) for layer in one.layers)
    assert graph_digest(replace(one, layers=sources)) == graph_digest(one)


def test_names_count_where_they_are_asked_for():
    assert graph_digest(graph(), names=True) == graph_digest(graph(), names=True) != graph_digest(graph())
    sources = tuple(replace(layer, source=("some", "operator")) for layer in graph().layers)
    others = graph(names=40), replace(graph(), name="another"), replace(graph(), layers=sources)
    assert len({graph_digest(one, names=True) for one in (graph(), *others)}) == 4


def other_value(value):
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case np.ndarray():
            return np.concatenate([value.reshape(-1)[:-1], value.reshape(-1)[-1:] ^ 1]).reshape(value.shape)
        case Quantization():
            return replace(value, zero_point=tuple(point + 1 for point in value.zero_point))
        case Tensor():
            return replace(value, quantization=Quantization((0.5,), (17,)))
        case None:
            return Tensor("bias", (8,), "int32", 32, None, np.ones(8, np.int32))
        case tuple():
            return (*value, 1)
    raise AssertionError(f"{value} has no other value")


FIELDS = [
    pytest.param(at, one.name, id=f"{layer.kind} {one.name}")
    for at, layer in enumerate(layers_of()[1])
    for one in fields(layer)
    if one.name not in ("name", "source", "axes_of_model")
]


@pytest.mark.parametrize(("at", "name"), FIELDS)
def test_every_other_field_of_a_layer_counts(at, name):
    changed = with_layer(at, lambda layer: replace(layer, **{name: other_value(getattr(layer, name))}))
    assert graph_digest(changed) != graph_digest(graph())


@pytest.mark.parametrize("name", ["shape", "dtype", "bits", "quantization", "data"])
def test_every_field_of_a_tensor_counts(name):
    def change(layer):
        weights = layer.weights
        return replace(layer, weights=replace(weights, **{name: other_value(getattr(weights, name))}))

    assert graph_digest(with_layer(0, change)) != graph_digest(graph())


def test_who_reads_what_counts():
    """Two tensors that are equal but for who makes them, or which of them is an output."""
    samples = Samples(3)
    image = samples.tensor((1, 4, 4, 4))
    first, second = (samples.lookup(image) for _ in range(2))
    second = replace(second, tables=first.tables, ofm=replace(first.ofm, name="second"))
    last = samples.add(first.ofm, second.ofm)
    other = replace(last, ifm2=first.ofm)
    digests = {
        graph_digest(graph_of([image], [first, second, one], outputs))
        for one in (last, other)
        for outputs in ([one.ofm], [one.ofm, second.ofm], [second.ofm, one.ofm])
    }
    assert len(digests) == 6
