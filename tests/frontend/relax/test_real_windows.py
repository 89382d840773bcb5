"""Transposed convolutions, and convolutions and pooling over one dimension, in modules of Relax."""

import numpy as np
import pytest
from relax_samples import module, real, stored
from tvm import relax

import byoc_hw
from byoc_hw.compiler import region_graphs


def weights_of(shape, axis, scales):
    random = np.random.default_rng(len(shape))
    stored_weights = relax.const(random.integers(-127, 128, shape).astype("int8"))
    sizes = random.uniform(0.001, 0.004, shape[axis]).astype("float32") if scales else 0.002
    return real(stored_weights, sizes, 0, axis)


def bias_of(filters, ones):
    return relax.op.reshape(relax.const(np.linspace(-0.3, 0.4, filters).astype("float32")), (1, filters, *ones))


def checked(body, shape, directory):
    """The kinds of the layers of a module that is offloaded as a whole and gives TVM's results but for rounding."""
    partitioned = byoc_hw.partition_for_hwlib(module(body, shape), mod_name="m")
    (graph,) = region_graphs(partitioned).values()
    assert byoc_hw.explain(partitioned).host == ()
    project = byoc_hw.build(partitioned, output_dir=directory)
    values = np.random.default_rng(2).integers(-128, 128, shape).astype("int8")
    assert byoc_hw.validate(project, [[values]], partitioned, tolerance=1).ok
    assert len(np.unique(project.run([values]).outputs[0])) > 30
    return [layer.kind for layer in graph.layers]


def transposed(kernel, stride, padding, more=0, axis=1, scales=True):
    def body(x):
        weights = weights_of((6, 5, *kernel), axis, scales)
        conv = relax.op.nn.conv2d_transpose(real(x, 0.02, 3), weights, stride, padding, more)
        return stored(relax.op.nn.relu(relax.op.add(conv, bias_of(5, (1, 1)))), 0.01, -100)

    return body


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "more", "scales"),
    [
        ((2, 2), [2, 2], [0, 0, 0, 0], 0, True),
        ((4, 4), [2, 2], [1, 1, 1, 1], 0, False),
        ((3, 3), [2, 2], [1, 1, 1, 1], 1, True),
        ((3, 2), [1, 3], [0, 1, 1, 0], 0, True),
    ],
)
def test_a_transposed_convolution_is_one_to_blocks(kernel, stride, padding, more, scales, tmp_path):
    kinds = checked(transposed(kernel, stride, padding, more, scales=scales), (1, 6, 5, 4), tmp_path / "m")
    assert "conv2d" in kinds
    assert kinds.count("slice") == (kernel == (3, 2))  # the last blocks are not full


@pytest.mark.parametrize("case", ["scales by input channel", "what is real is read twice", "groups"])
def test_another_transposed_convolution_stays_as_it_is(case):
    def body(x):
        if case == "groups":
            made = relax.op.nn.conv2d_transpose(real(x, 0.02, 3), weights_of((6, 2, 2, 2), 1, True), [2, 2], groups=3)
        else:
            weights = weights_of((6, 5, 2, 2), 0 if case == "scales by input channel" else 1, True)
            made = relax.op.nn.conv2d_transpose(real(x, 0.02, 3), weights, [2, 2])
        result = stored(made, 0.01, 0)
        return (result, relax.op.exp(made)) if case == "what is real is read twice" else result

    partitioned = byoc_hw.partition_for_hwlib(module(body, (1, 6, 5, 4)))
    assert region_graphs(partitioned) == {}
    assert "nn.conv2d_transpose" in str(partitioned["main"])


def line(x):
    """As a keyword net: convolutions, one of them depthwise with dilation, pooling, and a function between."""

    def conv(value, filters, channels, kernel, **options):
        made = relax.op.nn.conv1d(value, weights_of((filters, channels, kernel), 0, True), **options)
        return stored(relax.op.nn.relu(relax.op.add(made, bias_of(filters, (1,)))), 0.02, -128)

    first = conv(real(x, 0.02, 3), 8, 5, 3, strides=2, padding=[1, 1])
    pool = relax.op.nn.max_pool1d(real(first, 0.02, -128), [2], [2])
    gate = relax.op.multiply(pool, relax.op.sigmoid(pool))
    padded = relax.op.nn.pad(real(stored(gate, 0.02, -100), 0.02, -100), [0, 0, 0, 0, 4, 0])
    deep = conv(padded, 8, 1, 3, dilation=2, groups=8)
    joined = relax.op.concat([real(deep, 0.02, -128), real(stored(gate, 0.02, -100), 0.02, -100)], 1)
    mean = relax.op.nn.adaptive_avg_pool1d(real(stored(joined, 0.03, -100), 0.03, -100), [8])
    return stored(mean, 0.03, -20)


def test_values_of_one_dimension_are_images_of_height_1(tmp_path):
    kinds = checked(line, (1, 5, 64), tmp_path / "m")
    assert {"conv2d", "depthwise_conv2d", "pool2d", "lookup", "concat"} <= set(kinds)


def test_rows_of_all_matrices_are_those_of_one(tmp_path):
    def body(x):
        product = relax.op.matmul(real(x, 0.02, 3), weights_of((12, 7), 1, True))
        return stored(relax.op.add(product, relax.const(np.linspace(-1, 1, 7).astype("float32"))), 0.05, 2)

    assert checked(body, (2, 9, 12), tmp_path / "m") == ["reshape", "dense"]
