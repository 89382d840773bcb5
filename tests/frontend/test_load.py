"""byoc_hw.load: files of each format, and one clear error for each that cannot be read."""

import re

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import mobilenet
from onnx_samples import QdqNet
from relay_samples import Conv, const, module, variable
from tflite_networks import NetworkSample
from tvm import relay

import byoc_hw
from byoc_hw import __main__ as cli
from byoc_hw.demo import model_path


def float_conv(path, *, shape=(1, 3, 8, 8), opset=17, operator="Conv", domain="", **attributes):
    """A file of one operator with weights."""
    weights = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    node = helper.make_node(operator, ["x", "w"], ["y"], "only", domain=domain, **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "net",
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, ("M", 4, "H", "W"))],
        [weights],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def shapes_of(mod):
    return [tuple(int(extent) for extent in parameter.checked_type.shape) for parameter in mod["main"].params]


# ---------------------------------------------------------------- formats


def test_tflite_is_read_as_by_load_tflite():
    (mod, params), (same, weights) = byoc_hw.load(model_path()), byoc_hw.load_tflite(model_path())
    assert tvm.ir.structural_equal(mod, same)
    assert params.keys() == weights.keys()


def test_weights_of_an_operator_for_nothing_are_left_out(tmp_path):
    net, path = NetworkSample(), tmp_path / "net.tflite"
    used = net.conv(net.input(1, 4, 4, 3), 4)
    net.conv(used, 5)
    path.write_bytes(net.file(used))
    mod, params = byoc_hw.load(path)
    assert sorted(value.shape for value in params.values()) == [(1, 1, 3, 4), (4,)]
    (outcome,) = byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, params)).outcomes
    assert outcome.placement == "accelerator"


def test_an_input_that_nothing_reads_is_one_of_the_model(tmp_path):
    net, path = NetworkSample(), tmp_path / "net.tflite"
    unread, read = net.input(1, 2, 2, 3), net.input(1, 4, 4, 3)
    path.write_bytes(net.file(net.conv(read, 4)))
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(*byoc_hw.load(path)))
    assert [one.name for one in project.inputs] == [net.tensors[one].name for one in (unread, read)]
    values = {net.tensors[one].name: np.ones(net.shape(one), np.int8) for one in (unread, read)}
    assert project.run(values).outputs[0].shape == (1, 4, 4, 4)


@pytest.mark.parametrize(("suffix", "save"), [(".relay", str), (".txt", str), (".json", tvm.ir.save_json)])
def test_a_relay_module_is_read_as_it_was_written(suffix, save, tmp_path):
    mod = Conv().module()
    path = tmp_path / f"model{suffix}"
    path.write_text(mod.astext() if save is str else save(mod))
    loaded, params = byoc_hw.load(path)
    assert params == {}
    assert tvm.ir.structural_equal(loaded, mod)


@pytest.mark.slow
def test_a_relay_module_in_qdq_form_becomes_integers(tmp_path):
    mod, _ = byoc_hw.load(mobilenet().save(tmp_path / "net.onnx"))
    assert not byoc_hw.explain(byoc_hw.partition_for_hwlib(mod)).stops
    x = variable((1, 4), "int8")
    scale, zero = const(0.1, "float32"), const(3, "int32")
    weights = relay.qnn.op.dequantize(const(np.ones((2, 4)), "int8"), scale, const(0, "int32"))
    real = relay.nn.dense(relay.qnn.op.dequantize(x, scale, zero), weights)
    path = tmp_path / "model.json"
    path.write_text(tvm.ir.save_json(module(relay.qnn.op.quantize(real, scale, zero), x)))
    loaded, _ = byoc_hw.load(path)
    assert "qnn.dense" in loaded.astext(show_meta_data=False)


def test_open_dimensions_of_onnx_get_a_shape(tmp_path):
    path = float_conv(tmp_path / "open.onnx", shape=("N", 3, None, 8))
    rule = r"input x has a static shape: got (N, 3, ?, 8); shapes={'x': (1, 3, 1, 8)} gives it one"
    with pytest.raises(byoc_hw.InvalidInput, match=re.escape(rule)):
        byoc_hw.load(path)
    mod, _ = byoc_hw.load(path, shapes={"x": (1, 3, 6, 8)})
    assert shapes_of(mod) == [(1, 3, 6, 8)]
    rule = "shape of input x is as the file has it: got (1, 4, 6, 8) for (None, 3, None, 8)"
    with pytest.raises(byoc_hw.InvalidInput, match=re.escape(rule)):
        byoc_hw.load(path, shapes={"x": (1, 4, 6, 8)})
    with pytest.raises(byoc_hw.InvalidInput, match="shapes are of inputs, x: got 'z'"):
        byoc_hw.load(path, shapes={"z": (1,)})


def test_operators_keep_the_names_of_the_file(tmp_path):
    net = QdqNet()
    net.output(net.conv(net.input(1, 3, 8, 8), 4))
    names = [node.name for node in net.nodes if node.op_type in ("Conv", "Relu")]
    mod, params = byoc_hw.load(net.save(tmp_path / "net.onnx"))
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, params))
    assert [outcome.name for outcome in report.offloaded] == names


# ---------------------------------------------------------------- errors


def test_refuses_what_is_no_model_file(tmp_path):
    def refused(name, contents, message, **options):
        path = tmp_path / name
        if contents is not None:
            path.write_bytes(contents)
        with pytest.raises(byoc_hw.InvalidInput, match=re.escape(f"{path}: {message}")):
            byoc_hw.load(path, **options)

    refused("model.pt", b"", "a model file ends in one of .tflite, .onnx, .relay, .txt, .json: got .pt")
    refused("model", b"", "a model file ends in one of .tflite, .onnx, .relay, .txt, .json: got no suffix")
    refused("none.onnx", None, "cannot be read: No such file or directory")
    refused("damaged.onnx", b"\x00\x01nonsense", "is no ONNX model: ")
    refused("empty.onnx", b"", "is a damaged ONNX model: ")
    refused("none.relay", None, "cannot be read: No such file or directory")
    refused("damaged.relay", b"fn (", "is no Relay module: ")
    refused("damaged.json", b"{", "is no Relay module: ")
    refused("model.relay", b"", "shapes are of ONNX files", shapes={"x": (1,)})


def test_names_every_operator_that_cannot_be_imported(tmp_path):
    def refused(message, **options):
        path = float_conv(tmp_path / "net.onnx", **options)
        with pytest.raises(byoc_hw.InvalidInput, match=re.escape(message)):
            byoc_hw.load(path)

    unknown = "cannot be imported: operators are those that TVM's ONNX importer has: got STFT (only)"
    refused(unknown, operator="STFT")
    newer = "BitwiseAnd (only): its version is of opset 17 or older: got 18 (export with opset 17)"
    refused(newer, operator="BitwiseAnd", opset=18)
    refused("Mine (only): domain is one of ai.onnx, com.microsoft: got own", operator="Mine", domain="own")
    refused(
        "FusedConv (only): operator of com.microsoft is one of QuantizeLinear, ",
        operator="FusedConv",
        domain="com.microsoft",
    )


def test_without_the_extra_says_what_to_install(tmp_path, monkeypatch):
    path = float_conv(tmp_path / "net.onnx")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(byoc_hw.InvalidInput, match=re.escape("pip install 'byoc-hw[onnx]'")):
        byoc_hw.load(path)


# ---------------------------------------------------------------- float models and the command line


def test_a_float_model_is_named_in_the_first_line_and_each_product_says_its_type(tmp_path, capsys):
    path = float_conv(tmp_path / "open.onnx", shape=("N", 3, 8, 8))
    assert cli.main(["explain", str(path), "--shape", "x=1,3,8,8"]) == 0
    first, second, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("open is a float model: 1 of its 1 convolutions and matrix products are of float32")
    assert "docs/models.md" in first
    assert "0 of 1 operators offloaded" in second
    assert rows[-1].strip() == "nn.conv2d: activations are quantized to int8 or uint8: got float32"


def test_activations_of_int16_are_declined_by_that(tmp_path):
    x = variable((1, 4), "int16")
    scale, zero = const(0.1, "float32"), const(0, "int32")
    weights = relay.qnn.op.dequantize(const(np.ones((2, 4)), "int8"), scale, zero)
    real = relay.nn.dense(relay.qnn.op.dequantize(x, scale, zero), weights)
    mod = byoc_hw.to_integers(module(relay.qnn.op.quantize(real, scale, zero, out_dtype="int16"), x))
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(mod))
    assert "nn.dense: activations are quantized to int8 or uint8: got int16" in str(report)


def test_a_shape_that_is_none_is_refused_by_the_command_line(tmp_path, capsys):
    assert cli.main(["explain", str(float_conv(tmp_path / "net.onnx")), "--shape", "x=1,a"]) == 2
    assert "--shape is NAME=EXTENTS, as in x=1,3,32,32: got 'x=1,a'" in capsys.readouterr().err
