"""global_max_pool2d: what it takes, what it declines and why, and what it computes."""

from dataclasses import dataclass

import pytest
from pattern_checks import accepted, check_bit_exact, declined
from relay_samples import Sample, variable
from tvm import relay

COMPOSITE = "global_max_pool2d"


@dataclass
class GlobalMax(Sample):
    shape: tuple = (1, 5, 7, 3)
    dtype: str = "int8"
    layout: str = "NHWC"

    def variables(self, prefix=""):
        return [variable(self.shape, self.dtype, f"{prefix}x")]

    def expr(self, x):
        return relay.nn.global_max_pool2d(x, layout=self.layout)


def test_takes_the_whole_form():
    layer = accepted(GlobalMax().module(), COMPOSITE)
    assert (layer.mode, layer.kernel, layer.ofm.shape) == ("max", (5, 7), (1, 1, 1, 3))


DECLINED = {
    "int16": (GlobalMax(dtype="int16"), "activation type is int8: got int16"),
    "window": (GlobalMax(shape=(1, 37, 2, 3)), "kernel is at most 32 x 32: got 37 x 2"),
}


@pytest.mark.parametrize(("sample", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(sample, reason):
    declined(sample.module(), f"{COMPOSITE}: {reason}")


def test_gives_tvms_results_bit_for_bit():
    samples = [GlobalMax(), GlobalMax(shape=(1, 1, 1, 1)), GlobalMax(shape=(1, 32, 32, 17))]
    check_bit_exact(samples, COMPOSITE)
