"""reduce_sum: which sums over axes it takes, what it declines and why, and what it computes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import ACCELERATORS, SEEDS, ZERO_POINTS, accepted, check_bit_exact, check_golden, declined
from relay_samples import Pool, Quantized

COMPOSITE = "reduce_sum"


def total(**knobs):
    return Pool(**{"operator": "sum", "ofm": Quantized(2.5, 4), **knobs})


def test_takes_a_sum_with_its_requantize():
    layer = accepted(total(axis=(2,), clip=(-100.0, 50.0)).module(), COMPOSITE)
    assert (layer.mode, layer.rescaled, layer.kernel) == ("sum", True, (1, 7))
    assert (layer.act_min, layer.act_max) == (-100, 50)


DECLINED = {
    "axes apart": (total(axis=(1, 3)), "a reduction goes over neighbouring axes: got [1, 3] of (1, 8, 7, 5)"),
    "long": (total(shape=(2, 33, 3), axis=(1,)), "kernel is at most 32 x 32: got 1 x 33"),
    "without requantize": (
        total(requantized=False),
        "matched to sum; expected qnn.requantize, found the model's output",
    ),
    "sums far beyond the output": (
        total(ifm=Quantized(3e5), ofm=Quantized(1e-5)),
        "sums, before and after they are scaled, fit in 32 bits: got 49 bits",
    ),
}


@pytest.mark.parametrize(("form", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(form, reason):
    declined(form.module(), f"{COMPOSITE}: {reason}")


def test_declines_tflites_sum_whose_kernel_takes_int8_for_uint8():
    rule = "a sum is rounded upward: TFLite's kernel takes int8 for uint8"
    declined(total().module(), f"{COMPOSITE}: {rule}: got tflite", numerics="tflite")


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, total(shape=(1, 5, 4, 6)).module())


@st.composite
def sums(draw):
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple))
    first = draw(st.integers(min(1, len(shape) - 1), len(shape) - 1))
    return total(
        shape=shape,
        axis=tuple(range(first, draw(st.integers(first, len(shape) - 1)) + 1)),
        keepdims=draw(st.booleans()) or len(shape) == 1,  # TVM compiles no scalar
        ifm=Quantized(draw(st.floats(2.0**-6, 2.0, width=32)), draw(ZERO_POINTS)),
        ofm=Quantized(draw(st.floats(2.0**-6, 2.0**5, width=32)), draw(ZERO_POINTS)),
    )


def fits(form):
    """Whether the window is one that the array has."""
    size = 1
    for axis in form.axis:
        size *= form.shape[axis]
    return size <= 32


@pytest.mark.slow
@settings(max_examples=4)
@given(st.lists(sums().filter(fits), min_size=3, max_size=4), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)
