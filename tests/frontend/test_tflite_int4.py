"""TFLite files whose constants have 4 bits: what they are imported as, what comes out, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import tflite
import tvm
from tflite_samples import NONE, RELU, Node, TensorSample, four_bits, network_bytes

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.frontend.tflite_file import read_tflite

CONV = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": tflite.Padding.SAME}
RANDOM = np.random.default_rng(4)


def scales(count):
    return tuple(float(scale) for scale in RANDOM.uniform(0.01, 0.1, count).astype(np.float32))


def weights(shape, scale, axis=0):
    values = RANDOM.integers(-8, 8, shape, np.int8)
    values.flat[:2] = -8, 7
    return TensorSample(shape, scale, data=values, name="w", axis=axis)


def bias(count, scale=0.001):
    return TensorSample((count,), scale, data=RANDOM.integers(-200, 200, count, np.int32), name="b")


def activation(name, *shape):
    return TensorSample(shape, float(np.float32(RANDOM.uniform(0.1, 0.4))), int(RANDOM.integers(-9, 9)), name=name)


X, Y = activation("x", 1, 5, 6, 3), activation("y", 1, 5, 6, 5)
# Odd numbers of values: the last byte has one. The second input of the network, if there is one, has 4 bits.
NETWORKS = {
    "CONV_2D": (X, weights((5, 3, 3, 3), scales(5)), bias(5), Y, CONV | {"FusedActivationFunction": RELU}),
    "CONV_2D, one scale": (X, weights((5, 3, 3, 3), 0.05), bias(5), Y, CONV),
    "DEPTHWISE_CONV_2D": (
        X,
        weights((1, 3, 3, 3), scales(3), axis=3),
        bias(3),
        replace(X, name="y", scale=0.3),
        CONV | {"DepthMultiplier": 1},
    ),
    "FULLY_CONNECTED": (
        activation("x", 2, 11),
        weights((5, 11), scales(5)),
        bias(5),
        activation("y", 2, 5),
        {"FusedActivationFunction": NONE},
    ),
    "FULLY_CONNECTED, one scale": (
        replace(activation("x", 1, 1, 11), scale=0.25),
        weights((5, 11), 0.04),
        bias(5, 0.25 * 0.04),
        activation("y", 1, 1, 5),
        {"KeepNumDims": True, "FusedActivationFunction": RELU},
    ),
    "ADD": (X, weights((1, 5, 6, 3), 0.2), None, replace(X, name="y", scale=0.5), {}),
}


def file_of(case, change=lambda tensor: tensor):
    x, w, b, y, options = NETWORKS[case]
    tensors = [x, change(w), *([b] if b else []), y]
    last = len(tensors) - 1
    node = Node(case.split(",")[0], range(last), [last], options)
    return network_bytes(tensors, [node], [0], [last])


@pytest.fixture
def written(tmp_path):
    def write(content, name="net"):
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("case", NETWORKS)
def test_a_file_of_4_bits_is_that_of_8_bits_with_the_same_values(case, written):
    narrow, wide = written(file_of(case, four_bits), "narrow"), written(file_of(case), "wide")
    (mod, params), (same, others) = byoc_hw.load_tflite(narrow), byoc_hw.load_tflite(wide)
    assert tvm.ir.structural_equal(mod, same)
    assert params.keys() == others.keys()
    for name, values in params.items():
        np.testing.assert_array_equal(values.numpy(), others[name].numpy())
    tensors = [read_tflite(path).tensors for path in (narrow, wide)]
    assert tensors[0] == tensors[1]  # with names, scales and zero points


@pytest.mark.parametrize("case", NETWORKS)
def test_generated_c_gives_tflites_bits(case, written):
    """The oracle takes 4 bits for convolutions alone; it is given the same values as int8."""
    pytest.importorskip("tflite_runtime", reason="the oracle: install the package tflite-runtime==2.14.0")
    path = written(file_of(case, four_bits))
    mod, params = byoc_hw.load_tflite(path)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, numerics="tflite"))
    assert not project.report.host, str(project.report)
    shape = NETWORKS[case][0].shape
    images = [[RANDOM.integers(-128, 128, shape, np.int8)] for _ in range(4)]
    validation = byoc_hw.validate(project, images, path)
    assert validation, str(validation)
    assert len(validation.compared) == 2


@pytest.mark.parametrize("case", ["CONV_2D", "CONV_2D, one scale"])
def test_the_oracle_gives_the_same_for_4_bits_as_such(case, written):
    runtime = pytest.importorskip("tflite_runtime.interpreter", reason="install tflite-runtime==2.14.0")
    image = RANDOM.integers(-128, 128, X.shape, np.int8)
    results = []
    for content in (file_of(case, four_bits), read_tflite(written(file_of(case, four_bits))).data):
        interpreter = runtime.Interpreter(
            model_content=content, experimental_op_resolver_type=runtime.OpResolverType.BUILTIN_REF
        )
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
        interpreter.invoke()
        results.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    np.testing.assert_array_equal(*results)


def test_weights_are_packed_in_4_bits_again(written):
    mod, params = byoc_hw.load_tflite(written(file_of("CONV_2D", four_bits)))
    (graph,) = region_graphs(byoc_hw.partition_for_hwlib(mod, params)).values()
    assert [layer.weights.bits for layer in graph.layers] == [4]


def test_two_operators_read_the_same_weights(written):
    """One constant, and another one in the same buffer."""
    x, w, b, y, options = NETWORKS["FULLY_CONNECTED, one scale"]
    tensors = [
        x,
        four_bits(w),
        b,
        replace(y, name="a"),
        replace(y, name="c"),
        replace(four_bits(w), name="again", data=None, buffer=1),
        y,
    ]
    nodes = [
        Node("FULLY_CONNECTED", [0, 1, 2], [3], options),
        Node("FULLY_CONNECTED", [0, 5, 2], [4], options),
        Node("ADD", [3, 4], [6]),
    ]
    path = written(network_bytes(tensors, nodes, [0], [6]))
    mod, params = byoc_hw.load_tflite(path)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, numerics="tflite"))
    pytest.importorskip("tflite_runtime", reason="the oracle: install the package tflite-runtime==2.14.0")
    validation = byoc_hw.validate(project, [[RANDOM.integers(-128, 128, x.shape, np.int8)]], path)
    assert validation, str(validation)


REFUSED = {
    "a byte too few": (lambda w: replace(four_bits(w), data=four_bits(w).data[:-1]), "have 68 bytes: got 67"),
    "a byte too many": (lambda w: replace(w, dtype="INT4", data=w.data.reshape(-1)[:69]), "have 68 bytes: got 69"),
    "no values": (lambda w: replace(w, dtype="INT4", data=None), "values of 4 bits are dense constants"),
}


@pytest.mark.parametrize(("change", "reason"), REFUSED.values(), ids=REFUSED)
def test_damaged_values_are_refused_by_name(change, reason, written):
    with pytest.raises(byoc_hw.InvalidInput, match=rf"CONV_2D \(y\): tensor w: .*{reason}"):
        byoc_hw.load_tflite(written(file_of("CONV_2D", change)))


def test_activations_of_4_bits_are_refused(written):
    x, w, b, y, options = NETWORKS["CONV_2D"]
    tensors = [x, w, b, replace(y, dtype="INT4")]
    path = written(network_bytes(tensors, [Node("CONV_2D", [0, 1, 2], [3], options)], [0], [3]))
    reason = "tensor y: values of 4 bits are dense constants: got a tensor without values"
    with pytest.raises(byoc_hw.InvalidInput, match=reason):
        byoc_hw.load_tflite(path)
    assert [one.placement for one in byoc_hw.explain_tflite(path).outcomes] == ["stops"]


def test_a_bias_of_8_bits_is_refused(written):
    """As in some files of larger models that a quantizer got wrong; TFLite's interpreter refuses them too."""
    x, w, _, y, options = NETWORKS["FULLY_CONNECTED"]
    tensors = [x, w, TensorSample((5,), 0.1, data=np.ones(5, np.int8), name="b"), y]
    path = written(network_bytes(tensors, [Node("FULLY_CONNECTED", [0, 1, 2], [3], options)], [0], [3]))
    with pytest.raises(byoc_hw.InvalidInput, match=r"FULLY_CONNECTED \(y\): bias is int32 or int64: got int8"):
        byoc_hw.load_tflite(path)
