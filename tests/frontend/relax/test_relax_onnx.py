"""Quantized ONNX files through Relax: what is offloaded, and what comes out."""

import re

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_networks import NETWORKS
from onnx_samples import QdqNet
from tvm import relax

import byoc_hw
from byoc_hw.compiler import region_graphs

SHAPE = (1, 3, 12, 12)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    net = QdqNet(opset=19)
    x = net.max_pool(net.conv(net.input(*SHAPE), 8))
    x = net.depthwise(x)
    x = net.concat(net.add(x, net.conv(x, 8, 1, act="")), net.resize(net.max_pool(x)))
    net.output(net.gemm(net.flatten(net.unary("Sigmoid", x)), 10))
    return net.save(tmp_path_factory.mktemp("onnx") / "net.onnx")


def test_images_are_brought_to_nhwc_and_all_is_offloaded(path):
    mod, params = byoc_hw.load(path)
    assert isinstance(mod["main"], relax.Function)
    (graph,) = region_graphs(byoc_hw.partition_for_hwlib(mod, params)).values()
    kinds = [layer.kind for layer in graph.layers]
    assert kinds.count("transpose") == 2  # of the input, and in front of the flatten
    assert set(kinds) == {
        *("conv2d", "depthwise_conv2d", "pool2d", "add", "resize", "concat", "lookup", "transpose", "reshape", "dense")
    }


def test_results_are_those_of_onnx_but_for_rounding(path, tmp_path):
    mod, params = byoc_hw.load(path)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, "m"), output_dir=tmp_path / "m")
    model = onnx.load(str(path))
    step = float(onnx.numpy_helper.to_array(_scale_of_output(model)))
    reference, random = ReferenceEvaluator(model), np.random.default_rng(0)
    for _ in range(3):
        image = random.normal(size=SHAPE).astype(np.float32)
        (expected,), (found,) = reference.run(None, {"x0": image}), project.run([image]).outputs
        assert np.abs(found - expected).max() <= 2.5 * step
        assert np.ptp(expected) > 20 * step


def test_a_qlinear_operator_is_what_it_stands_for(tmp_path):
    random = np.random.default_rng(0)
    weights = random.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    bias = random.integers(-500, 500, 4).astype(np.int32)
    constants = {
        **{"xs": np.float32(0.02), "xz": np.int8(3), "w": weights, "ws": np.float32(0.01), "wz": np.int8(0)},
        **{"ys": np.float32(0.05), "yz": np.int8(-5), "b": bias},
    }
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT8, (1, n, 6, 6)) for name, n in ENDS_OF_CONV]
    node = onnx.helper.make_node("QLinearConv", ["x", *constants], ["y"], "conv", pads=[1, 1, 1, 1])
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:], tensors)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), str(tmp_path / "q.onnx"))
    mod, params = byoc_hw.load(tmp_path / "q.onnx")
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, "m"), output_dir=tmp_path / "m")
    image = random.integers(-128, 128, (1, 3, 6, 6)).astype(np.int8)
    (expected,) = ReferenceEvaluator(str(tmp_path / "q.onnx")).run(None, {"x": image})
    (found,) = project.run([image]).outputs
    assert project.report.offloaded
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert np.ptp(expected.astype(int)) > 50


ENDS_OF_CONV = (("x", 3), ("y", 4))
ENDS = ["quantizelinear", "dequantizelinear"]
HOST = {
    "mobilenet": ENDS,
    "keywords": ["quantizelinear", "dequantizelinear", "softmax", *ENDS],
    "unet": ["quantizelinear", "dequantizelinear", "convtranspose", *ENDS],
}
"""The nodes that the host computes, by network: each quantize and dequantize is one."""


@pytest.mark.parametrize(("name", "dtype"), [("mobilenet", "uint8"), ("keywords", "int8"), ("unet", "uint8")])
def test_networks_are_offloaded_but_for_their_ends_and_one_operator(name, dtype, tmp_path):
    path = NETWORKS[name](dtype=dtype, opset=19).save(tmp_path / "net.onnx")
    mod, params = byoc_hw.load(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, "m")
    report = byoc_hw.explain(partitioned)
    kinds = [re.sub(r"^/|_\d+$", "", outcome.name) for outcome in report.host]
    assert kinds == HOST[name]
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    inputs = [np.random.default_rng(0).normal(size=one.shape).astype(one.dtype) for one in project.inputs]
    names = [one.name for one in onnx.load(str(path)).graph.input]
    expected = ReferenceEvaluator(str(path)).run(None, dict(zip(names, inputs, strict=True)))
    for found, wanted in zip(project.run(inputs).outputs, expected, strict=True):
        assert np.abs(found - wanted).max() <= 0.03 * np.ptp(wanted)
    assert byoc_hw.validate(project, [inputs], partitioned, tolerance=4).ok


def _scale_of_output(model):
    (last,) = [node for node in model.graph.node if node.op_type == "DequantizeLinear"][-1:]
    return next(one for one in model.graph.initializer if one.name == last.input[1])


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"none")
    with pytest.raises(byoc_hw.InvalidInput, match=r"net\.onnx: is (no|a damaged) ONNX model"):
        byoc_hw.load(tmp_path / "net.onnx")
