"""resize: which sizes and roundings it takes, what it declines and why, and what it computes."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import ACCELERATORS, SEEDS, accepted, check_bit_exact, check_golden, declined
from relay_samples import Sample, variable
from tvm import relay

COMPOSITE = "resize"
NEAREST = "nearest_neighbor"


@dataclass
class Resized(Sample):
    """image.resize2d to a size; without `size`, nn.upsampling by `factors`."""

    shape: tuple = (1, 3, 4, 5)
    size: tuple | None = (6, 8)
    coordinates: str = "asymmetric"
    rounding: str = ""
    method: str = NEAREST
    layout: str = "NHWC"
    factors: tuple = (2, 3)
    dtype: str = "int8"

    def variables(self, prefix=""):
        return [variable(self.shape, self.dtype, f"{prefix}x")]

    def expr(self, x):
        if self.size is None:
            method = NEAREST if self.method == NEAREST else "bilinear"
            return relay.nn.upsampling(x, *self.factors, layout=self.layout, method=method)
        return relay.image.resize2d(x, self.size, None, self.layout, self.method, self.coordinates, self.rounding)


FORMS = {
    "twice": (Resized(), (0, 0, 1, 1, 2, 2), (0, 0, 1, 1, 2, 2, 3, 3)),
    "upsampling": (Resized(size=None), (0, 0, 1, 1, 2, 2), (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)),
    "NCHW": (Resized(shape=(1, 5, 3, 4), layout="NCHW"), (0, 0, 1, 1, 2, 2), (0, 0, 1, 1, 2, 2, 3, 3)),
    "smaller": (Resized(size=(1, 2)), (0,), (0, 2)),
    "corners": (Resized(size=(5, 7), coordinates="align_corners"), (0, 1, 1, 2, 2), (0, 1, 1, 2, 2, 3, 3)),
}


@pytest.mark.parametrize(("form", "rows", "columns"), FORMS.values(), ids=FORMS)
def test_takes_any_size(form, rows, columns):
    layer = accepted(form.module(), COMPOSITE)
    assert (layer.rows, layer.columns, layer.ofm.shape) == (rows, columns, (1, len(rows), len(columns), 5))


DECLINED = {
    "bilinear": (Resized(method="linear"), "resize method is nearest_neighbor: got linear"),
    "cubic": (Resized(method="cubic"), "resize method is nearest_neighbor: got cubic"),
    "bilinear upsampling": (
        Resized(size=None, method="linear"),
        "resize method is nearest_neighbor: got linear",
    ),
    "batch": (Resized(shape=(2, 3, 4, 5)), "batch is 1: got 2"),
    "one corner": (
        Resized(size=(1, 4), coordinates="align_corners"),
        "an image with aligned corners has at least 2 rows and columns: got 1 x 4",
    ),
    "float": (Resized(dtype="float32"), "activation type is int8: got float32"),
}


@pytest.mark.parametrize(("form", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(form, reason):
    declined(form.module(), f"{COMPOSITE}: {reason}")


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, Resized().module())


ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@st.composite
def resized(draw):
    height, width, channels = (draw(st.integers(1, 9)) for _ in range(3))
    if draw(st.booleans()):
        return Resized((1, height, width, channels), None, factors=(draw(st.integers(1, 3)), draw(st.integers(1, 3))))
    size = draw(st.integers(1, 17)), draw(st.integers(1, 17))
    coordinates = draw(st.sampled_from(("asymmetric", "half_pixel", "align_corners")))
    if coordinates == "align_corners":
        size = tuple(max(extent, 2) for extent in size)
    rounding = draw(st.sampled_from(ROUNDINGS))
    return Resized((1, height, width, channels), size, coordinates, rounding)


@pytest.mark.slow
@settings(max_examples=4)
@given(st.lists(resized(), min_size=5, max_size=5), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)
