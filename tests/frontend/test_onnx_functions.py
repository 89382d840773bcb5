"""ONNX operators of newer versions of the operator set: as older ones they give what they are defined to give."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_samples import QdqNet

import byoc_hw
from byoc_hw.frontend.onnx_form import importable_form


def model_of(operator, shape=None, **attributes):
    """A model of one operator of opset 20, of float values and perhaps a shape."""
    constants = [] if shape is None else [onnx.numpy_helper.from_array(np.asarray(shape, np.int64), "shape")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 4))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node(operator, ["x", *(one.name for one in constants)], ["y"], "only", **attributes)
    graph = helper.make_graph([node], "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("Gelu", {}),
        ("Gelu", {"approximate": "tanh"}),
        ("Mish", {}),
        ("Reshape", {"shape": (-1, 2, 3), "allowzero": 1}),
    ],
)
def test_a_newer_operator_is_made_of_older_ones(operator, attributes):
    model = model_of(operator, **attributes)
    made = importable_form(model)
    assert made.opset_import[0].version == 17
    values = {"x": np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32) * 3}
    (expected,), (found,) = (ReferenceEvaluator(one).run(None, values) for one in (model, made))
    assert found.shape == expected.shape
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_a_shape_in_which_0_stands_for_no_elements_is_refused():
    with pytest.raises(
        byoc_hw.InvalidInput, match=r"Reshape \(only\): a shape with allowzero=1 has no 0: got \[0, 24\]"
    ):
        importable_form(model_of("Reshape", shape=(0, 24), allowzero=1))


@pytest.mark.slow
def test_a_network_of_a_current_exporter_is_offloaded_but_for_its_ends(tmp_path):
    net = QdqNet(opset=20)
    x = net.conv(net.input(1, 3, 8, 8), 8)
    x = net.quantized(net.node("Gelu", [x.name]), x.shape)
    flat = net.node("Reshape", [x.name, net.constant(np.asarray([1, 512], np.int64))], allowzero=1)
    net.output(net.gemm(net.quantized(flat, (1, 512), scale=x.scale, zero_point=x.zero_point), 10))
    mod, params = byoc_hw.load(net.save(tmp_path / "net.onnx"))
    partitioned = byoc_hw.partition_for_hwlib(mod, params, "m")
    assert len(byoc_hw.explain(partitioned).host) == 2  # the ends
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    image = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)
    assert byoc_hw.validate(project, [[image]], partitioned, tolerance=2).ok
