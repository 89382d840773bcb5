"""What TVM's ONNX importer folds is computed in numpy, with the bits and the types that TVM gives it."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.frontend import onnx as importer

from byoc_hw.frontend.relay.onnx_constants import folded_in_numpy


def const(values, dtype="int64"):
    return relay.const(np.array(values, dtype), dtype)


SHAPE = const([1, 8, 16, 64])
MATRIX = const(np.arange(-6, 6).reshape(3, 4), "int8")

COMPUTED = {
    "a zero point as int32": relay.cast(const(-3, "int8"), "int32"),
    "floats of whole numbers": relay.cast(MATRIX, "float32"),
    "numbers of truths": relay.cast(relay.less(SHAPE, const(10)), "int64"),
    "turned": relay.transpose(MATRIX),
    "axes in another order": relay.transpose(relay.reshape(MATRIX, (1, 3, 4)), (2, 0, 1)),
    "the end of a shape": relay.strided_slice(SHAPE, [-2], [2**31 - 1]),
    "every second column": relay.strided_slice(MATRIX, [1], [4], [2], axes=[1]),
    "two shapes as one": relay.concatenate([SHAPE, relay.strided_slice(SHAPE, [0], [2])], 0),
    "a field of a tuple": relay.TupleGetItem(relay.Tuple([SHAPE, relay.maximum(SHAPE, const([9]))]), 1),
    "broadcast": relay.minimum(relay.reshape(MATRIX, (12, 1)), const([[0, -2]], "int8")),
    "an index from the end": relay.where(relay.less(const(-1), const(0)), const(-1) + const(4), const(-1)),
}

LEFT_TO_TVM = {
    "floats that are cut": relay.cast(const([1.5, -2.5], "float32"), "int32"),
    "a number that does not fit": relay.cast(const(300, "int32"), "int8"),
    "a sum of floats": const([0.1], "float32") + const([0.2], "float32"),
    "a shape with a rule": relay.reshape(MATRIX, (0, 2, -1)),
    "from the end to the start": relay.strided_slice(SHAPE, [3], [0], [-1]),
    "a root": relay.sqrt(const([2.0], "float32")),
    "a shape": relay.shape_of(MATRIX),
}


def folded(expr):
    """What is folded, and how often TVM was asked for it."""
    tvms, asked = importer.fold_constant, []

    def counted(node, mod=None):
        asked.append(node)
        return tvms(node, mod)

    importer.fold_constant = counted
    try:
        with folded_in_numpy():
            found = importer.fold_constant(expr)
    finally:
        importer.fold_constant = tvms
    assert isinstance(found, relay.Constant)
    tvm.ir.assert_structural_equal(found, tvms(expr))
    return found, len(asked)


@pytest.mark.parametrize("expr", COMPUTED.values(), ids=COMPUTED)
def test_is_computed_as_tvm_does(expr):
    _, asked = folded(expr)
    assert not asked


@pytest.mark.parametrize("expr", LEFT_TO_TVM.values(), ids=LEFT_TO_TVM)
def test_is_left_to_tvm(expr):
    _, asked = folded(expr)
    assert asked == 1


def test_what_is_not_constant_stays_with_its_constants_folded():
    x = relay.var("x", shape=(2, 3), dtype="int8")
    expr = relay.qnn.dequantize(x, relay.const(0.5), relay.cast(const(3, "int8"), "int32"))
    with folded_in_numpy():
        found = importer.fold_constant(expr)
        assert importer.fold_constant(relay.nn.relu(found)).args[0].same_as(found)
    tvm.ir.assert_structural_equal(found, importer.fold_constant(expr), map_free_vars=True)
    assert isinstance(found.args[2], relay.Constant)


def test_the_importers_own_folding_is_back_afterwards():
    tvms = importer.fold_constant
    with folded_in_numpy():
        assert importer.fold_constant is not tvms
    assert importer.fold_constant is tvms
