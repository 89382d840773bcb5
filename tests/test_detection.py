"""What stands behind a detector: boxes are decoded, counted and suppressed on the host, with TVM's results."""

import numpy as np
import pytest
from relay_samples import module, variable
from riscv32_tools import needs_riscv32
from sanitizers import SANITIZED
from tflite_samples import Node, TensorSample, custom_options, network_bytes
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference

pytestmark = pytest.mark.filterwarnings(r"ignore:visit_\w+ is deprecated")  # TVM's own

STRICT = f"{SANITIZED} -Wall -Wextra -Wconversion"
ANCHORS, CLASSES, MOST = 30, 3, 12


def postprocess(regular):
    """A TFLite file of nothing but TFLite_Detection_PostProcess, on quantized boxes and scores."""
    rng = np.random.default_rng(0)
    anchors = np.concatenate([rng.uniform(0, 1, (ANCHORS, 2)), rng.uniform(0.1, 0.5, (ANCHORS, 2))], 1)
    outputs = {"boxes": (1, MOST, 4), "classes": (1, MOST), "scores": (1, MOST), "count": (1,)}
    tensors = [
        TensorSample((1, ANCHORS, 4), 0.05, 3, name="encodings"),
        TensorSample((1, ANCHORS, CLASSES + 1), 1 / 256, -128, name="predictions"),
        TensorSample(anchors.shape, None, data=anchors.astype(np.float32), name="anchors"),
        *(TensorSample(shape, None, dtype="FLOAT32", name=name) for name, shape in outputs.items()),
    ]
    options = custom_options(
        max_detections=MOST,
        max_classes_per_detection=1,
        detections_per_class=4,
        use_regular_nms=regular,
        nms_score_threshold=0.3,
        nms_iou_threshold=0.5,
        num_classes=CLASSES,
        **{"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0},
    )
    node = Node("CUSTOM", [0, 1, 2], [3, 4, 5, 6], custom="TFLite_Detection_PostProcess", custom_options=options)
    return network_bytes(tensors, [node], [0, 1], [3, 4, 5, 6])


def encodings(seed):
    """Boxes, and scores with many ties, of which fewer pass the threshold from seed to seed."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(-4, 4, (1, ANCHORS, CLASSES + 1)) * 32
    scores[rng.random(scores.shape) < seed / 5] = -128
    return [rng.integers(-40, 40, (1, ANCHORS, 4)).astype(np.int8), scores.astype(np.int8)]


def assert_equals_tvm(project, reference, inputs, on="host"):
    """The outputs. On riscv32 the compiler's own flags: there is no sanitizer."""
    toolchain = byoc_hw.Toolchain(cflags=STRICT) if on == "host" else byoc_hw.Toolchain()
    results = project.run_batch(inputs, on=on, toolchain=toolchain)
    for given, result in zip(inputs, results, strict=True):
        for found, want in zip(result.outputs, reference.run(given), strict=True):
            assert found.dtype == want.dtype
            np.testing.assert_array_equal(found, want)
    return [result.outputs for result in results]


@pytest.mark.slow
@pytest.mark.parametrize(("regular", "numerics"), [(False, "relay"), (False, "tflite"), (True, "tflite")])
def test_postprocessing_of_a_tflite_file_has_tvms_results(tmp_path, regular, numerics):
    path = tmp_path / "detections.tflite"
    path.write_bytes(postprocess(regular))
    mod, params = byoc_hw.load_tflite(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, numerics=numerics)
    (outcome,) = byoc_hw.explain(partitioned).outcomes
    assert outcome.placement == "host"
    assert "vision.multibox_transform_loc" in outcome.uncovered
    project = byoc_hw.build(partitioned)
    outputs = assert_equals_tvm(project, Reference(mod, params), [encodings(seed) for seed in range(6)])
    counts = [int(count[0]) for *_, count in outputs]
    assert len(set(counts)) > 2
    assert min(counts) < MOST  # padding behind the detections


@pytest.mark.slow
def test_the_dsp_of_a_chip_suppresses_for_a_tflite_file(tmp_path):
    """As the importer writes it: the numbers of boxes stand for the indices, which nobody reads."""
    path = tmp_path / "detections.tflite"
    path.write_bytes(postprocess(False))
    mod, params = byoc_hw.load_tflite(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, accelerator=byoc_hw.Soc((byoc_hw.DSP,)))
    (outcome,) = byoc_hw.explain(partitioned).outcomes
    assert outcome.composites == ("non_max_suppression",)
    project = byoc_hw.build(partitioned)
    assert_equals_tvm(project, Reference(mod, params), [encodings(seed) for seed in range(4)])
    assert [layer["kind"] for layer in project.layers if layer["region"]] == ["suppression"]


DECODINGS = (
    {"threshold": 0.3},
    {"clip": False, "variances": (0.125, 0.25, 0.2, 0.1)},
    {"keep_background": True, "threshold": 0.6},
)


def decoding():
    """Decoded boxes and their counts, form by form: behind those that are counted TVM writes nothing at all."""
    inputs = [
        variable((2, CLASSES, ANCHORS), "float32", "scores"),
        variable((2, ANCHORS * 4), "float32", "offsets"),
        variable((1, ANCHORS, 4), "float32", "anchors"),
    ]
    forms = [relay.vision.multibox_transform_loc(*inputs, **attributes) for attributes in DECODINGS]
    return module(relay.Tuple([output for form in forms for output in form]), *inputs)


def candidates(seed):
    rng = np.random.default_rng(seed)
    corners = np.sort(rng.uniform(0, 1, (1, ANCHORS, 2, 2)), axis=2).reshape(1, ANCHORS, 4)
    scores, offsets = rng.integers(0, 5, (2, CLASSES, ANCHORS)) / 4, rng.normal(0, 3, (2, ANCHORS * 4))
    return [scores.astype(np.float32), offsets.astype(np.float32), corners.astype(np.float32)]


def test_boxes_are_decoded_as_tvm_does():
    mod = decoding()
    project, reference = byoc_hw.build(mod), Reference(mod)
    for seed in range(3):
        given = candidates(seed)
        found, expected = project.run(given, toolchain=byoc_hw.Toolchain(cflags=STRICT)).outputs, reference.run(given)
        for form in range(len(DECODINGS)):
            boxes, counts = expected[2 * form : 2 * form + 2]
            np.testing.assert_array_equal(found[2 * form + 1], counts)
            for batch, count in enumerate(counts):
                np.testing.assert_array_equal(found[2 * form][batch, :count], boxes[batch, :count])


def counting():
    boxes, threshold = variable((2, 20, 6), "float32", "boxes"), variable((), "float32", "threshold")
    forms = (
        relay.vision.get_valid_counts(boxes, 0.5),
        relay.vision.get_valid_counts(boxes, 0.0, id_index=-1, score_index=3),
        relay.vision.get_valid_counts(boxes, threshold, id_index=5, score_index=0),
    )
    return module(relay.Tuple([output for form in forms for output in form]), boxes, threshold)


def test_boxes_are_counted_as_tvm_does():
    mod = counting()
    rng = np.random.default_rng(0)
    thresholds = [np.array(threshold, np.float32) for threshold in (-9, 0, 0.5, 9)]
    inputs = [[(rng.integers(-2, 5, (2, 20, 6)) / 4).astype(np.float32), threshold] for threshold in thresholds]
    assert_equals_tvm(byoc_hw.build(mod), Reference(mod), inputs)


@pytest.mark.slow
@needs_riscv32
def test_detections_are_the_same_on_riscv32(tmp_path):
    path = tmp_path / "detections.tflite"
    path.write_bytes(postprocess(regular=False))
    mod, params = byoc_hw.load_tflite(path)
    project = byoc_hw.build(mod, params)
    assert_equals_tvm(project, Reference(mod, params), [encodings(seed) for seed in (1, 4)], on="riscv32")
