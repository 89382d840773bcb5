"""The C files of a folder call each other from the top to the bottom, never in a circle."""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hwlib_simulator import HWLIB

FOLDERS = ("src", "sim", "kit")

NO_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
MACRO = re.compile(r"^#define (\w+)((?:.*\\\n)*.*)", re.MULTILINE)
# What begins a line begins a declaration: all else is indented.
DECLARATION = r"^(?!static|extern|typedef|enum|struct)[A-Za-z_][\w *()]*?\b"
FUNCTION = re.compile(DECLARATION + r"(\w+)\([^;{}]*\)\s*\{", re.MULTILINE)
OBJECT = re.compile(DECLARATION + r"(\w+)(?:\[\w*\])*\s*[=;]", re.MULTILINE)
INLINE = re.compile(r"^static inline[\w *]+?\b(\w+)\([^;{}]*\)\s*\{(.*?)^\}", re.MULTILINE | re.DOTALL)

Calls = dict[str, dict[str, str]]
"""For each file those that it calls, with a name that it calls them by."""


def code_of(path: Path) -> str:
    return NO_CODE.sub(" ", path.read_text(encoding="utf-8"))


def names_in(code: str) -> set[str]:
    return set(re.findall(r"\w+", code))


def calls_of(folder: Path) -> Calls:
    """Who calls whom. What a macro or an inline function of a header mentions, its users call."""
    files = {path.name: code_of(path) for path in sorted(folder.glob("*.c"))}
    headers = "\n".join(code_of(path) for path in sorted(folder.glob("*.h")))
    shared = {name: names_in(body) for kind in (MACRO, INLINE) for name, body in kind.findall(headers)}
    home = {}
    for file, code in files.items():
        defined = FUNCTION.findall(code) + OBJECT.findall(code)
        if "main" not in defined:  # a program around the folder: what it provides, any program does
            home |= dict.fromkeys(defined, file)
    calls: Calls = {}
    for file, code in files.items():
        names = names_in(code)
        while more := set().union(*(shared.get(name, set()) for name in names)) - names:
            names |= more
        calls[file] = {home[name]: name for name in sorted(names) if home.get(name, file) != file}
    return calls


def circle(calls: Calls) -> str:
    """The first circle, as "a.c calls g of b.c, b.c calls f of a.c"; or ""."""
    done: set[str] = set()

    def follow(file: str, path: list[str]) -> str:
        if file in path:
            around = [*path[path.index(file) :], file]
            return ", ".join(f"{one} calls {calls[one][other]} of {other}" for one, other in pairwise(around))
        if file in done:
            return ""
        found = next(filter(None, (follow(other, [*path, file]) for other in calls[file])), "")
        done.add(file)
        return found

    return next(filter(None, (follow(file, []) for file in calls)), "")


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_is_called_by_those_that_it_calls(folder: str):
    assert circle(calls_of(HWLIB / folder)) == ""


def test_sees_calls_through_macros_inline_functions_and_tables():
    calls = calls_of(HWLIB / "sim")
    assert calls["sim_hal.c"]["sim_job.c"]
    assert calls["sim_copy.c"]["sim_fault.c"] == "hwlib_sim_refuse"  # by HWLIB_SIM_REFUSE
    assert calls["sim_pool2d.c"]["sim_memory.c"] == "hwlib_sim_local"  # by hwlib_sim_ifm_at
    assert calls["sim_job.c"]["sim_elementwise.c"] == "hwlib_sim_elementwise"
    assert calls_of(HWLIB / "src") == {
        "hwlib_copy.c": {},
        "hwlib_failed.c": {},
        "hwlib_go_on.c": {"hwlib_failed.c": "hwlib_failed", "hwlib_steps.c": "hwlib_wait"},
        "hwlib_lanes.c": {},
        "hwlib_steps.c": {"hwlib_failed.c": "hwlib_failed"},
        "hwlib_table.c": {},
    }


def test_a_planted_circle_is_named(tmp_path: Path):
    folder = Path(shutil.copytree(HWLIB / "sim", tmp_path / "sim"))
    memory = folder / "sim_memory.c"
    text = memory.read_text(encoding="utf-8")
    memory.write_text(text + "/* hwlib_sim_idle() */\n", encoding="utf-8")
    assert circle(calls_of(folder)) == ""
    memory.write_text(text + "void hwlib_sim_give_up(void)\n{\n  hwlib_sim_idle();\n}\n", encoding="utf-8")
    assert circle(calls_of(folder)) == (
        "sim_memory.c calls hwlib_sim_idle of sim_timeline.c, sim_timeline.c calls hwlib_sim_written of sim_memory.c"
    )
