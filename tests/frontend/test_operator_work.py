"""Multiplications and bytes of operators, of types alone."""

import pytest
import tvm
from tvm import relay

from byoc_hw.frontend.relay.operator_work import multiplications, operator_work
from byoc_hw.frontend.relay.sources import span_of, span_of_all, with_source_names


def typed(expr):
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(expr), expr)))


def var(name, *shape, dtype="float32"):
    return relay.var(name, shape=shape, dtype=dtype)


PRODUCTS = {
    "conv2d": (relay.nn.conv2d(var("x", 1, 4, 8, 8), var("w", 6, 4, 3, 3)), 6 * 6 * 6 * 4 * 9),
    "NHWC": (
        relay.nn.conv2d(var("x", 1, 8, 8, 4), var("w", 3, 3, 4, 6), data_layout="NHWC", kernel_layout="HWIO"),
        6 * 6 * 6 * 4 * 9,
    ),
    "depthwise": (relay.nn.conv2d(var("x", 1, 4, 8, 8), var("w", 4, 1, 3, 3), groups=4), 4 * 6 * 6 * 9),
    "groups": (relay.nn.conv2d(var("x", 1, 4, 8, 8), var("w", 6, 2, 3, 3), groups=2), 6 * 6 * 6 * 2 * 9),
    "conv1d": (relay.nn.conv1d(var("x", 1, 4, 8), var("w", 6, 4, 3)), 6 * 6 * 4 * 3),
    "transposed": (relay.nn.conv2d_transpose(var("x", 1, 4, 5, 5), var("w", 4, 6, 3, 3)), 5 * 5 * 4 * 6 * 9),
    "dense": (relay.nn.dense(var("x", 2, 10), var("w", 5, 10)), 2 * 5 * 10),
    "matmul": (relay.nn.matmul(var("x", 10, 2), var("w", 10, 5), transpose_a=True), 2 * 5 * 10),
    "batch_matmul": (relay.nn.batch_matmul(var("x", 3, 2, 10), var("w", 3, 5, 10)), 3 * 2 * 5 * 10),
    "add": (relay.add(var("x", 7), var("w", 7)), 0),
}


@pytest.mark.parametrize(("expr", "macs"), PRODUCTS.values(), ids=PRODUCTS)
def test_counts_the_products_that_are_summed(expr, macs):
    assert multiplications(typed(expr)["main"].body) == macs


def work_of(expr):
    main = relay.transform.InferType()(tvm.IRModule.from_expr(with_source_names(typed(expr)["main"])))["main"]
    return {name: (one.macs, one.nbytes) for name, one in operator_work(main).items()}


def test_bytes_are_those_of_each_tensor_once():
    x = var("x", 10, dtype="int8")
    assert work_of(relay.add(x, x)) == {"add_1": (0, 20)}
    assert work_of(relay.add(x, relay.const(1, "int8"))) == {"add_1": (0, 20)}  # a scalar is no tensor
    assert work_of(relay.nn.relu(relay.add(x, x))) == {"add_1": (0, 20), "nn.relu_1": (0, 20)}


def test_bytes_of_several_outputs_and_inputs():
    x = var("x", 4, 6, dtype="int16")
    halves = relay.split(x, 2, axis=1)
    joined = relay.concatenate([halves[0], halves[1]], axis=0)
    assert work_of(joined)["split_1"] == (0, 96)
    assert work_of(joined)["concatenate_1"][0] == 0


def test_says_whose_results_are_read():
    x = var("x", 4, 6, dtype="int16")
    halves = relay.split(x, 2, axis=1)
    joined = relay.concatenate([halves[0], relay.nn.relu(halves[1])], axis=0)
    main = relay.transform.InferType()(tvm.IRModule.from_expr(with_source_names(typed(joined)["main"])))["main"]
    reads = {name: one.reads for name, one in operator_work(main).items()}
    assert reads == {"split_1": (), "nn.relu_1": ("split_1",), "concatenate_1": ("split_1", "nn.relu_1")}


def test_a_call_of_several_operators_counts_once():
    x = var("x", 10, dtype="int8")
    call = relay.add(x, x)
    call = relay.Call(call.op, call.args, call.attrs, call.type_args, span_of_all([span_of("a"), span_of("b")]))
    found = operator_work(typed(call)["main"])
    assert [(name, one.nbytes) for name, one in found.items()] == [("a", 20), ("b", 0)]


@pytest.mark.parametrize(("dtype", "nbytes"), [("bool", 20), ("float16", 40), ("bfloat16", 40), ("int64", 160)])
def test_bytes_of_each_type(dtype, nbytes):
    assert work_of(relay.reverse(var("x", 10, dtype=dtype), 0))["reverse_1"] == (0, nbytes)


def test_an_extent_that_is_not_known_counts_as_one():
    x = relay.var("x", shape=(relay.Any(), 10), dtype="int8")
    assert work_of(relay.nn.relu(x)) == {"nn.relu_1": (0, 20)}
