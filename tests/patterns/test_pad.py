"""pad: what it takes by itself, what it declines and why, and what it computes."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import ACCELERATORS, SEEDS, accepted, check_bit_exact, check_golden, compare, composites, declined
from pattern_checks import partitioned as partition
from relay_samples import Conv, Sample, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference

COMPOSITE = "pad"


@dataclass
class Padded(Sample):
    shape: tuple = (1, 5, 6, 3)
    width: tuple = ((0, 0), (1, 2), (0, 3), (0, 0))
    value: float = -7
    mode: str = "constant"
    dtype: str = "int8"

    def variables(self, prefix=""):
        return [variable(self.shape, self.dtype, f"{prefix}x")]

    def expr(self, x):
        return relay.nn.pad(x, self.width, self.value, self.mode)


FORMS = {
    "rows and columns": (Padded(), (0, 1, 0, 0), (1, 8, 9, 3)),
    "channels": (Padded(width=((0, 0), (0, 0), (0, 0), (1, 4))), (0, 0, 0, 1), (1, 5, 6, 8)),
    "batch": (Padded(width=((1, 1), (0, 0), (0, 0), (0, 0))), (1, 0, 0, 0), (3, 5, 6, 3)),
    "a vector": (Padded(shape=(1, 9), width=((0, 0), (2, 0))), (0, 2), (1, 11)),
}


@pytest.mark.parametrize(("form", "before", "shape"), FORMS.values(), ids=FORMS)
def test_takes_any_dimension(form, before, shape):
    layer = accepted(form.module(), COMPOSITE)
    assert (layer.before, layer.value, layer.ofm.shape) == (before, -7, shape)


DECLINED = {
    "reflect": (Padded(mode="reflect"), "nn.pad's mode is constant: got reflect"),
    "edge": (Padded(mode="edge"), "nn.pad's mode is constant: got edge"),
    "negative": (
        Padded(width=((0, 0), (-1, 0), (0, 0), (0, 0))),
        "nn.pad's widths are not negative: got [[0, 0], [-1, 0], [0, 0], [0, 0]]",
    ),
    "value": (Padded(value=200), "nn.pad's value is a whole number from -128 to 127: got 200"),
    "fraction": (Padded(value=0.5), "nn.pad's value is a whole number from -128 to 127: got 0.5"),
    "float": (Padded(dtype="float32"), "activation type is int8: got float32"),
}


@pytest.mark.parametrize(("form", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(form, reason):
    declined(form.module(), f"{COMPOSITE}: {reason}")


def test_stands_before_a_convolution_that_does_not_take_it():
    """It fills with another value than the input's zero point."""
    conv = Conv(padding=(0, 0, 0, 0), explicit_pad=(1, 1, 1, 1), pad_value=100)
    x = variable(conv.ifm_shape)
    mod = module(conv.expr(x), x)
    after = partition(mod)
    assert set(composites(after)) == {COMPOSITE, "qnn_conv2d"}
    compare(mod, byoc_hw.build(after), Reference(mod))


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, Padded().module())


@st.composite
def padded(draw):
    shape = tuple(draw(st.integers(1, 9)) for _ in range(draw(st.sampled_from((4, 4, 2)))))
    width = tuple(tuple(draw(st.sampled_from((0, 0, 1, 4))) for _ in range(2)) for _ in shape)
    return Padded(shape, width, draw(st.integers(-128, 127)))


@pytest.mark.slow
@settings(max_examples=4)
@given(st.lists(padded(), min_size=5, max_size=5), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)
