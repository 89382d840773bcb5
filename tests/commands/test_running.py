"""`python -m byoc_hw run` and `schedule`: inputs and outputs, tools that are missing, programs that fail."""

import shutil
import sys

import numpy as np
import pytest
from command_samples import INPUT, MODEL, save

import byoc_hw
from byoc_hw import __main__ as cli
from byoc_hw.demo import heldout


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


def test_schedule_prints_the_table_and_draws(built, tmp_path, capfd):
    pytest.importorskip("matplotlib", reason="pip install byoc-hw[notebooks]")
    pictures = ["--timeline", str(tmp_path / "timeline.svg"), "--memory", str(tmp_path / "memory.png")]
    assert cli.main(["schedule", str(built), *pictures]) == 0
    assert capfd.readouterr().out == f"{byoc_hw.Project(built).schedule}\n"
    assert "<svg" in (tmp_path / "timeline.svg").read_text()
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")


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


def test_a_missing_compiler_names_its_package(built, ended, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "make").symlink_to(shutil.which("make"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    code, error = ended("run", built, "--random", "0", "--output-dir", tmp_path / "outputs")
    assert code == 3
    assert "gcc is not installed: install the package gcc" in error
    assert not (tmp_path / "outputs").exists()


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


def test_run_looks_at_its_output_directory_first(built, ended, tmp_path, monkeypatch):
    monkeypatch.setattr(byoc_hw.Project, "run", None)
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file", tmp_path / "file" / "outputs"):
        code, error = ended("run", built, "--random", "0", "--output-dir", target)
        assert (code, "is a directory: " in error) == (2, True)


def test_a_huge_array_is_refused_before_it_is_read(built, ended, tmp_path):
    header = f"{{'descr': '|i1', 'fortran_order': False, 'shape': ({10**12},)}}".encode().ljust(117) + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
    code, error = ended("run", built, "--input", f"{INPUT}={tmp_path / 'x.npy'}")
    assert (code, "shape is (1, 8, 8, 1): got (1000000000000,)" in error) == (2, True)
