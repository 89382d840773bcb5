"""Replacing a project: as a whole or not at all, never through a link, and without loss of what a person made."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emit_samples import sample_parts

from byoc_hw.emit.directory import changed_files, digest, replace_project, settle
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.errors import InvalidInput
from byoc_hw.project import Project

Contents = dict[str, bytes]


def version(number: int) -> Contents:
    """A small project: each has a file that no other one has."""
    files = {
        "app/main.c": b"int main(void);",
        "src/m.c": b"source %d" % number,
        f"src/only/{number}.c": b"",
        "Makefile": b"all:",
    }
    record = {
        "generator": "byoc_hw",
        "number": number,
        "files": [*files, "metadata.json"],
        "sha256": {name: digest(data) for name, data in files.items()},
    }
    return {**files, "metadata.json": json.dumps(record).encode()}


MINE = {
    "notes.txt": b"mine",
    "app/main.c": b"edited",
    "build/m": b"program",
    "src/only/mine.c": b"beside a generated file",
}
"""What a person adds and edits."""


def contents(directory: Path) -> Contents:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def with_mine(target: Path) -> Path:
    """A project that a person has worked in."""
    replace_project(target, version(1), False)
    for name, data in MINE.items():
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_bytes(data)
    return target


def whole(directory: Path) -> int:
    """Which version a directory holds: all of it, and nothing of another one."""
    found = contents(directory)
    number = json.loads(found["metadata.json"])["number"]
    expected = version(number)
    assert set(found) - set(MINE) == set(expected) - set(MINE)
    assert all(found[name] == data for name, data in expected.items() if name not in MINE)
    return int(number)


# ---------------------------------------------------------------- killed, failed, at the same time

STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.utime", "shutil.rmtree"}


def in_a_child(work: Callable[[], None]) -> int:
    """Its exit code; 99 for an exception."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_step(number: int, place: Path, act: Callable[[], None]) -> None:
    """Act just before the process changes a file below a directory for the n-th time."""
    seen = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event not in STEPS or not str(arguments[0]).startswith(str(place)):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        seen += 1
        if seen == number:
            act()

    sys.addaudithook(watch)


def stopping(place: Path, number: int, act: Callable[[], None]) -> Callable[[], None]:
    def work() -> None:
        at_step(number, place, act)
        replace_project(place / "out", version(2), False)

    return work


def failing(place: Path, number: int) -> Callable[[], None]:
    """A rebuild in which the disk is full at a step; 5 where that does no harm: a directory to make is there."""
    failed = []

    def fail() -> None:
        failed.append(number)
        raise OSError(28, "No space left on device")

    def work() -> None:
        stopping(place, number, fail)()
        os._exit(5 if failed else 0)

    return work


def test_killed_anywhere_a_rebuild_leaves_the_old_or_the_new_project(tmp_path: Path) -> None:
    found = set()
    for number in range(1, 1000):
        place = tmp_path / str(number)
        target = with_mine(place / "out")
        code = in_a_child(stopping(place, number, lambda: os._exit(7)))
        if code == 0:
            break
        assert code == 7
        if target.exists():
            whole(target)
        settle(target)  # what opening it does
        found.add(whole(target))
        assert {name: contents(target)[name] for name in MINE} == MINE
        replace_project(target, version(3), False)
        assert whole(target) == 3
        assert {name: contents(target)[name] for name in MINE} == MINE
        assert os.listdir(place) == ["out"]
    assert number > 20
    assert found == {1, 2}
    assert whole(tmp_path / str(number) / "out") == 2


def test_killed_anywhere_a_first_build_leaves_nothing_or_the_project(tmp_path: Path) -> None:
    for number in range(1, 1000):
        place = tmp_path / str(number)
        place.mkdir()
        code = in_a_child(stopping(place, number, lambda: os._exit(7)))
        assert not (place / "out").exists() or whole(place / "out") == 2
        replace_project(place / "out", version(3), False)
        assert whole(place / "out") == 3
        assert os.listdir(place) == ["out"]
        if code == 0:
            break
    assert number > 10


def test_a_failure_anywhere_leaves_the_old_or_the_new_project_at_once(tmp_path: Path) -> None:
    codes = []
    while 0 not in codes:
        place = tmp_path / str(len(codes))
        target = with_mine(place / "out")
        codes.append(in_a_child(failing(place, len(codes) + 1)))
        whole(target)
        assert os.listdir(place) == ["out"]
        assert {name: contents(target)[name] for name in MINE} == MINE
    assert set(codes[:-1]) == {5, 99}
    assert len(codes) > 20


def test_a_failure_says_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"the output directory can be written: .*file/out: .*File exists"):
        replace_project(tmp_path / "file" / "out", version(1), False)


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for place in (tmp_path / "circle" / "out", tmp_path / "a\0b", Path("/"), tmp_path / ("x" * 250)):
        with pytest.raises(InvalidInput, match="the output directory"):
            replace_project(place, version(1), False)
    with pytest.raises(InvalidInput):
        Project(tmp_path / "a\0b")
    assert os.listdir(tmp_path) == ["circle"]


def test_of_builds_at_the_same_time_one_wins_whole(tmp_path: Path) -> None:
    target = with_mine(tmp_path / "out")

    children = []
    for first in (100, 200, 300):
        child = os.fork()
        if child == 0:
            try:
                for number in range(first, first + 10):
                    replace_project(target, version(number), False)
                os._exit(0)
            finally:
                os._exit(99)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert whole(target) in (109, 209, 309)
    assert {name: contents(target)[name] for name in MINE} == MINE
    assert os.listdir(tmp_path) == ["out"]


def test_a_project_that_somebody_put_in_place_of_an_interrupted_one_is_not_replaced(tmp_path: Path) -> None:
    target = with_mine(tmp_path / "out")
    step = 0
    while target.exists():  # kill the build between its two renames
        step += 1
        in_a_child(stopping(tmp_path, step, lambda: os._exit(7)))
    replaced = tmp_path / ".out.byoc_hw-old"
    target.mkdir()
    (target / "thesis.txt").write_text("")
    with pytest.raises(InvalidInput, match=r"an interrupted build has left .*byoc_hw-old: move one of them away"):
        replace_project(target, version(2), False)
    assert (whole(replaced), os.listdir(target)) == (1, ["thesis.txt"])


# ---------------------------------------------------------------- links


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("to a directory", "to nothing"):
        (tmp_path / name).symlink_to(elsewhere if name == "to a directory" else tmp_path / "nothing")
        with pytest.raises(InvalidInput, match=f"the output directory is no symbolic link: .*{name} leads to"):
            replace_project(tmp_path / name, version(1), False)
    target = tmp_path / "out"
    replace_project(target, version(1), False)
    for name in contents(target):
        if name.startswith("src/"):
            (target / name).unlink()
    (target / "src/only").rmdir()
    (target / "src").rmdir()
    (target / "src").symlink_to(elsewhere)
    for force in (False, True):
        with pytest.raises(InvalidInput, match=r"not through links or over directories: got src/m\.c"):
            replace_project(target, version(2), force)
    assert os.listdir(elsewhere) == []
    assert not (tmp_path / "nothing").exists()


def test_a_link_in_place_of_a_file_is_replaced_itself_or_kept(tmp_path: Path) -> None:
    outside = tmp_path / "outside.c"
    outside.write_bytes(b"mine")
    target = tmp_path / "out"
    replace_project(target, version(1), False)
    (target / "app/main.c").unlink()
    (target / "app/main.c").symlink_to(outside)
    replace_project(target, version(2), False)
    assert (target / "app/main.c").is_symlink()
    replace_project(target, version(2), True)
    assert not (target / "app/main.c").is_symlink()
    assert outside.read_bytes() == b"mine"


def test_links_that_are_planted_beside_the_directory_lead_nowhere(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("")
    target = tmp_path / "out"
    replace_project(target, version(1), False)
    for end in ("new", "old"):
        (tmp_path / f".out.byoc_hw-{end}").symlink_to(precious)
    replace_project(target, version(2), False)
    assert whole(target) == 2
    assert os.listdir(precious) == ["thesis.tex"]
    assert sorted(os.listdir(tmp_path)) == ["out", "precious"]


def test_a_directory_in_place_of_a_file_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "out"
    replace_project(target, version(1), False)
    (target / "Makefile").unlink()
    (target / "Makefile").mkdir()
    with pytest.raises(InvalidInput, match="got Makefile"):
        replace_project(target, version(2), True)


# ---------------------------------------------------------------- what a person edited


def test_what_a_person_made_or_edited_stays_and_is_named(tmp_path: Path) -> None:
    target = with_mine(tmp_path / "out")
    replace_project(target, version(2), False)
    assert whole(target) == 2
    assert {name: contents(target)[name] for name in MINE} == MINE
    assert changed_files(target) == ("app/main.c", "src/only/mine.c")


def test_force_replaces_edited_files_and_nothing_else(tmp_path: Path) -> None:
    target = with_mine(tmp_path / "out")
    (target / "src/m.c").write_bytes(b"edited")
    replace_project(target, version(2), True)
    assert contents(target) == {**MINE, **version(2)}


def test_an_edited_source_that_would_be_lost_is_refused(tmp_path: Path) -> None:
    target = with_mine(tmp_path / "out")
    (target / "src/m.c").write_bytes(b"edited")
    before = contents(target)
    with pytest.raises(InvalidInput, match=r"are as an earlier one wrote them: src/m\.c in .* would be lost"):
        replace_project(target, version(2), False)
    assert contents(target) == before
    replace_project(target, version(1), False)  # the same model: the edit is still one of it
    assert contents(target) == before
    assert "src/m.c" in changed_files(target)


def test_a_file_that_no_project_wrote_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "out"
    replace_project(target, version(1), False)
    (target / "src/only/2.c").write_bytes(b"mine")
    with pytest.raises(InvalidInput, match=r"src/only/2\.c in .* would be lost"):
        replace_project(target, version(2), False)


def test_a_link_that_no_project_wrote_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "out"
    replace_project(target, version(1), False)
    (target / "src/only/2.c").symlink_to("1.c")
    with pytest.raises(InvalidInput, match=r"src/only/2\.c in .* would be lost"):
        replace_project(target, version(2), False)
    assert (target / "src/only/2.c").is_symlink()


def test_an_edited_file_that_the_new_project_lacks_stays(tmp_path: Path) -> None:
    target = tmp_path / "out"
    replace_project(target, version(1), False)
    (target / "src/only/1.c").write_bytes(b"edited")
    replace_project(target, version(2), False)
    assert (target / "src/only/1.c").read_bytes() == b"edited"


def test_only_files_inside_the_directory_are_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.c"
    outside.write_bytes(b"")
    target = tmp_path / "out"
    replace_project(target, version(1), False)
    record = json.loads((target / "metadata.json").read_text())
    for name in ("../outside.c", str(outside), "src/../../outside.c"):
        record["files"].append(name)
        record["sha256"][name] = digest(b"")
    (target / "metadata.json").write_text(json.dumps(record))
    replace_project(target, version(2), False)
    assert outside.exists()


def test_a_project_without_hashes_is_replaced_with_force(tmp_path: Path) -> None:
    target = tmp_path / "out"
    replace_project(target, version(1), False)
    record = json.loads((target / "metadata.json").read_text())
    del record["sha256"]
    (target / "metadata.json").write_text(json.dumps(record))
    with pytest.raises(InvalidInput, match="would be lost"):
        replace_project(target, version(2), False)
    replace_project(target, version(2), True)
    assert contents(target)["src/m.c"] == b"source 2"


def test_the_current_directory_is_not_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = with_mine(tmp_path / "out")
    monkeypatch.chdir(target / "src")
    for place in (target, Path(".."), Path("../../out")):
        with pytest.raises(InvalidInput, match=r"the output directory is replaced as a whole: leave .*out first"):
            replace_project(place, version(2), False)
    assert whole(target) == 1


def test_the_permissions_of_the_directory_stay(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir(mode=0o700)
    replace_project(target, version(1), False)
    replace_project(target, version(2), False)
    assert target.stat().st_mode & 0o777 == 0o700


def test_every_file_of_a_project_has_its_hash(tmp_path: Path) -> None:
    write_project(tmp_path / "out", project_files(sample_parts()))
    assert changed_files(tmp_path / "out") == ()
    (tmp_path / "out/app/main.c").write_text("edited")
    (tmp_path / "out/src/demo_main.c").unlink()
    (tmp_path / "out/hwlib/sim/extra.c").write_text("")
    assert changed_files(tmp_path / "out") == ("app/main.c", "hwlib/sim/extra.c", "src/demo_main.c")
