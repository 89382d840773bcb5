"""`--place` and `--objective`, and chips of several accelerators on the command line."""

import re

import pytest
from command_samples import MODEL

from byoc_hw import __main__ as cli


@pytest.mark.slow
def test_a_chip_of_two_equal_presets_is_built_polled_and_run(tmp_path, capfd):
    project = str(tmp_path / "p")
    chip = ["--accelerator", "REFERENCE+REFERENCE"]
    assert cli.main(["build", MODEL, "--output-dir", project, *chip, "--poll", "--flash", "200k"]) == 0
    assert "on REFERENCE+REFERENCE" in capfd.readouterr().out
    assert (tmp_path / "p" / "hwlib" / "reference_2").is_dir()
    header = (tmp_path / "p" / "include" / "digits_int8.h").read_text()
    assert "int32_t digits_int8_poll(bool *done);" in header
    assert cli.main(["run", project, "--random", "0", "--profile"]) == 0
    assert re.fullmatch(r"\d+ polls", capfd.readouterr().out.splitlines()[-1])


@pytest.mark.slow
def test_explain_takes_a_chip(capfd):
    assert cli.main(["explain", MODEL, "--accelerator", "DIANA_DIGITAL+DSP"]) == 0
    assert "alone diana_digital " in capfd.readouterr().out


@pytest.mark.slow
def test_layers_are_placed_by_wish_and_objective(tmp_path, capfd):
    wishes = ["--objective", "latency", "--place", "pool2d=host", "--place", "add=hwlib"]
    assert cli.main(["build", MODEL, "--output-dir", str(tmp_path / "p"), *wishes]) == 0
    said = capfd.readouterr().out
    assert "placed for latency" in said
    assert "by place={'pool2d': 'host'}" in said


@pytest.mark.slow
def test_weights_of_energy_are_an_objective(tmp_path, capfd):
    weights = ["--objective", "hwlib=2,copied=0.5,host=1"]
    assert cli.main(["build", MODEL, "--output-dir", str(tmp_path / "p"), *weights]) == 0
    assert "placed for energy: " in capfd.readouterr().out


NOT_PLACED = {
    "objective": (["--objective", "speed"], "--objective is latency, or weights of energy as in hwlib=12,copied"),
    "weight": (["--objective", "hwlib=2,host=1"], "got 'hwlib=2,host=1', without copied"),
    "accelerator": (["--objective", "npu=2,copied=1,host=1"], "a weight for each of hwlib: none for hwlib"),
    "wish": (["--place", "softmax"], "--place is NAME=WHERE, as in softmax=host: got 'softmax'"),
    "nowhere": (["--place", "conv2d=gpu"], "place: an operator runs on hwlib or host: got 'gpu' for conv2d"),
    "host": (["--cpu-only", "--objective", "latency"], "with --cpu-only all run on the host"),
    "weights": (["--cpu-only", "--weights", "binary"], "--weights says how constants of regions are written"),
}


@pytest.mark.parametrize(("options", "message"), NOT_PLACED.values(), ids=NOT_PLACED)
def test_a_place_that_there_is_not(options, message, ended, tmp_path):
    code, error = ended("build", MODEL, "--output-dir", tmp_path / "p", *options)
    assert (code, message in error) == (2, True), error
    assert not list(tmp_path.iterdir())


NOT_A_CHIP = {
    "unknown": (["explain", MODEL], "NPU", "--accelerator is one of REFERENCE, SMALL, DIANA_DIGITAL, DSP, or several"),
    "half of one": (
        ["explain", MODEL],
        "DSP+",
        "as in DIANA_DIGITAL+DSP, or a file that ends in .toml, .json, .py: got 'DSP+'",
    ),
    "too many": (["explain", MODEL], "+".join(["DSP"] * 17), "accelerators are 1 to 16: got 17"),
    "tune": (["tune", MODEL, "-o", "x"], "SMALL+DSP", "tuning is for one accelerator: SMALL+DSP has several"),
    "plan": (["plan", MODEL], "SMALL+DSP", "the stages of planning are those of one accelerator: got SMALL+DSP"),
    "hal-test": (["hal-test"], "SMALL+DSP", "a HAL is for one accelerator, also on a chip: got SMALL+DSP"),
    "new-hal": (["new-hal", "x"], "SMALL+DSP", "a HAL is for one accelerator, also on a chip: got SMALL+DSP"),
}


@pytest.mark.parametrize(("command", "accelerator", "message"), NOT_A_CHIP.values(), ids=NOT_A_CHIP)
def test_a_chip_where_there_can_be_none(command, accelerator, message, ended, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, error = ended(*command, "--accelerator", accelerator)
    assert (code, message in error) == (2, True), error
    assert not list(tmp_path.iterdir())
