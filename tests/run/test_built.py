"""What a run executes: the program that it built from the project's files, and nothing else that lies there."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from emit_samples import host_only_parts, sample_parts

from byoc_hw.emit.files import project_files, write_project
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.project import Project
from byoc_hw.run.toolchain import Toolchain

X = np.full((1, 6, 6, 4), 8, np.int8)
HOSTILE = "h$(shell touch x) `touch x`;touch x #\"'%"
CFLAGS = "-O0"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A small one: it halves its input."""
    write_project(tmp_path / "out", project_files(host_only_parts("demo")))
    return Project(tmp_path / "out")


def planted(path: Path, touched: Path) -> None:
    """A program that is newer than everything, and leaves a file when it runs."""
    path.write_text(f"#!/bin/sh\ntouch {touched}\n")
    path.chmod(0o755)
    os.utime(path, (2e9, 2e9))


def halves(project: Project, **options: object) -> bool:
    return bool((project.run(X, **options).outputs[0] == 4).all())  # type: ignore[arg-type]


def test_a_planted_program_is_not_run(project: Project, tmp_path: Path) -> None:
    assert halves(project)
    program = project.directory / "build" / "demo"
    planted(program, tmp_path / "touched")
    assert halves(project)
    program.unlink()
    program.symlink_to("/bin/true")
    assert halves(project)
    assert not (tmp_path / "touched").exists()


def test_a_project_that_arrives_with_a_build_directory_is_built_anew(project: Project, tmp_path: Path) -> None:
    assert halves(project)
    arrived = Project(shutil.copytree(project.directory, tmp_path / "arrived"))
    build = arrived.directory / "build"
    planted(build / "demo", tmp_path / "touched")
    for name in ("src/demo_main.o", "app/main.o"):
        os.utime(build / name, (2e9, 2e9))
    (build / "app/main.d").write_text(f"$(shell touch {tmp_path / 'touched'})\n")
    for name in ("GNUmakefile", "makefile"):  # make would read them first
        (arrived.directory / name).write_text(f"$(shell touch {tmp_path / 'touched'})\n")
    assert halves(arrived)
    assert not (tmp_path / "touched").exists()


def test_a_build_directory_is_not_a_link(project: Project, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (project.directory / "build").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="build is a directory, not a link"):
        project.run(X)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("built_before", [False, True])
def test_nothing_is_written_through_links_in_a_build_directory(
    project: Project, tmp_path: Path, built_before: bool
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "canary").write_text("as it was")
    if built_before:
        assert halves(project)
    build = project.directory / "build"
    build.mkdir(exist_ok=True)
    for name in ("flags", "flags.new", "map"):
        (build / name).unlink(missing_ok=True)
        (build / name).symlink_to(outside / "canary")
    shutil.rmtree(build / "app", ignore_errors=True)
    (build / "app").symlink_to(outside)
    assert halves(project)
    assert [path.name for path in outside.iterdir()] == ["canary"]
    assert (outside / "canary").read_text() == "as it was"


def test_the_environment_adds_nothing(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "extra.c").write_text("#error not of the project\n")
    (tmp_path / "extra.mk").write_text(f"$(shell touch {tmp_path / 'touched'})\n")
    for name in ("EXTRA", "APP_IO", "LDSCRIPT"):
        monkeypatch.setenv(name, str(tmp_path / "extra.c"))
    monkeypatch.setenv("MAKEFILES", str(tmp_path / "extra.mk"))
    assert halves(project)
    assert not (tmp_path / "touched").exists()


def test_files_that_were_changed_are_built_and_named(project: Project) -> None:
    assert project.run(X).changed == ()
    main = project.directory / "src/demo_host.c"
    stamp = main.stat().st_mtime_ns
    main.write_text(main.read_text().replace("/ 2", "/ 4"))
    os.utime(main, ns=(stamp, stamp))  # make alone would not see it
    (project.directory / "include/added.h").write_text("")
    result = project.run(X)
    assert (result.outputs[0] == 2).all()
    assert result.changed == ("include/added.h", "src/demo_host.c")
    assert repr(result) == "<Result: 1 output, of a changed project>"


def test_a_rebuild_keeps_build_directories_and_builds_what_changed(project: Project) -> None:
    assert halves(project)
    before = (project.directory / "build/src/demo_main.o").stat().st_ino
    write_project(project.directory, project_files(sample_parts()))
    assert (project.directory / "build/src/demo_main.o").stat().st_ino == before
    assert len(Project(project.directory).run(X).outputs) == 2


# ---------------------------------------------------------------- names that make and the shell could carry out


@pytest.mark.parametrize(
    "name", ["h$(shell touch x)", "two words", "a#b", "a;b", "a:b", "a%b", "a=b", "a'b", "a*", "~a\\"]
)
def test_a_path_that_make_cannot_take_is_refused_by_its_character(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "hal.c").write_text("")
    (tmp_path / name / "x.ld").write_text("")
    rule = r"is a path of letters, digits and any of _ @ \+ , \. / -, which make can take: got '.' in|got \"'\" in"
    for options in ({"hal": tmp_path / name}, {"ldscript": tmp_path / name / "x.ld"}):
        with pytest.raises(InvalidInput, match=rule):
            Toolchain(**options)  # type: ignore[arg-type]


def test_options_reach_the_compiler_as_they_stand(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.directory)
    for options in ("-DX='$(shell touch x)'", "-DX='`touch x`'", "-DX='; touch x'", "-DX='\"a b\"' -DY=a\\ b", "-DX=#"):
        assert halves(project, toolchain=Toolchain(cflags=f"{CFLAGS} {options}", ldflags=options))
    assert halves(project, toolchain=Toolchain(cc="gcc '-DX=$(touch x)'"))
    with pytest.raises(RunError, match=r"touch"):  # words for the compiler, which it does not know
        project.run(X, toolchain=Toolchain(cflags="; touch x"))
    assert not list(project.directory.rglob("x"))


@pytest.mark.parametrize("name", ["cc", "cflags", "ldflags"])
def test_options_that_are_no_words_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} are words as on a command line: No closing quotation"):
        Toolchain(**{name: "gcc 'x"})
    with pytest.raises(InvalidInput, match=f"{name} are words as on a command line: got 5"):
        Toolchain(**{name: 5})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=f"{name} are words on one line"):
        Toolchain(**{name: "gcc\n\ttouch x"})


def test_a_project_runs_wherever_it_is(tmp_path: Path) -> None:
    write_project(tmp_path / HOSTILE, project_files(host_only_parts("demo")))
    assert halves(Project(tmp_path / HOSTILE))
    assert os.listdir(tmp_path) == [HOSTILE]
    assert not list(tmp_path.rglob("x"))
