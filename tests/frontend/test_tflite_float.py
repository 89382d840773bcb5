"""Float TFLite files whose weights have fewer bits: the float32 weights that they stand for, and what is refused."""

import numpy as np
import pytest
import tflite
from tflite_samples import Node, TensorSample, four_bits, network_bytes

from byoc_hw import InvalidInput
from byoc_hw.frontend.relay.front_end import load_float_tflite, load_tflite
from byoc_hw.frontend.relay.reference import Reference

RANDOM = np.random.default_rng(3)
WEIGHTS = RANDOM.integers(-8, 8, (6, 2, 2, 3), np.int8)
SCALES = tuple(float(scale) for scale in RANDOM.uniform(0.01, 0.1, 6).astype(np.float32))
BY_CHANNEL = WEIGHTS * np.array(SCALES, np.float32).reshape(-1, 1, 1, 1)
SAME = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": tflite.Padding.SAME}


def real(name, shape, **more):
    return TensorSample(shape, scale=None, name=name, dtype="FLOAT32", **more)


def conv(weights, *between, reads=1):
    """A file of a float convolution. `between` are operators before it, each with the tensor that it makes."""
    bias = real("b", (6,), data=np.arange(6, dtype=np.float32))
    tensors = [real("x", (1, 4, 5, 3)), weights, *(made for made, _ in between), bias, real("y", (1, 4, 5, 6))]
    last = Node("CONV_2D", [0, reads, len(tensors) - 2], [len(tensors) - 1], SAME)
    return network_bytes(tensors, [*(node for _, node in between), last], [0], [len(tensors) - 1])


def dequantized():
    return real("w_real", WEIGHTS.shape), Node("DEQUANTIZE", [1], [2])


HALVES = BY_CHANNEL.astype(np.float16)
STORED = {
    "int8 by channel": (conv(TensorSample(WEIGHTS.shape, SCALES, data=WEIGHTS, name="w")), BY_CHANNEL),
    "int8 with a zero point": (
        conv(TensorSample(WEIGHTS.shape, 0.25, zero_point=3, data=WEIGHTS, name="w")),
        (WEIGHTS.astype(np.float32) - 3) * np.float32(0.25),
    ),
    "int4": (conv(four_bits(TensorSample(WEIGHTS.shape, SCALES, data=WEIGHTS, name="w"))), BY_CHANNEL),
    "int8 behind DEQUANTIZE": (
        conv(TensorSample(WEIGHTS.shape, SCALES, data=WEIGHTS, name="w"), dequantized(), reads=2),
        BY_CHANNEL,
    ),
    "float16 behind DEQUANTIZE": (
        conv(TensorSample(WEIGHTS.shape, None, data=HALVES, name="w"), dequantized(), reads=2),
        HALVES.astype(np.float32),
    ),
    "float32": (conv(real("w", WEIGHTS.shape, data=BY_CHANNEL)), BY_CHANNEL),
}


@pytest.mark.parametrize(("file", "weights"), STORED.values(), ids=STORED)
def test_weights_are_the_float_values_that_they_stand_for(file, weights, tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(file)
    mod, params = load_float_tflite(path)
    (loaded,) = [value for value in params.values() if value.numpy().ndim == 4]
    np.testing.assert_array_equal(loaded.numpy(), weights.transpose(1, 2, 3, 0))
    path.write_bytes(conv(real("w", WEIGHTS.shape, data=weights)))
    plain, same = load_tflite(path)
    image = RANDOM.normal(size=(1, 4, 5, 3)).astype(np.float32)
    results = [run(mod, params, image), run(plain, same, image)]
    np.testing.assert_array_equal(*results)
    oracle = pytest.importorskip("tflite_runtime.interpreter", reason="install tflite-runtime==2.14.0")
    np.testing.assert_allclose(results[0], tflites(oracle, path, image), rtol=1e-5, atol=1e-6)


def run(mod, params, image):
    return Reference(mod, params).run([image])[0]


def tflites(oracle, path, image):
    interpreter = oracle.Interpreter(str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


@pytest.mark.parametrize("mlperf_model", ["float/kws_ref_model_float32"], indirect=True)
def test_the_keyword_network_of_8_bits_has_float_weights(mlperf_model):
    mod, params = load_float_tflite(mlperf_model)
    assert {weights.dtype for weights in params.values()} == {"float32"}
    assert {str(parameter.type_annotation.dtype) for parameter in mod["main"].params} == {"float32"}


def test_a_model_of_quantized_activations_is_no_float_model(tmp_path):
    weights = TensorSample((2, 4), data=np.ones((2, 4), np.int8), name="w")
    tensors = [TensorSample((1, 4), name="x"), weights, TensorSample((1, 2), name="y")]
    path = tmp_path / "net.tflite"
    path.write_bytes(network_bytes(tensors, [Node("FULLY_CONNECTED", [0, 1, -1], [2])], [0], [2]))
    with pytest.raises(InvalidInput, match="activations of a float model are not quantized: got x"):
        load_float_tflite(path)


def test_a_result_of_integers_from_constants_is_no_float_either(tmp_path):
    weights = TensorSample((4, 4), data=np.ones((4, 4), np.int8), name="w")
    tensors = [real("x", (1, 4)), weights, real("y", (1, 4)), TensorSample((4, 4), name="same")]
    nodes = [Node("FULLY_CONNECTED", [0, 1, -1], [2]), Node("RESHAPE", [1], [3])]
    path = tmp_path / "net.tflite"
    path.write_bytes(network_bytes(tensors, nodes, [0], [2]))
    with pytest.raises(InvalidInput, match="activations of a float model are not quantized: got same"):
        load_float_tflite(path)
