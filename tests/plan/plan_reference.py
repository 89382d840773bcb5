"""A `Graph` run in numpy, layer by layer on whole tensors: what every plan of it must give."""

from fractions import Fraction

import numpy as np

from byoc_hw.graph import (
    Add,
    Concat,
    Dense,
    DepthwiseConv2d,
    Gather,
    Lookup,
    MatMul,
    Mul,
    Ordering,
    Pad,
    Pool2d,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Suppression,
    Transpose,
    Weighted,
)


def run_graph(graph, inputs):
    """The values of every tensor."""
    values = dict(zip(graph.inputs, inputs, strict=True))
    for tensor in graph.tensors:
        if tensor.data is not None:
            values[tensor] = tensor.data
    for layer in graph.layers:
        values[layer.ofm] = run_layer(layer, *(values[tensor] for tensor in layer.inputs))
    return values


def assert_same_outputs(before, after, inputs):
    """Two graphs are sound, and have equal outputs for some inputs."""
    after.verify()
    expected, found = run_graph(before, inputs), run_graph(after, inputs)
    for one, other in zip(before.outputs, after.outputs, strict=True):
        np.testing.assert_array_equal(expected[one], found[other], strict=True)


def _order(layer, ifm):
    """Whole numbers, or floats without NaN."""
    keys = ifm.astype(np.float64)
    places = np.argsort(-keys if layer.descending else keys, layer.axis, kind="stable")
    return places.take(range(layer.ofm.shape[layer.axis]), layer.axis).astype(np.int32)


def _suppressed(layer, boxes, count):
    """Of one batch, with a class in each box and no limit but `most`; all that is kept has a positive score."""
    found, kept = np.full_like(boxes, -1), []
    order = np.argsort(-boxes[:count, layer.score_index], kind="stable")
    for at, box in enumerate(boxes[order]):
        others = (one for one in kept if one[layer.id_index] == box[layer.id_index])
        if len(kept) != layer.most and not any(_overlap(layer, box, one) >= layer.threshold for one in others):
            kept.append(box)
            found[at] = box
    return found


def _overlap(layer, one, other):
    one, other = (box[layer.coord_start : layer.coord_start + 4] for box in (one, other))
    size = np.maximum(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), np.float32(0))
    both = size[0] * size[1]
    return both / (np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - both)


def run_layer(layer, *inputs):
    if isinstance(layer, Reshape):
        return inputs[0].reshape(layer.ofm.shape)
    if isinstance(layer, Transpose):
        return np.ascontiguousarray(inputs[0].transpose(layer.axes))
    if isinstance(layer, Concat):
        return np.concatenate(inputs, layer.axis)
    if isinstance(layer, Slice):
        places = zip(layer.begin, layer.steps, layer.ofm.shape, strict=True)
        return inputs[0][tuple(slice(first, first + (count - 1) * step + 1, step) for first, step, count in places)]
    if isinstance(layer, Pad):
        around = [(first, outer - first - inner) for first, inner, outer in _extents_around(layer)]
        return np.pad(inputs[0], around, constant_values=layer.value)
    if isinstance(layer, Resize):
        return inputs[0].take(layer.rows, axis=1).take(layer.columns, axis=2)
    if isinstance(layer, Add):
        return _add(layer, *inputs)
    if isinstance(layer, Mul):
        return _mul(layer, *inputs)
    if isinstance(layer, MatMul):
        return _matmul(layer, *inputs)
    if isinstance(layer, Pool2d):
        return _pool(layer, inputs[0])
    if isinstance(layer, Lookup):
        table_of_channel = np.resize(np.arange(len(layer.tables)), inputs[0].shape[-1])
        return layer.tables[table_of_channel, inputs[0].view(np.uint8)].view(layer.ofm.dtype)
    if isinstance(layer, Softmax):
        return softmax(layer, inputs[0])
    if isinstance(layer, Ordering):
        return _order(layer, inputs[0])
    if isinstance(layer, Gather):
        places = np.clip(inputs[1], 0, layer.ifm.shape[layer.axis] - 1)
        return np.take_along_axis(inputs[0], places, layer.axis)
    if isinstance(layer, Suppression):
        return np.stack([_suppressed(layer, *batch) for batch in zip(*inputs, strict=True)])
    return _weighted(layer, inputs[0])


def _extents_around(layer):
    return zip(layer.before, layer.ifm.shape, layer.ofm.shape, strict=True)


def rescaled(values, input_scale, output_scale):
    """Upward rounding of values by the 31-bit significand of the ratio, in exact arithmetic."""
    ratio = float(np.float32(input_scale)) / float(np.float32(output_scale))
    significand, exponent = np.frexp(ratio)
    multiplier = Fraction(int(np.floor(significand * 2**31 + 0.5)), 2**31) * Fraction(2) ** int(exponent)
    if exponent <= -32:
        return np.zeros_like(values)
    top, bottom = 2 * multiplier.numerator, multiplier.denominator
    return np.asarray((values.astype(object) * top + bottom) // (2 * bottom), np.int64)


def rescaled_twice(values, ratio):
    """TFLite's rounding by a ratio of less than 1: by its 31-bit significand, halves upwards, then by its power of two,
    halves away from zero. In exact arithmetic."""
    significand, exponent = np.frexp(ratio)
    multiplier = Fraction(int(np.floor(significand * 2**31 + 0.5)), 2**31)
    assert exponent <= 0
    high = (values.astype(object) * 2 * multiplier.numerator + multiplier.denominator) // (2 * multiplier.denominator)
    size = (2 * abs(high) + 2 ** int(-exponent)) // (2 * 2 ** int(-exponent))
    return np.where(high >= 0, size, -size).astype(np.int64)


def softmax(layer, ifm):
    """In floating point: that whole rows come together shows in it just as well."""
    differences = ifm.astype(np.int64) - ifm.max(axis=-1, keepdims=True)
    exponentials = np.exp(differences * layer.ifm.quantization.scale[0])
    quotients = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return np.clip(np.round(quotients * 256) - 128, -128, 127).astype(np.int8)


def _weighted(layer, ifm):
    assert isinstance(layer, Weighted)
    quantization = layer.ifm.quantization.zero_point[0], layer.weights.quantization.zero_point[0]
    values = ifm.astype(np.int64) - quantization[0]
    weights = layer.weights.data.astype(np.int64) - quantization[1]
    sums = values @ weights.T if isinstance(layer, Dense) else _convolve(layer, values, weights)
    if layer.bias is not None:
        sums = sums + layer.bias.data
    scales = layer.accumulator.scale * (1 if len(layer.accumulator.scale) > 1 else layer.out_channels)
    output = layer.ofm.quantization
    parts = [rescaled(sums[..., k], scales[k], output.scale[0]) for k in range(layer.out_channels)]
    return np.clip(np.stack(parts, -1) + output.zero_point[0], layer.act_min, layer.act_max).astype(np.int8)


def _convolve(layer, values, weights):
    top, left, bottom, right = layer.padding
    padded = np.pad(values[0], ((top, bottom), (left, right), (0, 0)))
    _, height, width, channels = layer.ofm.shape
    sums = np.zeros((height, width, channels), np.int64)
    for y in range(layer.kernel[0]):
        for x in range(layer.kernel[1]):
            top, left = y * layer.dilation[0], x * layer.dilation[1]
            rows = slice(top, top + (height - 1) * layer.strides[0] + 1, layer.strides[0])
            columns = slice(left, left + (width - 1) * layer.strides[1] + 1, layer.strides[1])
            seen = padded[rows, columns]
            if isinstance(layer, DepthwiseConv2d):
                sums += seen * weights[:, y, x, 0]
                continue
            filters = np.split(weights[:, y, x], layer.groups)
            slices = np.split(seen, layer.groups, axis=-1)
            sums += np.concatenate([part @ group.T for part, group in zip(slices, filters, strict=True)], -1)
    return sums[np.newaxis]


def _mul(layer, first, second):
    one, other = (
        values.astype(np.int64) - tensor.quantization.zero_point[0]
        for values, tensor in ((first, layer.ifm), (second, layer.ifm2))
    )
    scales = [np.float32(tensor.quantization.scale[0]) for tensor in (*layer.inputs, layer.ofm)]
    if layer.rounding == "upward":
        total = rescaled(one * other, scales[0] * scales[1], scales[2])
    else:
        total = rescaled_twice(one * other, float(scales[0] * scales[1] / scales[2]))
    total += layer.ofm.quantization.zero_point[0]
    return np.clip(total, layer.act_min, layer.act_max).astype(np.int8)


def _matmul(layer, first, second):
    one, other = (
        values.astype(np.int64) - tensor.quantization.zero_point[0]
        for values, tensor in ((first, layer.ifm), (second, layer.ifm2))
    )
    sums, output = np.einsum("bmuk,bnk->bmun", one, other), layer.ofm.quantization
    if layer.rounding == "upward":
        total = rescaled(sums, layer.accumulator.scale[0], output.scale[0])
    else:
        scales = [np.float32(tensor.quantization.scale[0]) for tensor in layer.inputs]
        total = rescaled_twice(sums, float(scales[0] * scales[1]) / float(np.float32(output.scale[0])))
    return np.clip(total + output.zero_point[0], layer.act_min, layer.act_max).astype(np.int8)


def _add(layer, first, second):
    output = layer.ofm.quantization
    one, other = (
        values.astype(np.int64) - tensor.quantization.zero_point[0]
        for values, tensor in ((first, layer.ifm), (second, layer.ifm2))
    )
    scales = [tensor.quantization.scale[0] for tensor in layer.inputs]
    signs = {"": (1, 1), "ifm2": (1, -1), "ifm": (-1, 1)}[layer.subtract]
    if layer.rounding == "upward":
        total = sum(
            sign * rescaled(values, scale, output.scale[0])
            for sign, values, scale in zip(signs, (one, other), scales, strict=True)
        )
    else:  # TFLite's reference kernel: to twice the larger scale with 20 bits more, then to the output's
        common = 2 * max(map(np.float32, scales))
        total = sum(
            sign * rescaled_twice(values << 20, float(np.float32(scale)) / float(common))
            for sign, values, scale in zip(signs, (one, other), scales, strict=True)
        )
        total = rescaled_twice(total, float(common) / (2**20 * float(np.float32(output.scale[0]))))
    return np.clip(total + output.zero_point[0], layer.act_min, layer.act_max).astype(np.int8)


def _pool(layer, ifm):
    _, height, width, channels = layer.ofm.shape
    top, left, _, _ = layer.padding
    result = np.zeros((1, height, width, channels), np.int64)
    for y in range(height):
        for x in range(width):
            first_row, first_column = y * layer.strides[0] - top, x * layer.strides[1] - left
            rows = slice(max(first_row, 0), max(first_row + layer.kernel[0], 0))
            columns = slice(max(first_column, 0), max(first_column + layer.kernel[1], 0))
            window = ifm[0, rows, columns].astype(np.int64)
            if layer.mode == "max":
                result[0, y, x] = window.max(axis=(0, 1), initial=-128)
                continue
            if layer.mode == "sum" or layer.rounding == "tflite":
                result[0, y, x] = window.sum(axis=(0, 1))
                continue
            inside = max(window.shape[0] * window.shape[1], 1)
            count = layer.kernel[0] * layer.kernel[1] if layer.count_include_pad else inside
            result[0, y, x] = np.trunc(window.sum(axis=(0, 1)) / count)
    if layer.rescaled:
        before, after = layer.ifm.quantization, layer.ofm.quantization
        if layer.rounding == "tflite":
            result = _tflite_mean(layer, result) + after.zero_point[0]
            return np.clip(result, layer.act_min, layer.act_max).astype(np.int8)
        result = rescaled(result - before.zero_point[0], before.scale[0], after.scale[0]) + after.zero_point[0]
    return np.clip(result, layer.act_min, layer.act_max).astype(np.int8)


def _tflite_mean(layer, sums):
    """TFLite's mean of sums: by the 31-bit significand of the ratio of scales over the count, rounded down."""
    count, before = layer.kernel[0] * layer.kernel[1], layer.ifm.quantization
    ratio = float(np.float32(before.scale[0])) / float(np.float32(layer.ofm.quantization.scale[0]))
    significand, exponent = np.frexp(ratio)
    bits = count.bit_length() - 1
    multiplier = Fraction((int(np.floor(significand * 2**31 + 0.5)) << bits) // count, 2**31)
    power = int(exponent) - bits
    flat = []
    for value in (sums - before.zero_point[0] * count).ravel():
        high = ((int(value) << max(power, 0)) * multiplier + Fraction(1, 2)).__floor__()
        size = (Fraction(abs(high), 2 ** max(-power, 0)) + Fraction(1, 2)).__floor__()
        flat.append(size if high >= 0 else -size)
    return np.array(flat, np.int64).reshape(sums.shape)
