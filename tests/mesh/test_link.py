"""The C of rings and of a PE's main loop, under sanitizers; and the host functions of one PE."""

import shutil
import subprocess
from pathlib import Path

import pytest

import byoc_hw.mesh
from byoc_hw.mesh.host_part import host_part
from byoc_hw.mesh.patches import form_of, patch_of
from byoc_hw.mesh.pe_source import PortBlock, port_block
from byoc_hw.mesh.pieces import PieceBox
from byoc_hw.mesh.plan import Patch
from byoc_hw.tensor import Tensor

LINK = Path(byoc_hw.mesh.__file__).parent / "link"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1", "-g1"]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_frames_pass_rings_and_a_pe_unchanged(compiler, tmp_path):
    sanitized = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = [Path(__file__).with_name("rings.c"), *sorted(LINK.glob("*.c"))]
    program, empty = tmp_path / "rings", tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    if not shutil.which(compiler) or subprocess.run([compiler, *sanitized, empty, "-o", program]).returncode:
        pytest.skip(f"{compiler} or its sanitizers are missing: apt install gcc clang libclang-rt-dev")
    subprocess.run([compiler, *FLAGS, *sanitized, f"-I{LINK}", *sources, "-o", program], check=True)
    subprocess.run([program], check=True, timeout=60)


def test_a_port_moves_a_patch_of_a_buffer():
    tensor = Tensor("x", (1, 8, 4, 6))
    held = Patch((2, 7), (0, 6))
    assert port_block(tensor, held, Patch((3, 5), (0, 6))) == PortBlock(24, 48, 1, 48)
    assert port_block(tensor, held, Patch((3, 5), (2, 5))) == PortBlock(26, 3, 8, 6)
    vector = Tensor("y", (1, 10), "int32")
    whole = form_of(vector).whole
    assert port_block(vector, whole, patch_of(vector, PieceBox("channels", 4, 9))) == PortBlock(16, 20, 1, 40)


SOURCE = """\
#include <stdint.h>

static const int16_t table_a[4] = {
    1, 2, 3, 4,
};

static const int32_t table_b[2] = {
    5, 6,
};

int32_t first(int8_t* p0, int8_t* p1) {
  if (p0[0]) {
    p1[0] = (int8_t)table_a[0];
  }
  return 0;
}

int32_t second(int8_t* p0, int8_t* p1) {
  p1[0] = (int8_t)table_b[0];
  return 0;
}
"""


def test_a_pe_has_the_host_functions_that_it_calls_and_their_constants():
    text, nbytes = host_part(SOURCE, {"second"})
    assert nbytes == 8
    assert "table_b" in text
    assert "second" in text
    assert "first" not in text
    assert "table_a" not in text
    assert text.startswith("#include <stdint.h>\n")
    assert host_part(SOURCE, {"first", "second"}) == (SOURCE, 16)
    assert host_part(SOURCE, set()) == ("", 0)
