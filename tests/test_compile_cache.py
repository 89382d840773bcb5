"""The compiler of the tests compiles nothing twice, and what it gives is what the compiler would."""

import os
import shutil
import subprocess

import pytest
from compile_cache import cached


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Compiles a.c, which includes b.h; how often the compiler was called for more than to preprocess, and how it
    ended."""
    log = tmp_path / "log"
    compiler = tmp_path / "gcc"
    compiler.write_text(
        f'#!/bin/sh\ncase " $* " in *" -E "*) ;; *) echo >> {log} ;; esac\nexec {shutil.which("gcc")} "$@"\n'
    )
    compiler.chmod(0o755)
    for name in ("bin", "objects"):
        (tmp_path / name).mkdir()
    program = cached(compiler, tmp_path / "bin", tmp_path / "objects")

    def compile_in(directory, *flags, files=("-c", "a.c", "-o", "a.o")):
        log.write_text("")
        command = [program, "-Wall", "-I.", *flags, *files]
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
    [({"value": "2"}, ()), ({"code": "int a(void) { return B + 1; }\n"}, ()), ({}, ("-O2",)), ({}, ("-Da=b",))],
    ids=["header", "source", "option", "definition"],
)
def test_another_header_source_or_option_is_compiled_anew(tmp_path, compiled, changed, flags):
    first, second = sources(tmp_path / "first"), sources(tmp_path / "second", **changed)
    compiled(first)
    assert compiled(second, *flags)[0] == 1
    assert [compiled(first)[0], compiled(second, *flags)[0]] == [0, 0]
    subprocess.run(["gcc", "-I.", *flags, "-c", "a.c", "-o", "own.o"], cwd=second, check=True)
    assert (second / "a.o").read_bytes() == (second / "own.o").read_bytes()


def test_a_header_that_includes_another_one_is_compiled_anew_with_either(tmp_path, compiled):
    code = "int a(void) { return B + C; }\n"
    place = sources(tmp_path / "place", '1\n#include "c.h"', code)
    (place / "c.h").write_text("#define C 1\n")
    assert compiled(place)[0] == 1
    (place / "c.h").write_text("#define C 2\n")
    assert compiled(place)[0] == 1
    sources(place, "1\n#define C 3", code)
    assert [compiled(place)[0], compiled(place)[0]] == [1, 0]


@pytest.mark.parametrize("flags", [(), ("-MD",)], ids=["object", "object and rule for make"])
def test_a_macro_that_the_source_does_not_use_is_no_other_source(tmp_path, compiled, flags):
    first, second = (sources(tmp_path / f"place{number}", f"1\n#define UNUSED {number}") for number in range(2))
    assert [compiled(first, *flags)[0], compiled(second, *flags)[0]] == [1, 0]
    assert (first / "a.o").read_bytes() == (second / "a.o").read_bytes()
    assert not flags or (second / "a.d").read_text() == (first / "a.d").read_text() != ""
    sources(second, "1\n#define UNUSED 1\n#undef B\n#define B 2")
    assert compiled(second, *flags)[0] == 1


@pytest.mark.parametrize(("flags", "code"), [((), 0), (("-Werror",), 1)], ids=["warning", "error"])
def test_what_the_compiler_says_is_said_each_time(tmp_path, compiled, flags, code):
    odd = sources(tmp_path / "odd", code="int a(void) { int unused; return B; }\n")
    for _ in range(2):
        runs, done = compiled(odd, *flags)
        assert (runs, done.returncode) == (1, code)
        assert "unused variable" in done.stderr


# ---------------------------------------------------------------- programs


MAIN = """#include <stdio.h>
#include "config.h"
int a(void);
int main(void) { return printf("%d\\n", a() ADDED) < 0; }
"""


def program(directory, config, code="int a(void) { return B; }\n"):
    """The command for a program of two sources, one of which uses a macro of a file that lies elsewhere."""
    sources(directory, code=code)
    folder = directory.with_name(f"{directory.name}_config")
    folder.mkdir(exist_ok=True)
    (folder / "main.c").write_text(MAIN)
    (folder / "config.h").write_text(config)
    return directory, {"files": (f"-I{folder}", folder / "main.c", "a.c", "-lm", "-o", "main")}


def test_the_sources_of_a_program_are_compiled_once(tmp_path, compiled):
    """Then it is only linked, wherever its files lie and whatever macros they have of no use."""
    said = []
    for number, config in enumerate(("", "", "#define UNUSED\n", "#undef ADDED\n#define ADDED +1\n")):
        place, files = program(tmp_path / f"place{number}", f"#define ADDED\n{config}")
        runs, done = compiled(place, **files)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        said.append((runs, subprocess.run([place / "main"], capture_output=True, text=True, check=True).stdout))
    assert said == [(3, "1\n"), (1, "1\n"), (1, "1\n"), (2, "2\n")]


@pytest.mark.parametrize(
    ("code", "what"),
    [("int a(void) { return C; }\n", "undeclared"), ("", "undefined reference")],
    ids=["source", "link"],
)
def test_what_is_wrong_with_a_program_is_said(tmp_path, compiled, code, what):
    place, files = program(tmp_path / "place", "#define ADDED\n", code)
    for _ in range(2):
        _, done = compiled(place, **files)
        assert (done.returncode, what in done.stderr, (place / "main").exists()) == (1, True, False)
    assert not list((tmp_path / "objects").glob("*.[0-9]*.o"))
