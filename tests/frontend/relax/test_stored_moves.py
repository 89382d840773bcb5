"""Values that are moved, cut, put together or pooled before they are quantized, in modules of Relax.

Each case is offloaded as a whole, and its outputs are compared with TVM's own.
"""

import numpy as np
import pytest
from relax_samples import module, real, stored
from tvm import relax

import byoc_hw
from byoc_hw.compiler import region_graphs

SHAPE = (1, 8, 6, 4)


def pooled_several_times(x):
    """As in an SPPF block: a function of a value is read by pooling and by what puts all together."""
    value = relax.op.nn.silu(real(x, 0.05, 3))
    found = [value]
    for _ in range(2):
        found.append(relax.op.nn.max_pool2d(found[-1], [3, 3], [1, 1], [1, 1], layout="NHWC"))
    return stored(relax.op.concat(found, 3), 0.03, -100)


def quantized_with_two_scales(x, y):
    """As between two blocks of a ShuffleNet: one half is quantized, the other one moved on and quantized later."""
    joined = relax.op.concat([real(x, 0.02, 1), real(y, 0.03, -4)], 3)
    split = relax.op.reshape(joined, (1, 8, 6, 2, 4))
    shuffled = relax.op.reshape(relax.op.permute_dims(split, [0, 1, 2, 4, 3]), (1, 8, 6, 8))
    first, second = (
        relax.op.strided_slice(shuffled, axes=[3], begin=[begin], end=[begin + 4], strides=[1]) for begin in (0, 4)
    )
    return stored(first, 0.025, 0), stored(relax.op.nn.max_pool2d(second, [2, 2], [2, 2], layout="NHWC"), 0.035, 7)


def padded_with_zeros(x):
    return stored(relax.op.nn.pad(real(x, 0.02, 5), [0, 0, 1, 2, 0, 3, 0, 0]), 0.02, 5)


def put_together_with_a_constant(x):
    token = relax.const(np.linspace(-2, 3, 8 * 4).reshape(1, 8, 1, 4).astype(np.float32))
    return stored(relax.op.concat([token, real(x, 0.02, 1)], 2), 0.03, -9)


def a_function_of_what_is_put_together(x, y):
    """As a batch normalization behind the branches of a DenseNet: factors and terms by channel."""
    joined = relax.op.concat([real(x, 0.02, 1), relax.op.concat([real(y, 0.05, -4), real(x, 0.02, 1)], 3)], 3)
    factors, terms = (np.linspace(low, 2, 12).astype(np.float32) for low in (0.2, -1))
    total = relax.op.add(relax.op.multiply(joined, relax.const(factors)), relax.const(terms))
    return stored(relax.op.nn.relu(total), 0.05, -128)


@pytest.mark.parametrize(
    ("body", "inputs", "kinds"),
    [
        (pooled_several_times, 1, {"lookup", "pool2d", "concat"}),
        (quantized_with_two_scales, 2, {"lookup", "concat", "reshape", "transpose", "slice", "pool2d"}),
        (padded_with_zeros, 1, {"pad"}),
        (put_together_with_a_constant, 1, {"lookup", "concat"}),
        (a_function_of_what_is_put_together, 2, {"lookup", "concat"}),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_what_moves_values_before_a_quantize_is_offloaded(body, inputs, kinds, tmp_path):
    partitioned = byoc_hw.partition_for_hwlib(module(body, *[SHAPE] * inputs), mod_name="m")
    graphs = region_graphs(partitioned).values()
    assert {layer.kind for graph in graphs for layer in graph.layers} == kinds
    assert byoc_hw.explain(partitioned).host == ()
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    random = np.random.default_rng(1)
    values = [random.integers(-128, 128, SHAPE).astype("int8") for _ in range(inputs)]
    assert byoc_hw.validate(project, [values], partitioned).ok
    assert all(len(np.unique(output)) > 20 for output in project.run(values).outputs)


def test_what_a_real_output_reads_is_moved_in_floats():
    def body(x, y):
        joined = relax.op.concat([real(x, 0.02, 1), real(y, 0.03, -4)], 3)
        return stored(joined, 0.03, 0), joined

    partitioned = byoc_hw.partition_for_hwlib(module(body, SHAPE, SHAPE))
    assert region_graphs(partitioned) == {}
    (outcome,) = (one for one in byoc_hw.explain(partitioned).outcomes if one.name.startswith("concat"))
    assert "concat is offloaded between dequantize and quantize of int8" in str(outcome.rejections[0])
