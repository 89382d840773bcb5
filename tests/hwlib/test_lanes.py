"""hwlib_lanes: what the lanes of a chip ask of their HALs (lanes.c), and the names that a HAL gets there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import sanitizers
from hwlib_simulator import HERE, HWLIB, STRICT, run_gcc

from byoc_hw.accelerator import REFERENCE
from byoc_hw.hwlib.accelerator_header import accelerator_header
from byoc_hw.hwlib.library_header import library_header
from byoc_hw.hwlib.names_header import names_header
from byoc_hw.hwlib.sim_config import sim_config
from byoc_hw.library_calls import Library

TESTS = re.findall(r"TEST\((\w+)\),", (HERE / "lanes.c").read_text())


@pytest.fixture(scope="module", params=["plain", "traced"])
def lanes_program(request, tmp_path_factory) -> Path:
    program = tmp_path_factory.mktemp("lanes") / request.param
    flags = ["-DHWLIB_TRACE"] if request.param == "traced" else []
    sources = [HERE / "lanes.c", HWLIB / "src" / "hwlib_lanes.c"]
    run_gcc(*STRICT, *sanitizers.FLAGS, *flags, f"-I{HWLIB / 'include'}", *sources, "-o", program)
    return program


@pytest.mark.parametrize("name", TESTS)
def test_lanes(lanes_program: Path, name: str):
    if name.startswith("traces_") and lanes_program.name == "plain":
        return
    result = subprocess.run([lanes_program, name], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_every_global_name_of_a_simulator_is_the_accelerators(tmp_path: Path):
    """Two of them are linked into one program, and a name that both had would be one of the two."""
    (tmp_path / "hwlib_names.h").write_text(names_header("npu"))
    (tmp_path / "hwlib_accelerator.h").write_text(accelerator_header(REFERENCE))
    (tmp_path / "hwlib_sim_config.h").write_text(sim_config(REFERENCE))
    (tmp_path / "vendor.h").write_text(
        "int vendor_wait(unsigned token);\nint vendor_done(unsigned, unsigned char *);\n"
    )
    library = Library(Path("vendor.h"), (), {}, wait="vendor_wait", done="vendor_done")
    (tmp_path / "hwlib_library.h").write_text(library_header(library))
    folders = [f"-I{folder}" for folder in (HWLIB / "include", HWLIB / "sim", tmp_path)]
    for source in [*HWLIB.glob("sim/**/*.c"), *HWLIB.glob("library/*.c"), HWLIB / "src" / "hwlib_table.c"]:
        if source.name != "sim_clock.c":
            compiled = tmp_path / f"{source.stem}.o"
            run_gcc(*STRICT, *folders, "-include", "hwlib_names.h", "-c", source, "-o", compiled)
            names = subprocess.run(["nm", "-g", "--defined-only", compiled], capture_output=True, text=True, check=True)
            assert [line for line in names.stdout.splitlines() if not line.split()[-1].startswith("npu_")] == []


def test_a_hal_without_the_optional_functions_has_null_in_its_table(tmp_path: Path):
    names = ("init", "copy_1d", "copy_2d", "copy_wait", "job_start", "job_wait", "cycles", "mark")
    stubs = "".join(f"void hwlib_hal_{name}(void) {{}}\n" for name in names)
    (tmp_path / "hal.c").write_text(f"{stubs}")
    (tmp_path / "main.c").write_text(
        '#include "hwlib_lanes.h"\nextern const hwlib_hal_t hwlib_hal;\n'
        "int main(void) { return hwlib_hal.mark && !hwlib_hal.copy_done && !hwlib_hal.job_done && !hwlib_hal.idle; }\n"
    )
    sources = [tmp_path / "hal.c", tmp_path / "main.c", HWLIB / "src" / "hwlib_table.c"]
    run_gcc(f"-I{HWLIB / 'include'}", *sources, "-o", tmp_path / "main")
    assert subprocess.run([tmp_path / "main"]).returncode == 1


CLASHES = {
    "rows between rows": ((0, 4, 8, 4), (4, 4, 8, 4), 0),
    "the last byte": ((0, 4, 8, 5), (4, 4, 8, 4), 1),
    "one row inside": ((0, 4, 8, 4), (17, 1, 0, 1), 1),
    "one row in a gap": ((0, 4, 8, 4), (20, 1, 0, 4), 0),
    "before": ((16, 2, 4, 4), (0, 4, 4, 4), 0),
    "behind": ((0, 2, 4, 4), (8, 2, 4, 4), 0),
    "other strides that meet": ((0, 9, 7, 1), (1, 9, 5, 1), 1),
    "other strides that do not": ((0, 9, 6, 1), (1, 9, 4, 1), 0),
}


def test_bytes_of_main_memory_are_compared_exactly(tmp_path: Path):
    """Address, rows, stride and bytes of each of two copies."""
    cases = "".join(f"  CLASH({', '.join(map(str, (*one, *other)))});\n" for one, other, _ in CLASHES.values())
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "sim_clock.h"\n'
        "#define CLASH(a, r, s, b, a2, r2, s2, b2) do { "
        "sim_clock_area_t one = {a, r, s, b, 1}, other = {a2, r2, s2, b2, 0}; "
        'printf("%d%d ", sim_clock_clash(&one, &other), sim_clock_clash(&other, &one)); } while (0)\n'
        f"int main(void)\n{{\n{cases}  return 0;\n}}\n"
    )
    source = HWLIB / "sim" / "sim_clock.c"
    run_gcc(*STRICT, *sanitizers.FLAGS, f"-I{HWLIB / 'sim'}", tmp_path / "main.c", source, "-o", tmp_path / "main")
    output = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert dict(zip(CLASHES, output.split(), strict=True)) == {
        name: f"{clash}{clash}" for name, (*_, clash) in CLASHES.items()
    }
