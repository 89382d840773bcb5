"""Scales of a model's inputs and outputs: from the operators at its ends, or its file; none where they disagree."""

import numpy as np
import pytest
from relay_samples import Conv, const, module, variable
from tflite_samples import Node, TensorSample, network_bytes
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.ends import ends_of

IN, OUT = (0.125, 3), (0.5, -7)


def scale(pair):
    return const(pair[0], "float32"), const(pair[1], "int32")


def requantized(x, before=IN, behind=OUT):
    return relay.qnn.op.requantize(x, *scale(before), *scale(behind), out_dtype="int8")


def found(body, *inputs):
    ends = ends_of(module(body, *inputs))
    pairs = [
        [None if end.quantization is None else (*end.quantization.scale, *end.quantization.zero_point) for end in part]
        for part in (ends.inputs, ends.outputs)
    ]
    return tuple(pairs)


X, W = variable((1, 4, 4, 2)), variable((1, 4, 4, 2), name="w")
F = variable((2,), "float32", "f")
U = variable((1, 4, 4, 2), "uint8", "u")
SPLIT = relay.split(requantized(X), 2, 3)
CASES = {
    "its reader and its maker": (requantized(X), [X], [IN], [OUT]),
    "through operators that only move or choose": (
        relay.transpose(requantized(relay.clip(relay.reshape(X, (1, 32)), -5, 5))),
        [X],
        [IN],
        [OUT],
    ),
    "through a mean in 32 bits": (
        relay.cast(relay.mean(relay.cast(requantized(X), "int32"), (1, 2)), "int8"),
        [X],
        [IN],
        [OUT],
    ),
    "float on one side": (relay.qnn.op.dequantize(X, *scale(IN)), [X], [IN], [None]),
    "made from floats": (
        relay.qnn.op.quantize(F, *scale(OUT), out_dtype="uint8"),
        [F],
        [None],
        [None],  # the zero point is not one of uint8
    ),
    "a sum": (
        relay.qnn.op.add(X, W, *scale(IN), *scale((0.25, 1)), *scale(OUT)),
        [X, W],
        [IN, (0.25, 1)],
        [OUT],
    ),
    "a concatenation": (
        relay.qnn.op.concatenate(
            relay.Tuple([X, W]),
            relay.Tuple([const(0.125, "float32"), const(0.25, "float32")]),
            relay.Tuple([const(3, "int32"), const(1, "int32")]),
            *scale(OUT),
            axis=3,
        ),
        [X, W],
        [IN, (0.25, 1)],
        [OUT],
    ),
    "parts of a tuple": (relay.Tuple([SPLIT[1], SPLIT[0]]), [X], [IN], [OUT, OUT]),
    "a tuple as it is": (SPLIT.astuple(), [X], [IN], [OUT, OUT]),
    "an input that is an output": (relay.Tuple([requantized(X), X]), [X], [IN], [OUT, IN]),
    "readers that disagree": (relay.Tuple([requantized(X), requantized(X, (0.3, 3))]), [X], [None], [OUT, OUT]),
    "a scale for each channel": (
        relay.qnn.op.requantize(X, const([0.1, 0.2], "float32"), const(0, "int32"), *scale(OUT), axis=3),
        [X],
        [None],
        [OUT],
    ),
    "no scale anywhere": (relay.add(X, X), [X], [None], [None]),
    "an index, which is no value": (
        relay.take(requantized(X), relay.cast(U, "int32"), 3, mode="clip"),
        [X, U],
        [IN, None],
        [OUT],
    ),
    "not above 0": (requantized(X, (0.0, 3), (-1.0, 3)), [X], [None], [None]),
}


@pytest.mark.parametrize(("body", "inputs", "before", "behind"), CASES.values(), ids=CASES)
def test_the_operators_at_the_ends_state_the_scales(body, inputs, before, behind):
    assert found(body, *inputs) == (before, behind)


def test_a_convolution_states_those_of_a_model():
    sample = Conv()
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(sample.module()))
    (ifm,), (ofm,) = project.inputs, project.outputs
    assert (ifm.zero_point, ifm.scale is None, ofm.scale is None) == (sample.ifm_zero_point, False, False)
    baseline = byoc_hw.build(sample.module())  # without an accelerator
    assert (baseline.inputs, baseline.outputs) == (project.inputs, project.outputs)


def test_a_file_states_what_its_operators_do_not(tmp_path):
    """A reshape has no scale in Relay. A module that is another than the file's has nothing of it."""
    tensors = [
        TensorSample((1, 4), 0.25, 5, name="x"),
        TensorSample((2, 2), 0.25, 5, name="y"),
        TensorSample((2,), None, data=np.array([2, 2], np.int32), name="shape"),
    ]
    path = tmp_path / "reshape.tflite"
    path.write_bytes(network_bytes(tensors, [Node("RESHAPE", [0, 2], [1])], [0], [1]))
    mod, params = byoc_hw.load_tflite(path)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params))
    for (end,) in (project.inputs, project.outputs):
        assert (end.scale, end.zero_point) == (0.25, 5)
    x = variable((1, 5))
    mod["main"] = relay.Function([x], relay.reshape(x, (5, 1)))
    assert byoc_hw.build(mod).inputs[0].scale is None
