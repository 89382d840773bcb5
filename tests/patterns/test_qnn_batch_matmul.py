"""qnn_batch_matmul: which products it takes, what it declines and why, and what it computes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import CLIPS, SEEDS, TINY, ZERO_POINTS, accepted, check_bit_exact, check_golden, declined
from relay_samples import Product, Quantized

from byoc_hw import REFERENCE, SMALL

COMPOSITE = "qnn_batch_matmul"


FORMS = {
    "plain": (Product(), (2, 5, 1, 7), (2, 3, 7)),
    "clip": (Product(clip=(-100.0, 50.0)), (2, 5, 1, 7), (2, 3, 7)),
    "reshaped before the requantize": (Product(reshaped=(1, 2, 5, 3)), (2, 5, 1, 7), (2, 3, 7)),
    "one second operand for all": (Product(second=(1, 3, 7)), (1, 10, 1, 7), (1, 3, 7)),
    "computed weights": (Product(first=(4, 7), second=(3, 7)), (1, 4, 1, 7), (1, 3, 7)),
    "a vector": (Product(first=(1, 7), second=(1, 7)), (1, 1, 1, 7), (1, 1, 7)),
}


@pytest.mark.parametrize(("form", "ifm", "ifm2"), FORMS.values(), ids=FORMS)
def test_takes_the_whole_form(form, ifm, ifm2):
    layer = accepted(form.module(), COMPOSITE)
    assert (layer.ifm.shape, layer.ifm2.shape) == (ifm, ifm2)
    assert [tensor.quantization.zero_point for tensor in (*layer.inputs, layer.ofm)] == [(-3,), (9,), (4,)]
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


WIDE = 70000
DECLINED = {
    "items that only the second has": (
        Product(first=(1, 5, 7)),
        {},
        "the second operand has one item, or as many as the first: got 2 for 1",
    ),
    "long sums": (
        Product(first=(1, 1, WIDE), second=(1, 1, WIDE)),
        {},
        "sums, before and after they are scaled, fit in 32 bits: got 34 bits",
    ),
    "more than local memory": (
        Product(first=(1, 2, 40), second=(1, 60, 40)),
        {"accelerator": TINY},
        "qnn.batch_matmul_1: an item of the second input and one row fit local activation memory: 2500 bytes needed, "
        "2048 bytes there",
    ),
}


@pytest.mark.parametrize(("form", "options", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(form, options, reason):
    declined(form.module(), f"{COMPOSITE}: {reason}", **options)


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, Product().module())


@st.composite
def products(draw):
    items, rows, depth, vectors = (draw(st.integers(1, most)) for most in (3, 20, 40, 20))
    matrices = items == 1 and draw(st.booleans())
    first, second = (rows, depth), (vectors, depth)
    return Product(
        first=first if matrices else (items, *first),
        second=second if matrices else (draw(st.sampled_from((1, items))), *second),
        ifm=Quantized(draw(st.floats(2.0**-6, 1.0, width=32)), draw(ZERO_POINTS)),
        ifm2=Quantized(draw(st.floats(2.0**-6, 1.0, width=32)), draw(ZERO_POINTS)),
        ofm=Quantized(draw(st.floats(2.0**-4, 2.0**5, width=32)), draw(ZERO_POINTS)),
        clip=draw(CLIPS),
    )


@pytest.mark.slow
@settings(max_examples=4)
@given(st.lists(products(), min_size=3, max_size=4), st.sampled_from((REFERENCE, SMALL, TINY)), SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)
