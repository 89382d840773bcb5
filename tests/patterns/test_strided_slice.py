"""strided_slice: which parts it takes, what it declines and why, and what it computes."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import ACCELERATORS, SEEDS, accepted, check_bit_exact, check_golden, declined
from relay_samples import Conv, Sample, module, variable
from tvm import relay

COMPOSITE = "strided_slice"


@dataclass
class Part(Sample):
    shape: tuple = (1, 9, 8, 7)
    begin: tuple = (0, 1, 2, 3)
    end: tuple = (1, 9, 8, 6)
    strides: tuple | None = None
    axes: tuple | None = None
    mode: str = "end"
    dtype: str = "int8"

    def variables(self, prefix=""):
        return [variable(self.shape, self.dtype, f"{prefix}x")]

    def expr(self, x):
        return relay.strided_slice(x, self.begin, self.end, self.strides, self.axes, self.mode)


FORMS = {
    "a box": (Part(), (0, 1, 2, 3), (1, 1, 1, 1), (1, 8, 6, 3)),
    "every second": (Part(strides=(1, 2, 3, 1)), (0, 1, 2, 3), (1, 2, 3, 1), (1, 4, 2, 3)),
    "from behind": (Part(begin=(0, -3, 0, -2), end=(1, -1, 8, 7)), (0, 6, 0, 5), (1, 1, 1, 1), (1, 2, 8, 2)),
    "by axis": (Part(begin=(2,), end=(4,), axes=(3,)), (0, 0, 0, 2), (1, 1, 1, 1), (1, 9, 8, 2)),
    "by size": (Part(end=(1, 2, -1, 3), mode="size"), (0, 1, 2, 3), (1, 1, 1, 1), (1, 2, 6, 3)),
    "beyond the end": (Part(end=(9, 99, 99, 99)), (0, 1, 2, 3), (1, 1, 1, 1), (1, 8, 6, 4)),
}


@pytest.mark.parametrize(("form", "begin", "steps", "shape"), FORMS.values(), ids=FORMS)
def test_takes_the_whole_form(form, begin, steps, shape):
    layer = accepted(form.module(), COMPOSITE)
    assert (layer.begin, layer.steps, layer.ofm.shape) == (begin, steps, shape)


DECLINED = {
    "backwards": (
        Part(begin=(0, 8, 0, 0), end=(1, 0, 8, 7), strides=(1, -1, 1, 1)),
        "steps of a slice are at least 1: got -1",
    ),
    "float": (Part(dtype="float32"), "activation type is int8: got float32"),
    "nothing": (Part(begin=(0, 5, 0, 0), end=(1, 5, 8, 7)), "dimensions of ofm are at least 1: got (1, 0, 8, 7)"),
}


@pytest.mark.parametrize(("form", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(form, reason):
    declined(form.module(), f"{COMPOSITE}: {reason}")


def test_generated_c_reads_as_the_golden_file():
    """The second convolution reads channels and rows of the first one's output in place."""
    first = Conv(height=4, width=4, channels=2, filters=6)
    second = Conv(height=3, width=4, channels=3, filters=2)
    x = variable(first.ifm_shape)
    part = relay.strided_slice(first.expr(x), [0, 1, 0, 2], [1, 4, 4, 5])
    check_golden(COMPOSITE, module(second.expr(part), x))


@st.composite
def part(draw):
    shape = tuple(draw(st.integers(1, 12)) for _ in range(draw(st.sampled_from((4, 4, 2, 5)))))
    begin = tuple(draw(st.integers(0, size - 1)) for size in shape)
    end = tuple(draw(st.integers(first + 1, size)) for first, size in zip(begin, shape, strict=True))
    return Part(shape, begin, end, tuple(draw(st.sampled_from((1, 1, 2, 3))) for _ in shape))


@settings(max_examples=4)
@given(st.lists(part(), min_size=5, max_size=5), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)
