"""The shapes detector: how it was made, that it finds shapes, and that every project of it finds the same."""

import re

import numpy as np
import pytest
from quoted_output import assert_readme_quotes
from riscv32_tools import needs_riscv32
from sanitizers import SANITIZED

import byoc_hw
from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.demo import detector, shapes_network
from byoc_hw.demo.shapes import KINDS, SIDE, drawn_scenes, mean_average_precision
from byoc_hw.demo.shapes_file import quantized_file
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.frontend.tflite_file import read_tflite

pytestmark = pytest.mark.filterwarnings(r"ignore:visit_\w+ is deprecated")  # TVM's own


# ---------------------------------------------------------------- pictures, and how well they are read


def test_a_seed_draws_the_same_pictures():
    one, other, another = drawn_scenes(20, 3), drawn_scenes(20, 3), drawn_scenes(20, 4)
    assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(one, other, strict=True))
    assert not any(np.array_equal(a.pixels, b.pixels) for a, b in zip(one, another, strict=True))
    assert {int(kind) for picture in one for kind in picture.kinds} == set(range(len(KINDS)))
    for picture in one:
        assert (picture.pixels.shape, picture.pixels.dtype) == ((SIDE, SIDE), np.uint8)
        assert 1 <= len(picture.kinds) == len(picture.boxes) <= 3
        assert ((picture.boxes[:, :2] >= 0) & (picture.boxes[:, 2:] <= 1)).all()
        assert (picture.boxes[:, :2] < picture.boxes[:, 2:]).all()


def seen(picture, score=1.0):
    scores = np.full((len(picture.kinds), 1), score)
    return np.concatenate([picture.kinds[:, None], scores, picture.boxes], axis=1)


def test_precision_counts_each_shape_once():
    pictures = drawn_scenes(30, 0)
    right = [seen(picture) for picture in pictures]
    padding = np.full((2, 6), -1.0)
    assert mean_average_precision(pictures, right) == 1
    assert mean_average_precision(pictures, [np.concatenate([rows, padding]) for rows in right]) == 1
    assert mean_average_precision(pictures, [padding] * 30) == 0
    # Repeated with a lower score, they stand behind all that is right; with a higher one of the wrong kind, before it.
    again = [np.concatenate([rows, seen(picture, 0.5)]) for rows, picture in zip(right, pictures, strict=True)]
    assert mean_average_precision(pictures, again) == 1
    wrong = [np.concatenate([rows, (rows + np.eye(6)[0] + np.eye(6)[1]) % [3, 9, 2, 2, 2, 2]]) for rows in right]
    assert 0.3 < mean_average_precision(pictures, wrong) < 0.7
    half = mean_average_precision(pictures, [rows if at % 2 else padding for at, rows in enumerate(right)])
    assert 0.3 < half < 0.7
    moved = [rows + np.array([0, 0, 0.5, 0, 0.5, 0]) for rows in right]
    assert mean_average_precision(pictures, moved) < 0.05


# ---------------------------------------------------------------- the network


def test_gradients_are_those_of_the_network():
    rng = np.random.default_rng(0)
    parameters = {  # moved from the biases of 0, where a ReLU has no gradient
        name: tuple(one + rng.normal(0, 0.05, one.shape) for one in pair)
        for name, pair in shapes_network.untrained(1).items()
    }
    pictures = rng.random((2, SIDE, SIDE, 1))
    values = shapes_network.forward(parameters, pictures)
    heads = [name for names in shapes_network.HEADS.values() for name in names]
    weights = {name: rng.normal(size=values[name].shape) for name in heads}
    found = shapes_network.backward(parameters, values, weights)

    def loss(name, place, step):
        own = tuple(one + (step if at == place else 0) for at, one in enumerate(parameters[name]))
        values = shapes_network.forward({**parameters, name: own}, pictures)
        return sum(float((values[head] * weights[head]).sum()) for head in heads)

    for name in ("stem", "spread_4", "lateral", "spread_6", "coarse_boxes"):
        for place, gradient in enumerate(found[name]):
            direction = gradient / np.linalg.norm(gradient) * 1e-7
            change = loss(name, place, direction) - loss(name, place, -direction)
            assert change == pytest.approx(2 * float((gradient * direction).sum()), rel=1e-3)


def test_the_file_is_what_the_script_writes_but_for_its_weights(tmp_path):
    pictures = np.random.default_rng(0).random((3, SIDE, SIDE, 1), np.float32)
    made, shipped = tmp_path / "made.tflite", detector.detector_path()
    made.write_bytes(quantized_file(shapes_network.untrained(0), pictures))
    assert shipped.stat().st_size == made.stat().st_size <= 200 * 1024
    assert structure(shipped) == structure(made)


def structure(path):
    """Operators, and tensors with their types, of a file."""
    file = read_tflite(path)
    operators = [(one.code, one.inputs, one.outputs) for one in file.operators]
    return operators, [(one.name, one.shape, one.dtype, one.constant) for one in file.tensors]


@pytest.mark.slow
def test_the_network_has_tflites_results():
    pytest.importorskip("tflite_runtime", reason="the oracle: install the package tflite-runtime==2.14.0")
    path = detector.detector_path()
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(path), numerics="tflite"))
    assert not project.report.host
    inputs = [stored(picture) for picture in drawn_scenes(3, detector.HELDOUT_SEED)]
    validation = byoc_hw.validate(project, inputs, path)
    assert validation, str(validation)


# ---------------------------------------------------------------- what it finds


def stored(picture):
    return (picture.pixels.astype(np.int16) - 128).astype(np.int8)[None, :, :, None]


@pytest.mark.slow  # TVM compiles the whole network for the host
def test_every_project_finds_the_same_and_nearly_all_shapes(capsys):
    assert detector.main([]) == 0
    out = capsys.readouterr().out
    assert_readme_quotes(out, "on host")
    assert "all three find the same, bit for bit" in out
    precisions = [float(found) for found in re.findall(r"mAP (\d\.\d+)", out)]
    assert len(precisions) == 3
    assert min(precisions) > 0.85
    assert re.findall(r"suppression on (\w+)", out) == ["dsp", "host", "host"]


@pytest.mark.slow
def test_the_dsp_of_the_chip_suppresses():
    """With the bits of the host's function, which one accelerator leaves it to."""
    chip, alone = detector.detector_project(detector.CHIP), detector.detector_project(detector.DLA)
    assert (detector.suppressed_on(chip), detector.suppressed_on(alone)) == ("dsp", "host")
    assert "host_suppress" not in (chip.directory / "src" / "shapes_host.c").read_text()
    pictures = drawn_scenes(2, 6)
    here, there = (detector.found_shapes(project, pictures) for project in (chip, alone))
    assert np.stack(here).tobytes() == np.stack(there).tobytes()


@pytest.mark.slow  # the host alone, which is compared above, has TVM's own layers in C
@pytest.mark.parametrize("accelerator", [REFERENCE, SMALL], ids=lambda one: one.label)
def test_finds_what_tvm_finds(accelerator):
    pictures = drawn_scenes(10, 5)
    reference = Reference(*detector.detector())
    project = detector.detector_project(accelerator)
    results = project.run_batch(
        [[stored(picture)] for picture in pictures], toolchain=byoc_hw.Toolchain(cflags=SANITIZED)
    )
    for picture, result in zip(pictures, results, strict=True):
        np.testing.assert_array_equal(result.outputs[0], reference.run([stored(picture)])[0])


@pytest.mark.slow
@needs_riscv32
def test_finds_the_same_on_riscv32():
    pictures = drawn_scenes(2, 6)
    project = detector.detector_project(REFERENCE)
    here, there = (detector.found_shapes(project, pictures, on) for on in ("host", "riscv32"))
    assert np.stack(here).tobytes() == np.stack(there).tobytes()
    assert any(row[0] >= 0 for rows in here for row in rows)
