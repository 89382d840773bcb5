"""`python -m byoc_hw build` and `tune`: what they write and print, and what they refuse."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from command_samples import MODEL
from tflite_samples import Node, TensorSample, network_bytes
from tvm import relay

import byoc_hw
from byoc_hw import __main__ as cli
from byoc_hw.commands.options import ACCELERATORS
from byoc_hw.demo import model_path


def test_build_says_what_it_made(tmp_path, capfd):
    directory = tmp_path / "new" / "digits"
    assert cli.main(["build", MODEL, "--output-dir", str(directory), "--mod-name", "digits"]) == 0
    out, error = capfd.readouterr()
    assert error == ""
    assert "digits on REFERENCE" in out
    assert "arena" in out
    assert str(directory) in out
    assert (directory / "src/digits_main.c").exists()


@pytest.mark.slow
def test_build_takes_another_accelerator_and_denied_operators(tmp_path, capfd):
    arguments = ["--accelerator", "SMALL", "--deny", "qnn_add", "max_pool2d"]
    assert cli.main(["build", MODEL, "--output-dir", str(tmp_path / "p"), *arguments]) == 0
    out = capfd.readouterr().out
    assert "on SMALL" in out
    assert "kept on the host by deny='qnn_add'" in out
    assert "kept on the host by deny='max_pool2d'" in out


@pytest.mark.slow
def test_build_for_the_host_alone(tmp_path, capfd):
    assert cli.main(["build", MODEL, "--output-dir", str(tmp_path / "p"), "--cpu-only"]) == 0
    assert "not partitioned" in capfd.readouterr().out
    assert not list((tmp_path / "p").rglob("hwlib*"))


@pytest.mark.parametrize(
    ("file", "name"),
    [("8 bit-v1.2.tflite", "model_8_bit_v1_2"), pytest.param("stdio.tflite", "model_stdio", marks=pytest.mark.slow)],
)
def test_a_model_is_called_after_its_file(file, name, tmp_path, capfd):
    shutil.copy(MODEL, tmp_path / file)
    assert cli.main(["explain", str(tmp_path / file)]) == 0
    assert capfd.readouterr().out.startswith(f"{name} on REFERENCE")
    assert cli.main(["build", str(tmp_path / file), "--output-dir", str(tmp_path / "p")]) == 0
    assert (tmp_path / f"p/include/{name}.h").exists()


@pytest.mark.slow
def test_tune_finds_plans_that_build_takes(tmp_path, capfd):
    tuning, directory = tmp_path / "digits.tuning", tmp_path / "digits"
    small = ["--accelerator", "SMALL"]
    assert cli.main(["tune", MODEL, "-o", str(tuning), *small, "--budget", "20", "--jobs", "2"]) == 0
    out, error = capfd.readouterr()
    assert out.startswith("tuned for SMALL (budget 20, seed 0): ")
    assert error.endswith("\n")
    assert error.splitlines()[-1].startswith("region 1 of 1: 20 of 20 plans, ")
    assert cli.main(["build", MODEL, "--output-dir", str(directory), *small, "--tuning", str(tuning)]) == 0
    assert "(1 of 1 regions tuned)" in capfd.readouterr().out


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"not a model at all",
        model_path().read_bytes()[:3000],
        model_path().read_bytes()[:40000],
        b"\0" * 4 + b"TFL3" + b"\xff" * 100,
    ],
    ids=["empty", "text", "cut short", "cut late", "noise behind the identifier"],
)
def test_a_corrupt_model(contents, ended, tmp_path):
    model = tmp_path / "bad.tflite"
    model.write_bytes(contents)
    for arguments in (["build", model, "--output-dir", tmp_path / "p"], ["explain", model]):
        code, error = ended(*arguments)
        assert code == 2
        assert "bad.tflite" in error
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tflite"]


def test_a_model_with_an_operator_that_stops_the_import(ended, tmp_path, capfd):
    """It has a report, and no project."""
    tensors = [TensorSample((1, 4), name=name) for name in "xy"]
    model = tmp_path / "svdf.tflite"
    model.write_bytes(network_bytes(tensors, [Node("RNN", [0], [1])], [0], [1]))
    for command in (["build", model, "--output-dir", tmp_path / "p"], ["plan", model]):
        code, error = ended(*command)
        assert code == 2
        assert "RNN (y): operator is one that TVM's TFLite importer has: got code 24" in error
    assert [path.name for path in tmp_path.iterdir()] == ["svdf.tflite"]
    assert cli.main(["explain", str(model)]) == 0
    assert "cannot be built, 1 operator stops the import" in capfd.readouterr().out


def test_a_model_that_is_not_there(ended, tmp_path):
    code, error = ended("build", tmp_path / "none.tflite", "--output-dir", tmp_path / "p")
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "none.tflite: cannot be read: No such file or directory" in error


@pytest.mark.parametrize("name", ["my-model", "8bit", "a b", "", "ünï"])
@pytest.mark.parametrize("more", [[], ["--cpu-only"]])
def test_a_mod_name_that_c_does_not_take(name, more, ended, tmp_path):
    code, error = ended("build", MODEL, "--output-dir", tmp_path / "p", "--mod-name", name, *more)
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert repr(name) in error


def test_a_denied_name_that_nothing_has(ended, tmp_path):
    code, error = ended("build", MODEL, "--output-dir", tmp_path / "p", "--deny", "qnn_convolution")
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "'qnn_convolution'" in error
    assert "qnn_conv2d" in error  # what it could have been


@pytest.mark.slow
def test_a_composite_can_be_denied_in_a_new_process():
    # Before anything else has loaded the patterns.
    command = [sys.executable, "-m", "byoc_hw", "explain", MODEL, "--deny", "qnn_add"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "kept on the host by deny='qnn_add'" in done.stdout


def test_a_tuning_that_does_not_belong_to_the_build(ended, tmp_path):
    tuning = tmp_path / "digits.tuning"
    code, error = ended("build", MODEL, "--output-dir", tmp_path / "x", "--tuning", tuning)
    assert (code, "a tuning is a file that Tuning.save wrote" in error) == (2, True)
    code, error = ended("build", MODEL, "--output-dir", tmp_path / "x", "--tuning", tuning, "--cpu-only")
    assert (code, "with --cpu-only there are none" in error) == (2, True)
    code, error = ended("tune", MODEL, "-o", tuning, "--jobs", "0")
    assert (code, "--jobs is at least 1: got 0" in error) == (2, True)
    assert not list(tmp_path.iterdir())


def test_a_directory_with_other_files_is_left_alone(ended, tmp_path):
    (tmp_path / "thesis.txt").write_text("five years of work")
    code, error = ended("build", MODEL, "--output-dir", tmp_path)
    assert (code, [path.name for path in tmp_path.iterdir()]) == (2, ["thesis.txt"])
    assert "holds other files" in error


@pytest.mark.slow
def test_a_model_that_does_not_fit(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(ACCELERATORS, "SMALL", replace(byoc_hw.SMALL, flash=1000))
    assert cli.main(["build", MODEL, "--output-dir", str(tmp_path / "p"), "--accelerator", "SMALL"]) == 2
    assert "flash" in capfd.readouterr().err  # with a line for each of the largest owners
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_edited_program_is_kept_and_named_or_replaced_with_force(built, tmp_path, capfd):
    project = shutil.copytree(built, tmp_path / "digits")
    main = project / "app" / "main.c"
    generated = main.read_text()
    main.write_text(generated + "/* mine */\n")
    command = ["build", MODEL, "--output-dir", str(project), "--mod-name", "digits"]
    assert cli.main([*command, "--deny", "qnn_add"]) == 0
    assert (
        capfd.readouterr().err
        == "byoc_hw: note: edited, and kept (--force replaces what the project has): app/main.c\n"
    )
    assert main.read_text() == generated + "/* mine */\n"
    assert cli.main(["run", str(project), "--random", "0"]) == 0
    assert capfd.readouterr().err == f"byoc_hw: note: files of {project} are not as build wrote them: app/main.c\n"
    assert cli.main([*command, "--force"]) == 0
    assert (main.read_text(), capfd.readouterr().err) == (generated, "")


@pytest.mark.slow
def test_commands_that_are_suggested_can_be_pasted(tmp_path, capfd):
    directory, tuning = tmp_path / "two words; $(x) 'q'", tmp_path / "a tuning"
    assert cli.main(["build", MODEL, "--output-dir", str(directory), "--cpu-only"]) == 0
    hint = capfd.readouterr().out.rstrip().splitlines()[-1]
    assert shlex.split(hint.split(str(directory) + ": ", 1)[1]) == ["make", "-C", str(directory)]
    assert cli.main(["tune", MODEL, "-o", str(tuning), "--budget", "1"]) == 0
    hint = capfd.readouterr().out.rstrip().splitlines()[-1]
    assert shlex.split(hint.split(str(tuning) + ": ", 1)[1])[-2:] == ["--tuning", str(tuning)]


def test_tune_looks_at_its_target_first(ended, tmp_path):
    (tmp_path / "file").write_text("")
    for target, said in (
        (tmp_path, "is a new file or an earlier one: it is a directory"),
        (tmp_path / "none" / "x", "can be written: .*No such file or directory"),
        (tmp_path / "file" / "x", "can be written: .*Not a directory"),
        (tmp_path / ("x" * 300), "can be written: .*File name too long"),
        (Path("/dev/null"), "is a new file or an earlier one: it is none"),
    ):
        code, error = ended("tune", tmp_path / "no model", "-o", target)
        assert code == 2
        assert re.search(said, error)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_an_interrupted_tune_keeps_what_it_found(tmp_path):
    tuning = tmp_path / "digits.tuning"
    command = ["tune", MODEL, "-o", str(tuning), "--accelerator", "SMALL", "--budget", "20000", "--jobs", "2"]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "byoc_hw", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert "plans, " in process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    *_, note, last = error.splitlines()
    assert note == f"byoc_hw: note: interrupted: the best plans so far are in {tuning}"
    assert last == "byoc_hw: error: interrupted"
    assert "Traceback" not in error
    assert byoc_hw.Tuning.load(tuning).regions


def test_a_float_model_stays_on_the_host_and_still_builds(tmp_path):
    x = relay.var("x", shape=(1, 4), dtype="float32")
    weights = relay.const(np.arange(12, dtype="float32").reshape(3, 4))
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, weights)))
    partitioned = byoc_hw.partition_for_hwlib(mod, mod_name="floats")
    assert "0 of 2 operators offloaded" in str(byoc_hw.explain(partitioned))
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "p")
    result = project.run(np.ones((1, 4), "float32"))
    np.testing.assert_array_equal(result.outputs[0], [[6, 22, 38]])
    assert result.cycles is None
