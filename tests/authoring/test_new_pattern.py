"""new-pattern: what it writes is a pattern of its kind, green as it stands; what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from byoc_hw import __main__ as cli
from byoc_hw.authoring.closed_kinds import CLOSED_KINDS
from byoc_hw.authoring.new_pattern import WRITTEN_KINDS, new_pattern
from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.table import load_patterns
from byoc_hw.graph import LAYER_KINDS
from byoc_hw.pattern import patterns

ROOT = Path(__file__).resolve().parents[2]


def python(folder, *arguments):
    """What a Python program of its own prints: a registered pattern stays in a process."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    hidden = [name for name in environment if name.startswith("PYTEST")]
    for name in hidden:
        del environment[name]
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def files_of(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


APART = {"DepthwiseConv2d"}  # starts from the operators of Conv2d


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [set(WRITTEN_KINDS) - APART, APART], ids=["all", "apart"])
def test_what_it_writes_is_green_and_well_formed(kinds, tmp_path):
    for layer in sorted(kinds):
        name = f"my_{layer.lower()}"
        new_pattern(name, layer, tmp_path / layer)
        assert files_of(tmp_path / layer) == [f"golden/{name}.c", f"{name}.py", f"test_{name}.py"]
    done = python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", ".")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    config = ["--config", ROOT / "pyproject.toml", "--no-cache"]
    for command in (["ruff", "check", "--ignore=D,I", *config], ["ruff", "format", "--check", *config]):
        checked = python(tmp_path, "-m", *command, ".")
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_kind_is_offered_or_says_why_not_and_what_to_read():
    names = {cls.__name__ for cls in LAYER_KINDS.values()}
    assert set(WRITTEN_KINDS) | set(CLOSED_KINDS) == names
    assert not set(WRITTEN_KINDS) & set(CLOSED_KINDS)
    load_patterns()
    for reason in CLOSED_KINDS.values():
        assert set(reason.rpartition("see ")[2].split(" and ")) <= {pattern.name for pattern in patterns()}


def test_the_command_says_where_the_files_are_and_leaves_no_pattern_registered(tmp_path, capsys):
    load_patterns()
    before = patterns()
    assert cli.main(["new-pattern", "shifted", "--layer", "Lookup", "--output-dir", str(tmp_path)]) == 0
    assert f"python -m pytest {tmp_path}/test_shifted.py" in capsys.readouterr().out
    assert patterns() == before


def test_the_same_name_and_kind_give_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        new_pattern("cut", "Slice", tmp_path / folder)
    for name in files_of(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


REFUSED = {
    "no identifier": (("my-pattern", "Conv2d"), "a pattern's name is an identifier: got 'my-pattern'"),
    "registered": (("qnn_conv2d", "Conv2d"), "a new pattern has a name of its own: 'qnn_conv2d' is registered"),
    "a module of Python": (("json", "Conv2d"), "a new pattern has a name of its own: Python has a module 'json'"),
    "no kind": (("mine", "Conv3d"), f"one of the layer kinds {', '.join(WRITTEN_KINDS)}: got 'Conv3d'"),
    **{f"for {kind}": (("mine", kind), f"no new pattern is for {kind}: {why}") for kind, why in CLOSED_KINDS.items()},
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses_before_anything_is_written(given, message, tmp_path):
    with pytest.raises(InvalidInput) as error:
        new_pattern(*given, tmp_path / "new")
    assert message in str(error.value)
    assert not (tmp_path / "new").exists()


def test_files_that_exist_stay(tmp_path):
    (tmp_path / "test_mine.py").write_text("mine")
    with pytest.raises(InvalidInput, match=r"test_mine\.py exists"):
        new_pattern("mine", "Pad", tmp_path)
    assert files_of(tmp_path) == ["test_mine.py"]


@pytest.mark.slow
def test_operators_that_another_pattern_matches_are_named(tmp_path):
    """As after a first new-pattern of the kind that nobody has edited."""
    new_pattern("first", "Pad", tmp_path)
    code = (
        f"import first\nfrom byoc_hw.authoring.new_pattern import new_pattern\nnew_pattern('second', 'Pad', {'out'!r})"
    )
    done = python(tmp_path, "-c", code)
    assert "InvalidInput: a new pattern starts from operators that no other one matches: " in done.stderr
    assert "'first' and 'second' match the same operators" in done.stderr
    assert not (tmp_path / "out").exists()
