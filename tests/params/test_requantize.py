from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_hw.errors import GraphError, Unsupported
from byoc_hw.graph import Add, Conv2d, Dense, Mul, Pool2d, Softmax
from byoc_hw.params.requantize import (
    DEAD,
    IDENTITY,
    Scale,
    add_scales,
    add_sum_scale,
    folded_bias,
    mul_scale,
    pool_scale,
    pool_zero_points,
    rescale,
    scale_of,
    scale_of_ratio,
    softmax_scale,
    sum_scales,
    weight_values,
)
from byoc_hw.tensor import Quantization, Tensor

FLOAT32 = st.floats(2.0**-15, 2.0**15, width=32)
INT32 = st.integers(-(2**31), 2**31 - 1)


def activation(shape, scale=0.1, zero_point=0):
    return Tensor("t", shape, quantization=Quantization((scale,), (zero_point,)))


def dense(weights, *, ifm_zero_point=0, weight_zero_point=0, bias=None, accumulator=(0.001,), ofm=(0.1, 0)):
    weights = np.asarray(weights, np.int8)
    channels, depth = weights.shape
    return Dense(
        "fc",
        (),
        activation((1, depth), 0.1, ifm_zero_point),
        activation((1, channels), *ofm),
        weights=Tensor("w", weights.shape, quantization=Quantization((0.01,), (weight_zero_point,)), data=weights),
        bias=None if bias is None else Tensor("b", (channels,), "int32", 32, data=np.asarray(bias, np.int32)),
        accumulator=Quantization(tuple(accumulator), (0,)),
        act_min=-128,
        act_max=127,
    )


@given(FLOAT32, FLOAT32, st.lists(INT32, min_size=1, max_size=20))
@settings(max_examples=300, deadline=None)
def test_rounds_once_with_halves_upwards(input_scale, output_scale, values):
    scale = scale_of(input_scale, output_scale)
    if scale.left > 0:
        values = [value >> scale.left for value in values]  # what int32 outputs leave room for
    fixed = Fraction(scale.multiplier, 2**31) * Fraction(2) ** scale.left / Fraction(2) ** (scale.right - 31)
    expected = [(value * fixed + Fraction(1, 2)).__floor__() for value in values]
    if scale.left < 31:
        assert rescale(scale, np.array(values)).tolist() == expected
    assert [scale.apply(value) for value in values] == expected


@given(FLOAT32, st.lists(st.integers(-(2**24), 2**24), min_size=1, max_size=20))
@settings(max_examples=300, deadline=None)
def test_tflite_rounds_twice(ratio, values):
    """First to 31 bits with halves upwards, then by the rest of the shift with halves away from zero."""
    scale = scale_of_ratio(ratio)
    multiplier, rest = Fraction(scale.multiplier, 2**31), 2 ** (scale.right - 31)
    for value in values:
        first = (value * 2**scale.left * multiplier + Fraction(1, 2)).__floor__()
        second = (abs(Fraction(first, rest)) + Fraction(1, 2)).__floor__() * (1 if first >= 0 else -1)
        assert scale.apply(value, "tflite") == second


@given(FLOAT32, FLOAT32)
@settings(max_examples=300, deadline=None)
def test_keeps_31_bits_of_the_ratio_of_the_float32_scales(input_scale, output_scale):
    scale = scale_of(input_scale, output_scale)
    assert 2**30 <= scale.multiplier < 2**31
    assert scale.left == 0 or scale.right == 31
    fixed = Fraction(scale.multiplier) * Fraction(2) ** (scale.left - scale.right)
    exact = Fraction(float(np.float32(input_scale)) / float(np.float32(output_scale)))
    assert abs(fixed / exact - 1) <= Fraction(1, 2**31)


def test_ratio_just_below_one_keeps_its_bits():
    assert scale_of(1 - 2**-24, 1.0) == Scale(2**31 - 2**7, 0, 31)


def test_equal_scales_are_the_identity_for_every_int32():
    assert scale_of(0.3, 0.3) == IDENTITY
    values = np.array([-(2**31), -1, 0, 1, 2**31 - 1])
    assert rescale(IDENTITY, values).tolist() == values.tolist()


def test_scales_are_rounded_to_float32_first():
    assert scale_of(0.1, 0.3) == scale_of(float(np.float32(0.1)), float(np.float32(0.3)))


def test_widest_shift_is_62_and_beyond_it_a_channel_is_dead():
    assert scale_of(2.0**-32, 1.0) == Scale(2**30, 0, 62)
    assert scale_of(2.0**-33, 1.0) == DEAD
    assert scale_of(0.0, 1.0) == DEAD
    assert rescale(DEAD, [-(2**31), 2**31 - 1]).tolist() == [0, 0]


@pytest.mark.parametrize("scales", [(-1.0, 1.0), (1.0, 0.0), (float("nan"), 1.0), (1.0, float("inf"))])
def test_refuses_scales_that_are_not_finite_and_positive(scales):
    with pytest.raises(GraphError, match="finite and positive"):
        scale_of(*scales)


def test_one_scale_serves_all_channels_and_several_serve_their_own():
    weights = [[1, 2], [3, 4], [5, 6]]
    assert sum_scales(dense(weights, accumulator=(0.05,))) == (scale_of(0.05, 0.1),) * 3
    each = (0.05, 0.1, 0.2)
    assert sum_scales(dense(weights, accumulator=each)) == tuple(scale_of(scale, 0.1) for scale in each)


def test_folds_both_zero_points_into_the_bias():
    layer = dense([[1, 2, 3], [-4, 5, 6]], ifm_zero_point=-7, weight_zero_point=2, bias=[10, 20])
    assert folded_bias(layer).tolist() == [10 + 7 * (6 - 6), 20 + 7 * (7 - 6)]
    assert folded_bias(layer).dtype == np.int32
    assert folded_bias(dense([[1, 2, 3]], ifm_zero_point=3)).tolist() == [-18]


def test_refuses_a_folded_bias_beyond_int32():
    with pytest.raises(Unsupported, match="fc: bias with folded zero points is int32: got 2147483648"):
        folded_bias(dense([[1]], ifm_zero_point=-1, bias=[2**31 - 1]))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_no_partial_or_scaled_sum_of_any_input_is_wider_than_the_layer_says(seed):
    random = np.random.default_rng(seed)
    layer = dense(
        random.integers(-128, 128, (3, 17)),
        ifm_zero_point=int(random.integers(-128, 128)),
        weight_zero_point=int(random.integers(-5, 6)),
        bias=random.integers(-(2**20), 2**20, 3),
        accumulator=random.uniform(0.0001, 3, 3),
        ofm=(0.1, int(random.integers(-128, 128))),
    )
    weights = layer.weights.data.astype(np.int64) - layer.weights.quantization.zero_point[0]
    inputs = random.choice([-128, 127, 0], (50, 17))
    inputs[0] = 127
    products = folded_bias(layer)[:, None, None] + np.cumsum(weights[:, None] * inputs, axis=2)
    largest = 2 ** (layer.sum_bits - 1)
    assert np.abs(products).max() < largest
    for sums, scale in zip(products[..., -1], sum_scales(layer), strict=True):
        assert np.abs(rescale(scale, sums) + layer.ofm.quantization.zero_point[0]).max() < largest


def test_width_shows_a_sum_and_a_scale_that_can_overflow():
    assert dense(np.full((1, 2), 127), bias=[2**31 - 1]).sum_bits > 32
    assert dense([[127]], accumulator=(2.0**40,), ofm=(1.0, 0)).sum_bits > 32
    assert dense([[127]]).sum_bits <= 32


def test_each_input_of_an_add_has_its_scale():
    layer = Add("add", (), activation((1, 4), 0.2), activation((1, 4), 0.4, 5), activation((1, 4), 0.3, -128))
    assert add_scales(layer) == (scale_of(0.2, 0.4), scale_of(0.3, 0.4))


def test_the_scale_of_a_product_is_formed_in_float32():
    first, second, output = (np.float32(value) for value in (0.0123457, 0.0765431, 0.2345679))
    sides = [activation((1, 4), float(value), 5) for value in (first, output, second)]
    layer = Mul("mul", (), *sides)
    assert mul_scale(layer) == scale_of(float(first * second), float(output))
    assert mul_scale(replace(layer, rounding="tflite")) == scale_of_ratio(float(first * second / output))


def test_tflite_adds_in_half_steps_of_the_larger_scale_20_bits_finer():
    sides = activation((1, 4), 0.2), activation((1, 4), 0.4, 5), activation((1, 4), 0.3, -128)
    layer = Add("add", (), *sides, rounding="tflite")
    common = 2 * float(np.float32(0.3))
    ratios = float(np.float32(0.2)) / common, 0.5
    assert add_scales(layer) == tuple(replace(scale_of_ratio(ratio), left=20) for ratio in ratios)
    assert add_sum_scale(layer) == scale_of_ratio(common / (2**20 * float(np.float32(0.4))))
    assert layer.sum_bits <= 32


def test_sums_are_scaled_by_the_raw_scales_in_tflite_s_rounding():
    """In double for a convolution, in float32 for a dense layer; the accumulator's own scale is not read."""
    ifm, weights = np.float32(0.1), np.float32(0.01)
    layer = replace(dense([[1, 2]]), rounding="tflite")
    assert sum_scales(layer) == (scale_of_ratio(float(ifm * weights) / float(np.float32(0.1))),)
    square = Tensor("w", (1, 1, 1, 2), quantization=Quantization((0.01,), (0,)), data=np.ones((1, 1, 1, 2), np.int8))
    ends = {"ifm": activation((1, 1, 1, 2), 0.1), "ofm": activation((1, 1, 1, 1), 0.1)}
    conv = Conv2d(**{**vars(layer), **ends, "weights": square})
    assert sum_scales(conv) == (scale_of_ratio(float(ifm) * float(weights) / float(np.float32(0.1))),)
    assert sum_scales(conv) != sum_scales(layer)


@pytest.mark.parametrize(
    ("scale", "expected", "least"),
    [
        (1.0, Scale(2**30, 27, 31), -15),
        (0.75, Scale(3 * 2**29, 26, 31), -31),
        (2.0**-25, Scale(2**30, 2, 31), -(31 * 2**24)),
        (100.0, Scale(2**31 - 1, 31, 31), 0),  # as much as 5 bits before the point can say
    ],
)
def test_softmax_brings_differences_to_5_bits_before_the_point(scale, expected, least):
    layer = Softmax("softmax", (), activation((1, 4), scale), activation((1, 4), 1 / 256, -128), rounding="tflite")
    assert softmax_scale(layer) == (expected, least)


def test_average_is_rescaled_only_where_the_layer_says_so():
    plain = Pool2d("pool", (), activation((1, 2, 2, 1), 0.2, 3), activation((1, 2, 2, 1), 0.1, -4))
    assert (pool_scale(plain), pool_zero_points(plain)) == (IDENTITY, (0, 0))
    rescaled = Pool2d("pool", (), activation((1, 2, 2, 1), 0.2, 3), activation((1, 2, 2, 1), 0.1, -4), rescaled=True)
    assert (pool_scale(rescaled), pool_zero_points(rescaled)) == (scale_of(0.2, 0.1), (3, -4))


def test_names_the_tensor_that_has_no_scale():
    layer = dense([[1]])
    bare = Dense(**{**vars(layer), "ofm": Tensor("sum", (1, 1))})
    with pytest.raises(GraphError, match="fc: sum is quantized"):
        sum_scales(bare)


def test_refuses_weight_zero_points_that_differ():
    layer = dense([[1], [2]])
    weights = Tensor("w", (2, 1), quantization=Quantization((0.1,), (1, 2), 0), data=layer.weights.data)
    with pytest.raises(GraphError, match=r"w has one zero point: got \[1, 2\]"):
        folded_bias(Dense(**{**vars(layer), "weights": weights}))


def test_dense_weights_read_as_those_of_a_1x1_convolution():
    assert weight_values(dense([[1, 2], [3, 4]])).shape == (2, 1, 1, 2)
