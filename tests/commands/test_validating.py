"""`python -m byoc_hw validate`: the inputs that it takes, what it prints, and how it ends."""

import csv
import io
import json

import numpy as np
import pytest
from command_samples import MODEL
from riscv32_tools import needs_riscv32

import byoc_hw
from byoc_hw import __main__ as cli
from byoc_hw.commands.arrays import given_samples
from byoc_hw.demo import heldout
from byoc_hw.errors import InvalidInput
from byoc_hw.run.new_hal import new_hal
from byoc_hw.run.real_values import Interface


def validate(*options):
    return cli.main(["validate", MODEL, *map(str, options)])


@pytest.mark.slow
@pytest.mark.needs_relay
def test_every_layer_of_several_inferences_is_exact(built, tmp_path, capsys):
    np.save(tmp_path / "images.npy", heldout().images[:3])
    assert validate("--project", built, "--samples", tmp_path / "images.npy") == 0
    headline, _, *rows = capsys.readouterr().out.splitlines()
    assert headline == "equal: 14 layers and outputs in 3 inferences"
    assert len(rows) == 14
    assert all(row.endswith("exact") for row in rows)


@pytest.mark.slow
@pytest.mark.needs_relay
def test_another_arithmetic_differs_and_the_exit_code_says_so(built, capsys):
    assert validate("--project", built, "--random", 0, "--reference", "tflite", "--json") == 1
    out, error = capsys.readouterr()
    plain = json.loads(out)
    assert plain["comparisons"][0]["largest"] == 1
    assert 0.99 < plain["comparisons"][0]["cosine"] < 1
    assert error == "byoc_hw: error: digits on host: 14 of 14 layers and outputs in 1 inferences differ\n"
    assert validate("--project", built, "--random", 0, "--reference", "tflite", "--tolerance", 300, "--csv") == 0
    assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == 14


@pytest.mark.needs_relay
def test_tflite_numerics_are_compared_with_tflite(capsys):
    assert validate("--random", 0, "--count", 2, "--numerics", "tflite") == 0
    assert capsys.readouterr().out.startswith("equal: ")


@needs_riscv32
@pytest.mark.slow
@pytest.mark.needs_relay
def test_on_riscv32(built, capsys):
    assert validate("--project", built, "--random", 0, "--on", "riscv32") == 0
    assert "exact" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.needs_relay
def test_on_a_hal_of_ones_own(built, tmp_path, capsys):
    new_hal(tmp_path / "hal")
    assert validate("--project", built, "--random", 0, "--hal", tmp_path / "hal") == 0
    assert "equal: 14 layers" in capsys.readouterr().out


REFUSED = {
    "count": (("--random", 0, "--count", 0), "--count is at least 1: got 0"),
    "both": (("--samples", "x.npy", "--count", 2), "--count is for --random"),
    "no file": (("--samples", "none.npy"), "--samples is an .npy file of the only input, or an .npz file"),
    "hal": (("--random", 0, "--hal", "none"), "hal is a directory with C files: none has none"),
    "no project": (("--random", 0, "--project", "none"), "a project directory holds metadata.json"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_the_rule(options, message, capsys):
    assert validate(*options) == 2
    assert message in capsys.readouterr().err


def test_a_project_of_another_arithmetic_is_refused(built, capsys):
    assert validate("--project", built, "--random", 0, "--numerics", "tflite") == 2
    rule = "--numerics is that of the project, relay, unless --reference says whose results: got tflite"
    assert rule in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.needs_relay
def test_a_project_for_another_accelerator_is_compared_layer_by_layer(built, capsys):
    assert validate("--project", built, "--random", 0, "--accelerator", "SMALL+DSP") == 0
    assert "equal: 14 layers" in capsys.readouterr().out


X, Y = Interface("x", "int8", (1, 4), 4), Interface("y", "float32", (2, 3), 24)


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_samples_are_of_one_or_several_inferences(tmp_path):
    x, y = np.arange(8, dtype=np.int8).reshape(2, 4), np.ones((2, 2, 3), np.float32)
    first, second = given_samples([X, Y], saved(tmp_path / "s.npz", x=x, y=y))
    np.testing.assert_array_equal(second["x"], x[1:])
    assert second["y"].shape == (2, 3)
    (only,) = given_samples([X], saved(tmp_path / "t.npz", x=x[:1]))
    assert only["x"].shape == (1, 4)
    assert [one["x"].shape for one in given_samples([X], saved(tmp_path / "u.npz", x=x[:, None]))] == [(1, 4)] * 2
    assert first.keys() == {"x", "y"}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((1, 5), np.int8)}, r"input x: shape is \(1, 4\), or that of several: got \(1, 5\)"),
        ({"x": np.zeros((0, 4), np.int8)}, r"input x: shape is \(1, 4\), or that of several: got \(0, 4\)"),
        ({"x": np.zeros((1, 4))}, "input x: dtype is int8: got float64"),
        ({"z": np.zeros((1, 4), np.int8)}, "none for x: got z"),
        (
            {"x": np.zeros((2, 4), np.int8), "y": np.zeros((3, 2, 3), np.float32)},
            "--samples has as many inferences for each input: got x 2, y 3",
        ),
    ],
)
def test_samples_that_do_not_fit(arrays, message, tmp_path):
    expected = [X, Y] if "y" in arrays else [X]
    with pytest.raises(InvalidInput, match=message):
        given_samples(expected, saved(tmp_path / "s.npz", **arrays))


def test_one_array_is_of_a_model_with_one_input(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.int8))
    with pytest.raises(InvalidInput, match="the model has 2 inputs: got one array"):
        given_samples([X, Y], tmp_path / "x.npy")
    assert byoc_hw.Comparison("x", None, "output", 0, 1, 0.0, 0.0, 1.0).exact
