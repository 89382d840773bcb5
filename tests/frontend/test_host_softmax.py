"""int8 softmax on the host: which forms become whole numbers, and that they have TVM's bits."""

from dataclasses import dataclass

import numpy as np
import pytest
from relay_samples import Sample, const, module, variable
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference


@dataclass
class Softmax(Sample):
    """dequantize, softmax, quantize."""

    shape: tuple = (1, 12)
    dtype: str = "int8"
    scale: float = 0.1
    zero_point: int = 14
    axis: int = -1
    out_scale: float = 1 / 256
    out_zero_point: int = -128

    def variables(self, prefix):
        return [variable(self.shape, self.dtype, f"{prefix}x")]

    def expr(self, x):
        real = relay.qnn.op.dequantize(x, const(self.scale, "float32"), const(self.zero_point, "int32"))
        out = const(self.out_scale, "float32"), const(self.out_zero_point, "int32")
        return relay.qnn.op.quantize(relay.nn.softmax(real, axis=self.axis), *out, out_dtype="int8")


def source(project):
    return (project.directory / "src" / "default_host.c").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "form",
    [
        Softmax(shape=(700, 12), scale=0.14469250679016113),
        Softmax(shape=(3, 40, 10), scale=0.37, zero_point=-128, axis=2),
        Softmax(shape=(300, 2), scale=0.02, zero_point=127),
        Softmax(shape=(3, 5000), scale=0.9, zero_point=0),  # subnormal exponentials, and none
        Softmax(shape=(20, 500), scale=0.003),
        Softmax(shape=(7, 1)),
        Softmax(shape=(20, 9), scale=2.0**-25),
        Softmax(shape=(20, 9), scale=127.99),
        Softmax(shape=(9,)),
    ],
    ids=str,
)
def test_has_the_bits_of_floats(form):
    mod = form.module()
    project, reference = byoc_hw.build(mod), Reference(mod)
    assert "  softmax_int8(" in source(project)
    rng = np.random.default_rng(0)
    for low, high in ((-128, 128), (100, 128), (-5, 6)):
        x = rng.integers(low, high, form.shape).astype(np.int8)
        found = project.run(x, toolchain=byoc_hw.Toolchain(cflags=SANITIZED)).outputs[0]
        np.testing.assert_array_equal(found, reference.run([x])[0])


@pytest.mark.parametrize(
    "form",
    [
        Softmax(dtype="uint8"),
        Softmax(shape=(4, 12), axis=0),
        Softmax(out_scale=1 / 255),
        Softmax(out_zero_point=-127),
        Softmax(scale=128.0),
        Softmax(scale=2.0**-26),
        Softmax(zero_point=200),
    ],
    ids=str,
)
def test_leaves_other_forms_to_floats(form):
    text = source(byoc_hw.build(form.module()))
    assert "expf(" in text
    assert "softmax_int8(" not in text


def test_a_softmax_between_other_operators_and_one_that_others_read_too():
    x = variable((6, 12))
    real = relay.qnn.op.dequantize(relay.clip(x, -100, 100), const(0.2, "float32"), const(3, "int32"))
    softmax = relay.qnn.op.quantize(relay.nn.softmax(real), const(1 / 256, "float32"), const(-128, "int32"))
    again = Softmax(shape=(6, 12), scale=1 / 256, zero_point=-128).expr(softmax)
    mod = module(relay.Tuple([relay.nn.relu(again), relay.nn.relu(real)]), x)
    project, reference = byoc_hw.build(mod), Reference(mod)
    assert source(project).count("  softmax_int8(") == 2
    x = np.random.default_rng(1).integers(-128, 128, (6, 12)).astype(np.int8)
    for found, expected in zip(project.run(x).outputs, reference.run([x]), strict=True):
        np.testing.assert_array_equal(found, expected)
