"""The compiler of the tests compiles nothing twice, and what it gives is what the compiler would."""

import os
import shutil
import subprocess

import pytest
from compile_cache import cached, install


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Compiles a.c, which includes b.h; whether the compiler was run for it, and how it ended."""
    log = tmp_path / "log"
    compiler = tmp_path / "gcc"
    count = f'case " $* " in *" -E "*) ;; *) echo >> {log} ;; esac'
    compiler.write_text(f'#!/bin/sh\n{count}\nexec {shutil.which("gcc")} "$@"\n')
    compiler.chmod(0o755)
    (tmp_path / "cache").mkdir()
    program = cached(compiler, tmp_path / "cache")

    def compile_in(directory, *flags):
        log.write_text("")
        command = [program, "-Wall", "-I.", *flags, "-c", "a.c", "-o", "a.o"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        return len(log.read_text()), done

    return compile_in


def sources(directory, value="1", code="int a(void) { return B; }\n"):
    directory.mkdir(exist_ok=True)
    (directory / "a.c").write_text('#include "b.h"\n' + code)
    (directory / "b.h").write_text(f"#define B {value}\n")
    return directory


@pytest.mark.parametrize("flags", [(), ("-MD", "-MP")], ids=["object", "object and rule for make"])
def test_equal_files_are_compiled_once(tmp_path, compiled, flags):
    first, second = sources(tmp_path / "first"), sources(tmp_path / "second")
    assert compiled(first, *flags)[0] == 1
    runs, done = compiled(second, *flags)
    assert (runs, done.returncode, done.stdout, done.stderr) == (0, 0, "", "")
    assert (first / "a.o").read_bytes() == (second / "a.o").read_bytes()
    assert [(second / "a.d").exists()] == [bool(flags)]
    assert not flags or (first / "a.d").read_text() == (second / "a.d").read_text() != ""
    assert os.stat(second / "a.o").st_mtime_ns >= os.stat(second / "a.c").st_mtime_ns  # for make


@pytest.mark.parametrize(
    ("changed", "flags"),
    [
        ({"value": "2"}, ()),
        ({"code": "int a(void) { return B + 1; }\n"}, ()),
        ({}, ("-O2",)),
        ({}, ("-Da=other",)),
    ],
    ids=["header", "source", "option", "definition"],
)
def test_another_header_source_or_option_is_compiled_anew(tmp_path, compiled, changed, flags):
    first, second = sources(tmp_path / "first"), sources(tmp_path / "second", **changed)
    compiled(first)
    assert compiled(second, *flags)[0] == 1
    assert [compiled(first)[0], compiled(second, *flags)[0]] == [0, 0]
    subprocess.run(["gcc", "-I.", *flags, "-c", "a.c", "-o", "own.o"], cwd=second, check=True)
    assert (second / "a.o").read_bytes() == (second / "own.o").read_bytes()


def test_a_header_of_which_nothing_else_is_used_changes_nothing(tmp_path, compiled):
    first, second = sources(tmp_path / "first"), sources(tmp_path / "second")
    (second / "b.h").write_text("#define C 2\n#define B 1\n")
    (first / "b.h").write_text("#define C 1\n#define B 1\n")
    assert [compiled(first, "-g")[0], compiled(second, "-g")[0]] == [1, 0]
    assert (first / "a.o").read_bytes() == (second / "a.o").read_bytes()


def test_options_of_the_preprocessor_that_change_nothing_change_nothing(tmp_path, compiled):
    first, second = sources(tmp_path / "first"), sources(tmp_path / "second")
    (second / "empty").mkdir()
    without = compiled(first)
    runs, done = compiled(second, "-DX", "-Iempty", "-iquote", "empty", "-MD", "-MP")
    assert (without[0], runs, done.returncode) == (1, 0, 0)
    assert (first / "a.o").read_bytes() == (second / "a.o").read_bytes()
    assert "b.h" in (second / "a.d").read_text()


def test_bytes_that_assembly_includes_are_not_taken_for_others(tmp_path, compiled):
    """The preprocessor's text does not have them; a comment of generated code says which they are."""
    objects = []
    for name in ("first", "other"):
        place = sources(tmp_path / name, code=f"/* {name} */ int a(void) {{ return B; }}\n")
        with (place / "a.c").open("a") as file:
            file.write('__asm__(".section .rodata\\n.incbin \\"bytes\\"\\n.text");\n')
        (place / "bytes").write_text(name)
        assert [compiled(place)[0], compiled(place)[0]] == [1, 0]
        objects.append((place / "a.o").read_bytes())
    assert b"first" in objects[0]
    assert b"other" in objects[1]


def test_temporary_directories_are_as_one(tmp_path, compiled):
    """By the names that they have in options and in what the preprocessor gives."""
    counts = []
    for name in ("byoc_hw_abcdefgh", "byoc_hw_12345678", "another"):
        place = sources(tmp_path / name)
        (place / "a.c").write_text(f'#include "{place}/b.h"\nint a(void) {{ return B; }}\n')
        counts.append(compiled(place, f"-I{place}")[0])
    assert counts == [1, 0, 1]


def test_a_header_that_includes_another_one_is_compiled_anew_with_either(tmp_path, compiled):
    place = sources(tmp_path / "place", value='C\n#include "c.h"')
    (place / "c.h").write_text("#define C 1\n")
    assert compiled(place)[0] == 1
    (place / "c.h").write_text("#define C 2\n")
    assert compiled(place)[0] == 1
    sources(place, value="1")
    assert [compiled(place)[0], compiled(place)[0]] == [1, 0]


@pytest.mark.parametrize(("flags", "code"), [((), 0), (("-Werror",), 1)], ids=["warning", "error"])
def test_what_the_compiler_says_is_said_each_time(tmp_path, compiled, flags, code):
    odd = sources(tmp_path / "odd", code="int a(void) { int unused; return B; }\n")
    for _ in range(2):
        runs, done = compiled(odd, *flags)
        assert (runs, done.returncode) == (1, code)
        assert "unused variable" in done.stderr


def test_a_session_inside_another_one_of_the_same_cache_installs_nothing(tmp_path, monkeypatch):
    """Else its compilers would be those of the cache, each of which would run itself for ever."""
    monkeypatch.setenv("PATH", os.environ["PATH"])
    install(tmp_path)
    path, programs = os.environ["PATH"], sorted((tmp_path / "bin").iterdir())
    known = [program.stat().st_mtime_ns for program in programs]
    install(tmp_path)
    assert os.environ["PATH"] == path
    assert [program.stat().st_mtime_ns for program in programs] == known
    done = subprocess.run(["gcc", "--version"], env=os.environ, capture_output=True, timeout=60)
    assert done.returncode == 0
