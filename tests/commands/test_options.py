"""What all commands have: the accelerator, help, usage, and how they end for a script."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest
from command_samples import MODEL

from byoc_hw import __main__ as cli


@pytest.mark.slow
def test_every_command_takes_a_file_for_the_accelerator(tmp_path, capfd):
    chip, tuning = tmp_path / "chip.toml", tmp_path / "x.tuning"
    assert cli.main(["accelerator", "--accelerator", "SMALL", "--write", str(chip)]) == 0
    assert f"--accelerator {chip}" in capfd.readouterr().out
    chip.write_text(chip.read_text().replace('"SMALL"', '"MINE"').replace("dma_width = 4 ", "dma_width = 3 "))
    mine = ["--accelerator", str(chip)]
    for command in ("explain", "plan"):
        assert cli.main([command, MODEL, *mine]) == 0
    assert cli.main(["build", MODEL, "--output-dir", str(tmp_path / "p"), *mine]) == 0
    assert "on MINE" in capfd.readouterr().out
    assert cli.main(["tune", MODEL, "-o", str(tuning), "--budget", "2", *mine]) == 0
    assert cli.main(["new-hal", str(tmp_path / "hal"), *mine]) == 0
    assert cli.main(["hal-test", "--write", str(tmp_path / "kit"), *mine]) == 0
    assert cli.main(["accelerator", *mine]) == 0
    assert "dma_width = 3 " in capfd.readouterr().out


def test_a_file_that_describes_no_accelerator(ended, tmp_path):
    chip = tmp_path / "chip.toml"
    chip.write_text("dma_width = 0\n")
    code, error = ended("build", MODEL, "--output-dir", tmp_path / "p", "--accelerator", chip)
    assert (code, error) == (2, f"byoc_hw: error: {chip}: accelerator hwlib: dma_width is at least 1: got 0\n")
    code, error = ended("explain", MODEL, "--accelerator", "LARGE")
    assert (code, "or a file that ends in .toml, .json, .py: got 'LARGE'" in error) == (2, True)
    assert list(tmp_path.iterdir()) == [chip]


REFUSED_OPTIONS = {
    "a seed below 0": (("run", "PROJECT", "--random", "-1"), "--random is at least 0: got -1"),
    "an input twice": (
        ("run", "PROJECT", *["--input", "serving_default_image:0=FILE"] * 2),
        "--input has each input once: got serving_default_image:0 twice",
    ),
    "a place twice": (
        ("build", MODEL, "--output-dir", "NEW", "--place", "conv2d=host", "--place", "conv2d=hwlib"),
        "--place has each name once: got conv2d twice",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED_OPTIONS.values(), ids=REFUSED_OPTIONS)
def test_options_that_contradict_or_mean_nothing(arguments, message, built, ended, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8, 1), np.int8))
    places = {"PROJECT": str(built), "FILE": str(tmp_path / "x.npy"), "NEW": str(tmp_path / "new")}
    for name, place in places.items():
        arguments = [one.replace(name, place) for one in arguments]
    assert ended(*arguments) == (2, f"byoc_hw: error: {message}\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "command",
    ["build", "tune", "run", "schedule", "explain", "report", "explore", "accelerator", "hal-test", "new-hal"],
)
def test_help_has_an_example_and_the_exit_codes(command, capfd):
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main([command, "--help"])
    out = capfd.readouterr().out
    assert f"example:\n  python -m byoc_hw {command} " in out
    assert "exit codes:" in out


def test_examples_in_the_help_are_commands(capfd):
    seen = []
    for command in ("build", "tune", "run", "explain", "report", "explore", "accelerator", "hal-test", "new-hal"):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        seen.append(capfd.readouterr().out.split("example:\n  python -m byoc_hw ")[1].splitlines()[0])
    for line in seen:
        assert cli._parser().parse_args(line.split()).command


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["compile"],
        ["build", MODEL],
        ["run", "x", "--on", "moon"],
        ["schedule", "x", "--timeline", "timeline.bmp"],
        ["build", MODEL, "--output-dir", "x", "--cpu-only", "--accelerator", "SMALL"],
    ],
)
def test_wrong_usage(arguments, capfd):
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(arguments)
    assert "usage:" in capfd.readouterr().err


@pytest.mark.slow
def test_ends_quietly_when_nobody_reads_on():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-W", "ignore", "-m", "byoc_hw", "explain", MODEL]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_output_that_cannot_be_written_is_an_error(monkeypatch, capfd):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(["explain", MODEL]) == 1
    error = capfd.readouterr().err
    assert error == "byoc_hw: error: the output can be written: [Errno 28] No space left on device\n"


@pytest.mark.slow
def test_names_that_the_terminal_cannot_show_are_shown_otherwise(tmp_path, monkeypatch):
    directory = tmp_path / "größe\udcff"
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "ascii"))
    assert cli.main(["build", MODEL, "--output-dir", str(directory), "--cpu-only"]) == 0
    assert rb"gr\xf6\xdfe\udcff" in shown.getvalue()
    assert directory.exists()
    monkeypatch.setattr(sys, "stdout", None)  # closed
    assert cli.main(["run", str(directory), "--random", "0"]) == 0
