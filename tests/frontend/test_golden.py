"""TVM's golden semantics: the same values however TVM compiles them."""

import numpy as np
import pytest
import tvm
from tvm import relay

from byoc_hw.frontend.relay import golden
from byoc_hw.frontend.relay.golden import golden_executor
from byoc_hw.remembered import Remembered


def network():
    """A scaled convolution, its sum with itself, what is equal to it, and a comparison."""
    random = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 6, 6, 4), dtype="float32")
    weights = relay.const(random.standard_normal((3, 3, 4, 8)).astype("float32"))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "channels": 8, "kernel_size": (3, 3)}
    y = relay.nn.bias_add(relay.nn.conv2d(x, weights, **layouts), relay.const(np.ones(8, "float32")), axis=3)
    y = relay.multiply(y, relay.const(random.standard_normal(8).astype("float32")))
    outputs = [
        relay.add(y, y),
        relay.sigmoid(y),
        relay.sigmoid(y),
        relay.cast(relay.greater(y, relay.const(0.0)), "int8"),
    ]
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.Tuple(outputs))))


def values(executor):
    executor.run(x=np.random.default_rng(1).standard_normal((1, 6, 6, 4)).astype("float32"))
    return [executor.get_output(place).numpy() for place in range(executor.get_num_outputs())]


@pytest.fixture(scope="module")
def expected():
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(network(), golden.TARGET)
    return values(tvm.contrib.graph_executor.GraphModule(library["default"](tvm.cpu())))


def test_what_is_left_out_changes_no_value(expected):
    for found, other in zip(values(golden_executor(network())), expected, strict=True):
        np.testing.assert_array_equal(found, other)


def test_without_a_linker_tvm_compiles_in_memory(expected, monkeypatch):
    monkeypatch.setattr("byoc_hw.frontend.linked._LINKER", "no-such-linker")
    monkeypatch.setattr("byoc_hw.frontend.relay.golden.cc.create_shared", None)
    for found, other in zip(values(golden_executor(network())), expected, strict=True):
        np.testing.assert_array_equal(found, other)


def test_a_module_without_an_operator_gives_its_input():
    x = relay.var("x", shape=(1, 6, 6, 4), dtype="float32")
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([x, x]))))
    one, other = values(golden_executor(mod))
    np.testing.assert_array_equal(one, other)
    assert one.any()


def scaled(factor, name="x"):
    x = relay.var(name, shape=(1, 6, 6, 4), dtype="float32")
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], x * relay.const(np.float32(factor)))))


def test_a_module_is_compiled_once(monkeypatch):
    monkeypatch.setattr(golden, "_programs", Remembered(golden._REMEMBERED))
    first, other = golden_executor(scaled(2.0)), golden_executor(scaled(3.0))
    monkeypatch.setattr(golden, "_program", None)
    again = golden_executor(scaled(2.0))
    for executor in (first, other, again):  # each with results of its own
        executor.run(x=np.ones((1, 6, 6, 4), "float32"))
    assert [one.get_output(0).numpy().max() for one in (first, other, again)] == [2, 3, 2]
    with pytest.raises(TypeError):
        golden_executor(scaled(2.0, "y"))  # its input has another name
    monkeypatch.undo()
    golden_executor(scaled(2.0, "y")).run(y=np.ones((1, 6, 6, 4), "float32"))


def test_few_programs_are_remembered(monkeypatch):
    monkeypatch.setattr(golden, "_programs", Remembered(golden._REMEMBERED))
    for factor in range(golden._REMEMBERED + 2):
        golden_executor(scaled(factor + 2))
    assert len(golden._programs) == golden._REMEMBERED
