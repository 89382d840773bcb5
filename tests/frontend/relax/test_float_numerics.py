"""Numerics "float": the C of a project beside TVM's floats, which it equals but where a value is halfway."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_networks import NETWORKS
from relax_samples import convolution, module, real, stored
from tvm import relax

import byoc_hw
from byoc_hw.compiler import region_graphs

SHAPE = (1, 6, 6, 8)


def compared(mod, directory, numerics="float", **options):
    """The comparison of a module with TVM for a few inputs; all of it is offloaded unless `deny` names something."""
    partitioned = byoc_hw.partition_for_hwlib(mod, mod_name="m", numerics=numerics, **options)
    assert options or byoc_hw.explain(partitioned).host == ()
    project = byoc_hw.build(partitioned, output_dir=directory)
    random = np.random.default_rng(0)
    inputs = [[random.integers(-128, 128, one.shape).astype(one.dtype) for one in project.inputs] for _ in range(3)]
    return byoc_hw.validate(project, inputs, partitioned)


def of_output(validation):
    return next(one for one in validation.comparisons if one.kind == "output")


def summed(x):
    return stored(relax.op.nn.relu(relax.op.add(real(x, 0.013, 5), real(convolution(x), 0.05, -5))), 0.041, -90)


def subtracted(x):
    return stored(relax.op.subtract(real(x, 0.013, 5), real(convolution(x), 0.05, -5)), 0.037, 7)


def averaged(x):
    return stored(relax.op.nn.avg_pool2d(real(x, 0.02, 3), (3, 3), (1, 1), layout="NHWC"), 0.013, -8)


def mean(x):
    return stored(relax.op.mean(real(x, 0.02, 3), [1, 2], keepdims=True), 0.007, 30)


@pytest.mark.parametrize("body", [summed, subtracted, averaged, mean])
def test_sums_and_means_are_exact_and_with_relay_are_not(body, tmp_path):
    mod = module(body, SHAPE)
    assert compared(mod, tmp_path / "float").ok
    relay = of_output(compared(mod, tmp_path / "relay", "relay"))
    assert relay.differing > 0.05 * relay.elements


def chain(x):
    return stored(relax.op.sigmoid(relax.op.add(real(x, 0.03, 3), relax.const(np.float32(0.3)))), 1 / 256, -128)


@pytest.mark.parametrize("where", ["accelerator", "host"])
def test_tables_are_those_of_the_floats(where, tmp_path):
    every = np.arange(-128, 128, dtype=np.int8).reshape(1, 4, 8, 8)
    options = {} if where == "accelerator" else {"deny": ["lookup"]}
    partitioned = byoc_hw.partition_for_hwlib(module(chain, every.shape), mod_name="m", numerics="float", **options)
    assert bool(region_graphs(partitioned)) == (where == "accelerator")
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    assert byoc_hw.validate(project, [[every]], partitioned).ok


@pytest.mark.parametrize("body", [summed, averaged, mean, convolution])
def test_the_host_computes_the_same(body, tmp_path):
    names = ["qnn_add", "avg_pool2d", "qnn_conv2d"]
    assert compared(module(body, SHAPE), tmp_path / "m", deny=names).ok


SCALES = st.integers(1, 500).map(lambda number: number / 1000)
ZERO_POINTS = st.integers(-128, 127)


@given(*(st.tuples(SCALES, ZERO_POINTS) for _ in range(3)), st.booleans())
@settings(max_examples=8, deadline=None)
def test_an_addition_differs_only_where_its_sum_is_halfway(tmp_path_factory, first, second, output, less):
    """The sum has 20 bits behind the point of half the range."""

    def body(x, y):
        operator = relax.op.subtract if less else relax.op.add
        return stored(operator(real(x, *first), real(y, *second)), *output)

    shape = (1, 256, 16, 16)
    x, y = np.meshgrid(*2 * [np.arange(-128, 128, dtype=np.int8)])
    partitioned = byoc_hw.partition_for_hwlib(module(body, shape, shape), mod_name="m", numerics="float")
    project = byoc_hw.build(partitioned, output_dir=tmp_path_factory.mktemp("m") / "m")
    (found,) = project.run([x.reshape(shape), y.reshape(shape)]).outputs
    one, other = ((values - np.float64(point)) * scale for values, (scale, point) in ((x, first), (y, second)))
    exact = (one - other if less else one + other) / output[0] + output[1]
    wanted = np.clip(np.floor(exact + 0.5), -128, 127)
    halfway = np.abs(exact - np.floor(exact) - 0.5) < 1e-3
    assert np.abs(found.reshape(x.shape) - wanted).max() <= 1
    assert np.array_equal(found.reshape(x.shape)[~halfway], wanted[~halfway])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", ["keywords", "attention", "mobilenet"])
def test_networks_are_exact_and_with_relay_are_not(name, dtype, tmp_path):
    path = NETWORKS[name](dtype=dtype, opset=19).save(tmp_path / "net.onnx")
    found = {}
    for numerics in ("relay", "float"):
        partitioned = byoc_hw.partition_for_hwlib(*byoc_hw.load(path), "m", numerics=numerics)
        project = byoc_hw.build(partitioned, output_dir=tmp_path / numerics)
        random = np.random.default_rng(0)
        inputs = [[random.normal(size=one.shape).astype(one.dtype) for one in project.inputs] for _ in range(3)]
        found[numerics] = byoc_hw.validate(project, inputs, partitioned)
    assert found["float"].ok, str(found["float"])
    assert not found["relay"].ok
