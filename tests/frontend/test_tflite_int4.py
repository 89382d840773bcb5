"""TFLite files whose constants have 4 bits: what they are imported as, what comes out, and what is refused."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tflite_int4_samples import NETWORKS, RANDOM, X, file_of
from tflite_samples import Node, TensorSample, four_bits, network_bytes

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.frontend.installed import HAS_RELAY
from byoc_hw.frontend.tflite_file import read_tflite


@pytest.fixture
def written(tmp_path):
    def write(content, name="net"):
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(content)
        return path

    return write


def _is_equal(mod, other):
    where = tvm.ir if HAS_RELAY else importlib.import_module("tvm_ffi")
    return where.structural_equal(mod, other)


@pytest.mark.parametrize("case", NETWORKS)
def test_a_file_of_4_bits_is_that_of_8_bits_with_the_same_values(case, written):
    narrow, wide = written(file_of(case, four_bits), "narrow"), written(file_of(case), "wide")
    (mod, params), (same, others) = byoc_hw.load_tflite(narrow), byoc_hw.load_tflite(wide)
    assert _is_equal(mod, same)
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
