"""What TVM's ONNX importer folds is computed in numpy where that has TVM's bits, and else by TVM."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.frontend import onnx as importer

from byoc_hw.frontend.relay.onnx_constants import folded_in_numpy


def const(values, dtype):
    return relay.const(np.array(values, dtype), dtype)


@pytest.fixture
def asked(monkeypatch):
    """The expressions that TVM is asked to fold."""
    tvms, expressions = importer.fold_constant, []

    def noted(node, mod=None):
        expressions.append(node)
        return tvms(node, mod)

    monkeypatch.setattr(importer, "fold_constant", noted)
    return expressions


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
    with folded_in_numpy():
        found = importer.fold_constant(expr)
    assert len(asked) == times
    tvm.ir.assert_structural_equal(found, importer.fold_constant(expr))


def test_what_is_not_constant_stays_with_its_constants_folded(asked):
    x = relay.var("x", shape=(2, 3), dtype="int8")
    expr = relay.qnn.dequantize(x, relay.const(0.5), relay.cast(const(3, "int8"), "int32"))
    with folded_in_numpy():
        found = importer.fold_constant(expr)
        assert importer.fold_constant(relay.nn.relu(found)).args[0].same_as(found)
    assert not asked
    tvm.ir.assert_structural_equal(found, importer.fold_constant(expr), map_free_vars=True)
    assert isinstance(found.args[2], relay.Constant)


def test_the_importers_own_folding_is_back_afterwards():
    tvms = importer.fold_constant
    with folded_in_numpy():
        assert importer.fold_constant is not tvms
    assert importer.fold_constant is tvms
