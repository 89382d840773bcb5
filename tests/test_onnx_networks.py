"""Small networks as ONNX files in QDQ form: what is offloaded, what is refused and why, and every layer bit for bit."""

import re

import numpy as np
import pytest
from bit_exact import assert_equals_tvm, input_arrays
from onnx_networks import NETWORKS
from riscv32_tools import needs_riscv32

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference

ENDS = {
    "quantizelinear": "qnn.quantize is of a real input: the accelerator has integers only",
    "Identity": "qnn.dequantize is of a real output: the accelerator has integers only",
}
"""The inputs and outputs of the files are float32."""

NO_TFLITE = (
    "qnn_softmax: softmax is offloaded with numerics='tflite' only, for its integer arithmetic: got rounding upward"
)

REFUSED = {
    "mobilenet": {},
    "keywords": {"softmax": [NO_TFLITE]},
    "signals": {},
    "shuffled": {},
    "inception": {},
    "unet": {},
    "attention": {"softmax": [NO_TFLITE]},
}
"""By network: the operators of the file that are not offloaded as a whole, by their kind, and why."""

CASES = [
    ("mobilenet", "int8"),
    ("inception", "int8"),
    ("signals", "int8"),
    ("shuffled", "int8"),
    *((name, "uint8") for name in NETWORKS if name not in ("mobilenet", "inception", "shuffled")),
]
"""Of the other type they are TFLite files in `test_tflite_networks.py`, or run below."""


def refused(report):
    """The kinds of the operators on the host, with their reasons but for those of other parts of the operator."""
    found = {}
    for outcome in report.host:
        kind = re.sub(r"^/|_\d+$", "", outcome.name)
        lines = [str(rejection) for rejection in outcome.rejections]
        lines += [f"no pattern covers {', '.join(outcome.uncovered)}"] if outcome.uncovered else []
        found.setdefault(kind, []).extend(line for line in lines if "region of nothing but reshapes" not in line)
    return {kind: list(dict.fromkeys(lines)) for kind, lines in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_is_offloaded_or_refused_with_a_reason_and_exact(name, dtype, tmp_path):
    path = NETWORKS[name](dtype=dtype).save(tmp_path / f"{name}.onnx")
    mod, params = byoc_hw.load(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name=name)
    wanted = REFUSED[name] | {kind: [reason] for kind, reason in ENDS.items()}
    assert refused(byoc_hw.explain(partitioned)) == wanted
    project = byoc_hw.build(partitioned)
    rng = np.random.default_rng(0)
    shape = [int(n) for n in mod["main"].params[0].checked_type.shape]
    images = [[rng.standard_normal(shape).astype(np.float32)] for _ in range(4)]
    expected = assert_equals_tvm(project, partitioned, mod, [*images, *input_arrays(mod)], params=params)
    assert_near_onnxruntime(path, images, expected[: len(images)])


def assert_near_onnxruntime(path, images, expected, levels=4):
    """The integer module gives onnxruntime's results but for few levels of the output's scale."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (interface,) = session.get_inputs()
    for (image,), (ours,) in zip(images, expected, strict=True):
        (theirs,) = session.run(None, {interface.name: image})
        level = np.diff(np.unique(np.concatenate([ours.ravel(), theirs.ravel()])))
        step = level[level > 1e-6].min(initial=np.inf)
        assert np.abs(ours - theirs).max() <= levels * step * 1.01


@needs_riscv32
@pytest.mark.slow
def test_runs_on_riscv32(tmp_path):
    mod, params = byoc_hw.load(NETWORKS["mobilenet"](dtype="uint8").save(tmp_path / "net.onnx"))
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="net")
    inputs = list(input_arrays(mod, 1))
    found = byoc_hw.build(partitioned).run_batch(inputs, on="riscv32", trace=True)
    original = Reference(mod, params)
    for arrays, result in zip(inputs, found, strict=True):
        np.testing.assert_array_equal(result.outputs[0], original.run(arrays)[0])
