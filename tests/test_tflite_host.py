"""numerics="tflite": what stays on the host has TFLite's results too, and the report says what has not."""

import numpy as np
import pytest
from sanitizers import SANITIZED
from tflite_mobile_net import FLOAT, VALID, Network, mobile_net
from tflite_samples import OperatorSample, TensorSample, model_bytes

import byoc_hw

pytest.importorskip("tflite_runtime", reason="the oracle: install the package tflite-runtime==2.14.0")

STRICT = f"{SANITIZED} -Wall -Wextra -Werror -Wconversion"


def project_of(path, deny):
    mod, params = byoc_hw.load_tflite(path)
    return byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, mod_name="net", numerics="tflite", deny=deny))


def all_composites():
    return sorted({name.partition(".")[2] for name, _, _ in byoc_hw.pattern_table()})


def random_inputs(net, count, seed=0):
    """Of each input: random values and, of int8, the rails."""
    rng = np.random.default_rng(seed)
    samples = [net.tensors[index] for index in net.inputs]

    def filled(sample, value):
        if sample.scale == FLOAT:
            return rng.normal(0, 2, sample.shape).astype(np.float32)
        array = rng.integers(-128, 128, sample.shape) if value is None else np.full(sample.shape, value)
        return array.astype(np.int8)

    return [[filled(sample, value) for sample in samples] for value in [None] * count + [-128, 127]]


def assert_equals_tflite(path, inputs, deny, cflags=STRICT):
    project = project_of(path, deny)
    validation = byoc_hw.validate(project, inputs, path, toolchain=byoc_hw.Toolchain(cflags=cflags))
    assert validation, str(validation)
    return project


# ---------------------------------------------------------------- operators


def operators(seed):
    """Operators beside one another, each with an input and an output of its own."""
    net = Network(seed)
    image = (1, 9, 8, 6)
    outputs = [
        net.conv(net.input(image), 7),
        net.depthwise(net.input(image)),
        net.dense(net.input((1, 30)), 9),
        net.pair("ADD", net.input(image), net.input(image, 0.004)),
        net.pair("MUL", net.input(image), net.input(image, 0.4)),
        net.pair("ADD", net.input(image), net.input((1, 1, 1, 6))),
        net.pair("SUB", net.input((6,), 0.1), net.input(image)),
        net.pair("MUL", net.input((1,)), net.input(image)),
        net.average(net.input(image), (3, 2), 2),
        net.mean(net.input(image)),
        net.softmax(net.input((5, 37), float(net.rng.uniform(0.01, 0.5)))),
        net.softmax(net.input((2, 511), 0.001)),  # of sums from 512 on, TFLite shifts by more than 31 bits
        net.quantize(net.input((1, 999), FLOAT), float(net.rng.uniform(0.01, 0.1))),
        net.dequantize(net.input(image)),
    ]
    return net, net.bytes(*outputs)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_operators_on_the_host_have_tflites_results(tmp_path, seed):
    net, content = operators(seed)
    path = tmp_path / "operators.tflite"
    path.write_bytes(content)
    project = assert_equals_tflite(path, random_inputs(net, 12), all_composites())
    assert len(project.report.host) == 14
    assert not project.report.tvm_arithmetic


def beyond_the_accelerator():
    """Layers that the hardware's limits decline: batches, strides, dilations, kernels, padding."""
    net = Network(3)
    image = (3, 11, 10, 4)
    outputs = [
        net.conv(net.input(image), 5, stride=3),
        net.conv(net.input((1, 40, 9, 3)), 4, kernel=(15, 1), padding=VALID),
        net.conv(net.input(image), 5, dilation=3),
        net.depthwise(net.input(image), kernel=(5, 2), stride=4),
        net.depthwise(net.input((2, 9, 9, 8)), dilation=2),
        net.depthwise(net.input((2, 7, 7, 4)), multiplier=3),
        net.conv(net.pad(net.input(image), (4, 1), (0, 5)), 6, kernel=(2, 2), padding=VALID),
        net.dense(net.input((6, 20)), 9),
        net.pair("ADD", net.input(image), net.input(image, 0.004)),
        net.pair("MUL", net.input((1, 1, 1, 4)), net.input(image)),
        net.average(net.input((2, 41, 40, 3)), (40, 37), 3),
        net.mean(net.input((3, 35, 9, 4))),
    ]
    return net, net.bytes(*outputs)


@pytest.mark.slow
def test_layers_beyond_the_accelerator_have_tflites_results(tmp_path):
    net, content = beyond_the_accelerator()
    path = tmp_path / "beyond.tflite"
    path.write_bytes(content)
    project = assert_equals_tflite(path, random_inputs(net, 4), ("qnn_add", "qnn_mul"))
    assert not project.report.tvm_arithmetic, str(project.report)


# ---------------------------------------------------------------- networks


@pytest.mark.slow
@pytest.mark.parametrize("deny", ["all", "some"])
def test_a_network_has_tflites_results_wherever_its_operators_run(tmp_path, deny):
    path = tmp_path / "mobile.tflite"
    path.write_bytes(mobile_net())
    rng = np.random.default_rng(0)
    inputs = [rng.normal(0, 2, (1, 32, 32, 3)).astype(np.float32) for _ in range(3)]
    some = ["qnn_add", "qnn_depthwise_conv2d", "qnn_softmax", "avg_pool2d"]
    project = assert_equals_tflite(path, inputs, all_composites() if deny == "all" else some, "-O1")
    assert bool(project.report.offloaded) == (deny != "all")
    assert not project.report.tvm_arithmetic


# ---------------------------------------------------------------- between pixels


def bilinear(size, target, **options):
    ifm = TensorSample((2, *size, 3), 0.05, -11)
    numbers = TensorSample((2,), None, data=np.array(target, np.int32))
    return OperatorSample("RESIZE_BILINEAR", [ifm, numbers], TensorSample((2, *target, 3), 0.05, -11), options)


RESIZES = {
    "larger": bilinear((4, 5), (9, 13)),
    "smaller": bilinear((9, 8), (4, 3)),
    "corners": bilinear((4, 5), (7, 1), AlignCorners=True),
    "half pixels": bilinear((5, 3), (10, 2), HalfPixelCenters=True),
}


@pytest.mark.parametrize("sample", RESIZES.values(), ids=RESIZES)
def test_a_resize_between_pixels_has_tflites_results(tmp_path, sample):
    path, rng = tmp_path / "resize.tflite", np.random.default_rng(0)
    path.write_bytes(model_bytes(sample))
    shape = sample.inputs[0].shape
    inputs = [[rng.integers(-128, 128, shape).astype(np.int8)] for _ in range(12)] + [[np.full(shape, -128, np.int8)]]
    project = assert_equals_tflite(path, inputs, [])
    assert not project.report.tvm_arithmetic
    assert "resize: resize method is nearest_neighbor: got linear" in str(project.report)


def test_a_resize_for_which_tflite_reads_beyond_the_image_is_marked(tmp_path):
    """Of 5 rows in 200 the step of 25.6/1024 is rounded to 26/1024: the last row would be the sixth."""
    path = tmp_path / "resize.tflite"
    path.write_bytes(model_bytes(bilinear((5, 4), (200, 4))))
    (marked,) = project_of(path, []).report.tvm_arithmetic
    assert "image.resize2d" in marked.tvm_arithmetic
