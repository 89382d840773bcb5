"""qnn_dense: which fully connected layers it takes, as what layer, what it declines and why, and what it computes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import (
    ACCELERATORS,
    CLIPS,
    SEEDS,
    ZERO_POINTS,
    accepted,
    check_bit_exact,
    check_golden,
    declined,
    weight_values,
)
from relay_samples import Dense, const, module
from tvm import relay

from byoc_hw import REFERENCE, Limits

COMPOSITE = "qnn_dense"

FORMS = {
    "plain": Dense(),
    "without bias": Dense(bias=False),
    "bias as add": Dense(bias_as_add=True),
    "clip": Dense(clip=(-100.0, 50.0)),
    "a scale for each output": Dense(per_channel=True),
    "zero points": Dense(ifm_zero_point=-128, weight_zero_point=9, ofm_zero_point=127),
    "one input": Dense(inputs=1),
    "one output": Dense(outputs=1, per_channel=True),
    "rows": Dense(batch=3),
    "rows, a scale for each output": Dense(batch=2, per_channel=True, bias_as_add=True),
    "dead output": Dense(outputs=2, per_channel=True, scales=(1e-12, 0.01)),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_takes_the_whole_form(form):
    layer = accepted(form.module(), COMPOSITE)
    assert layer.kind == "dense"
    assert (layer.ifm.shape, layer.ofm.shape) == ((form.batch, form.inputs), (form.batch, form.outputs))
    assert layer.weights.shape == (form.outputs, form.inputs)
    assert (layer.bias is not None) == form.bias
    assert len(layer.accumulator.scale) == (form.outputs if form.per_channel else 1)
    assert layer.ifm.quantization.zero_point == (form.ifm_zero_point,)
    assert layer.weights.quantization.zero_point == (form.weight_zero_point,)
    assert layer.ofm.quantization.zero_point == (form.ofm_zero_point,)
    assert (layer.act_min, layer.act_max) == (form.clip or (-128, 127))


def test_reads_weights_bias_and_scales():
    dense = Dense(inputs=3, outputs=2, per_channel=True, scales=(0.5, 0.25))
    dense.weights, dense.bias_values = np.arange(6).reshape(2, 3), np.asarray([7, -8])
    layer = accepted(dense.module(), COMPOSITE)
    np.testing.assert_array_equal(layer.weights.data, dense.weights)
    np.testing.assert_array_equal(layer.bias.data, dense.bias_values)
    assert layer.weights.quantization.scale == (0.5, 0.25)
    assert layer.accumulator.scale == tuple(float(np.float32(scale) * np.float32(0.05)) for scale in (0.5, 0.25))


# ---------------------------------------------------------------- declined


DECLINED = {
    "int16": (Dense(dtype="int16"), "activation type is int8: got int16"),
    "rows": (Dense(shape=(1, 4, 24), bias=False), "input and output are 2-D: got (1, 4, 24) and (1, 4, 10)"),
    "weight zero points": (
        Dense(outputs=3, weight_zero_point=(0, 1, 2)),
        "one weight zero point for the whole tensor: got 3 different ones",
    ),
    "int64 sums": (Dense(bias=False, sum_dtype="int64"), "sums are int32: got int64"),
    "sums beyond 32 bits": (
        Dense(bias_values=np.full(10, 2**31 - 1)),
        "sums, before and after they are scaled, fit in 32 bits: got 33 bits",
    ),
}


@pytest.mark.parametrize(("dense", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(dense, reason):
    declined(dense.module(), f"qnn_dense: {reason}")


def test_declines_more_rows_than_the_hardware_takes():
    limits = {**REFERENCE.limits, "dense": Limits(batches=(1, 4))}
    four = replace(REFERENCE, label="FOUR", limits=limits)
    declined(Dense(batch=2).module(), "qnn_dense: batch is one of 1, 4: got 2", accelerator=four)
    check_bit_exact([Dense(batch=4)], COMPOSITE, four)


NEAR_MISSES = {
    "weights from outside": (Dense(constant_weights=False), "qnn.dense: weight is the input w, not a constant"),
    "bias from outside": (
        Dense(constant_bias=False),
        "matched to qnn.dense; nn.bias_add: bias is the input b, not a constant",
    ),
    "no requantize": (
        Dense(requantized=False),
        "matched to nn.bias_add; expected qnn.requantize, found the model's output",
    ),
}


@pytest.mark.parametrize(("dense", "reason"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_says_how_far_the_match_got(dense, reason):
    declined(dense.module(), f"qnn_dense: {reason}")


def test_declines_a_sum_that_is_used_elsewhere_too():
    dense = Dense(requantized=False, bias=False)
    (x,) = dense.variables()
    total = dense.expr(x)
    out = relay.qnn.op.requantize(
        total, const(0.001, "float32"), const(0, "int32"), const(0.4, "float32"), const(0, "int32"), out_dtype="int8"
    )
    declined(
        module(relay.Tuple([out, total]), x),
        "qnn_dense: matched to qnn.requantize; the result of qnn.dense is used elsewhere too",
    )


@pytest.mark.parametrize("name", ["qnn_dense", "qnn.dense_1"])
def test_deny_keeps_it_on_the_host(name):
    declined(Dense().module(), f"qnn_dense: kept on the host by deny={name!r}", deny=[name])


# ---------------------------------------------------------------- code and results


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, Dense(inputs=5, outputs=3, per_channel=True, clip=(-20.0, 100.0)).module())


@st.composite
def denses(draw):
    inputs = draw(st.sampled_from((1, 2, 15, 16, 17, 40)))
    outputs = draw(st.sampled_from((1, 2, 15, 16, 17, 100)))
    per_channel = draw(st.booleans())
    exponents = draw(st.tuples(st.integers(-14, -2), st.integers(0, 6)))
    scales = np.random.default_rng(draw(SEEDS)).uniform(*(2.0 ** np.asarray((exponents[0], sum(exponents)))), outputs)
    return Dense(
        inputs=inputs,
        outputs=outputs,
        batch=draw(st.sampled_from((1, 1, 2, 17))),
        bias=draw(st.booleans()),
        bias_as_add=draw(st.booleans()),
        clip=draw(CLIPS),
        per_channel=per_channel,
        scales=tuple(scales if per_channel else scales[:1]),
        ifm_zero_point=draw(ZERO_POINTS),
        weight_zero_point=draw(st.one_of(st.just(0), ZERO_POINTS)),
        ofm_zero_point=draw(ZERO_POINTS),
        weights=draw(weight_values((outputs, inputs))),
        seed=draw(SEEDS),
    )


@settings(max_examples=4)
@given(st.lists(denses(), min_size=3, max_size=4), ACCELERATORS, SEEDS)
def test_gives_tvms_results_bit_for_bit(samples, accelerator, seed):
    check_bit_exact(samples, COMPOSITE, accelerator, seed)


EDGES = {
    "dead outputs": Dense(outputs=3, per_channel=True, scales=(1e-12, 2e-10, 0.01)),
    "dead outputs, bias as add": Dense(outputs=3, per_channel=True, scales=(1e-12, 2e-10, 0.01), bias_as_add=True),
    "dead tensor": Dense(scales=(1e-12,)),
    "all at the rails": Dense(
        ifm_zero_point=127,
        weight_zero_point=127,
        ofm_zero_point=-128,
        weights=np.full((10, 24), -128),
        scales=(0.5,),
    ),
    "more than fits the array and its memories": Dense(inputs=900, outputs=130, per_channel=True),
    "more rows than fit the memories": Dense(batch=700, inputs=390, outputs=20),
}


@pytest.mark.slow
def test_gives_tvms_results_in_the_corners():
    check_bit_exact(list(EDGES.values()), COMPOSITE)
