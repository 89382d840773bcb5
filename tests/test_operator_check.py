"""check_operator: one operator through everything, beside TVM."""

import numpy as np
import pytest
from relay_samples import Add, Conv, Pool, const, variable
from tvm import relay

import byoc_hw
from byoc_hw.errors import InvalidInput, Unsupported


def test_an_expression_equals_tvm():
    x = variable((1, 6, 6, 4))
    check = byoc_hw.check_operator(Conv(height=6, width=6).expr(x), count=3)
    assert check
    assert check.validation.inferences == 3
    assert check.report.offloaded
    assert str(check).startswith("equal: ")
    assert repr(check) == "<OperatorCheck equal: 2 layers and outputs in 3 inferences>"


@pytest.mark.parametrize("accelerator", [byoc_hw.REFERENCE, byoc_hw.SMALL], ids=lambda preset: preset.label)
def test_a_function_of_several_inputs_equals_tvm(accelerator):
    inputs = [variable((1, 6, 5, 7), name="x"), variable((1, 6, 5, 7), name="y")]
    assert byoc_hw.check_operator(relay.Function(inputs, Add().expr(*inputs)), accelerator=accelerator, count=2)


def test_a_module_with_parameters_equals_tvm():
    x, w = variable((1, 8)), variable((4, 8), name="w")
    zero, scale = const(0, "int32"), const(0.05, "float32")
    total = relay.qnn.op.dense(x, w, zero, zero, scale, scale, units=4, out_dtype="int32")
    scales = const(0.0025, "float32"), zero, const(0.2, "float32"), zero
    body = relay.qnn.op.requantize(total, *scales, out_dtype="int8")
    weights = np.arange(32, dtype=np.int8).reshape(4, 8) - 16
    assert byoc_hw.check_operator(relay.Function([x, w], body), {"w": weights}, count=3)


def test_takes_inputs_of_its_own():
    check = byoc_hw.check_operator(Pool().module(), inputs=[np.full((1, 8, 7, 5), 3, np.int8)])
    assert check.validation.inferences == 1


def test_tflite_arithmetic_is_close_to_tvm_s():
    assert byoc_hw.check_operator(Add().module(), numerics="tflite", count=4)
    exact = byoc_hw.check_operator(Add().module(), numerics="tflite", count=4, tolerance=0)
    assert not exact
    assert exact.validation.first.largest == 1


def test_nothing_offloaded_is_an_error_with_the_reasons():
    with pytest.raises(Unsupported, match="stride is one of 1, 2: got 3") as error:
        byoc_hw.check_operator(Conv(strides=(3, 3)).module())
    assert "nothing of the operator is offloaded" in str(error.value)


def test_refuses_what_is_no_operator():
    with pytest.raises(InvalidInput, match="operator is a Relay expression, function or module: got str"):
        byoc_hw.check_operator("conv2d")
