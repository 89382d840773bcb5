"""Float modules as networks of numpy: the values are TVM's, and what cannot be read says why."""

import numpy as np
import pytest
import tvm
from float_networks import Net, branches, module, residual
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relay

from byoc_hw.compiler import front_end
from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.golden import golden_executor
from byoc_hw.quantization.layers import values_of


def tvm_outputs(mod, samples):
    executor = golden_executor(mod)
    found = []
    for number in range(len(next(iter(samples.values())))):
        executor.run(**{name: values[number] for name, values in samples.items()})
        found.append([executor.get_output(place).numpy() for place in range(executor.get_num_outputs())])
    return [np.stack(column) for column in zip(*found, strict=True)]


def network_outputs(mod, samples):
    network = front_end().float_model(mod, None).network
    held = {number: samples[network.values[number].name] for number in network.inputs}
    found = values_of(network, held, None)
    return [found[number] for number in network.outputs]


def drawn(mod, count=3):
    chance = np.random.default_rng(5)
    shapes = {one.name_hint: [int(extent) for extent in one.checked_type.shape] for one in mod["main"].params}
    return {name: chance.normal(size=(count, *shape)).astype(np.float32) for name, shape in shapes.items()}


def assert_alike(mod):
    samples = drawn(mod)
    for found, expected in zip(network_outputs(mod, samples), tvm_outputs(mod, samples), strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-4 * max(1, np.abs(expected).max())


@pytest.mark.parametrize(
    "make", [residual, lambda: residual(layout="NCHW"), branches], ids=["nhwc", "nchw", "branches"]
)
def test_values_are_tvms(make):
    assert_alike(make())


@given(
    st.sampled_from(["NHWC", "NCHW"]),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(*[st.integers(0, 3)] * 4),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from(["one group", "two groups", "depthwise", "multiplier"]),
)
@settings(max_examples=12, deadline=None)
def test_convolutions_are_tvms(layout, kernel, strides, padding, dilation, form):
    net = Net(3, layout)
    x = relay.var("x", shape=(1, 11, 10, 4) if layout == "NHWC" else (1, 4, 11, 10))
    options = {"kernel": kernel, "strides": strides, "padding": padding, "dilation": dilation}
    if form in ("one group", "two groups"):
        y = net.conv(x, 4, 6, groups=1 if form == "one group" else 2, **options)
    else:
        y = net.depthwise(x, 4, multiplier=1 if form == "depthwise" else 3, **options)
    assert_alike(module(y, x))


POOLS = {
    "max": lambda x: relay.nn.max_pool2d(x, (3, 2), (2, 1), padding=(1, 0, 1, 1), layout="NHWC"),
    "average": lambda x: relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1, 1, 1), layout="NHWC"),
    "counts padding": lambda x: relay.nn.avg_pool2d(
        x, (3, 3), (2, 2), padding=(1, 1, 1, 1), layout="NHWC", count_include_pad=True
    ),
    "ceil": lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC", ceil_mode=True),
    "mean": lambda x: relay.mean(x, axis=[1], keepdims=True),
    "softmax": lambda x: relay.nn.softmax(x, axis=2),
    "transpose": lambda x: relay.transpose(x, (0, 3, 1, 2)),
    "broadcast": lambda x: relay.add(relay.max(x, axis=(1, 2)), x),
    "by a number": lambda x: relay.maximum(relay.multiply(x, relay.const(0.5)), relay.const(-0.1)),
}


@pytest.mark.parametrize("make", POOLS.values(), ids=POOLS)
def test_operators_are_tvms(make):
    x = relay.var("x", shape=(1, 7, 9, 5))
    assert_alike(module(make(x), x))


def test_only_values_that_a_layer_stores_have_a_grid():
    network = front_end().float_model(residual(), None).network
    stored = [value.operator for number, value in enumerate(network.values) if network.stored[number]]
    assert stored == [
        *(
            "input",
            "nn.relu",
            "nn.relu",
            "nn.conv2d",
            "nn.relu",
            "clip",
            "nn.global_avg_pool2d",
            "nn.dense",
            "nn.softmax",
        )
    ]


def test_batch_normalisation_is_part_of_its_convolution():
    network = front_end().float_model(residual(), None).network
    assert [network.values[number].operator for number in network.products] == ["nn.conv2d"] * 4 + ["nn.dense"]
    first = network.values[network.products[0]].product
    assert first is not None
    assert np.abs(first.bias).max() > 0


def refused(body, *inputs):
    with pytest.raises(InvalidInput) as error:
        front_end().float_model(module(body, *inputs), None)
    return str(error.value)


def test_integer_inputs_and_operators_are_refused_by_name():
    bytes_in = relay.var("x", shape=(1, 4), dtype="int8")
    assert "input x is float32: got int8" in refused(relay.add(bytes_in, bytes_in), bytes_in)
    real = relay.var("x", shape=(1, 4))
    stored = relay.qnn.op.quantize(real, relay.const(0.5), relay.const(0))
    assert "without operators of qnn: got qnn.quantize" in refused(stored, real)


def test_a_constant_output_is_refused():
    x = relay.var("x", shape=(1, 4))
    assert "output 1 is a constant" in refused(relay.Tuple([relay.nn.relu(x), relay.const(np.ones(3, "float32"))]), x)


def test_a_module_that_is_no_module_is_refused():
    with pytest.raises(InvalidInput, match="IRModule: got IntImm"):
        front_end().float_model(tvm.tir.IntImm("int32", 1), None)
