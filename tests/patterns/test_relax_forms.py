"""The Relax form of each composite: what it takes, and that the C is what TVM computes but for rounding."""

import numpy as np
import pytest
from relax_samples import convolution, module, real, stored
from tvm import relax

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.frontend.pattern_files import load_patterns
from byoc_hw.frontend.relax.forms import qdq_forms

IMAGE = (1, 6, 7, 8)


def constant(shape, seed=0):
    return relax.const(np.random.default_rng(seed).integers(-127, 128, shape).astype("int8"))


def depthwise(x):
    kernel = real(constant((3, 3, 8, 1)), np.linspace(0.001, 0.01, 8, dtype="float32"), 0, axis=2)
    options = {"groups": 8, "data_layout": "NHWC", "kernel_layout": "HWOI"}
    return stored(relax.op.nn.conv2d(real(x, 0.02, 3), kernel, padding=[1, 1, 1, 1], **options), 0.05, -5)


def dense(x):
    weights = real(constant((12, 5)), np.linspace(0.001, 0.01, 5, dtype="float32"), 0, axis=1)
    return stored(relax.op.matmul(real(x, 0.02, 3), weights), 0.05, -5)


def of_one(function, scale=0.05, zero_point=-5):
    return lambda x: stored(function(real(x, 0.02, 3)), scale, zero_point)


def of_two(operator):
    return lambda x, y: stored(operator(real(x, 0.02, 3), real(y, 0.031, -7)), 0.05, -5)


def joined(x, y):
    return relax.op.concat([x, y], axis=3)


FORMS = {
    "qnn_conv2d": (convolution, [IMAGE]),
    "qnn_depthwise_conv2d": (depthwise, [IMAGE]),
    "qnn_dense": (dense, [(1, 12)]),
    "qnn_add": (of_two(relax.op.add), [IMAGE, IMAGE]),
    "qnn_subtract": (of_two(relax.op.subtract), [IMAGE, IMAGE]),
    "qnn_mul": (of_two(relax.op.multiply), [IMAGE, IMAGE]),
    "max_pool2d": (lambda x: relax.op.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), [IMAGE]),
    "avg_pool2d": (of_one(lambda x: relax.op.nn.avg_pool2d(x, (3, 2), (1, 2), layout="NHWC")), [IMAGE]),
    "avg_pool2d of axes": (of_one(lambda x: relax.op.mean(x, [1, 2])), [IMAGE]),
    "reduce_max": (lambda x: relax.op.max(x, [1, 2]), [IMAGE]),
    "reduce_sum": (of_one(lambda x: relax.op.sum(x, [1, 2]), 0.5), [IMAGE]),
    "concatenate": (joined, [IMAGE, IMAGE]),
    "pad": (lambda x: relax.op.nn.pad(x, [0, 0, 1, 2, 0, 1, 0, 0], pad_value=3), [IMAGE]),
    "strided_slice": (lambda x: relax.op.strided_slice(x, [1], [1], [5], [2]), [IMAGE]),
    "transpose": (lambda x: relax.op.permute_dims(x, [0, 2, 1, 3]), [IMAGE]),
    "resize": (
        lambda x: relax.op.image.resize2d(
            x, (12, 14), layout="NHWC", method="nearest_neighbor", coordinate_transformation_mode="asymmetric"
        ),
        [IMAGE],
    ),
    "lookup": (of_one(relax.op.sigmoid, 1 / 256, -128), [IMAGE]),
    "qnn_softmax": (of_one(lambda x: relax.op.nn.softmax(x, -1), 1 / 256, -128), [(1, 10)]),
    "qnn_batch_matmul": (of_two(relax.op.matmul), [(2, 5, 6), (2, 6, 7)]),
}


def test_every_composite_with_a_form_has_a_sample():
    load_patterns()
    named = {name.split(" ")[0] for name in FORMS} | {"reshape"}  # which is part of regions only
    assert {pattern.name for pattern, _ in qdq_forms()} == named


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_offloaded_and_computes_what_tvm_does(name, tmp_path):
    body, shapes = FORMS[name]
    numerics = "tflite" if name == "qnn_softmax" else "relay"
    partitioned = byoc_hw.partition_for_hwlib(module(body, *shapes), mod_name="m", numerics=numerics)
    (graph,) = region_graphs(partitioned).values()
    composites = {composite for one in byoc_hw.explain(partitioned).outcomes for composite in one.composites}
    assert name.split(" ")[0] in composites
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    random = np.random.default_rng(1)
    inputs = [[random.integers(-128, 128, one.shape).astype(one.dtype) for one in project.inputs] for _ in range(4)]
    found = byoc_hw.validate(project, inputs, partitioned, tolerance=1)
    assert found.ok, str(found)
    assert {one.name for one in found.comparisons} >= {layer.name for layer in graph.layers if layer.kind != "reshape"}
    assert all(one.differing == 0 for one in found.comparisons)
    exact = byoc_hw.validate(project, inputs, partitioned)
    assert max(one.differing / one.elements for one in exact.comparisons) <= 0.3
    assert np.ptp(project.run(inputs[0]).outputs[0].astype(int)) > 5
