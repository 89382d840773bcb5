"""Generated C is free of warnings under every compiler at hand, and a new compiler's warning breaks no user's build."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emit_samples import sample_parts
from relay_samples import Add, Conv, Dense, Mul, Pool, const, module, variable
from riscv32_tools import needs_riscv32
from tvm import relay

import byoc_hw
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.errors import RunError
from byoc_hw.run.toolchain import Toolchain


def needs(compiler, package):
    return pytest.mark.skipif(shutil.which(compiler) is None, reason=f"install the package {package}")


RISCV32 = "riscv64-unknown-elf-gcc -march=rv32imc -misa-spec=2.2 -mabi=ilp32 --specs=picolibc.specs"
C_COMPILERS = [
    pytest.param("gcc", marks=needs("gcc", "gcc")),
    pytest.param("clang", marks=needs("clang", "clang")),
    pytest.param(RISCV32, marks=needs_riscv32),
]
CPLUSPLUS = [pytest.param("g++", marks=needs("g++", "g++")), pytest.param("clang++", marks=needs("clang++", "clang"))]


def host_operators(x):
    """Operators whose C gave warnings: each with the warning."""
    wide = relay.cast(x, "int32")
    return [
        relay.maximum(x, x),  # compared with itself
        relay.nn.mirror_pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))),  # two parentheses
        relay.cast(relay.sum(wide, 3), "int16"),  # a narrower type
        relay.nn.conv2d(
            x, const(np.ones((1, 1, 4, 2)), "int8"), data_layout="NHWC", kernel_layout="HWIO", out_dtype="int16"
        ),
        relay.add(wide, const([-(2**31), 0, 1, 2], "int32")),
        relay.nn.softmax(relay.cast(x, "float32") * const([1e-40, 1, 2, 3], "float32")),
        relay.tanh(relay.cast(x, "float32")),
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """One project with every layer kind and many host operators."""
    x, y = variable((1, 8, 8, 4), name="int8_t"), variable((1, 24), name="y")  # in C++ a member would hide the type
    conv, pool = Conv().expr(x), Pool().expr(x)
    layers = [conv, Conv(depthwise=True).expr(x), pool, Add().expr(x, x), Mul().expr(x, x), Dense().expr(y)]
    mod = byoc_hw.partition_for_hwlib(module(relay.Tuple([*layers, *host_operators(x)]), x, y))
    return byoc_hw.build(mod, output_dir=tmp_path_factory.mktemp("warnings") / "out")


@pytest.fixture(scope="module")
def polled(tmp_path_factory):
    """The directory of a small project that can be polled."""
    directory = tmp_path_factory.mktemp("polled") / "out"
    write_project(directory, project_files(replace(sample_parts(), polled=True)))
    return directory


def check_no_warning(directory, compiler, build):
    command = ["make", "-s", "-C", directory, "lib", f"CC={compiler}", "WERROR=1", f"BUILD={build}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("compiler", C_COMPILERS)
def test_every_file_compiles_without_a_warning(project, polled, compiler, tmp_path):
    check_no_warning(project.directory, compiler, tmp_path / "project")
    check_no_warning(polled, compiler, tmp_path / "polled")


@pytest.mark.parametrize("compiler", CPLUSPLUS)
def test_headers_are_cplusplus_too(project, polled, compiler):
    check_headers(project.directory, compiler)
    check_headers(polled, compiler)


def check_headers(directory, compiler):
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror", "-fsyntax-only"]
    folders = [directory / "include", directory / "hwlib" / "include"]
    headers = [header for folder in folders for header in sorted(Path(folder).glob("*.h"))]
    assert len(headers) >= 3
    including = "".join(f'#include "{header.name}"\n' for header in headers)
    command = [compiler, *flags, *(f"-I{folder}" for folder in folders), "-x", "c++", "-"]
    subprocess.run(command, input=including, text=True, check=True)


def test_a_warning_of_a_new_compiler_breaks_no_build_but_that_of_a_test(project, monkeypatch):
    x, y = np.ones((1, 8, 8, 4), np.int8), np.ones((1, 24), np.int8)
    new = Toolchain(cflags="-O0 -Wmissing-prototypes")  # TVM's functions have none
    with pytest.raises(RunError, match="missing-prototypes"):
        project.run([x, y], toolchain=new)
    monkeypatch.delenv("WERROR")
    assert len(project.run([x, y], toolchain=new).outputs) == 13
