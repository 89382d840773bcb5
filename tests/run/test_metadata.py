"""A damaged metadata.json: a clear error that names file, field, rule and value, and nothing else happens."""

import json
from pathlib import Path
from typing import Any

import pytest
from emit_samples import sample_parts

from byoc_hw.emit.files import project_files, write_project
from byoc_hw.errors import ByocHwError, InvalidInput
from byoc_hw.project import Project
from byoc_hw.run.files import read_model


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("metadata") / "out"
    write_project(directory, project_files(sample_parts()))
    return directory


@pytest.fixture
def damaged(project: Path, tmp_path: Path) -> Any:
    """Projects with one value of their metadata replaced."""
    original = (project / "metadata.json").read_text()

    def make(path: list[str | int], value: object) -> Path:
        metadata = json.loads(original)
        place = metadata
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        (tmp_path / "metadata.json").write_text(json.dumps(metadata))
        return tmp_path

    return make


ALONE = {"name": "a", "label": "A", "activations": 64, "weights": 64}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["model", "name"], "../../bin/true", r"model\.name is a C identifier: got '\.\./\.\./bin/true'"),
        (["model", "name"], "/bin/true", r"model\.name is a C identifier: got '/bin/true'"),
        (["model", "name"], None, r"model\.name is a C identifier: got None"),
        (["model", "inputs"], {}, r"model\.inputs is a list: got {}"),
        (["model", "inputs", 0, "dtype"], "O", r"model\.inputs\[0\]\.dtype is one of int8, .*: got 'O'"),
        (["model", "inputs", 0, "shape"], [1, -6], r"inputs\[0\]\.shape\[1\] is a whole number from 0 to \d+: got -6"),
        (["model", "inputs", 0, "shape"], [10**12], r"inputs\[0\]\.shape\[0\] is a whole number.*: got 1000000000000"),
        (["model", "outputs", 0, "bytes"], 4, r"outputs\[0\]\.bytes is 20, for its shape and dtype: got 4"),
        (["model", "inputs", 0, "scale"], 0, r"inputs\[0\]\.scale is a number from 1\.17549e-38 to .*: got 0"),
        (["model", "inputs", 0, "zero_point"], None, r"inputs\[0\]\.zero_point is given with a scale, .*: got None"),
        (["model", "inputs", 0, "zero_point"], 200, r"inputs\[0\]\.zero_point is a whole .* to 127: got 200"),
        (["accelerators"], [{**ALONE, "shares": ["b"]}], r"accelerators\[0\]\.shares is one of a: got 'b'"),
        (["accelerators"], [{**ALONE, "shares": []}], r"accelerators\[0\]\.shares is a list with a: got \[\]"),
        (["accelerators"], [{**ALONE, "shares": "a"}], r"accelerators\[0\]\.shares is a list: got 'a'"),
        (["memory", "ram", "constants"], -1, r"memory\.ram\.constants is a whole number from 0 to \d+: got -1"),
        (["model", "inputs", 0, "state"], "y", r"model\.inputs\[0\]\.state is one of .*: got 'y'"),
        (["layers", 2, "id"], 7, r"layers\[2\]\.id is a whole number from 2 to 2: got 7"),
        (["layers", 2, "name"], 7, r"layers\[2\]\.name is a text: got 7"),
        (["accelerator", "simulated"], 1, r"accelerator\.simulated is true or false: got 1"),
        (
            ["trace", "1", "jobs", 0],
            "-9 1 6 8 48 8",
            r"trace\.1\.jobs\[0\] is six or eight numbers .*: got '-9 1 6 8 48 8'",
        ),
        (["trace", "4", "from", "layer"], 4, r"trace\.4\.from\.layer is a whole number from 0 to 3: got 4"),
        (["trace", "x"], {"bytes": 1}, r"a name in trace is the number of a layer: got 'x'"),
        (["schedule", "regions", 0, "work", 0, 0], 3, r"work\[0\]\[0\] is a whole number from 0 to 2: got 3"),
        (["schedule", "regions", 0, "work", 0, 3], 99, r"the layer in schedule\.regions\[0\]\.work is .*: got 99"),
        (["memory", "ram", "arena"], 1.5, r"memory\.ram\.arena is a whole number.*: got 1\.5"),
        (["files", 0], "../Makefile", r"files\[0\] is a path inside the project: got '\.\./Makefile'"),
        (["files", 0], "/etc/passwd", r"files\[0\] is a path inside the project: got '/etc/passwd'"),
        (["sha256", "Makefile"], "", r"sha256\.Makefile is 64 hexadecimal digits: got ''"),
    ],
)
def test_names_file_field_rule_and_value(damaged: Any, path: list[str | int], value: object, said: str) -> None:
    directory = damaged(path, value)
    for reader in (Project, read_model):
        with pytest.raises(InvalidInput, match=rf"metadata\.json is damaged: .*{said}"):
            reader(directory)


def test_a_field_that_is_missing_is_named(project: Path, damaged: Any) -> None:
    for name in json.loads((project / "metadata.json").read_text()).keys() & {"model", "layers", "trace", "memory"}:
        directory = damaged([name], {})
        metadata = json.loads((directory / "metadata.json").read_text())
        del metadata[name]
        (directory / "metadata.json").write_text(json.dumps(metadata))
        with pytest.raises(InvalidInput, match=rf"metadata\.json is damaged: {name} is missing"):
            Project(directory)


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (b"", "is JSON in UTF-8"),
        (b'{"generator"', "is JSON in UTF-8"),
        (b"\xff\xfe", "is JSON in UTF-8"),
        (b"[" * 100_000, "is JSON in UTF-8: maximum recursion depth"),
        (b'{"generator": "byoc_hw", "format": NaN}', "a number is finite: got NaN"),
        (b"[]", "is another project"),
        (b'{"generator": "byoc_hw"}', "format of metadata.json is 6: got None"),
    ],
)
def test_a_file_that_is_no_metadata(tmp_path: Path, contents: bytes, said: str) -> None:
    (tmp_path / "metadata.json").write_bytes(contents)
    with pytest.raises(InvalidInput, match=said):
        Project(tmp_path)


def test_a_huge_file_or_none_is_refused_without_reading_it(tmp_path: Path) -> None:
    with (tmp_path / "metadata.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(InvalidInput, match=r"metadata\.json has at most \d+ bytes: got 1099511627776"):
        Project(tmp_path)
    (tmp_path / "metadata.json").unlink()
    (tmp_path / "metadata.json").mkdir()
    with pytest.raises(InvalidInput, match=r"metadata\.json is a file: got something else"):
        Project(tmp_path)


ODD = (None, True, -1, 2**70, 1.5, "../x", [[]], {})


def places(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    """The paths of all values, one for each place in lists of like values."""
    if path:
        yield path
    children = (
        value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from places(child, (*path, key))


def test_no_value_ends_in_another_error(project: Path, damaged: Any) -> None:
    metadata = json.loads((project / "metadata.json").read_text())
    tried = refused = 0
    for path in places(metadata):
        if path[0] in ("sha256", "files") and path[1:] not in ((), ("Makefile",)):
            continue
        for value in ODD:
            tried += 1
            directory = damaged(list(path), value)
            try:
                opened = Project(directory)
                shown = opened.memory, opened.schedule, opened.layers, opened.changed, read_model(directory)
                assert all(map(str, shown))
                assert str(opened.report)
            except ByocHwError:
                refused += 1
    assert tried > 500
    assert refused > tried / 2
