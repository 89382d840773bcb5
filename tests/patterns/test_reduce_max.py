"""reduce_max: which maxima over axes it takes, what it declines and why, and what it computes."""

from dataclasses import replace

import pytest
from pattern_checks import accepted, check_bit_exact, declined
from relay_samples import Pool, Quantized

from byoc_hw.accelerator import REFERENCE

COMPOSITE = "reduce_max"
SAME = Quantized(0.1, -3)


def maximum(**knobs):
    return Pool(**{"operator": "max", "widened": False, "requantized": False, **knobs})


FORMS = {
    "bare": maximum(axis=(2,)),
    "clip, channels": maximum(axis=(-1,), keepdims=True, clip=(-100.0, 50.0)),
    "requantize that changes nothing": maximum(widened=True, requantized=True, ofm=SAME, axis=(1,)),
    "widened and cast back": maximum(widened=True, cast=True, shape=(4, 30), axis=(1,)),
    "height and width": maximum(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_takes_a_maximum_over_neighbouring_axes(form):
    layer = accepted(form.module(), COMPOSITE)
    assert (layer.mode, layer.rescaled) == ("max", False)
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


DECLINED = {
    "another scale": (
        maximum(widened=True, requantized=True),
        "a maximum keeps its scale and zero point: got 0.1 and -3 to 0.07 and 4",
    ),
    "axes apart": (maximum(axis=(1, 3)), "a reduction goes over neighbouring axes: got [1, 3] of (1, 8, 7, 5)"),
    "long": (maximum(shape=(2, 33, 3), axis=(1,)), "kernel is at most 32 x 32: got 1 x 33"),
    "uint8": (maximum(dtype="uint8"), "activation type is int8: got uint8"),
}


@pytest.mark.parametrize(("form", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(form, reason):
    declined(form.module(), f"{COMPOSITE}: {reason}")


def test_declines_a_type_that_no_hal_has_though_the_limits_list_it():
    limits = REFERENCE.limits | {"pool2d": replace(REFERENCE.limits["pool2d"], activation_types=("int8", "uint8"))}
    rule = "activation type of a HAL's tiles is int8, or uint8 where bytes are as they are: got uint8"
    declined(maximum(dtype="uint8").module(), f"{COMPOSITE}: {rule}", accelerator=replace(REFERENCE, limits=limits))


def test_gives_tvms_results_bit_for_bit():
    check_bit_exact(list(FORMS.values()), COMPOSITE)
