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
def test_the_stages_of_a_plan_on_a_chip_are_shown(capfd):
    shown = {}
    for stage in ("graph", "choices", "steps"):
        assert cli.main(["plan", MODEL, "--stage", stage, "--accelerator", "DIANA_DIGITAL+DSP"]) == 0
        shown[stage] = capfd.readouterr().out
    assert shown["graph"].startswith("graph ")
    assert shown["choices"].startswith("accelerator ")
    assert re.search(r"^group 0 +%0 ", shown["choices"], re.MULTILINE)
    assert re.match(r"plan \w+: \d+ cycles, no plan below \d+\n(diana_digital|dsp), layers %", shown["steps"])
    assert re.search(r"^  job ", shown["steps"], re.MULTILINE)


@pytest.mark.slow
def test_a_chip_is_tuned_by_several_processes(tmp_path, capfd):
    tuning, chip = str(tmp_path / "digits.tuning"), ["--accelerator", "DIANA_DIGITAL+DSP"]
    assert cli.main(["tune", MODEL, "-o", tuning, *chip, "--budget", "20", "--jobs", "2"]) == 0
    assert capfd.readouterr().out.startswith("tuned for DIANA_DIGITAL+DSP (budget 20, seed 0): ")
    assert cli.main(["build", MODEL, "--output-dir", str(tmp_path / "p"), *chip, "--tuning", tuning]) == 0
    assert "(1 of 1 regions tuned)" in capfd.readouterr().out


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
    "plan": (["plan", MODEL, "--stage", "work"], "SMALL+DSP", "--stage of a chip is one of graph, choices, steps: got"),
    "hal-test": (["hal-test"], "SMALL+DSP", "a HAL is for one accelerator, also on a chip: got SMALL+DSP"),
    "new-hal": (["new-hal", "x"], "SMALL+DSP", "a HAL is for one accelerator, also on a chip: got SMALL+DSP"),
}


@pytest.mark.parametrize(("command", "accelerator", "message"), NOT_A_CHIP.values(), ids=NOT_A_CHIP)
def test_a_chip_where_there_can_be_none(command, accelerator, message, ended, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, error = ended(*command, "--accelerator", accelerator)
    assert (code, message in error) == (2, True), error
    assert not list(tmp_path.iterdir())
