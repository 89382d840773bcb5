"""Quantized ONNX files through Relax: what is offloaded, and what comes out."""

import re

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_networks import NETWORKS
from onnx_samples import QdqNet, Value
from tvm import relax

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.frontend.onnx_form import importable_form

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
    assert kinds.count("transpose") == 1  # of the input: weights take up the order of the flattening
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
    "unet": ENDS,
}
"""The nodes that the host computes, by network: each quantize and dequantize is one."""


@pytest.mark.parametrize(("name", "dtype"), [("mobilenet", "uint8"), ("keywords", "int8"), ("unet", "uint8")])
def test_networks_are_offloaded_but_for_their_ends_and_softmax(name, dtype, tmp_path):
    path = NETWORKS[name](dtype=dtype, opset=19).save(tmp_path / "net.onnx")
    mod, params = byoc_hw.load(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, "m", numerics="float")
    report = byoc_hw.explain(partitioned)
    kinds = [re.sub(r"^/|_\d+$", "", outcome.name) for outcome in report.host]
    assert kinds == HOST[name]
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    inputs = [np.random.default_rng(0).normal(size=one.shape).astype(one.dtype) for one in project.inputs]
    names = [one.name for one in onnx.load(str(path)).graph.input]
    expected = ReferenceEvaluator(str(path)).run(None, dict(zip(names, inputs, strict=True)))
    for found, wanted in zip(project.run(inputs).outputs, expected, strict=True):
        step = np.diff(np.unique(wanted)).min()
        assert np.abs(found - wanted).max() <= max(0.03 * np.ptp(wanted), 1.01 * step)
    assert byoc_hw.validate(project, [inputs], partitioned).ok


def whole_numbers(net, *values):
    return net.constant(np.asarray(values, np.int64))


def gathered(net, indices, axis):
    x = net.input(2, 7, 5)
    name = net.node("Gather", [x.name, net.constant(np.asarray(indices, np.int64))], axis=axis)
    shape = (*x.shape[:axis], *np.shape(indices), *x.shape[axis + 1 :])
    net.output(net.quantized(name, shape, scale=x.scale, zero_point=x.zero_point))


def padded(net, mode):
    x = net.input(1, 3, 6, 5)
    name = net.node("Pad", [x.name, whole_numbers(net, 0, 0, 2, 1, 0, 0, 1, 3)], mode=mode)
    net.output(net.conv(net.quantized(name, (1, 3, 9, 9), scale=x.scale, zero_point=x.zero_point), 4, pads=[0] * 4))


def windows_rounded_up(net):
    x = net.input(1, 3, 10, 9)
    pool = net.node("MaxPool", [x.name], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0], ceil_mode=1)
    net.output(net.quantized(pool, (1, 3, 6, 5), scale=x.scale, zero_point=x.zero_point))


def normalized(net):
    x = net.conv(net.input(1, 3, 4, 3), 6)
    numbers = [net.constant(net.rng.uniform(0.5, 1.5, 6).astype(np.float32)) for _ in range(4)]
    net.output(net.quantized(net.node("BatchNormalization", [x.name, *numbers]), x.shape))


def one_slope(net):
    x = net.conv(net.input(1, 3, 4, 3), 6, act="")
    x = net.quantized(net.node("PRelu", [x.name, net.constant(np.full((1, 1, 1), 0.2, np.float32))]), x.shape)
    net.output(net.quantized(net.node("PRelu", [x.name, net.weights((1, 1, 1))[0]]), x.shape))


def lines(net):
    """Windows over one dimension, and what follows them."""

    def windowed(x, operator, channels, length, *weights, **attributes):
        return net.quantized(net.node(operator, [x.name, *weights], **attributes), (1, channels, length), 2 * x.spread)

    def convolved(x, channels, length, kernel, **attributes):
        weights, _ = net.weights((channels, x.shape[1] // attributes.get("group", 1), kernel), spread=0.3)
        return windowed(x, "Conv", channels, length, weights, net.bias(channels, 1.0), **attributes)

    x = convolved(net.input(1, 4, 20), 6, 10, 4, strides=[2], pads=[2, 1])
    x = convolved(x, 6, 10, 3, group=6, dilations=[2], pads=[2, 2])
    x = net.concat(net.add(x, convolved(x, 6, 10, 1)), net.unary("Sigmoid", x), axis=1)
    factors = net.constant(net.rng.uniform(0.5, 1.5, (12, 1)).astype(np.float32))
    x = net.quantized(net.node("Mul", [net.node("Relu", [x.name]), factors]), x.shape, 2.0)
    x = windowed(net.concat(x, x, axis=2), "MaxPool", 12, 10, kernel_shape=[2], strides=[2])
    net.output(net.flatten(windowed(x, "GlobalAveragePool", 12, 1)))
    net.output(net.transpose(x, 0, 2, 1))


FORMS = {
    "one index": lambda net: gathered(net, -1, 2),
    "runs of indices": lambda net: gathered(net, [5, 6, 1, -7, -6, 3], 1),
    **{f"pad {mode}": (lambda net, mode=mode: padded(net, mode)) for mode in ("reflect", "edge")},
    **{"rounded up": windows_rounded_up, "normalized": normalized, "slopes": one_slope, "lines": lines},
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", FORMS)
def test_what_the_importer_has_no_operator_for_is_imported_as_operators_that_mean_the_same(name, dtype, tmp_path):
    net = QdqNet(dtype=dtype, opset=19)
    FORMS[name](net)
    model = net.model()
    inputs = {
        one.name: net.rng.normal(size=[dim.dim_value for dim in one.type.tensor_type.shape.dim]).astype("float32")
        for one in net.inputs
    }
    expected = ReferenceEvaluator(model).run(None, inputs)
    plain = importable_form(model)
    plain.opset_import[0].version = 19  # onnx computes quantized values of newer versions alone
    for found, wanted in zip(ReferenceEvaluator(plain).run(None, inputs), expected, strict=True):
        assert found.shape == wanted.shape
        assert np.allclose(found, wanted, atol=1e-6)
        assert np.ptp(wanted) > 0
    mod, params = byoc_hw.load(net.save(tmp_path / "net.onnx"))
    partitioned = byoc_hw.partition_for_hwlib(mod, params, "m", numerics="float")
    reasons = {one.near_miss for outcome in byoc_hw.explain(partitioned).host for one in outcome.rejections}
    assert reasons == {f"{end}: the accelerator has integers only" for end in REAL_ENDS}
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    assert byoc_hw.validate(project, [inputs], partitioned).ok


REAL_ENDS = ("quantize is of a real input", "dequantize is of a real output")
RULES = {"SAME_UPPER": [0, 0, 1, 1], "SAME_LOWER": [1, 1, 0, 0], "VALID": [0, 0, 0, 0]}


@pytest.mark.parametrize("operator", ["Conv", "MaxPool", "AveragePool"])
@pytest.mark.parametrize(("rule", "pads"), RULES.items(), ids=RULES)
def test_pads_of_a_window_follow_from_its_rule(operator, rule, pads):
    net = QdqNet()
    weights = [net.weights((3, 3, 2, 3))[0]] if operator == "Conv" else []
    kernel = {} if weights else {"kernel_shape": [2, 3]}
    made = net.node(operator, [net.input(1, 3, 5, 4).name, *weights], strides=[2, 2], auto_pad=rule, **kernel)
    net.output(Value(made, (1, 3, *((2, 1) if rule == "VALID" else (3, 2)))))
    (node,) = [node for node in importable_form(net.model()).graph.node if node.op_type == operator]
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    assert attributes == {**kernel, "strides": [2, 2], "pads": pads}


def _scale_of_output(model):
    (last,) = [node for node in model.graph.node if node.op_type == "DequantizeLinear"][-1:]
    return next(one for one in model.graph.initializer if one.name == last.input[1])


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"none")
    with pytest.raises(byoc_hw.InvalidInput, match=r"net\.onnx: is (no|a damaged) ONNX model"):
        byoc_hw.load(tmp_path / "net.onnx")
