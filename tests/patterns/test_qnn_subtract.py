"""qnn_subtract: which subtractions it takes, as what layer, what it declines and why, and what it computes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    ACCELERATORS,
    CLIPS,
    PAIRWISE_SHAPES,
    SCALES,
    SEEDS,
    ZERO_POINTS,
    accepted,
    check_bit_exact,
    check_golden,
    declined,
)
from relay_samples import Quantized, Subtract, WithConstant

COMPOSITE = "qnn_subtract"


def test_takes_the_whole_form():
    layer = accepted(Subtract(clip=(-100.0, 50.0)).module(), COMPOSITE)
    assert (layer.kind, layer.subtract, layer.act_min, layer.act_max) == ("add", True, -100, 50)
    assert (layer.ifm.quantization.zero_point, layer.ifm2.quantization.zero_point) == ((-3,), (4,))


@pytest.mark.parametrize(
    ("subtraction", "reason"),
    [
        (
            Subtract(other=(1, 1, 1, 7)),
            "both inputs and the output have one shape: got (1, 6, 5, 7), (1, 1, 1, 7), (1, 6, 5, 7)",
        ),
        (Subtract(dtype="int16"), "activation type is int8: got int16"),
    ],
    ids=["broadcast", "int16"],
)
def test_declines_with_the_rule_and_the_value(subtraction, reason):
    declined(subtraction.module(), f"qnn_subtract: {reason}")


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, Subtract(shape=(1, 4, 5, 6)).module())


QUANTIZATIONS = st.builds(Quantized, SCALES, ZERO_POINTS)
SUBTRACTIONS = st.builds(
    Subtract,
    PAIRWISE_SHAPES,
    lhs=QUANTIZATIONS,
    rhs=QUANTIZATIONS,
    out=st.builds(Quantized, st.just(0.5), ZERO_POINTS),
    clip=CLIPS,
)
HALVES = Subtract(lhs=Quantized(0.25), rhs=Quantized(0.25), out=Quantized(0.5))


@settings(max_examples=4)
@given(st.lists(SUBTRACTIONS, min_size=3, max_size=4), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    """Halves too: the second input is rounded before it is subtracted; and constants on either side."""
    constants = [WithConstant(HALVES), WithConstant(HALVES, constant_first=True)]
    check_bit_exact([*samples, HALVES, *constants], COMPOSITE, accelerator, seed)
