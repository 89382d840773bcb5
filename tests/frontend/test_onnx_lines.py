"""ONNX operators over one dimension: as over two of height 1 they give what onnxruntime gives."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import byoc_hw
from byoc_hw.frontend.onnx_form import importable_form
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.frontend.relay.sources import operator_names

onnxruntime = pytest.importorskip("onnxruntime", reason="what is compared with: install the package onnxruntime")


class Net:
    """A float network over one dimension; each operator behind the first convolution is an output."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.nodes, self.constants, self.outputs = [], [], []

    def node(self, operator, inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def real(self, *shape):
        return self.constant(self.rng.standard_normal(shape).astype(np.float32))

    def whole(self, *numbers):
        return self.constant(np.asarray(numbers, np.int64))

    def constant(self, array):
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def save(self, path, shape):
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "net", inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model, data_prop=True), str(path))
        return path


def operators(net, x):
    """Results of operators that are other ones in four dimensions, or are read in three."""
    yield net.node("ConvTranspose", [x, net.real(6, 3, 4)], strides=[2], pads=[1, 1], output_padding=[1])
    yield net.node("Conv", [x, net.real(6, 1, 3)], group=6, auto_pad="SAME_LOWER", strides=[2])
    yield net.node("MaxPool", [x], kernel_shape=[3], strides=[2], pads=[1, 0], ceil_mode=1)
    yield net.node("AveragePool", [x], kernel_shape=[3], pads=[1, 1], count_include_pad=1)
    yield net.node("GlobalMaxPool", [x])
    yield net.node("BatchNormalization", [x, *(net.real(6) for _ in range(3)), net.constant(np.ones(6, np.float32))])
    yield net.node("PRelu", [x, net.real(6, 1)])
    for shape in ((), (20,), (6, 1), (1, 6, 1), (1, 6, 20)):
        yield net.node("Add", [x, net.real(*shape)])
    yield net.node("Mul", [net.real(6, 20), x])
    yield net.node("ReduceMean", [x], axes=[-1], keepdims=0)
    yield net.node("ReduceMax", [x], axes=[2], keepdims=1)
    yield net.node("ReduceMean", [x], axes=[1])
    yield net.node("Concat", [x, net.node("Relu", [x])], axis=-1)
    first, second = net.node("Split", [x, net.whole(8, 12)], outputs=2, axis=2)
    yield net.node("Concat", [second, first], axis=2)
    yield net.node("Slice", [x, net.whole(-3), net.whole(-9), net.whole(2), net.whole(-2)])
    yield net.node("Slice", [x, net.whole(0, 2), net.whole(1, 5)])
    yield net.node("Pad", [x, net.whole(0, 1, 3, 0, 0, 2)], mode="reflect")
    yield net.node("Flatten", [x], axis=2)
    yield net.node("Resize", [x, "", net.constant(np.asarray([1, 1, 3], np.float32))], mode="nearest")
    best = net.node("ReduceMax", [x], axes=[2])
    yield net.node("Expand", [best, net.whole(1, 6, 5)])
    yield net.node("Expand", [best, net.whole(4, 1, 6, 5)])
    yield net.node("Transpose", [x], perm=[0, 2, 1])
    yield net.node("Softmax", [x], axis=2)
    yield net.node("MatMul", [x, net.real(20, 4)])
    for index in (-1, 3):
        yield net.node("Gather", [x, net.constant(np.asarray(index, np.int64))], axis=2)
    yield net.node("Gather", [x, net.whole(-1, 0, -6)], axis=1)
    places = net.node("Sub", [net.node("ArgMax", [x], axis=2, keepdims=0), net.whole(20)])
    yield net.node("Gather", [x, net.node("Reshape", [places, net.whole(6)])], axis=2)
    yield x


@pytest.mark.slow
def test_windows_over_one_dimension_give_onnxruntimes_results(tmp_path):
    net = Net()
    x = net.node("Conv", ["x", net.real(6, 4, 5), net.real(6)], pads=[2, 2], dilations=[1], kernel_shape=[5])
    net.outputs = list(operators(net, net.node("Relu", [x])))
    path = net.save(tmp_path / "net.onnx", (1, 4, 20))
    mod, params = byoc_hw.load(path)
    assert not {"nn.conv1d", "nn.max_pool1d", "nn.conv1d_transpose"} & operator_names(mod["main"])
    data = {"x": np.random.default_rng(1).standard_normal((1, 4, 20)).astype(np.float32)}
    wanted = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, data)
    kinds = {name: f"{node.op_type} {name}" for node in net.nodes for name in node.output}
    for name, ours, theirs in zip(net.outputs, Reference(mod, params).run(data), wanted, strict=True):
        assert ours.shape == theirs.shape, kinds[name]
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4, err_msg=kinds[name])


def test_dequantized_weights_are_stored_in_four_dimensions_and_read_in_three_elsewhere(tmp_path):
    net = Net()
    stored = net.constant(net.rng.integers(-9, 9, (6, 4, 5), dtype=np.int8))
    scales = net.constant(net.rng.uniform(0.01, 0.1, 6).astype(np.float32))
    weights = net.node("DequantizeLinear", [stored, scales, net.constant(np.zeros(6, np.int8))], axis=0)
    net.outputs = [
        net.node("Conv", ["x", weights]),
        net.node("MatMul", ["x", net.node("Transpose", [weights], perm=[2, 0, 1])]),
    ]
    path = net.save(tmp_path / "net.onnx", (5, 4, 6))
    plain = importable_form(onnx.load(path))
    onnx.checker.check_model(plain)
    (conv,) = [node for node in plain.graph.node if node.op_type == "Conv"]
    (maker,) = [node for node in plain.graph.node if conv.input[1] in node.output]
    assert maker.op_type == "DequantizeLinear"
    data = {"x": net.rng.standard_normal((5, 4, 6)).astype(np.float32)}
    wanted = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, data)
    plain.opset_import[0].version = 19  # onnx computes quantized values of newer versions alone
    for ours, theirs in zip(ReferenceEvaluator(plain).run(None, data), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_an_index_outside_of_its_axis_is_refused(tmp_path):
    net = Net()
    net.outputs = [net.node("Gather", ["x", net.whole(1, -5)], axis=1)]
    path = net.save(tmp_path / "net.onnx", (1, 4, 20))
    with pytest.raises(byoc_hw.InvalidInput, match=r"Gather_0\): indices are from -4 to 3: got -5"):
        byoc_hw.load(path)
