"""What the documents show is true: their code runs, their tables are current, their links lead somewhere."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest
from onnx_networks import mobilenet
from relay_samples import module, variable
from riscv32_tools import needs_riscv32
from tvm import relay

import byoc_hw
from byoc_hw import REFERENCE
from byoc_hw import __main__ as cli
from byoc_hw.demo import heldout, model_path
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.graph import LAYER_KINDS, BaseLayer, Pool2d
from byoc_hw.pattern import Form, patterns, register_pattern, unregister_pattern
from byoc_hw.report import capabilities, marks
from byoc_hw.run.new_hal import new_hal

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")),
)
PAGES = ("index", "stack", "boundary", "numerics", "memory", "differences", "patterns")
"""Pages of which all code runs from top to bottom, as a reader of the page would run it."""


def code_blocks(document):
    """Python code by the file name behind the fence's language, or by its number from 0."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = re.findall(r"^```python ?(\S*)\n(.*?)^```$", text, re.S | re.M)
    return {name or index: code for index, (name, code) in enumerate(found)}


def execute(code, **names):
    exec(compile(code, "example", "exec"), names)
    return names


# ---------------------------------------------------------------- layer kinds


def table_under(document, heading):
    """The rows of the first table behind a row of headings."""
    rows = (ROOT / document).read_text(encoding="utf-8").split(heading, 1)[1].strip().splitlines()
    return [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows[1:] if row.startswith("|")]


def with_a_kind(cls):
    """The classes below one that are a layer kind."""
    found = [other for sub in cls.__subclasses__() for other in with_a_kind(sub)]
    return [*found, cls] if "kind" in vars(cls) else found


def test_the_table_of_layer_kinds_is_that_of_the_code():
    listed = table_under("CONTRIBUTING.md", "| kind | class | geometry |")[: len(LAYER_KINDS) + 1]
    header = (ROOT / "byoc_hw/hwlib/include/hwlib_hal.h").read_text()
    assert [row[:2] for row in listed] == [[kind, cls.__name__] for kind, cls in LAYER_KINDS.items()]
    assert {cls.__name__ for cls in with_a_kind(BaseLayer) if cls.__module__ == "byoc_hw.graph"} == {
        cls.__name__ for cls in LAYER_KINDS.values()
    }
    for kind, *_ in listed:
        assert f"HWLIB_{kind.upper()} = " in header


def test_the_files_that_a_new_layer_kind_changes_are_there():
    for row in table_under("CONTRIBUTING.md", "| file | what the kind says there |"):
        for name in re.findall(r"[\w/]+(?:\.\w+|/)", row[0]):
            if not name.startswith(("patterns/", "src/")):
                assert (ROOT / name).exists(), name


# ---------------------------------------------------------------- models


@pytest.mark.slow
def test_the_example_of_models_offloads_an_onnx_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mobilenet().save("model.onnx")
    execute(code_blocks("docs/models.md")[0])
    assert "16 of 18 operators offloaded" in capsys.readouterr().out


# ---------------------------------------------------------------- planning


def test_the_stages_of_planning_print_as_the_document_says(capsys):
    execute(code_blocks("docs/planning.md")[0])
    out = capsys.readouterr().out
    assert "%7 = add(%4, %6) -> 1x4x4x48  # model_1/re_lu_14/Relu" in out
    assert "%7         whole  held [5, 7, 8]" in out


@pytest.mark.slow
def test_the_example_of_a_mesh_runs():
    plan = execute(code_blocks("docs/mesh.md")[0])["plan"]
    assert plan.pes == 8


# ---------------------------------------------------------------- the site


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = code_blocks(f"docs/{page}.md")
    names = {"__name__": "__main__"}
    assert blocks
    for block in blocks.values():
        names = execute(block, **names)


def test_every_page_with_code_is_run_by_a_test():
    tested = (Path(__file__).read_text(encoding="utf-8")).replace("code_blocks(f", "")
    for path in (ROOT / "docs").glob("*.md"):
        if code_blocks(f"docs/{path.name}"):
            assert path.stem in PAGES or f'code_blocks("docs/{path.name}")' in tested, path.name


def test_the_api_has_every_public_name_once():
    listed = re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.M)
    objects = {name: getattr(byoc_hw, name) for name in byoc_hw.__all__}
    wanted = {f"{one.__module__}.{name}" for name, one in objects.items() if callable(one)}
    assert sorted(listed) == sorted(wanted)
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name, one in objects.items() if not callable(one))


def built_site(config, folder):
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", config, "--site-dir", folder]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_site_is_built_strictly(tmp_path):
    done = built_site(ROOT / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site/api.html").read_text(encoding="utf-8")
    assert 'id="byoc_hw.compiler.partition_for_hwlib"' in page
    assert "Partition a Relay module for an accelerator." in page
    for name in (path.stem for path in (ROOT / "docs").glob("*.md")):
        assert (tmp_path / f"site/{name}.html").exists()


@pytest.mark.slow
def test_a_link_that_leads_nowhere_stops_the_site(tmp_path):
    """A page that is not there, a heading that is not there, and a page that is not in the menu."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("paths: [.]", f"paths: [{ROOT}]")
    (tmp_path / "mkdocs.yml").write_text(text)
    with (tmp_path / "docs/index.md").open("a") as page:
        page.write("[a page](nowhere.md) and [a heading](stack.md#nowhere)\n")
    (tmp_path / "docs/lost.md").write_text("# Lost\n")
    done = built_site(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    for what in ("nowhere.md", "#nowhere", "lost.md"):
        assert what in done.stderr


# ---------------------------------------------------------------- README


def test_readme_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    execute(code_blocks("README.md")[0])
    out = capsys.readouterr().out
    assert "13 of 14 operators offloaded" in out
    assert "accelerator cycles" in out
    assert (tmp_path / "out/digits/Makefile").exists()


def from_a_shell():
    """The section of the README."""
    return (ROOT / "README.md").read_text(encoding="utf-8").split("## From a shell\n")[1].split("\n## ")[0]


@pytest.mark.slow
def test_readme_commands_run(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="pip install byoc-hw[notebooks]")
    commands = re.findall(r"^    python -m byoc_hw (.*)$", from_a_shell(), re.M)
    assert len(commands) == 10
    monkeypatch.chdir(tmp_path)
    np.save("image.npy", heldout().images[:1])
    for command in commands:
        assert cli.main(shlex.split(command.replace("byoc_hw/demo/digits_int8.tflite", str(model_path())))) == 0, (
            command
        )
    assert (tmp_path / "timeline.svg").exists()


@pytest.mark.slow
def test_readme_settings_for_tvm_alone_give_the_regions():
    sources = execute(code_blocks("README.md")[1])["sources"]
    assert any("hwlib_start(" in source for source in sources)
    assert any("tvmgen_default___tvm_main__(" in source for source in sources)


def test_readme_table_is_current():
    len(byoc_hw.pattern_table())  # loads the patterns
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    renewed = marks.replaced(text, capabilities.COMMAND, capabilities.capabilities(patterns()))
    assert text == renewed, "python -m byoc_hw.report.capabilities --update README.md"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document):
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


# ---------------------------------------------------------------- the generated table


def test_table_is_printed_and_put_between_the_marks(tmp_path, capsys):
    assert capabilities.main([]) == 0
    table = capsys.readouterr().out.rstrip()
    file = tmp_path / "some.md"
    begin = marks.begin(capabilities.COMMAND)
    file.write_text(f"before\n{begin}\nold\n{marks.END}\nafter\n")
    assert capabilities.main(["--update", str(file)]) == 0
    assert file.read_text() == f"before\n{begin}\n{table}\n{marks.END}\nafter\n"
    assert "| `qnn_depthwise_conv2d` | `depthwise_conv2d` |" in table
    assert "stride is one of 1, 2" in table


def test_a_file_without_marks_is_left_alone(tmp_path, capsys):
    file = tmp_path / "some.md"
    file.write_text("nothing to see")
    assert capabilities.main(["--update", str(file)]) == 2
    assert marks.begin(capabilities.COMMAND) in capsys.readouterr().err
    assert file.read_text() == "nothing to see"


@pytest.mark.parametrize("document", ["README.md", "docs/benchmarks.md"])
def test_every_table_of_figures_names_the_benchmark_that_makes_it(document):
    tables = re.findall(
        r"<!-- python benchmarks/(\w+)\.py .*--update.* -->\n\| ", (ROOT / document).read_text(encoding="utf-8")
    )
    assert tables
    assert all((ROOT / f"benchmarks/{script}.py").exists() for script in tables)
    assert (ROOT / document).read_text(encoding="utf-8").count("\n| --- |") == len(tables) + (document == "README.md")


# ---------------------------------------------------------------- CONTRIBUTING


@pytest.mark.slow
def test_the_example_pattern_is_added_as_the_text_says(tmp_path):
    """Both files are written into a copy of the tree, and the commands below them are run there."""
    tree = copied_tree(tmp_path / "tree")
    for name, code in code_blocks("CONTRIBUTING.md").items():
        if isinstance(name, str):
            (tree / name).write_text(code)
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    own, table = commands(text.split("## A new pattern, in two files", 1)[1].split("\n## ", 1)[0])
    assert "4 passed" in run_in(tree, own)
    run_in(tree, table)
    assert "| `global_max_pool2d` | `pool2d` | int8 maximum over height and width |" in (tree / "README.md").read_text()


def test_the_example_is_a_pattern_of_the_tree():
    files = {name: code for name, code in code_blocks("CONTRIBUTING.md").items() if isinstance(name, str)}
    assert len(files) == 2
    for name, code in files.items():
        assert code == (ROOT / name).read_text(encoding="utf-8"), name


def copied_tree(tree):
    """A copy of the sources, with an environment of its own that has this one's packages."""
    made = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "out", "build", "dist")
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*made))
    venv.create(tree / ".venv")
    (site,) = (tree / ".venv/lib").glob("python*/site-packages")
    (site / "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    run_in(tree, ".venv/bin/python -m pip install -q --no-index --no-deps --no-build-isolation -e .")
    (tree / ".venv/ready").touch()
    return tree


def run_in(folder, command):
    """What a command line prints, as a person types it: without what pytest has in its environment."""
    bin_ = Path(sys.executable).parent
    hidden = ("PYTEST", "PYTHONPATH", "MAKE", "MFLAGS", "COV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment = kept | {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def commands(text):
    """The command lines of a text: indented by four, outside of fences."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    return re.findall(r"^    ((?:python -m|make|\.venv/bin/python) .*)$", outside, re.M)


def test_the_example_pattern_is_well_formed(tmp_path):
    """Ruff and mypy take it as it stands: it would pass `make lint`."""
    file = tmp_path / "global_max_pool2d.py"
    file.write_text(code_blocks("CONTRIBUTING.md")["patterns/global_max_pool2d.py"])
    config = ["--config", ROOT / "pyproject.toml", "--no-cache"]
    for command in (["ruff", "check", *config], ["ruff", "format", "--check", *config]):
        done = subprocess.run([sys.executable, "-m", *command, file], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_limit_is_checked_and_shown():
    blocks = code_blocks("CONTRIBUTING.md")
    (code,) = (code for name, code in blocks.items() if isinstance(name, int))
    rule = execute(code)["whole_words"]

    def parse(match) -> Pool2d:
        raise NotImplementedError

    pattern = register_pattern("example", Form(None, "none"), parse=parse, limits=[rule])
    try:
        assert "channels are a multiple of 4 |" in capabilities.capabilities([pattern])
    finally:
        unregister_pattern("example")


# ---------------------------------------------------------------- command lines


@pytest.fixture(scope="module")
def demo_project(tmp_path_factory):
    """A project of the demo with an input and a HAL, as documents name them."""
    project = tmp_path_factory.mktemp("demo") / "project"
    assert cli.main(["build", str(model_path()), "--output-dir", str(project), "--mod-name", "digits"]) == 0
    (project / "image.bin").write_bytes(heldout().images[:1].tobytes())
    new_hal(project / "path/to/your_hal")
    return project


@pytest.fixture
def workplace(tmp_path, demo_project, monkeypatch):
    """Where the command lines of the documents run: the files that they name, and a project of the demo."""
    (tmp_path / "byoc_hw").symlink_to(ROOT / "byoc_hw")  # as in a clone: the demo's files are named there
    shutil.copy(model_path(), tmp_path / "model.tflite")
    shutil.copytree(demo_project, tmp_path / "project", symlinks=True)
    np.save(tmp_path / "image.npy", heldout().images[:1])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_line(line, folder):
    """A command line of a document. The package's own commands run here: to import TVM for each of them takes longer
    than most of them do. Patterns that they register would stay."""
    if line.startswith("python -m byoc_hw ") and "-pattern " not in line:
        fewer = line.partition("#")[0].replace("--jobs 8", "--jobs 2")
        assert cli.main(shlex.split(fewer)[3:]) == 0, line
    else:
        run_in(folder, line)


@pytest.mark.slow
@pytest.mark.parametrize(
    "document",
    [
        pytest.param("README.md", marks=needs_riscv32),
        pytest.param("docs/integration.md", marks=needs_riscv32),
        "docs/tuning.md",
        "docs/index.md",
        "docs/memory.md",
        "docs/differences.md",
        "docs/patterns.md",
    ],
)
def test_the_command_lines_run(document, workplace):
    """But for those that `test_readme_commands_run` has run."""
    lines = commands((ROOT / document).read_text(encoding="utf-8").replace(from_a_shell(), ""))
    lines = [line for line in lines if line.split()[:2] not in (["make", "demo"], ["make", "test"])]
    assert lines
    for line in lines:
        if "out/digits" in line and not (workplace / "out/digits").exists():
            shutil.copytree(workplace / "project", workplace / "out/digits", symlinks=True)
        run_line(line, workplace / "project" if line.startswith("make CC=") else workplace)


# ---------------------------------------------------------------- docs/integration.md


@pytest.mark.slow
def test_the_example_accelerator_runs_the_demo():
    mine = execute(code_blocks("docs/integration.md")[0])["MINE"]
    assert mine.limits["conv2d"].strides != REFERENCE.limits["conv2d"].strides
    assert_runs_the_demo(mine, offloaded=13)


def test_the_example_of_layers_without_tiles_orders_a_vector():
    chip = execute(code_blocks("docs/integration.md")[1])["CHIP"]
    x = variable((30,), "float32")
    mod = module(relay.sort(x, 0), x)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=chip))
    given = np.random.default_rng(0).normal(size=30).astype(np.float32)
    result = project.run([given])
    np.testing.assert_array_equal(result.outputs[0], np.sort(given))
    assert result.cycles.total == 8 * 30 + 30


@pytest.mark.slow
def test_the_example_comparisons_find_no_difference(capsys):
    execute(code_blocks("docs/integration.md")[2])
    text = capsys.readouterr().out
    assert text.startswith("equal: 2 layers and outputs in 8 inferences")
    assert text.splitlines()[-1].startswith("equal: 14 layers and outputs in 1 inferences")


@pytest.mark.slow
def test_the_example_library_runs_the_demo(tmp_path, monkeypatch):
    (tmp_path / "vendor").symlink_to(ROOT / "tests/emit/vendor")
    monkeypatch.chdir(tmp_path)  # the example names the sources from where it runs
    vendor = execute(code_blocks("docs/integration.md")[3])["VENDOR"]
    project = assert_runs_the_demo(vendor, offloaded=1)
    assert "vendor_add(" in (project.directory / "src/digits_vendor.c").read_text()


@pytest.mark.slow
def test_the_example_library_runs_the_demo_beside_an_array(tmp_path, monkeypatch):
    (tmp_path / "vendor").symlink_to(ROOT / "tests/emit/vendor")
    monkeypatch.chdir(tmp_path)
    blocks = code_blocks("docs/integration.md")
    chip = execute(blocks[4], **execute(blocks[3]))["CHIP"]
    project = assert_runs_the_demo(chip, offloaded=13, place={"add": "engine"})  # else the array adds as well
    assert (project.directory / "hwlib/library/library_hal.c").exists()


# ---------------------------------------------------------------- docs/tuning.md


@pytest.mark.slow
def test_the_example_of_tuning_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = code_blocks("docs/tuning.md")
    names = execute(blocks[0], __name__="__main__")
    assert "tuned for SMALL (budget 50, seed 0)" in capsys.readouterr().out
    assert "(1 of 1 regions tuned)" in str(names["project"].report)
    found = names["tuning"]
    execute(blocks[1], **names)
    assert names["tuning"] == found


def test_the_example_space_is_one_and_the_table_has_every_field():
    space = execute(code_blocks("docs/tuning.md")[2], byoc_hw=byoc_hw)["MINE"].tuning
    assert space != REFERENCE.tuning
    text = (ROOT / "docs/tuning.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.M) == list(vars(space))


def assert_runs_the_demo(accelerator, offloaded, **options):
    mod, params = byoc_hw.load_tflite(model_path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="digits", accelerator=accelerator)
    project = byoc_hw.build(partitioned, **options)
    assert len(project.report.offloaded) == offloaded
    reference = Reference(mod, params)
    images = [image[np.newaxis] for image in heldout().images[:5]]
    for image, result in zip(images, project.run_batch(images), strict=True):
        np.testing.assert_array_equal(result.outputs[0], reference.run([image])[0])
    return project


def test_every_hal_function_is_explained():
    header = (ROOT / "byoc_hw/hwlib/include/hwlib_hal.h").read_text()
    text = (ROOT / "docs/integration.md").read_text(encoding="utf-8")
    functions = set(re.findall(r"\b(hwlib_hal_\w+)\(", header))
    assert len(functions) == 8 + 3 + 2  # of a chip, with events
    assert functions == set(re.findall(r"`(hwlib_hal_\w+)`", text))
