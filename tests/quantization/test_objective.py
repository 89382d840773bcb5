"""Objectives of a quantization: what they say, and what is none."""

import pytest

from byoc_hw.errors import InvalidInput
from byoc_hw.quantization.objective import Goal, goal

GOOD = {
    "accuracy": None,
    "flash": Goal("flash", None),
    "flash<=32KiB": Goal("flash", 32768),
    " ram <= 1 MiB": Goal("ram", 1 << 20),
    "cycles<=50000": Goal("cycles", 50000),
    "flash<=700": Goal("flash", 700),
}


@pytest.mark.parametrize(("text", "meant"), GOOD.items(), ids=repr)
def test_says_a_cost_and_its_limit(text, meant):
    assert goal(text) == meant


@pytest.mark.parametrize("text", ["size", "flash<32KiB", "flash<=", "cycles<=5KiB", "flash<=3kg", 7, None], ids=repr)
def test_what_is_none_is_refused_with_the_forms(text):
    with pytest.raises(InvalidInput, match='objective is "accuracy", one of flash, ram, cycles, or one with a limit'):
        goal(text)
