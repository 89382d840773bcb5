"""gather: what it takes, what it declines and why, and what it computes."""

from dataclasses import dataclass

import numpy as np
import pytest
from order_checks import CHIP, KINDS, WITHOUT, check_on_chip, no_lanes, with_ties
from pattern_checks import accepted, check_golden, declined
from relay_samples import Sample, const, side_by_side, variable
from tvm import relay

from byoc_hw import DSP


@dataclass
class Gathered(Sample):
    shape: tuple = (2, 9, 3)
    count: int = 5
    axis: int = 1
    dtype: str = "float32"
    places: str = "int32"

    def variables(self, prefix=""):
        return [variable(self.shape, self.dtype, f"{prefix}x")]

    def expr(self, x):
        rng = np.random.default_rng(self.count)
        taken = list(self.shape)
        taken[self.axis] = self.count
        places = const(rng.integers(0, self.shape[self.axis], taken), self.places)
        return relay.gather(x, self.axis, places)


def test_takes_places_along_an_axis():
    layer = accepted(Gathered().module(), "gather", accelerator=CHIP)
    assert (layer.kind, layer.axis, layer.ofm.shape) == ("gather", 1, (2, 5, 3))


DECLINED = {
    "no accelerator with gathers": (Gathered(), WITHOUT, f"layer kind is one of {KINDS}: got gather"),
    "one accelerator": (Gathered(), DSP, no_lanes("gather")),
    "int64 places": (
        Gathered(places="int64"),
        CHIP,
        "activation type is one of int8, uint8, int32, float32: got float32 x int64",
    ),
}


@pytest.mark.parametrize(("sample", "accelerator", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(sample, accelerator, reason):
    declined(sample.module(), f"gather: {reason}", accelerator=accelerator)


def test_generated_c():
    """The places are constant: they are in flash."""
    mod = Gathered().module()
    check_golden("gather", mod, CHIP, [with_ties(mod, 3)])


SAMPLES = (
    Gathered(),
    Gathered(axis=0, count=7),
    Gathered(axis=2, count=1, dtype="int8"),
    Gathered(shape=(13,), axis=0, count=40, dtype="uint8"),
    Gathered(shape=(1, 4, 4, 5), axis=3, count=3, dtype="int32"),
)


def test_has_tvms_bits():
    mod = side_by_side(SAMPLES)
    check_on_chip(mod, ["gather"] * len(SAMPLES), [with_ties(mod, seed) for seed in range(6)])
