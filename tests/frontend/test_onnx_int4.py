"""ONNX files in QDQ form whose weights have 4 bits: the integers that they are imported as, and what is refused."""

import numpy as np
import onnx
import pytest
from graph_descriptions import plain_fields
from onnx import TensorProto, helper, numpy_helper
from onnx_samples import QdqNet

import byoc_hw
from byoc_hw import InvalidInput
from byoc_hw.compiler import region_graphs

FOUR_BITS = {"int8": (TensorProto.INT4, -8, 7), "uint8": (TensorProto.UINT4, 0, 15)}


def files(tmp_path, kind, per_channel):
    """The paths of a network with weights of 4 bits, and of the same one with these as bytes."""
    net = QdqNet(weight_dtype=kind, per_channel=per_channel, opset=21)
    x = net.input(1, 4, 9, 8)
    net.output(net.gemm(net.flatten(net.conv(x, 5)), 7))
    stored, low, high = FOUR_BITS[kind]
    model = net.model()
    model.ir_version = 10
    # The weights, and the zero points of their type.
    read = {name for node in model.graph.node if node.op_type == "DequantizeLinear" for name in node.input}
    read -= {name for node in model.graph.node if node.op_type == "QuantizeLinear" for name in node.input}
    wide = [one for one in model.graph.initializer if one.name in read and one.data_type != TensorProto.FLOAT]
    narrow = []
    for tensor in wide:
        values = numpy_helper.to_array(tensor)
        values = np.clip(values >> 4 if values.size > 8 else values % 16 * (kind == "uint8"), low, high)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(kind), tensor.name))
        narrow.append(helper.make_tensor(tensor.name, stored, values.shape, values.reshape(-1).tolist()))
    onnx.save(model, str(tmp_path / "wide.onnx"))
    for tensor, other in zip(wide, narrow, strict=True):
        tensor.CopyFrom(other)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(tmp_path / "narrow.onnx"))
    assert len(narrow) == 4
    return tmp_path / "narrow.onnx", tmp_path / "wide.onnx"


@pytest.mark.parametrize(("kind", "per_channel"), [("int8", True), ("int8", False), ("uint8", False)])
def test_weights_of_4_bits_stand_for_the_same_values_as_bytes(kind, per_channel, tmp_path):
    narrow, wide = files(tmp_path, kind, per_channel)
    (mod, params), (same, others) = byoc_hw.load(narrow), byoc_hw.load(wide)
    assert params == others == {}
    graph, other = (next(iter(region_graphs(byoc_hw.partition_for_hwlib(one)).values())) for one in (mod, same))
    assert plain_fields(graph.layers) == plain_fields(other.layers)
    widths = [layer.weights.bits for layer in graph.layers if hasattr(layer, "weights")]
    assert widths == ([4, 4] if kind == "int8" else [8, 8])  # what 4 bits without a sign hold needs 5 with one


def test_other_operators_do_not_read_them(tmp_path):
    narrow, _ = files(tmp_path, "int8", per_channel=True)
    model = onnx.load(str(narrow))
    named = next(one.name for one in model.graph.initializer if one.data_type == TensorProto.INT4 and len(one.dims) > 1)
    model.graph.node.append(helper.make_node("Transpose", [named], ["moved"], "turned"))
    onnx.save(model, str(narrow))
    with pytest.raises(InvalidInput, match=r"Transpose \(turned\): constants of 4 bits are read by DequantizeLinear"):
        byoc_hw.load(narrow)
