"""What stays on the host with numerics="tflite": what functions of ours compute, and what is marked as TVM's."""

import numpy as np
import pytest
from relay_samples import Add, Conv, Pool, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.report.explain import Report


def report_of(mod, numerics="tflite", deny=()):
    return byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, numerics=numerics, deny=deny))


def quantized(real, dtype="int8"):
    return relay.qnn.op.quantize(real, const(0.1, "float32"), const(3, "int32"), out_dtype=dtype)


def dequantized(x):
    return relay.qnn.op.dequantize(x, const(0.1, "float32"), const(3, "int32"))


def requantized(x, ratio):
    scale, zero = const(0.1, "float32"), const(0, "int32")
    return relay.qnn.op.requantize(x, scale, zero, const(0.1 * ratio, "float32"), const(5, "int32"), out_dtype="int8")


def concatenated(*scales):
    def joined(x):
        zero, out = const(0, "int32"), const(0.1, "float32")
        own = relay.Tuple([const(scale, "float32") for scale in scales])
        return relay.qnn.op.concatenate(relay.Tuple([x, x]), own, relay.Tuple([zero, zero]), out, zero, axis=1)

    return joined


def test_layers_that_are_denied_are_not_marked():
    report = report_of(Conv().module(), deny=["qnn_conv2d"])
    assert {outcome.placement for outcome in report.outcomes} <= {"host", "folded"}
    assert not report.tvm_arithmetic
    assert "*" not in str(report)


MARKED = {
    "float": (lambda x: quantized(relay.tanh(dequantized(x))), ["tanh"]),
    "quantize": (lambda x: quantized(dequantized(x)), []),
    "to uint8": (lambda x: quantized(dequantized(x), "uint8"), ["qnn.quantize"]),
    "requantize": (lambda x: requantized(x, 2), ["qnn.requantize"]),
    "another zero point": (lambda x: requantized(x, 1), []),
    "concatenate": (concatenated(0.1, 0.1), []),
    "scales": (concatenated(0.1, 0.2), ["qnn.requantize"]),
    "moves": (lambda x: relay.transpose(relay.strided_slice(x, [0, 1], [1, 5]), [1, 0]), []),
    "comparison": (lambda x: relay.nn.relu(relay.maximum(x, const(4, "int8"))), []),
    "comparison of floats": (lambda x: relay.nn.relu(dequantized(x)), ["nn.relu"]),
    "sum": (lambda x: relay.sum(relay.cast(x, "int32")), []),
}


@pytest.mark.parametrize(("build", "marked"), MARKED.values(), ids=MARKED)
def test_marks_what_follows_tvm(build, marked):
    x = variable((1, 8))
    mod = module(build(x), x)
    outcomes = report_of(mod, deny=["lookup"]).outcomes
    assert [name for outcome in outcomes for name in outcome.tvm_arithmetic] == marked
    assert not report_of(mod, numerics="relay").tvm_arithmetic


def test_an_operator_in_nchw_is_marked():
    """The functions are for NHWC; without the layout there is TVM's arithmetic alone."""
    report = report_of(Conv(layout="NCHW").module(), deny=["qnn_conv2d"])
    assert {name for outcome in report.tvm_arithmetic for name in outcome.tvm_arithmetic} == {"qnn.requantize"}


def test_report_and_validation_say_it_first():
    x = variable((1, 8))
    mod = byoc_hw.partition_for_hwlib(module(quantized(relay.tanh(dequantized(x))), x), numerics="tflite")
    project = byoc_hw.build(mod)
    report = project.report
    lines = str(report).splitlines()
    assert lines[1] == "  * 1 operator follows TVM's arithmetic, not TFLite's"
    assert any(line.split() == ["host", "*", "-", "tanh_1"] for line in lines)
    assert "               * TVM's arithmetic: tanh" in lines
    assert "* 1 operator follows" in report._repr_html_()
    assert Report.from_plain(report.plain()) == report
    validation = byoc_hw.validate(project, np.zeros((1, 8), np.int8), mod)
    assert validation.tvm_arithmetic == ("tanh_1",)
    assert str(validation).startswith("1 operator follows TVM's arithmetic, not TFLite's: tanh_1\nequal: ")


def test_a_build_without_partitioning_has_tvms_functions_alone():
    project = byoc_hw.build(Add().module())
    assert not list((project.directory / "src").glob("*_kernels.c"))
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(Add().module(), numerics="tflite", deny=["qnn_add"]))
    source = (project.directory / "src" / "default_kernels.c").read_text()
    assert "tflite_add" in source
    assert "tflite_conv2d" not in source


def test_a_maximum_needs_no_function():
    report = report_of(Pool("nn.max_pool2d").module(), deny=["max_pool2d"])
    assert report.host
    assert not report.tvm_arithmetic
