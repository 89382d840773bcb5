"""The array's results, bit for bit, against the formulas of hwlib_hal.h in Python integers."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hwlib_simulator import (
    ACTIVATIONS,
    AVG,
    CONV2D,
    DENSE,
    DEPTHWISE,
    FIRST,
    IDENTITY,
    LAST,
    MAX,
    SUM,
    TFLITE,
    UPWARD,
    WEIGHTS,
    Scale,
    Simulator,
    add,
    conv2d,
    lookup,
    matmul,
    mul,
    pads,
    params,
    pool2d,
    softmax,
    tile,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from byoc_hw.accelerator import REFERENCE

property_test = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

OFM, PSUM, PARAMS = 65536, 131072, 49152

int8 = st.integers(-128, 127)
zero_points = st.sampled_from([-128, -1, 0, 5, 127]) | int8
biases = st.sampled_from([0, -(2**31), 2**31 - 1]) | st.integers(-50000, 50000)
scales = st.sampled_from([(0, 0, 1), (2**31 - 1, 31, 1), (2**30, 0, 62), IDENTITY]) | st.tuples(
    st.integers(2**30, 2**31 - 1), st.integers(0, 3), st.integers(31, 45)
)
tflite_scales = scales.filter(lambda scale: scale[2] >= 31)
roundings = st.sampled_from([UPWARD, TFLITE])


def scales_of(rounding: int):
    return tflite_scales if rounding == TFLITE else scales


def wrapped(value: int, bits: int) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def scaled(value: int, scale: tuple[int, int, int], rounding: int = UPWARD) -> int:
    multiplier, left, right = scale
    if rounding == TFLITE:
        return nearest((wrapped(value * 2**left, 32) * multiplier + 2**30) >> 31, right - 31)
    return wrapped(value * 2**left * multiplier + 2 ** (right - 1), 64) >> right


def nearest(value: int, bits: int) -> int:
    """value / 2^bits, halves away from zero."""
    return (abs(value) + 2**bits // 2 >> bits) * (1 if value >= 0 else -1)


def clamped(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def windows(padded: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int]) -> np.ndarray:
    """[oh][ow][c][fy][fx]"""
    views = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(0, 1))
    return views[:: stride[0], :: stride[1]]


def pack(weights: np.ndarray, bits: int) -> bytes:
    """[k][...] values to bits, the lowest first, each k on a byte."""
    planes = (weights.reshape(len(weights), -1, 1) >> np.arange(bits)) & 1
    return np.packbits(planes.reshape(len(weights), -1).astype(np.uint8), axis=1, bitorder="little").tobytes()


@st.composite
def window_cases(draw, max_kernel: int = 5):
    kernel = draw(st.integers(1, max_kernel)), draw(st.integers(1, max_kernel))
    stride = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    top, bottom = draw(st.integers(0, kernel[0] - 1)), draw(st.integers(0, kernel[0] - 1))
    left, right = draw(st.integers(0, kernel[1] - 1)), draw(st.integers(0, kernel[1] - 1))
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    assume(height + top + bottom >= kernel[0] and width + left + right >= kernel[1])
    return kernel, stride, (top, left, bottom, right), (height, width)


def padded(ifm: np.ndarray, padding: tuple[int, int, int, int], value: int) -> np.ndarray:
    top, left, bottom, right = padding
    return np.pad(ifm.astype(np.int64), ((top, bottom), (left, right), (0, 0)), constant_values=value)


def strided(array: np.ndarray, pixel: int, row: int, fill: int = 99) -> bytes:
    """The rows of a [h][w][c] array as they lie with gaps between pixels and between rows."""
    height, width, channels = array.shape
    memory = np.full(height * row, fill, np.int8)
    for y in range(height):
        for x in range(width):
            memory[y * row + x * pixel :][:channels] = array[y, x]
    return memory.tobytes()


def unstrided(memory: np.ndarray, shape: tuple[int, int, int], pixel: int, row: int) -> np.ndarray:
    height, width, channels = shape
    return np.array([[memory[y * row + x * pixel :][:channels] for x in range(width)] for y in range(height)])


def expected_conv2d(
    sums: np.ndarray, bias, by, zero_point: int, limits: tuple[int, int], rounding: int = UPWARD
) -> np.ndarray:
    result = np.empty(sums.shape, np.int8)
    for index in np.ndindex(sums.shape):
        total = wrapped(int(sums[index]) + bias[index[2]], 32)
        result[index] = clamped(scaled(total, by[index[2]], rounding) + zero_point, *limits)
    return result


@pytest.mark.slow
@given(data=st.data(), case=window_cases(), kind=st.sampled_from([CONV2D, DEPTHWISE]), bits=st.sampled_from([8, 4, 2]))
@property_test
def test_convolution_equals_its_formula(simulator: Simulator, data, case, kind, bits):
    kernel, stride, padding, (height, width) = case
    channels = data.draw(st.integers(1, 7), "channels")
    outputs = channels if kind == DEPTHWISE else data.draw(st.integers(1, 5), "outputs")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    ifm = rng.integers(-128, 128, (height, width, channels)).astype(np.int8)
    depth = 1 if kind == DEPTHWISE else channels
    weights = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (outputs, *kernel, depth))
    bias = data.draw(st.lists(biases, min_size=outputs, max_size=outputs), "bias")
    rounding = data.draw(roundings, "rounding")
    by = data.draw(st.lists(scales_of(rounding), min_size=outputs, max_size=outputs), "scales")
    ifm_zero, weight_zero, ofm_zero = (data.draw(zero_points, name) for name in ("ifm_zp", "weight_zp", "ofm_zp"))
    limits = tuple(sorted(data.draw(st.tuples(int8, int8) | st.just((-128, 127)), "clamp")))
    ifm_gap, ofm_gap, row_gap = (data.draw(st.integers(0, 3), name) for name in ("ifm_gap", "ofm_gap", "row_gap"))

    view = windows(padded(ifm, padding, ifm_zero), kernel, stride)
    centred = weights - weight_zero
    product = "hwcyx,cyx->hwc" if kind == DEPTHWISE else "hwcyx,kyxc->hwk"
    sums = np.einsum(product, view, centred[..., 0] if kind == DEPTHWISE else centred)
    shape = sums.shape

    ifm_pixel, ofm_pixel = channels + ifm_gap, outputs + ofm_gap
    ifm_row, ofm_row = width * ifm_pixel + row_gap, shape[1] * ofm_pixel + row_gap
    layer = conv2d(
        kind,
        kernel,
        stride,
        rounding,
        weight_bits=bits,
        ifm_zero_point=ifm_zero,
        weight_zero_point=weight_zero,
        ofm_zero_point=ofm_zero,
        act_min=limits[0],
        act_max=limits[1],
    )
    simulator.reset()
    simulator.load(ACTIVATIONS, 1, strided(ifm, ifm_pixel, ifm_row))
    simulator.load(ACTIVATIONS, OFM, bytes(shape[0] * ofm_row))
    simulator.load(WEIGHTS, 3, pack(weights, bits))
    simulator.load(WEIGHTS, PARAMS, params(bias, by))
    job = tile(
        ifm.shape,
        shape,
        ifm=1,
        ofm=OFM,
        weights=3,
        params=PARAMS,
        ifm_row=ifm_row,
        ofm_row=ofm_row,
        ifm_pixel=ifm_pixel,
        ofm_pixel=ofm_pixel,
        **pads(padding),
    )
    simulator.run(layer, job)
    memory = simulator.fetch(OFM, shape[0] * ofm_row)

    expected = expected_conv2d(sums, bias, by, ofm_zero, limits, rounding)
    np.testing.assert_array_equal(unstrided(memory, shape, ofm_pixel, ofm_row), expected)
    # The gaps between pixels and rows belong to others.
    np.testing.assert_array_equal(memory, np.frombuffer(strided(expected, ofm_pixel, ofm_row, fill=0), np.int8))


@given(case=window_cases(3), split=st.integers(1, 6), bits=st.sampled_from([8, 4, 2]), seed=st.integers(0, 2**32))
@property_test
def test_slices_of_input_channels_carry_their_sums(simulator: Simulator, case, split, bits, seed):
    """Three jobs over channel slices of one tensor give what one job over all channels gives."""
    kernel, stride, padding, (height, width) = case
    rng = np.random.default_rng(seed)
    channels, outputs = 8, 3
    ifm = rng.integers(-128, 128, (height, width, channels)).astype(np.int8)
    weights = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (outputs, *kernel, channels))
    sums = np.einsum("hwcyx,kyxc->hwk", windows(padded(ifm, padding, -7), kernel, stride), weights)
    bias, by = [100, -3, 2**31 - 1], [(2**30 + 7, 0, 38)] * 3

    simulator.reset()
    simulator.load(ACTIVATIONS, 0, ifm)
    simulator.load(WEIGHTS, PARAMS, params(bias, by))
    bounds = [0, split, 7, channels] if split < 7 else [0, split, channels]
    for begin, end in pairwise(bounds):
        simulator.load(WEIGHTS, 0, pack(weights[..., begin:end], bits))
        flags = (FIRST if begin == 0 else 0) | (LAST if end == channels else 0)
        job = tile(
            (height, width, end - begin),
            sums.shape,
            ifm=begin,
            ofm=OFM,
            psum=PSUM,
            params=PARAMS,
            ifm_row=width * channels,
            ifm_pixel=channels,
            flags=flags,
            **pads(padding),
        )
        simulator.run(conv2d(CONV2D, kernel, stride, weight_bits=bits, ifm_zero_point=-7), job)
    result = simulator.fetch(OFM, sums.size).reshape(sums.shape)
    np.testing.assert_array_equal(result, expected_conv2d(sums, bias, by, 0, (-128, 127)))


@given(
    kind=st.sampled_from([CONV2D, DEPTHWISE]),
    rows=st.integers(2, 16),
    split=st.integers(1, 15),
    strides=st.tuples(*[st.integers(1, 2)] * 2),
    bits=st.sampled_from([8, 4, 2]),
    seed=st.integers(0, 2**32),
)
@property_test
def test_parts_of_a_kernel_carry_their_sums(simulator: Simulator, kind, rows, split, strides, bits, seed):
    """Jobs over the first and the last rows of a kernel, of more than the array takes, give what the kernel gives."""
    split = max(rows - 11, min(split, rows - 1, 11))
    rng = np.random.default_rng(seed)
    channels, kernel, (height, width) = 3, (rows, 2), (rows + 3, 6)
    ifm = rng.integers(-128, 128, (height, width, channels)).astype(np.int8)
    depth = 1 if kind == DEPTHWISE else channels
    weights = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (channels, *kernel, depth))
    view = windows(padded(ifm, (0, 0, 0, 0), 0), kernel, strides)
    product = "hwcyx,cyx->hwc" if kind == DEPTHWISE else "hwcyx,kyxc->hwk"
    sums = np.einsum(product, view, weights[..., 0] if kind == DEPTHWISE else weights)
    bias, by = [100, -3, 2**31 - 1], [(2**30 + 7, 0, 38)] * 3

    simulator.reset()
    simulator.load(ACTIVATIONS, 0, ifm)
    simulator.load(WEIGHTS, PARAMS, params(bias, by))
    for first, end, flag in ((0, split, FIRST), (split, rows, LAST)):
        simulator.load(WEIGHTS, 0, pack(weights[:, first:end], bits))
        seen = (sums.shape[0] - 1) * strides[0] + end - first
        extents = (seen, width, channels)
        places = {"ifm": first * width * channels, "ofm": OFM, "psum": PSUM, "params": PARAMS}
        job = tile(extents, sums.shape, kernel_h=end - first, kernel_w=2, flags=flag, **places)
        simulator.run(conv2d(kind, kernel, strides, weight_bits=bits), job)
    result = simulator.fetch(OFM, sums.size).reshape(sums.shape)
    np.testing.assert_array_equal(result, expected_conv2d(sums, bias, by, 0, (-128, 127)))


@given(
    channels=st.integers(1, 600), outputs=st.integers(1, 9), bits=st.sampled_from([8, 4, 2]), seed=st.integers(0, 99)
)
@property_test
def test_dense_is_a_convolution_of_one_pixel(simulator: Simulator, channels, outputs, bits, seed):
    rng = np.random.default_rng(seed)
    ifm = rng.integers(-128, 128, channels)
    weights = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (outputs, channels))
    bias, by = [7] * outputs, [(2**30, 0, 40)] * outputs
    simulator.reset()
    simulator.load(ACTIVATIONS, 0, ifm.astype(np.int8))
    simulator.load(WEIGHTS, 0, pack(weights, bits))
    simulator.load(WEIGHTS, PARAMS, params(bias, by))
    job = tile((1, 1, channels), (1, 1, outputs), ofm=OFM, params=PARAMS)
    simulator.run(conv2d(DENSE, weight_bits=bits, ofm_zero_point=-3), job)
    expected = expected_conv2d((weights @ ifm).reshape(1, 1, -1), bias, by, -3, (-128, 127))
    np.testing.assert_array_equal(simulator.fetch(OFM, outputs), expected.reshape(-1))


@pytest.mark.parametrize(
    ("ifm", "weights", "total"), [(-128, 127, -128 * 127), (-128, -128, 2**14), (127, -128, -16256)]
)
def test_sums_of_extremes_wrap_in_32_bits(simulator: Simulator, ifm: int, weights: int, total: int):
    channels = 65536 - 256
    simulator.load(ACTIVATIONS, 0, np.full(channels, ifm, np.int8))
    simulator.load(WEIGHTS, 0, np.full(channels, weights, np.int8))
    simulator.load(WEIGHTS, channels, params([2**31 - 1], [(2**30, 0, 53)]))
    simulator.run(conv2d(DENSE), tile((1, 1, channels), (1, 1, 1), ofm=OFM, params=channels))
    expected = scaled(wrapped(total * channels + 2**31 - 1, 32), (2**30, 0, 53))
    assert simulator.fetch(OFM, 1)[0] == clamped(expected, -128, 127)


def drawn_operands(data, elements):
    """The elements of two inputs."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    return rng.integers(-128, 128, (2, elements)).astype(np.int8)


def elementwise(simulator: Simulator, layer, one, other):
    """What the array makes of two runs of elements, which start at odd addresses, or of pixels and one pixel."""
    shape = (1, len(one) // len(other), len(other)) if layer.broadcast else (1, len(one), 1)
    simulator.reset()
    simulator.load(ACTIVATIONS, 5, one)
    simulator.load(ACTIVATIONS, 2001, other)
    simulator.run(layer, tile(shape, shape, ifm=5, ifm2=2001, ofm=OFM))
    return simulator.fetch(OFM, len(one))


@given(data=st.data(), elements=st.integers(1, 300), by=scales, by2=scales)
@property_test
def test_add_equals_its_formula(simulator: Simulator, data, elements, by, by2):
    zero, zero2, ofm_zero = (data.draw(zero_points, name) for name in ("ifm_zp", "ifm2_zp", "ofm_zp"))
    limits = tuple(sorted(data.draw(st.tuples(int8, int8) | st.just((-128, 127)), "clamp")))
    one, other = drawn_operands(data, elements)
    subtract = data.draw(st.integers(0, 2), "subtract")
    signs = -1 if subtract == 2 else 1, -1 if subtract == 1 else 1
    layer = add(
        by,
        by2,
        subtract=subtract,
        ifm_zero_point=zero,
        ifm2_zero_point=zero2,
        ofm_zero_point=ofm_zero,
        act_min=limits[0],
        act_max=limits[1],
    )
    expected = [
        clamped(signs[0] * scaled(int(a) - zero, by) + signs[1] * scaled(int(b) - zero2, by2) + ofm_zero, *limits)
        for a, b in zip(one, other, strict=True)
    ]
    np.testing.assert_array_equal(elementwise(simulator, layer, one, other), expected)


@given(data=st.data(), elements=st.integers(1, 300), by=tflite_scales, by2=tflite_scales, of_sum=tflite_scales)
@property_test
def test_tflite_addition_scales_its_sum(simulator: Simulator, data, elements, by, by2, of_sum):
    zero, zero2, ofm_zero = (data.draw(zero_points, name) for name in ("ifm_zp", "ifm2_zp", "ofm_zp"))
    one, other = drawn_operands(data, elements)
    zeros = {"ifm_zero_point": zero, "ifm2_zero_point": zero2, "ofm_zero_point": ofm_zero}
    layer = add(by, by2, TFLITE, sum_scale=Scale(*of_sum), **zeros)
    sums = [
        wrapped(scaled(int(a) - zero, by, TFLITE) + scaled(int(b) - zero2, by2, TFLITE), 32)
        for a, b in zip(one, other, strict=True)
    ]
    expected = [clamped(scaled(total, of_sum, TFLITE) + ofm_zero, -128, 127) for total in sums]
    np.testing.assert_array_equal(elementwise(simulator, layer, one, other), expected)


@given(data=st.data(), elements=st.integers(1, 300), rounding=roundings)
@property_test
def test_mul_equals_its_formula(simulator: Simulator, data, elements, rounding):
    """Scales around the products' range too, where outputs are neither 0 nor at the rails."""
    by = data.draw(scales_of(rounding) | st.tuples(st.integers(2**30, 2**31 - 1), st.just(0), st.integers(36, 42)))
    zero, zero2, ofm_zero = (data.draw(zero_points, name) for name in ("ifm_zp", "ifm2_zp", "ofm_zp"))
    limits = tuple(sorted(data.draw(st.tuples(int8, int8) | st.just((-128, 127)), "clamp")))
    one, other = drawn_operands(data, elements)
    layer = mul(
        by,
        rounding,
        ifm_zero_point=zero,
        ifm2_zero_point=zero2,
        ofm_zero_point=ofm_zero,
        act_min=limits[0],
        act_max=limits[1],
    )
    expected = [
        clamped(scaled((int(a) - zero) * (int(b) - zero2), by, rounding) + ofm_zero, *limits)
        for a, b in zip(one, other, strict=True)
    ]
    np.testing.assert_array_equal(elementwise(simulator, layer, one, other), expected)


@pytest.mark.parametrize("channels", [0, 1, 3, 40], ids=lambda channels: f"{channels} tables by channel")
def test_lookup_takes_every_entry_of_every_table(simulator: Simulator, channels: int):
    """Tables lie in main memory behind what loads and fetches use."""
    tables = np.random.default_rng(channels).integers(0, 256, (max(channels, 1), 256)).astype(np.uint8)
    ifm = np.repeat(np.arange(256, dtype=np.uint8)[:, np.newaxis], max(channels, 1), axis=1)
    simulator.load(ACTIVATIONS, 3, ifm)
    simulator.write_main(1 << 16, tables.tobytes())
    shape = (1, 256, channels or 1)
    simulator.run(lookup(1 << 16, channels), tile(shape, shape, ifm=3, ofm=OFM))
    found = simulator.fetch(OFM, ifm.size).view(np.uint8).reshape(ifm.shape)
    np.testing.assert_array_equal(found, tables.T)


@pytest.mark.parametrize("rounding", [UPWARD, TFLITE])
def test_mul_takes_the_largest_product_of_each_sign(simulator: Simulator, rounding: int):
    """255 * 255 / 512 is 127.002."""
    simulator.load(ACTIVATIONS, 0, np.array([127, 127, 127, -128], np.int8))
    for zero2, expected in ((-128, [127, 0]), (127, [0, -127])):
        layer = mul((2**30, 0, 39), rounding, ifm_zero_point=-128, ifm2_zero_point=zero2)
        simulator.run(layer, tile((1, 2, 1), (1, 2, 1), ifm=0, ifm2=2, ofm=OFM))
        np.testing.assert_array_equal(simulator.fetch(OFM, 2), expected)


@given(data=st.data(), case=window_cases(6), mode=st.sampled_from([AVG, MAX, SUM]), include=st.booleans())
@property_test
def test_pooling_equals_its_formula(simulator: Simulator, data, case, mode, include):
    rounding = data.draw(roundings, "rounding")
    by = data.draw(scales_of(rounding), "scale")
    kernel, stride, padding, (height, width) = case
    channels = data.draw(st.integers(1, 5), "channels")
    zero, ofm_zero = (data.draw(zero_points, name) for name in ("ifm_zp", "ofm_zp"))
    limits = tuple(sorted(data.draw(st.tuples(int8, int8) | st.just((-128, 127)), "clamp")))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    ifm = rng.integers(-128, 128, (height, width, channels)).astype(np.int8)
    offset = data.draw(st.sampled_from([0, -128 * kernel[0] * kernel[1], 2**30]), "offset")
    if mode == SUM:
        by = data.draw(st.sampled_from([by, (2**29, *by[1:])]), "scale of a sum")
    if mode == MAX:
        largest = windows(padded(ifm, padding, -128), kernel, stride).max(axis=(3, 4))
        expected = np.clip(largest, *limits)
    elif mode == SUM:
        sums = windows(padded(ifm, padding, 0), kernel, stride).sum(axis=(3, 4))
        expected = np.array(
            [clamped(scaled(int(total) + offset, by, rounding) + ofm_zero, *limits) for total in sums.ravel()], np.int8
        ).reshape(sums.shape)
    else:
        sums = windows(padded(ifm, padding, 0), kernel, stride).sum(axis=(3, 4))
        inside = windows(padded(np.ones_like(ifm), padding, 0), kernel, stride).sum(axis=(3, 4))
        counts = np.full_like(inside, kernel[0] * kernel[1]) if include else inside
        expected = np.empty(sums.shape, np.int8)
        for index in np.ndindex(sums.shape):
            half = int(counts[index]) // 2 if rounding == TFLITE else 0
            average = (abs(int(sums[index])) + half) // int(counts[index]) * (1 if sums[index] >= 0 else -1)
            expected[index] = clamped(scaled(average - zero, by, rounding) + ofm_zero, *limits)
    layer = pool2d(
        mode,
        kernel,
        stride,
        rounding,
        count_include_pad=include,
        offset=offset,
        ifm_zero_point=zero,
        ofm_zero_point=ofm_zero,
        scale=Scale(*by),
        act_min=limits[0],
        act_max=limits[1],
    )
    simulator.reset()
    simulator.load(ACTIVATIONS, 2, ifm)
    simulator.run(layer, tile(ifm.shape, expected.shape, ifm=2, ofm=OFM, **pads(padding)))
    np.testing.assert_array_equal(simulator.fetch(OFM, expected.size).reshape(expected.shape), expected)


@given(data=st.data(), pixels=st.integers(1, 40), channels=st.integers(1, 40), rounding=roundings)
@settings(property_test, max_examples=40)
def test_a_broadcast_input_is_read_again_for_each_pixel(simulator: Simulator, data, pixels, channels, rounding):
    """As where it was written out as often, which other tests compare with the formulas."""
    by = data.draw(st.lists(scales_of(rounding), min_size=3, max_size=3), "scales")
    zeros = {f"{name}_zero_point": data.draw(zero_points, name) for name in ("ifm", "ifm2", "ofm")}
    one, other = drawn_operands(data, pixels * channels)
    other = other[:channels]
    subtract = data.draw(st.integers(0, 2), "subtract")
    fields = {"sum_scale": Scale(*by[2]), "subtract": subtract, **zeros}
    for make in (
        lambda **more: add(*by[:2], rounding, **fields, **more),
        lambda **more: mul(by[0], rounding, **zeros, **more),
    ):
        again = elementwise(simulator, make(broadcast=1, ifm_channels=channels), one, other)
        np.testing.assert_array_equal(again, elementwise(simulator, make(), one, np.tile(other, pixels)))


@given(data=st.data(), rows=st.integers(1, 20), depth=st.integers(1, 40), channels=st.integers(1, 20))
@settings(property_test, max_examples=40)
def test_matmul_equals_its_formula(simulator: Simulator, data, rows, depth, channels):
    rounding = data.draw(roundings, "rounding")
    by = data.draw(scales_of(rounding), "scale")
    one_zero, other_zero, ofm_zero = (data.draw(zero_points, name) for name in ("ifm_zp", "ifm2_zp", "ofm_zp"))
    limits = tuple(sorted(data.draw(st.tuples(int8, int8) | st.just((-128, 127)), "clamp")))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    one, other = (rng.integers(-128, 128, (count, depth)).astype(np.int8) for count in (rows, channels))
    sums = (one.astype(np.int64) - one_zero) @ (other.astype(np.int64) - other_zero).T
    expected = np.array([clamped(scaled(int(value), by, rounding) + ofm_zero, *limits) for value in sums.ravel()])
    zero = {"ifm_zero_point": one_zero, "ifm2_zero_point": other_zero, "ofm_zero_point": ofm_zero}
    simulator.reset()
    simulator.load(ACTIVATIONS, 3, one)
    simulator.load(ACTIVATIONS, 3 + one.size, other)
    place = tile((1, rows, depth), (1, rows, channels), ifm=3, ifm2=3 + one.size, ofm=OFM)
    simulator.run(matmul(by, rounding, act_min=limits[0], act_max=limits[1], **zero), place)
    np.testing.assert_array_equal(simulator.fetch(OFM, expected.size), expected)


@pytest.mark.parametrize(("value", "rounded"), [(5, 3), (3, 2), (-3, -1), (-5, -2), (-4, -2)])
def test_halves_round_towards_plus_infinity(simulator: Simulator, value: int, rounded: int):
    """A scale of one half."""
    simulator.load(ACTIVATIONS, 0, np.array([value, 0], np.int8))
    simulator.run(add((2**30, 0, 31), IDENTITY), tile((1, 1, 1), (1, 1, 1), ifm=0, ifm2=1, ofm=8))
    assert simulator.fetch(8, 1)[0] == rounded


@pytest.mark.parametrize(
    ("value", "right", "rounded"),
    [(5, 32, 3), (-5, 32, -3), (-3, 32, -2), (-1, 32, -1), (1, 33, 0), (2, 33, 1), (-2, 33, -1)],
)
def test_tflite_halves_round_away_from_zero(simulator: Simulator, value: int, right: int, rounded: int):
    """A multiplier of one half and a left shift of one: the first rounding is exact."""
    simulator.load(ACTIVATIONS, 0, np.array([value, 0], np.int8))
    layer = add((2**30, 1, right), IDENTITY, TFLITE, sum_scale=Scale(*IDENTITY))
    simulator.run(layer, tile((1, 1, 1), (1, 1, 1), ifm=0, ifm2=1, ofm=8))
    assert simulator.fetch(8, 1)[0] == rounded


def test_tflite_rounds_twice(simulator: Simulator):
    """3/4 * 5/8 = 15/32 rounds to 0 at once; 3 * 5/8 = 1.875 is 2 first, and a quarter of that rounds up."""
    simulator.load(ACTIVATIONS, 0, np.array([3, 0], np.int8))
    by = (5 * 2**28, 0, 33)
    for layer, rounded in ((add(by, IDENTITY), 0), (add(by, IDENTITY, TFLITE, sum_scale=Scale(*IDENTITY)), 1)):
        simulator.run(layer, tile((1, 1, 1), (1, 1, 1), ifm=0, ifm2=1, ofm=8))
        assert simulator.fetch(8, 1)[0] == rounded


def test_height_and_width_can_be_swapped(simulator: Simulator):
    """A tile whose rows are the columns in memory: row and pixel strides exchanged."""
    rng = np.random.default_rng(1)
    ifm = rng.integers(-128, 128, (4, 6, 3)).astype(np.int8)
    simulator.load(ACTIVATIONS, 0, ifm)
    strides = {"ifm_row": 3, "ifm_pixel": 18, "ofm_row": 3, "ofm_pixel": 18}
    simulator.run(pool2d(MAX, (1, 1)), tile((6, 4, 3), (6, 4, 3), ofm=OFM, **strides))
    np.testing.assert_array_equal(simulator.fetch(OFM, ifm.size).reshape(ifm.shape), ifm)


def test_largest_kernels_of_each_kind_are_taken(simulator: Simulator):
    kernel, pool_kernel = REFERENCE.limits["conv2d"].max_kernel, REFERENCE.limits["pool2d"].max_kernel
    simulator.load(ACTIVATIONS, 0, np.full(pool_kernel, -128, np.int8))
    simulator.load(WEIGHTS, 0, np.ones(kernel, np.int8))
    simulator.load(WEIGHTS, PARAMS, params([0], [IDENTITY]))
    for kind in (CONV2D, DEPTHWISE):
        simulator.run(conv2d(kind, kernel), tile((*kernel, 1), (1, 1, 1), ofm=OFM, params=PARAMS))
    simulator.run(pool2d(AVG, pool_kernel), tile((*pool_kernel, 1), (1, 1, 1), ofm=OFM))
    assert simulator.fetch(OFM, 1)[0] == -128


# ---------------------------------------------------------------- softmax


def times(x: int, y: int) -> int:
    return (x * y + 2**30) >> 31


def saturated(value: int) -> int:
    return clamped(value, -(2**31), 2**31 - 1)


FACTORS = [math.floor(math.exp(-(2.0**k)) * 2**31 + 0.5) for k in range(-2, 5)]


def exponential(a: int) -> int:
    if a == 0:
        return 2**31 - 1
    rest = a % 2**24 - 2**24
    t = saturated(rest * 32) + 2**28
    square = times(t, t)
    cube, fourth = times(square, t), times(square, square)
    series = t + nearest(times(nearest(fourth, 2) + cube, round(2**31 / 3)) + square, 1)
    centre = round(math.exp(-1 / 8) * 2**31)
    result = centre + times(centre, series)
    for bit, factor in enumerate(FACTORS):
        if (rest - a) >> (24 + bit) & 1:
            result = times(result, factor)
    return result


def reciprocal(a: int) -> int:
    half = (a + 2**31) // 2
    x = round(48 / 17 * 2**29) + times(half, -round(32 / 17 * 2**29))
    for _ in range(3):
        x += saturated(times(x, 2**29 - times(half, x)) * 4)
    return saturated(2 * x)


def expected_softmax(row, by, diff_min: int) -> list[int]:
    differences = [int(value) - int(max(row)) for value in row]
    exponentials = [exponential(scaled(d, by, TFLITE)) if d >= diff_min else None for d in differences]
    total = sum(nearest(e, 12) for e in exponentials if e is not None)
    zeros = 32 - total.bit_length()
    factor = reciprocal(total * 2**zeros - 2**31)
    return [-128 if e is None else min(nearest(times(factor, e), 35 - zeros) - 128, 127) for e in exponentials]


@given(scale=st.floats(2.0**-20, 8.0), rows=st.integers(1, 4), channels=st.integers(1, 300), seed=st.integers(0, 2**32))
@property_test
def test_softmax_equals_its_formula(simulator: Simulator, scale, rows, channels, seed):
    significand, left = math.frexp(scale * 2**26)
    by, diff_min = (int(significand * 2**31), left, 31), -((31 << 26) >> left)
    ifm = np.random.default_rng(seed).integers(-128, 128, (rows, channels)).astype(np.int8)
    simulator.reset()
    simulator.load(ACTIVATIONS, 3, ifm)
    simulator.run(softmax(by, diff_min), tile((1, rows, channels), (1, rows, channels), ifm=3, ofm=OFM))
    found = simulator.fetch(OFM, ifm.size).reshape(ifm.shape)
    np.testing.assert_array_equal(found, [expected_softmax(row, by, diff_min) for row in ifm])
    exact = np.exp((ifm - ifm.max(axis=1, keepdims=True).astype(float)) * scale)
    np.testing.assert_allclose(found, exact / exact.sum(axis=1, keepdims=True) * 256 - 128, atol=1.01)


def test_softmax_of_as_many_equal_values_as_fit(simulator: Simulator):
    simulator.load(ACTIVATIONS, 0, np.full(4095, 5, np.int8))
    simulator.run(softmax((2**30, 26, 31), -62), tile((1, 1, 4095), (1, 1, 4095), ofm=OFM))
    assert set(simulator.fetch(OFM, 4095)) == {-128}
