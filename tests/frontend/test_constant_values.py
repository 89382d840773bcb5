"""What numpy computes of constants has the bits and the types that TVM gives it."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.transform import FoldConstantExpr

from byoc_hw.frontend.relay.constant_values import computed, without_plain_constants


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
    "as many as there are": relay.reshape(MATRIX, (2, -1)),
    "axes in front": relay.expand_dims(MATRIX, 0, 2),
    "axes behind": relay.expand_dims(MATRIX, -1, 2),
    "the end of a shape": relay.strided_slice(SHAPE, [-2], [2**31 - 1]),
    "weights in another layout": relay.layout_transform(relay.reshape(MATRIX, (3, 2, 1, 2)), "OIHW", "HWIO"),
    "every second column": relay.strided_slice(MATRIX, [1], [4], [2], axes=[1]),
    "two shapes as one": relay.concatenate([SHAPE, relay.strided_slice(SHAPE, [0], [2])], 0),
    "a larger one": relay.maximum(SHAPE, const([9])),
    "broadcast": relay.minimum(relay.reshape(MATRIX, (12, 1)), const([[0, -2]], "int8")),
    "round the end of a type": relay.subtract(const([-128, 127], "int8"), const([1, -1], "int8")),
    "an index from the end": relay.where(relay.less(const(-1), const(0)), const(-1) + const(4), const(-1)),
}

LEFT_TO_TVM = {
    "floats that are cut": relay.cast(const([1.5, -2.5], "float32"), "int32"),
    "a number that does not fit": relay.cast(const(300, "int32"), "int8"),
    "a sum of floats": const([0.1], "float32") + const([0.2], "float32"),
    "a shape with a rule": relay.reshape(MATRIX, (0, 2, -1)),
    "from the end to the start": relay.strided_slice(SHAPE, [3], [0], [-1]),
    "channels in blocks": relay.layout_transform(relay.reshape(MATRIX, (1, 4, 1, 3)), "NCHW", "NCHW2c"),
    "what is of QNN": relay.qnn.op.dequantize(MATRIX, const(0.5, "float32"), const(3, "int32")),
    "a root": relay.sqrt(const([2.0], "float32")),
}


@pytest.mark.parametrize("expr", COMPUTED.values(), ids=COMPUTED)
def test_is_computed_as_tvm_does(expr):
    found = without_plain_constants(relay.Function([], expr)).body
    assert isinstance(found, relay.Constant)
    tvm.ir.assert_structural_equal(found, FoldConstantExpr(expr, tvm.IRModule()))


OF_QNN = {
    "per tensor": relay.qnn.op.dequantize(MATRIX, const(0.1, "float32"), const(-3, "int32")),
    "per column": relay.qnn.op.dequantize(
        MATRIX, const([0.1, 0.7, 1 / 3, 3], "float32"), const([1, 0, -1, 2], "int32")
    ),
    "per row": relay.qnn.op.dequantize(MATRIX, const([0.1, 0.7, 1 / 3], "float32"), const(1, "int32"), axis=0),
    "sums, which are rounded": relay.qnn.op.dequantize(
        const([2**31 - 1, 2**24 + 1, -(2**24) - 3], "int32"), const(0.1, "float32"), const(0, "int32")
    ),
}


@pytest.mark.parametrize("expr", OF_QNN.values(), ids=OF_QNN)
def test_dequantizes_as_tvm_does(expr):
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(expr))
    found = without_plain_constants(mod["main"], qnn=True).body
    assert isinstance(found, relay.Constant)
    tvm.ir.assert_structural_equal(found, relay.transform.FoldConstant(fold_qnn=True)(mod)["main"].body)


@pytest.mark.parametrize("expr", LEFT_TO_TVM.values(), ids=LEFT_TO_TVM)
def test_is_left_to_tvm(expr):
    assert computed(expr, expr.args) is None


def test_what_is_not_constant_stays():
    x = relay.var("x", shape=(1, 4), dtype="int8")
    assert computed(relay.transpose(x), [x]) is None
    function = relay.Function([x], relay.add(x, relay.reshape(const([1, 2, 3, 4], "int8"), (1, 4))))
    call = without_plain_constants(function).body
    assert call.args[0].same_as(x)
    np.testing.assert_array_equal(call.args[1].data.numpy(), [[1, 2, 3, 4]])
