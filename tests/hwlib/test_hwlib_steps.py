"""hwlib/src: what the steps of a region ask of the HAL (steps.c), and a region on the simulator (region.c)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hwlib_simulator import HERE, HWLIB, STRICT, build_program, run_gcc

from byoc_hw.accelerator import REFERENCE

TESTS = re.findall(r"TEST\((\w+)\),", (HERE / "steps.c").read_text())


@pytest.fixture(scope="module", params=["plain", "traced"])
def steps_program(request, tmp_path_factory) -> Path:
    flags = ["-DHWLIB_TRACE"] if request.param == "traced" else []
    return build_program(tmp_path_factory.mktemp("steps"), REFERENCE, "steps.c", *flags, hwlib_only=True)


@pytest.mark.parametrize("name", [name for name in TESTS if not name.startswith("traces_")])
def test_steps(steps_program: Path, name: str):
    """Each also shows that HWlib touches no activation byte: every space is a page without access."""
    result = subprocess.run([steps_program, name], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", [name for name in TESTS if name.startswith("traces_")])
def test_trace(tmp_path: Path, name: str):
    program = build_program(tmp_path, REFERENCE, "steps.c", "-DHWLIB_TRACE", hwlib_only=True)
    result = subprocess.run([program, name], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("optimization", ["-O0", "-O2", "-Os"])
def test_hwlib_needs_nothing_but_the_hal(tmp_path: Path, optimization: str):
    for source in sorted(HWLIB.glob("src/*.c")):
        compiled = tmp_path / f"{source.stem}.o"
        run_gcc(*STRICT, "-ffreestanding", optimization, f"-I{HWLIB / 'include'}", "-c", source, "-o", compiled)
        undefined = subprocess.run(["nm", "-u", compiled], capture_output=True, text=True, check=True).stdout.split()
        expected = ("hwlib_hal_", "hwlib_failed", "hwlib_wait")
        assert {symbol for symbol in undefined if symbol not in ("U", "w") and not symbol.startswith(expected)} == set()


def test_hwlib_includes_freestanding_headers_only():
    included = set()
    for source in [*HWLIB.glob("src/*"), *HWLIB.glob("include/*")]:
        included |= set(re.findall(r"#include (<.*>)", source.read_text()))
    assert included <= {"<stdint.h>", "<stddef.h>"}


TOO_LARGE = {
    "slot": "HWLIB_COPY_WAIT(16)",
    "after": "HWLIB_JOB_TILE(0, 16, 0)",
    "place": "HWLIB_JOB(0, 0, 16, 0, 0, 0, 0)",
    "form": "HWLIB_JOB_FORM(0, 0, 0, 2341, 0, 0, 0, 0)",
    "row": "HWLIB_JOB_TILE(0, 0, 65536)",
    "psum": "HWLIB_JOB_2(0, 0, 0, 0, 65536, 0, 0, 0, 0)",
    "ifm": "HWLIB_JOB(0, 0, 0, 65536, 0, 0, 0)",
    "params": "HWLIB_JOB(0, 0, 0, 0, 0, 0, 65536)",
    "local": "HWLIB_COPY_IN(0, 0, 65536, HWLIB_SPACE_FLASH, 0, 1)",
    "main": "HWLIB_COPY_OUT(0, 0, 0, HWLIB_SPACE_FLASH, 65536, 1)",
    "bytes": "HWLIB_COPY_WEIGHTS(0, 0, 0, HWLIB_SPACE_FLASH, 0, 65536)",
    "space": "HWLIB_COPY_IN(0, 0, 0, HWLIB_SPACE_FLASH + 8, 0, 1)",
    "no main memory": "HWLIB_COPY_IN(0, 0, 0, HWLIB_SPACE_WEIGHTS, 0, 1)",
    "stride": "HWLIB_ROWS_IN(0, 0, 0, HWLIB_SPACE_FLASH, 0, 1, 2, 1, 65536)",
}


@pytest.mark.parametrize("step", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_value_that_does_not_fit_its_field_is_an_error_of_the_compiler(tmp_path: Path, step: str):
    source = tmp_path / "steps.c"
    source.write_text(f'#include "hwlib.h"\nconst uint16_t steps[] = {{{step}, HWLIB_END}};\n')
    command = ["gcc", "-std=c11", f"-I{HWLIB / 'include'}", "-fsyntax-only", source]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0
    assert "negative" in result.stderr


def test_headers_compile_as_cpp(tmp_path: Path):
    if shutil.which("g++") is None:
        pytest.skip("a C++ compiler is needed: install the package g++")
    (tmp_path / "main.cpp").write_text('#include "hwlib.h"\n#include "hwlib_sim.h"\n')
    includes = [f"-I{HWLIB / 'include'}", f"-I{HWLIB / 'sim'}"]
    run_gcc("-x", "c++", "-Wall", "-Wextra", "-Werror", *includes, "-fsyntax-only", tmp_path / "main.cpp")


def test_region_overlaps_copies_and_jobs(tmp_path: Path):
    """70 + 2 * 4 in, then 8 for the maximum beside 70 + 4 for the constant; 8 for the sum, 70 + 4 out."""
    program = build_program(tmp_path, REFERENCE, "region.c")
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert output[0] == "status 0 fault "
    assert output[1] == f"cycles {78 + 8} + {74 - 8 + 8 + 74} = {78 + 74 + 8 + 74}"
    assert output[2] == "ofm " + " ".join(str(max(i, 64 - i) - i) for i in range(64))


def test_simulator_finds_the_missing_wait_of_a_region(tmp_path: Path):
    """The same region, its addition started without waiting for the constant."""
    text = (HERE / "region.c").read_text()
    broken = text.replace("HWLIB_JOB_FORM_2(3, 2,", "HWLIB_JOB_FORM_2(3, 0,")
    assert broken != text
    (tmp_path / "broken.c").write_text(broken)
    program = build_program(tmp_path / "build", REFERENCE, str(tmp_path / "broken.c"))
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert output[0] == "status 4 fault ifm2: touches, at 2048, bytes of a copy in flight at 2048"
