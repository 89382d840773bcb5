"""topk: what it takes, what it declines and why, and what it computes on a chip and on the host."""

from dataclasses import dataclass

import pytest
from order_checks import CHIP, KINDS, WITHOUT, check_on_chip, check_on_host, no_lanes, with_ties
from pattern_checks import accepted, check_golden, declined
from relay_samples import Sample, side_by_side, variable
from tvm import relay

from byoc_hw import DSP
from byoc_hw.frontend.relay.read import PLACES


@dataclass
class TopK(Sample):
    shape: tuple = (2, 9, 3)
    dtype: str = "float32"
    k: int = 4
    axis: int = 1
    result: str = "indices"
    ascending: bool = False
    places: str = "int32"

    def variables(self, prefix=""):
        return [variable(self.shape, self.dtype, f"{prefix}x")]

    def expr(self, x):
        made = relay.topk(x, self.k, self.axis, self.result, self.ascending, self.places)
        return made.astuple() if self.result == "both" else made


def test_takes_places():
    layer = accepted(TopK().module(), "topk", accelerator=CHIP)
    assert (layer.kind, layer.axis, layer.descending, layer.ofm.shape) == ("order", 1, True, (2, 4, 3))


DECLINED = {
    "no accelerator with orders": (TopK(), WITHOUT, f"layer kind is one of {KINDS}: got order"),
    "one accelerator": (TopK(), DSP, no_lanes("order")),
    "one accelerator, values": (TopK(result="values"), DSP, f"{PLACES}: got values"),
    "one accelerator, both": (TopK(result="both"), DSP, f"{PLACES}: got both"),
    "int16": (TopK(dtype="int16"), CHIP, "activation type is one of int8, uint8, int32, float32: got int16 x int32"),
}


@pytest.mark.parametrize(("sample", "accelerator", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(sample, accelerator, reason):
    declined(sample.module(), f"topk: {reason}", accelerator=accelerator)


def test_generated_c():
    mod = TopK(result="both").module()
    check_golden("topk", mod, CHIP, [with_ties(mod, 3)])


SAMPLES = (
    TopK(),
    TopK(k=0, axis=0, result="both"),
    TopK(k=9, axis=-2, result="both", places="int64"),
    TopK(k=1, axis=2, ascending=True, result="values"),
    TopK(shape=(31,), axis=0, k=30, result="both"),
    TopK(shape=(1, 1, 1, 1), axis=3, k=1, places="float32"),
    TopK(shape=(4, 17), axis=-1, dtype="int8", k=5, result="both", ascending=True),
    TopK(shape=(4, 17), axis=0, dtype="uint8", k=2, result="both"),
    TopK(shape=(3, 1, 20), axis=2, dtype="int32", k=20, result="both"),
)


def test_has_tvms_bits_on_a_chip_and_on_the_host():
    """All axes, one place and all, values that are equal, both zeros and infinities."""
    mod = side_by_side([sample for sample in SAMPLES if sample.result != "both"])
    inferences = [with_ties(mod, seed) for seed in range(10)]
    check_on_chip(mod, ["topk", "topk", "gather", "topk"], inferences)
    check_on_host(mod, inferences)


@pytest.mark.parametrize("sample", [sample for sample in SAMPLES if sample.result == "both"], ids=str)
def test_values_and_places_are_those_of_one_order(sample):
    mod = sample.module()
    check_on_chip(mod, ["topk", "gather"], [with_ties(mod, seed) for seed in range(10)])
