"""QDQ form to integers: each operator's integer form, which the patterns take, and how near it is to the float one."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_samples import QdqNet

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.frontend.relay.qdq.values import Grid
from byoc_hw.frontend.relay.reference import Reference

onnxruntime = pytest.importorskip("onnxruntime", reason="the quantizer of these files: install the package onnxruntime")


def test_a_grid_takes_the_nearest_level():
    grid = Grid(np.float32(0.5), 3, "int8")
    assert [grid.level(real) for real in (0.0, 0.25, 0.75, -0.26, 1e9, -1e9)] == [3, 3, 5, 2, 127, -128]
    assert Grid(np.float32(0.5), 3, "uint8").level(-9.0) == 0


OPTIONS = {
    "int8, per channel": {},
    "uint8": {"dtype": "uint8", "per_channel": False, "weight_dtype": "uint8"},
}


def operators(net):
    """One output for each operator that has an integer form."""
    x = net.input(1, 4, 9, 8)
    y = net.conv(x, 4, act="")
    yield net.conv(x, 6, 3, stride=2, act="Relu")
    yield net.depthwise(x, act="Relu6")
    yield net.add(x, y, act="Relu")
    yield net.mul(x, y)
    yield net.concat(x, y)
    yield net.max_pool(x, 3, 2, (1, 1, 1, 1))
    yield net.avg_pool(x, 3, 2, (1, 1, 1, 1), count_include_pad=1)
    yield net.avg_pool(x, 2, 1)
    yield net.mean(x, (2, 3))
    yield net.global_average(y)
    yield net.resize(x)
    yield net.gemm(net.flatten(x), 7, act="Relu")
    rows = net.reshape(x, 4, 9, 8)
    yield net.matmul_with_weights(rows, 5)
    yield net.matmul(rows, net.transpose(net.reshape(y, 4, 9, 8), 0, 2, 1))
    yield net.conv_transpose(x, 3)
    yield net.unary("Relu", x)
    yield net.unary("Sigmoid", x)
    yield net.softmax(rows)
    yield net.batch_norm(x, act="Relu")
    yield net.prelu(x, 0.1, 0.2, 0.5, -0.3)
    yield net.prelu(x, 0.2)
    yield from net.split(x, 1, 3)
    yield net.depth_to_space(x, 2, "DCR")


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_integer_operators_are_within_one_level_of_the_float_ones(options, tmp_path):
    net = QdqNet(**options)
    outputs = list(operators(net))
    for output in outputs:
        net.output(output)
    path = net.save(tmp_path / "net.onnx")
    mod, params = byoc_hw.load(path)
    float_products = [
        name
        for outcome in byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, params)).outcomes
        for name in outcome.relay
        if name in ("nn.conv2d", "nn.dense", "nn.batch_matmul", "nn.conv2d_transpose")
    ]
    assert not float_products
    image = np.random.default_rng(1).standard_normal((1, 4, 9, 8)).astype(np.float32)
    wanted = session(path).run(None, {"x0": image})
    for output, ours, theirs in zip(outputs, Reference(mod, params).run({"x0": image}), wanted, strict=True):
        # An average truncates, on its input's grid, before it is requantized.
        levels = 3 if "average" in output.name or output.shape[2:] in ((1, 1), ()) else 1
        np.testing.assert_allclose(ours, theirs, atol=levels * 1.01 * output.scale, err_msg=output.name)


def session(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


# ---------------------------------------------------------------- QLinear operators


def float_network(path):
    """A float network for onnxruntime's quantizer."""
    net = QdqNet()
    rng, value = np.random.default_rng(0), helper.make_tensor_value_info

    def weights(*shape):
        return net.constant((rng.standard_normal(shape) * 0.3).astype(np.float32), "w")

    x = net.node("Conv", ["x", weights(8, 3, 3, 3), weights(8)], pads=[1] * 4, kernel_shape=[3, 3])
    x = net.node("Relu", [x])
    y = net.node("Conv", [x, weights(8, 1, 3, 3), weights(8)], pads=[1] * 4, kernel_shape=[3, 3], group=8)
    x = net.node("Add", [x, y])
    x = net.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("AveragePool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Concat", [x, net.node("Sigmoid", [x])], axis=1)
    x = net.node("Mul", [x, x])
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    x = net.node("MatMul", [x, weights(16, 12)])
    net.nodes.append(helper.make_node("Gemm", [x, weights(10, 12), weights(10)], ["y"], "gemm", transB=1))
    inputs, outputs = [value("x", 1, [1, 3, 16, 16])], [value("y", 1, [1, 10])]
    graph = helper.make_graph(net.nodes, "net", inputs, outputs, net.constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


class Batches:
    """Calibration data."""

    def __init__(self):
        self._rng = np.random.default_rng(5)
        self._left = 8

    def get_next(self):
        self._left -= 1
        return {"x": self._rng.standard_normal((1, 3, 16, 16)).astype(np.float32)} if self._left >= 0 else None


@pytest.mark.slow
@pytest.mark.parametrize(("activations", "per_channel"), [("QInt8", True), ("QUInt8", False)])
def test_qlinear_operators_of_onnxruntimes_quantizer_are_offloaded(activations, per_channel, tmp_path):
    from onnxruntime import quantization

    float_network(tmp_path / "float.onnx")
    path = tmp_path / "net.onnx"
    quantization.quantize_static(
        tmp_path / "float.onnx",
        path,
        Batches(),
        quant_format=quantization.QuantFormat.QOperator,
        activation_type=quantization.QuantType[activations],
        weight_type=quantization.QuantType.QInt8,
        per_channel=per_channel,
        reduce_range=activations == "QUInt8",  # processors without VNNI add two products in 16 bits, which overflow
    )
    kinds = {node.op_type for node in onnx.load(str(path)).graph.node}
    assert {"QLinearConv", "QLinearAdd", "QLinearMatMul", "QGemm", "QLinearGlobalAveragePool", "QLinearConcat"} <= kinds
    mod, params = byoc_hw.load(path)
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, params))
    offloaded = {operator for outcome in report.offloaded for operator in outcome.relay}
    assert {"qnn.conv2d", "qnn.add", "qnn.mul", "qnn.dense", "nn.max_pool2d", "mean"} <= offloaded
    image = np.random.default_rng(3).standard_normal((1, 3, 16, 16)).astype(np.float32)
    (theirs,), (ours,) = session(path).run(None, {"x": image}), Reference(mod, params).run({"x": image})
    np.testing.assert_allclose(ours, theirs, atol=0.05 * np.abs(theirs).max())


@pytest.mark.slow
@pytest.mark.parametrize("at_the_end", [False, True])
def test_an_image_that_the_host_resizes_between_regions_is_in_nhwc(at_the_end, tmp_path):
    net = QdqNet()
    x = net.resize(net.conv(net.input(1, 3, 6, 5), 8), mode="linear")
    net.output(x if at_the_end else net.conv(x, 4, kernel=1))
    mod, params = byoc_hw.load(net.save(tmp_path / "net.onnx"))
    partitioned = byoc_hw.partition_for_hwlib(mod, params, "m")
    graphs = list(region_graphs(partitioned).values())
    shapes = [(1, 8, 6, 5)] if at_the_end else [(1, 6, 5, 8), (1, 4, 12, 10)]
    assert [graph.outputs[0].shape for graph in graphs] == shapes
    assert all(graph.inputs[0].shape == (1, 12, 10, 8) for graph in graphs[1:])
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    image = np.random.default_rng(0).normal(size=(1, 3, 6, 5)).astype(np.float32)
    assert byoc_hw.validate(project, [[image]], partitioned).ok


@pytest.mark.slow
def test_floats_that_are_moved_before_they_are_quantized_are_quantized_first(tmp_path):
    """As in an SPPF block, whose parts go to two scales: a function of a value is read by pooling and by a concat."""
    net = QdqNet()
    x = net.input(1, 4, 6, 6)
    value = net.node("Mul", [x.name, net.node("Sigmoid", [x.name])])
    pooled = net.node("MaxPool", [value], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    real = net.constant(net.rng.standard_normal((1, 2, 6, 6)).astype(np.float32))
    joined = net.node("Concat", [value, pooled, real], axis=1)
    net.nodes.append(helper.make_node("Split", [joined], ["first", "second"], "/split", axis=1))
    around = net.constant(np.asarray([0, 0, 1, 0, 0, 0, 0, 2], np.int64))
    padded = net.node("Pad", ["second", around, net.constant(np.float32(0.3))])
    net.output(net.quantized("first", (1, 5, 6, 6)))
    net.output(net.quantized(padded, (1, 5, 7, 8)))
    path = net.save(tmp_path / "net.onnx")
    mod, params = byoc_hw.load(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, "m")
    assert len(byoc_hw.explain(partitioned).host) == 3  # the ends
    kinds = {layer.kind for graph in region_graphs(partitioned).values() for layer in graph.layers}
    assert {"lookup", "pool2d", "concat", "pad"} <= kinds
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    image = np.random.default_rng(0).normal(size=(1, 4, 6, 6)).astype(np.float32)
    assert byoc_hw.validate(project, [[image]], partitioned).ok
    expected = onnxruntime.InferenceSession(str(path)).run(None, {"x0": image})
    for found, wanted in zip(project.run([image]).outputs, expected, strict=True):
        step = np.diff(np.unique(wanted)).min()
        assert np.abs(found - wanted).max() <= 1.01 * step
