"""What TVM's ONNX importer folds is computed in numpy where that has TVM's bits, and types are inferred once."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.frontend import common
from tvm.relay.frontend import onnx as importer

from byoc_hw.frontend.relay.onnx_importer import quick_importer


def const(values, dtype):
    return relay.const(np.array(values, dtype), dtype)


def noted(monkeypatch, name):
    """The expressions that TVM's function of the importer is asked for from now on."""
    tvms, expressions = getattr(importer, name), []

    def asked(node, mod=None):
        expressions.append(node)
        return tvms(node, mod)

    monkeypatch.setattr(importer, name, asked)
    return expressions


@pytest.fixture
def asked(monkeypatch):
    """The expressions that TVM is asked to fold."""
    return noted(monkeypatch, "fold_constant")


SHAPE = const([1, 8, 16, 64], "int64")


@pytest.mark.parametrize(
    ("expr", "times"),
    [
        (relay.cast(const(3, "int8"), "int32"), 0),
        (relay.TupleGetItem(relay.Tuple([SHAPE, relay.cast(SHAPE, "int32")]), 1), 0),
        (relay.Tuple([relay.cast(SHAPE, "int32"), SHAPE]), 0),
        (relay.sqrt(relay.cast(SHAPE, "float32")), 1),
        (relay.Tuple([SHAPE, relay.sqrt(const([2], "float32"))]), 1),
        (relay.shape_of(SHAPE), 1),
    ],
)
def test_folds_as_tvm_and_asks_it_only_for_what_numpy_does_not_compute(expr, times, asked):
    with quick_importer():
        found = importer.fold_constant(expr)
    assert len(asked) == times
    tvm.ir.assert_structural_equal(found, importer.fold_constant(expr))


def test_what_is_not_constant_stays_with_its_constants_folded(asked):
    x = relay.var("x", shape=(2, 3), dtype="int8")
    expr = relay.qnn.dequantize(x, relay.const(0.5), relay.cast(const(3, "int8"), "int32"))
    with quick_importer():
        found = importer.fold_constant(expr)
        assert importer.fold_constant(relay.nn.relu(found)).args[0].same_as(found)
    assert not asked
    tvm.ir.assert_structural_equal(found, importer.fold_constant(expr), map_free_vars=True)
    assert isinstance(found.args[2], relay.Constant)


def branches():
    """Operators of one and of two results, a tuple, and constants that give a shape."""
    x = relay.var("x", shape=(2, 8, 3))
    halves = relay.split(x, 2, axis=1)
    both = relay.concatenate([halves[1], relay.nn.relu(halves[0])], axis=0)
    chosen = relay.If(relay.const(True), both, relay.negative(both))
    return [both, relay.Tuple([both, x]), halves.astuple(), relay.shape_of(both), relay.tile(chosen, SHAPE), x, SHAPE]


def test_types_are_those_of_tvm():
    for expr in branches():
        wanted = importer.infer_type(expr).checked_type
        with quick_importer():
            found = importer.infer_type(expr).checked_type
            shape = common.infer_shape(expr) if isinstance(wanted, relay.TensorType) else None
        assert found == wanted
        assert shape is None or shape == tuple(map(int, wanted.shape))


def test_the_type_of_each_operator_is_inferred_once_and_by_itself(monkeypatch):
    asked = noted(monkeypatch, "infer_type")
    value = relay.var("x", shape=(4,))
    with quick_importer():
        for _ in range(20):
            value = relay.nn.relu(value)
            assert importer.infer_type(value).checked_type == relay.TensorType((4,), "float32")
    assert len(asked) == 21
    assert all(isinstance(argument, relay.Var) for call in asked[1:] for argument in call.args)


def test_the_importer_is_as_it_was_afterwards():
    def functions():
        return importer.fold_constant, importer.infer_type, common.infer_type

    before = functions()
    with quick_importer():
        assert not set(functions()) & set(before)
    assert functions() == before
