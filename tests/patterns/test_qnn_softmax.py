"""qnn_softmax: which softmaxes it takes, as what layer, and what it declines and why."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import tvm
from pattern_checks import accepted, declined, partitioned
from relay_samples import Quantized, Sample, const, variable
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.frontend.relay.record import regions

COMPOSITE = "qnn_softmax"
PROBABILITIES = Quantized(1 / 256, -128)


@dataclass
class Softmax(Sample):
    """A softmax between dequantize and quantize."""

    shape: tuple = (1, 10)
    axis: int = -1
    ifm: Quantized = field(default_factory=lambda: Quantized(0.15, 24))
    ofm: Quantized = field(default_factory=lambda: PROBABILITIES)

    def variables(self, prefix=""):
        return [variable(self.shape, "int8", f"{prefix}x")]

    def expr(self, x):
        out = relay.nn.softmax(relay.qnn.op.dequantize(x, *self.ifm.constants()), axis=self.axis)
        return relay.qnn.op.quantize(out, *self.ofm.constants(), out_dtype="int8")


FORMS = {
    "a vector": Softmax(),
    "one value": Softmax(shape=(1, 1)),
    "several rows": Softmax(shape=(5, 10)),
    "four dimensions": Softmax(shape=(1, 3, 4, 7), axis=3),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_takes_the_whole_form(form):
    layer = accepted(form.module(), COMPOSITE, numerics="tflite")
    assert (layer.kind, layer.rounding) == ("softmax", "tflite")
    assert layer.ifm.shape == layer.ofm.shape == form.shape
    assert layer.ifm.quantization.zero_point == (24,)
    assert layer.ifm.quantization.scale == (float(np.float32(0.15)),)


def test_declines_in_tvm_s_arithmetic():
    rule = "softmax is offloaded with numerics='tflite' only, for its integer arithmetic"
    declined(Softmax().module(), f"qnn_softmax: {rule}: got rounding upward")


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (Softmax(shape=(1, 4, 3), axis=1), "softmax goes over the last axis: got 1"),
        (
            Softmax(ofm=Quantized(1 / 128, -128)),
            "the output's scale is 1/256 and its zero point -128: got 0.0078125 and -128",
        ),
        (
            Softmax(ofm=Quantized(1 / 256, 0)),
            "the output's scale is 1/256 and its zero point -128: got 0.00390625 and 0",
        ),
        (Softmax(shape=(1, 4096)), "at most 4095 values are summed: got 4096"),
        (Softmax(ifm=Quantized(2.0**-26, 0)), "the input's scale is more than 1.49012e-08: got 1.49012e-08"),
    ],
)
def test_declines_what_tflite_has_no_arithmetic_for(form, reason):
    declined(form.module(), f"qnn_softmax: {reason}", numerics="tflite")


def test_declines_rows_that_do_not_fit():
    tiny = byoc_hw.Accelerator(roundings=("tflite",), activation_memory=64)
    reason = "nn.softmax_1: the smallest tile fits local activation memory: 80 bytes needed, 64 bytes there"
    declined(Softmax(shape=(1, 40)).module(), f"qnn_softmax: {reason}", numerics="tflite", accelerator=tiny)


def test_says_how_far_a_float_softmax_matches():
    x = variable((1, 8))
    mod = tvm.IRModule.from_expr(relay.nn.softmax(relay.qnn.op.dequantize(x, const(0.1, "float32"), const(0, "int32"))))
    after = partitioned(relay.transform.InferType()(mod), numerics="tflite")
    assert not regions(after)
    assert "matched to nn.softmax; expected qnn.quantize, found the model's output" in str(byoc_hw.explain(after))


@pytest.mark.parametrize("accelerator", [REFERENCE, byoc_hw.SMALL], ids=lambda one: one.label)
def test_is_close_to_the_float_softmax(accelerator):
    """Many rows, which come in stripes or tiles; the exact result is TFLite's, compared elsewhere."""
    check = byoc_hw.check_operator(Softmax(shape=(300, 64)).module(), accelerator=accelerator, numerics="tflite")
    assert check, str(check)
    assert check.project.run([np.zeros((300, 64), np.int8)]).cycles.by_layer[0].jobs > 1
