"""qnn_subtract: which subtractions it takes, as what layer, what it declines and why, and what it computes."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    BROADCAST,
    BROADCASTING,
    CLIPS,
    SCALES,
    SEEDS,
    SHAPES_RULE,
    ZERO_POINTS,
    accepted,
    check_bit_exact,
    check_golden,
    declined,
    pairwise_shapes,
)
from relay_samples import Quantized, Subtract, WithConstant

COMPOSITE = "qnn_subtract"


def test_takes_the_whole_form():
    layer = accepted(Subtract(clip=(-100.0, 50.0)).module(), COMPOSITE)
    assert (layer.kind, layer.subtract, layer.act_min, layer.act_max) == ("add", "ifm2", -100, 50)
    assert (layer.ifm.quantization.zero_point, layer.ifm2.quantization.zero_point) == ((-3,), (4,))


@pytest.mark.parametrize("name", ["a vector by channel", "a scalar", "by channel in NCHW"])
def test_the_operand_that_is_broadcast_is_the_second_input_whichever_is_subtracted(name):
    one, other, ifm, ifm2 = BROADCAST[name]
    for subtraction, subtrahend in (
        (Subtract(shape=one, other=other), "ifm2"),
        (Subtract(shape=other, other=one), "ifm"),
    ):
        layer = accepted(subtraction.module(), COMPOSITE)
        assert (layer.ifm.shape, layer.ifm2.shape, layer.subtract) == (ifm, ifm2, subtrahend)


@pytest.mark.parametrize(
    ("subtraction", "reason"),
    [
        (
            Subtract(shape=(1, 1, 5, 7), other=(1, 6, 5, 7)),
            f"{SHAPES_RULE}: got (1, 6, 5, 7) and (1, 1, 5, 7) to (1, 6, 5, 7)",
        ),
        (Subtract(dtype="int16"), "activation type is int8: got int16"),
    ],
    ids=["by column", "int16"],
)
def test_declines_with_the_rule_and_the_value(subtraction, reason):
    declined(subtraction.module(), f"qnn_subtract: {reason}")


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, Subtract(shape=(1, 4, 5, 6)).module())
    check_golden("qnn_subtract_from_element", Subtract(shape=(1,), other=(1, 4, 5, 6)).module())


QUANTIZATIONS = st.builds(Quantized, SCALES, ZERO_POINTS)
SUBTRACTIONS = pairwise_shapes().flatmap(
    lambda shapes: st.builds(
        partial(Subtract, **shapes),
        lhs=QUANTIZATIONS,
        rhs=QUANTIZATIONS,
        out=st.builds(Quantized, st.just(0.5), ZERO_POINTS),
        clip=CLIPS,
    )
)
HALVES = Subtract(lhs=Quantized(0.25), rhs=Quantized(0.25), out=Quantized(0.5))


@pytest.mark.slow
@settings(max_examples=4)
@given(st.lists(SUBTRACTIONS, min_size=3, max_size=4), BROADCASTING, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    """Halves too: the second input is rounded before it is subtracted; and constants on either side."""
    constants = [WithConstant(HALVES), WithConstant(HALVES, constant_first=True)]
    check_bit_exact([*samples, HALVES, *constants], COMPOSITE, accelerator, seed)
