"""The command line: what each command prints, and how it ends for a script."""

import csv
import io
import json
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
from tflite_samples import Node, TensorSample, network_bytes
from tvm import relay

import byoc_hw
from byoc_hw import __main__ as cli
from byoc_hw.commands.options import ACCELERATORS
from byoc_hw.compiler import region_graphs
from byoc_hw.demo import heldout, model_path
from byoc_hw.pattern import patterns
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.stages import STAGES
from byoc_hw.run.new_hal import new_hal

MODEL = str(model_path())
INPUT = "serving_default_image:0"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The digits project; a test that changes it takes a copy."""
    directory = tmp_path_factory.mktemp("cli") / "digits"
    assert cli.main(["build", MODEL, "--output-dir", str(directory), "--mod-name", "digits"]) == 0
    return directory


@pytest.fixture
def ended(capfd):
    """Run a command that is to fail: its exit code and the one line that it left on stderr."""

    def run(*arguments):
        code = cli.main([str(argument) for argument in arguments])
        out, error = capfd.readouterr()
        assert out == ""
        assert error.startswith("byoc_hw: error: ")
        assert error.count("\n") == 1, error
        return code, error

    return run


def save(path, array):
    np.save(path, array)
    return f"{INPUT}={path}"


# ---------------------------------------------------------------- what works


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


def test_run_writes_what_the_api_gives(built, tmp_path):
    image = heldout().images[:1]
    given = save(tmp_path / "image=1.npy", image)  # an equals sign in the path too
    assert cli.main(["run", str(built), "--input", given, "--output-dir", str(tmp_path / "outputs")]) == 0
    (written,) = (tmp_path / "outputs").iterdir()
    np.testing.assert_array_equal(np.load(written), byoc_hw.Project(built).run(image).outputs[0])


def test_run_takes_and_gives_real_values(built, tmp_path):
    project = byoc_hw.Project(built)
    (ifm,), (ofm,) = project.inputs, project.outputs
    x = np.random.default_rng(0).integers(-128, 128, ifm.shape, np.int8)
    np.save(tmp_path / "x.npy", ifm.dequantize(x))
    options = ["--quantize", "--output-dir", str(tmp_path), "--input", f"{ifm.name}={tmp_path / 'x.npy'}"]
    assert cli.main(["run", str(built), *options]) == 0
    (saved,) = (path for path in tmp_path.glob("*.npy") if path.name != "x.npy")
    np.testing.assert_array_equal(np.load(saved), ofm.dequantize(project.run(x).outputs[0]))
    assert cli.main(["run", str(built), "--quantize", "--random", "0"]) == 0


def test_run_shows_cycles_by_layer(built, capfd):
    assert cli.main(["run", str(built), "--random", "0", "--profile"]) == 0
    out = capfd.readouterr().out
    total = byoc_hw.Project(built).run(heldout().images[:1]).cycles.total
    assert "depthwise_conv2d" in out
    assert out.rstrip().splitlines()[-1].split()[:2] == ["total", str(total)]


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


def test_random_inputs_depend_on_the_seed_alone(built, capfd):
    outputs = []
    for seed in ("1", "1", "2"):
        assert cli.main(["run", str(built), "--random", seed]) == 0
        outputs.append(capfd.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]


@pytest.mark.slow
def test_run_of_a_project_without_regions_has_no_cycles(tmp_path, capfd):
    assert cli.main(["build", MODEL, "--output-dir", str(tmp_path / "p"), "--cpu-only"]) == 0
    assert cli.main(["run", str(tmp_path / "p"), "--random", "0", "--profile"]) == 0
    assert "no cycles" in capfd.readouterr().out


def test_explain_for_people_and_for_programs(capfd):
    assert cli.main(["explain", MODEL]) == 0
    assert "qnn_softmax: softmax is offloaded with numerics='tflite' only" in capfd.readouterr().out
    assert cli.main(["explain", MODEL, "--numerics", "tflite"]) == 0
    assert "(numerics tflite): 14 of 14 operators offloaded" in capfd.readouterr().out
    assert cli.main(["explain", MODEL, "--json", "--deny", "qnn_conv2d"]) == 0
    outcomes = json.loads(capfd.readouterr().out)["outcomes"]
    assert {outcome["placement"] for outcome in outcomes} >= {"accelerator", "host"}


@pytest.mark.slow
def test_hal_test_prints_a_line_for_each_check(capfd):
    assert cli.main(["hal-test", "--accelerator", "SMALL", "--cflags=-O0"]) == 0
    out, error = capfd.readouterr()
    assert error == ""
    assert "ok hwlib_hal_copy_2d: main memory to local activations, dense rows\n" in out
    assert re.search(r"^\d+ checks, 0 failed$", out, re.M)


def test_new_hal_is_one_that_hal_test_passes(tmp_path, capfd):
    assert cli.main(["new-hal", str(tmp_path / "hal"), "--accelerator", "SMALL"]) == 0
    assert f"python -m byoc_hw hal-test --hal {tmp_path / 'hal'} --accelerator SMALL" in capfd.readouterr().out
    assert cli.main(["hal-test", "--hal", str(tmp_path / "hal"), "--accelerator", "SMALL", "--cflags=-O1"]) == 0


def test_new_hal_over_registers_has_the_device_in_software(tmp_path, capfd):
    assert cli.main(["new-hal", str(tmp_path / "hal"), "--registers", "0x40000000"]) == 0
    assert "#define CHIP_REGISTERS 0x40000000u\n" in (tmp_path / "hal" / "chip_numbers.h").read_text()
    assert f"hal-test --hal {tmp_path / 'hal' / 'model'} --accelerator REFERENCE" in capfd.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        cli.main(["new-hal", str(tmp_path / "other"), "--registers", "here"])
    assert "argument --registers: is a number, such as 0x40000000: got 'here'" in capfd.readouterr().err


def test_new_hal_leaves_a_directory_with_files_alone(tmp_path, ended):
    (tmp_path / "mine.c").write_text("")
    code, error = ended("new-hal", tmp_path)
    assert code == 2
    assert "a new HAL goes into a directory that is new or empty" in error
    assert [path.name for path in tmp_path.iterdir()] == ["mine.c"]


@pytest.mark.slow
def test_hal_test_names_the_functions_that_fail(tmp_path, capfd):
    new_hal(tmp_path)
    jobs = (tmp_path / "chip_jobs.c").read_text()
    (tmp_path / "chip_jobs.c").write_text(jobs.replace("ifm == NULL ? layer->ifm_zero_point", "ifm == NULL ? 0"))
    assert cli.main(["hal-test", "--hal", str(tmp_path), "--cflags=-O1"]) == 1
    out, error = capfd.readouterr()
    assert "FAILED hwlib_hal_job_start: conv2d, upward, the most padding: byte" in out
    assert error == "byoc_hw: error: the HAL fails in hwlib_hal_job_start\n"


def test_hal_test_writes_the_kit_for_a_chip(tmp_path, capfd):
    assert cli.main(["hal-test", "--write", str(tmp_path / "kit")]) == 0
    assert {"hal_kit.h", "hal_kit_config.h", "hwlib_hal.h"} <= {path.name for path in (tmp_path / "kit").iterdir()}
    assert "hal_kit_print" in capfd.readouterr().out


def test_schedule_prints_the_table_and_draws(built, tmp_path, capfd):
    pytest.importorskip("matplotlib", reason="pip install byoc-hw[notebooks]")
    pictures = ["--timeline", str(tmp_path / "timeline.svg"), "--memory", str(tmp_path / "memory.png")]
    assert cli.main(["schedule", str(built), *pictures]) == 0
    assert capfd.readouterr().out == f"{byoc_hw.Project(built).schedule}\n"
    assert "<svg" in (tmp_path / "timeline.svg").read_text()
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")


def test_explain_draws_the_graph(tmp_path, capfd, monkeypatch):
    assert cli.main(["explain", MODEL, "--graph", str(tmp_path / "graph.dot")]) == 0
    text = (tmp_path / "graph.dot").read_text()
    assert text.count("[label=") == 14 + 2  # and the keys of two places
    assert text.count(" -> ") == 14  # a chain of 14 with one branch
    assert "13 of 14 operators offloaded" in text
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["explain", MODEL, "--graph", str(tmp_path / "graph.svg")]) == 3
    assert "dot is not installed: install the package graphviz" in capfd.readouterr().err
    assert not (tmp_path / "graph.svg").exists()


def test_schedule_draws_some_layers_or_two_projects(built, tmp_path, ended, capfd):
    pytest.importorskip("matplotlib", reason="pip install byoc-hw[notebooks]")
    timeline = ["--timeline", str(tmp_path / "timeline.svg")]
    assert cli.main(["schedule", str(built), *timeline, "--layers", "2-4"]) == 0
    some = (tmp_path / "timeline.svg").read_text()
    assert cli.main(["schedule", str(built), *timeline, "--before", str(built)]) == 0
    assert (tmp_path / "timeline.svg").read_text() != some
    assert cli.main(["report", str(built), "--roofline", str(tmp_path / "roofline.png")]) == 0
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")
    capfd.readouterr()
    assert "--layers is for a picture" in ended("schedule", built, "--layers", "2")[1]
    both = ended("schedule", built, *timeline, "--layers", "2", "--before", built)[1]
    assert "--before is for whole timelines" in both
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(["schedule", str(built), "--layers", "4-2"])


def test_a_picture_without_matplotlib_says_what_to_install(built, ended, monkeypatch, tmp_path):
    for name in ("matplotlib", *(name for name in sys.modules if name.startswith("matplotlib."))):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails as if it were not there
    monkeypatch.delitem(sys.modules, "byoc_hw.report.pictures", raising=False)
    code, error = ended("schedule", built, "--timeline", tmp_path / "timeline.svg")
    assert code == 3
    assert "a picture needs matplotlib: pip install 'byoc-hw[notebooks]'" in error


@pytest.mark.slow
def test_explore_prints_and_draws_the_front(tmp_path, capfd):
    pytest.importorskip("matplotlib", reason="pip install byoc-hw[notebooks]")
    vary = ["--vary", "activation_memory=16K", "--vary", "array=8x8,16x16", "--vary", "packed_rows=true"]
    options = ["--accelerator", "SMALL", "--jobs", "2", "--picture", str(tmp_path / "front.svg")]
    assert cli.main(["explore", MODEL, *vary, *options]) == 0
    out, error = capfd.readouterr()
    assert out.startswith("3 variations of SMALL, ")
    assert "digits_int8" in out.splitlines()[1]
    assert error.splitlines()[1].startswith("2 of 3: activation_memory 16K, array 8x8, packed_rows True: digits_int8 ")
    assert "<svg" in (tmp_path / "front.svg").read_text()
    assert cli.main(["explore", MODEL, "--vary", "host_cycles_per_instruction=0.5", "--json"]) == 0
    plain = json.loads(capfd.readouterr().out)
    assert [entry["changes"] for entry in plain["variations"]] == [{}, {"host_cycles_per_instruction": 0.5}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vary", "dma_width"], "--vary is FIELD=VALUE,..., as in dma_width=4,8: got 'dma_width'"),
        (["--vary", "dma_width=4,x"], "--vary dma_width has values that the field can have: got '4,x'"),
        (["--vary", "array=16"], "--vary array has values that the field can have: got '16'"),
        (["--vary", "packed_rows=yes"], "--vary packed_rows has values that the field can have: got 'yes'"),
        (["--vary", "limits=1"], "limits is no number"),
        (["--vary", "speed=1"], "variations are of fields of"),
        (["--vary", "dma_width=1", "--vary", "dma_width=2"], "--vary has each field once: got dma_width twice"),
        (["--vary", "dma_width=1", "--jobs", "0"], "--jobs is at least 1: got 0"),
        (["--vary", "dma_width=1", "--objective", "joy"], "objective is some of cycles, memory"),
    ],
)
def test_explore_refuses_what_it_cannot_vary(options, message, ended):
    code, error = ended("explore", MODEL, *options)
    assert (code, message in error) == (2, True), error


def test_report_is_one_page_of_a_model_or_a_project(built, capfd):
    assert cli.main(["report", MODEL, "--clock", "200MHz"]) == 0
    page = capfd.readouterr().out
    assert "13 of 14 (93%) offloaded" in page
    assert re.search(r"accelerator  [\d,]+ cycles, 0\.\d{3} ms", page)
    assert "the 5 costliest layers:" in page
    assert cli.main(["report", str(built), "--clock", "0.2G"]) == 0
    assert capfd.readouterr().out == page.replace("digits_int8 on", "digits on")


def test_report_for_tables_and_programs(built, capfd):
    assert cli.main(["report", str(built), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capfd.readouterr().out)))
    assert cli.main(["report", str(built), "--json"]) == 0
    plain = json.loads(capfd.readouterr().out)
    assert len(rows) == len(plain["layers"])
    assert sum(int(row["cycles"]) for row in rows if row["bound"] != "host") == plain["cycles"]
    assert [row["name"] for row in rows] == [layer["name"] for layer in plain["layers"]]


def test_report_refuses_what_it_cannot_do(built, ended, capfd):
    code, error = ended("report", built, "--ram", "64k")
    assert (code, f"--ram is for a model: {built} is a project that was built" in error) == (2, True)
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(["report", MODEL, "--clock", "0"])
    assert "a clock is above 0, in Hz, as in 200000000, 200M, 1.5GHz: got '0'" in capfd.readouterr().err


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


# ---------------------------------------------------------------- without TVM


@pytest.fixture(scope="module")
def layout():
    """The plan of the digits on `SMALL`."""
    mod = byoc_hw.partition_for_hwlib(*byoc_hw.load(model_path()), accelerator=byoc_hw.SMALL)
    (graph,) = region_graphs(mod).values()
    return lay_out_region(graph, byoc_hw.SMALL)


@pytest.mark.parametrize(
    ("stage", "line"),
    [
        ("graph", "%7 = add(%4, %6) -> 1x4x4x48  # model_1/re_lu_14/Relu"),
        ("mapping", "%9    component 0   as it stands, packed conv2d 2x2x48 -> 2x2x64, 2972 cycles"),
        ("choices", "group 0   %0         whole  held [0, 1]"),
        ("work", "33    %12   copy 10 bytes                a27[0:10] -> s12[0:10], 73 cycles"),
        ("steps", "  job 2x2x16 -> 1x1x16  ifm 9952, ofm 8816"),
    ],
)
def test_a_stage_of_planning_has_one_line_each(layout, stage, line):
    assert line in str(STAGES[stage](layout)).splitlines()


@pytest.mark.slow
def test_plan_shows_a_stage(capsys, layout):
    assert cli.main(["plan", MODEL, "--stage", "work", "--accelerator", "SMALL"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:] == str(STAGES["work"](layout)).splitlines()[1:]  # the first has the name of the region


def test_plan_of_a_model_that_stays_on_the_host_says_so(capsys):
    composites = [pattern.name for pattern in patterns()]
    assert cli.main(["plan", str(model_path()), "--deny", *composites]) == 2
    assert "planning is of regions: nothing of the model runs on accelerator REFERENCE" in capsys.readouterr().err


def test_projects_run_on_a_machine_without_tvm(built):
    script = f"""
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "tvm" else find_spec(name, package)
sys.modules["tvm"] = None  # importing it fails as if it were not there
import byoc_hw, numpy
assert set(byoc_hw.__all__) <= set(dir(byoc_hw))
byoc_hw.Project({str(built)!r}).run(numpy.zeros((1, 8, 8, 1), "int8"))
try:
    byoc_hw.build(None)
except byoc_hw.Unsupported as error:
    assert str(error).startswith("this needs TVM: pip install 'byoc-hw[relay]'")
else:
    raise AssertionError("build needs TVM")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "first",
    [
        "byoc_hw",
        "tvm",
        pytest.param("byoc_hw.frontend.relay.read", marks=pytest.mark.slow),
        pytest.param("byoc_hw.patterns.qnn_conv2d", marks=pytest.mark.slow),
    ],
)
def test_importing_the_package_registers_with_tvm(first):
    script = f"""
import importlib.util
import {first}
import byoc_hw
assert importlib.util.find_spec("tvm")  # who only looks for it
from tvm.relay.op.contrib.register import get_pattern_table
assert [name for name, _, _ in get_pattern_table("hwlib")]
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_what_needs_no_tvm_does_not_import_it(built):
    script = f"""
import sys
from byoc_hw.__main__ import main
assert main(["run", {str(built)!r}, "--random", "0"]) == 0
assert main(["accelerator"]) == 0
assert "tvm" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_no_module_has_the_name_of_a_public_function():
    package = Path(byoc_hw.__file__).parent
    modules = {path.stem for path in package.iterdir()}
    assert not modules & set(byoc_hw.__all__)


def test_build_without_tvm_says_what_is_missing(ended, monkeypatch, tmp_path):
    def missing(path, **options):
        raise ModuleNotFoundError("No module named 'tvm'", name="tvm")

    monkeypatch.setattr(byoc_hw, "load", missing)
    code, error = ended("build", MODEL, "--output-dir", tmp_path / "p")
    assert code == 3
    assert "tvm" in error
    assert "pip install" in error


# ---------------------------------------------------------------- bad input: 2, and nothing written


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


@pytest.mark.parametrize(
    ("array", "rule"),
    [
        (np.zeros((1, 8, 8, 3), "int8"), "shape is (1, 8, 8, 1): got (1, 8, 8, 3)"),
        (np.zeros((8, 8), "int8"), "shape is (1, 8, 8, 1): got (8, 8)"),
        (np.zeros((1, 8, 8, 1), "float32"), "dtype is int8: got float32"),
    ],
)
def test_an_input_of_another_shape_or_type(array, rule, built, ended, tmp_path):
    given = save(tmp_path / "x.npy", array)
    code, error = ended("run", built, "--input", given, "--output-dir", tmp_path / "outputs")
    assert (code, [path.name for path in tmp_path.iterdir()]) == (2, ["x.npy"])
    assert rule in error


def test_inputs_that_are_no_arrays(built, ended, tmp_path):
    (tmp_path / "text.npy").write_text("hello")
    np.savez(tmp_path / "archive.npz", x=np.zeros(1))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    for given in ("text.npy", "archive.npz", "objects.npy", "none.npy"):
        code, error = ended("run", built, "--input", f"{INPUT}={tmp_path / given}")
        assert code == 2
        assert given in error
    assert ended("run", built, "--input", "x.npy")[0] == 2
    assert ended("run", built, "--input", f"other={tmp_path / 'text.npy'}")[0] == 2
    assert f"input {INPUT} is given" in ended("run", built)[1]


def test_a_directory_that_is_no_project(ended, tmp_path):
    code, error = ended("run", tmp_path, "--random", "0")
    assert code == 2
    assert "metadata.json" in error


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


# ---------------------------------------------------------------- failing tools and programs


def test_a_missing_compiler_names_its_package(built, ended, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "make").symlink_to(shutil.which("make"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    code, error = ended("run", built, "--random", "0", "--output-dir", tmp_path / "outputs")
    assert code == 3
    assert "gcc is not installed: install the package gcc" in error
    assert not (tmp_path / "outputs").exists()


def test_hal_test_without_compiler_or_sources(ended, tmp_path):
    code, error = ended("hal-test", "--cc", "no-such-gcc")
    assert (code, "no-such-gcc is not installed" in error) == (3, True)
    code, error = ended("hal-test", "--hal", tmp_path)
    assert (code, "hal is a directory with C files" in error) == (2, True)


def test_a_program_that_does_not_build(built, tmp_path, capfd):
    project = tmp_path / "project"
    shutil.copytree(built, project)
    with (project / "src/digits_main.c").open("a") as file:
        file.write("#error on purpose\n")
    assert cli.main(["run", str(project), "--random", "0", "--output-dir", str(tmp_path / "outputs")]) == 1
    assert "on purpose" in capfd.readouterr().err
    assert not (tmp_path / "outputs").exists()


def test_a_program_that_fails(built, tmp_path, capfd):
    project = tmp_path / "project"
    shutil.copytree(built, project)
    main = project / "app/main.c"
    main.write_text(f"#define main other\n{main.read_text()}\n#undef main\nint main(void) {{ return 7; }}\n")
    assert cli.main(["run", str(project), "--random", "0"]) == 1
    assert "digits failed (exit code 7)" in capfd.readouterr().err


# ---------------------------------------------------------------- files and interrupts


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


def test_run_looks_at_its_output_directory_first(built, ended, tmp_path, monkeypatch):
    monkeypatch.setattr(byoc_hw.Project, "run", None)
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file", tmp_path / "file" / "outputs"):
        code, error = ended("run", built, "--random", "0", "--output-dir", target)
        assert (code, "is a directory: " in error) == (2, True)


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


def test_a_huge_array_is_refused_before_it_is_read(built, ended, tmp_path):
    header = f"{{'descr': '|i1', 'fortran_order': False, 'shape': ({10**12},)}}".encode().ljust(117) + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
    code, error = ended("run", built, "--input", f"{INPUT}={tmp_path / 'x.npy'}")
    assert (code, "shape is (1, 8, 8, 1): got (1000000000000,)" in error) == (2, True)


# ---------------------------------------------------------------- nothing to offload


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


# ---------------------------------------------------------------- chips, polls


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
