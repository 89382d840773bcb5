"""Constant data of regions as text, or as bytes that the assembler includes: the same results, aligned, in flash."""

import os
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from riscv32_tools import needs_riscv32
from sanitizers import SANITIZED
from vendor_library import VENDOR

import byoc_hw
from byoc_hw.demo import heldout, model_path
from byoc_hw.emit import weight_file
from byoc_hw.errors import InvalidInput

APART = replace(byoc_hw.REFERENCE, label="APART", dma_reads_flash=False)
PAIR = byoc_hw.Soc((replace(APART, name="dla"), byoc_hw.DSP), label="APART + DSP")
NAME = "tvmgen_default_hwlib_main_0_flash"


def built(hardware=byoc_hw.REFERENCE, **options):
    mod = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), accelerator=hardware)
    return byoc_hw.build(mod, **options)


def header(project):
    return project.directory / "src/default_weights.h"


def included(project):
    return project.directory / "src/default_weights.h.bin"


@pytest.fixture(scope="module")
def binary():
    return built(weights="binary")


@pytest.fixture(scope="module")
def result():
    return built(weights="text").run(heldout().images[:1])


def assert_same(found, result):
    np.testing.assert_array_equal(found.outputs[0], result.outputs[0])
    assert found.cycles.total == result.cycles.total


@pytest.mark.slow
def test_the_bytes_are_those_of_the_text(binary):
    project = built(weights="text")
    text = header(project).read_text()
    array = text[text.index("= {") + 3 : text.index("};")]
    assert included(binary).read_bytes() == bytes(int(value) for value in array.split(",")[:-1])
    assert "0x" not in header(binary).read_text()
    assert len(header(binary).read_text().splitlines()) < 50
    assert not binary.changed


@pytest.mark.slow
def test_much_of_it_is_binary_unless_asked_otherwise(binary, monkeypatch):
    size = included(binary).stat().st_size
    for large, form, there in ((size + 1, "auto", False), (size, "auto", True), (size, "text", False)):
        monkeypatch.setattr(weight_file, "LARGE", large)
        project = built(weights=form)
        assert included(project).exists() == there


def test_a_form_that_there_is_not_is_refused():
    with pytest.raises(InvalidInput, match="weights is one of auto, text, binary: got 'hex'"):
        built(weights="hex")


@pytest.mark.slow
@pytest.mark.parametrize("cflags", ["-O2", "-O2 -flto", SANITIZED])
def test_runs_as_with_text(binary, result, cflags):
    assert_same(binary.run(heldout().images[:1], toolchain=byoc_hw.Toolchain(cflags=cflags)), result)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang") is None, reason="install the package clang")
def test_clang_includes_it_too(binary, result):
    assert_same(binary.run(heldout().images[:1], toolchain=byoc_hw.Toolchain(cc="clang")), result)


@needs_riscv32
@pytest.mark.parametrize("startup", ["picolibc", pytest.param("plain", marks=pytest.mark.slow)])
def test_runs_on_riscv32(binary, result, startup):
    assert_same(binary.run(heldout().images[:1], on="riscv32", toolchain=byoc_hw.Toolchain(startup=startup)), result)


@pytest.fixture(scope="module", params=[APART, PAIR], ids=["one", "several"])
def apart(request):
    return built(request.param, weights="binary")


@needs_riscv32
@pytest.mark.slow
@pytest.mark.parametrize(("on", "startup"), [("host", "picolibc"), ("riscv32", "picolibc"), ("riscv32", "plain")])
def test_start_up_code_copies_what_a_dma_cannot_read_in_flash(apart, on, startup, result):
    found = apart.run(heldout().images[:1], on=on, toolchain=byoc_hw.Toolchain(startup=startup))
    np.testing.assert_array_equal(found.outputs[0], result.outputs[0])


def compiled(project, directory, *options, compiler="gcc"):
    """Compile the regions as another program would, that knows where headers are and nothing else."""
    folders = [f"-I{project.directory / folder}" for folder in ("include", "src", "hwlib/include")]
    source = str(project.directory / "src/default_hwlib.c")
    command = [compiler, "-c", source, *folders, "-o", str(directory / "regions.o"), *options]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_compiles_from_any_directory_into_flash(binary, tmp_path):
    assert compiled(binary, tmp_path, "-Werror").returncode == 0
    sections = subprocess.run(["objdump", "-h", tmp_path / "regions.o"], capture_output=True, text=True, check=True)
    found = re.search(rf"\.rodata\.{NAME} +([0-9a-f]+) .*2\*\*(\d)\n.*READONLY, DATA", sections.stdout)
    assert (int(found[1], 16), int(found[2])) == (included(binary).stat().st_size, 4)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_file_that_is_too_short_is_no_model(tmp_path, compiler):
    if shutil.which(compiler) is None:
        pytest.skip(f"install the package {compiler}")
    project = built(weights="binary", output_dir=tmp_path / "project")
    included(project).write_bytes(included(project).read_bytes()[:-1])
    assert "org" in compiled(project, tmp_path, compiler=compiler).stderr


def test_the_macro_names_another_file(tmp_path):
    project = built(weights="binary", output_dir=tmp_path / "project")
    included(project).rename(tmp_path / "elsewhere.bin")
    assert "default_weights.h.bin" in compiled(project, tmp_path).stderr
    assert compiled(project, tmp_path, '-DDEFAULT_WEIGHTS_FILE="elsewhere.bin"').returncode == 0


def test_a_compiler_without_gnu_assembly_is_told_what_to_do(binary, tmp_path):
    assert "build the project with weights as text" in compiled(binary, tmp_path, "-U__ELF__").stderr


def test_other_bytes_are_compiled_again(tmp_path):
    project = built(weights="binary", output_dir=tmp_path / "project")
    make = ["make", "-C", str(project.directory), "CC=gcc", "build/src/default_hwlib.o"]

    def compiles():
        return "default_hwlib.c" in subprocess.run(make, capture_output=True, text=True, check=True).stdout

    assert compiles()
    assert not compiles()
    later = header(project).stat().st_mtime + 10
    os.utime(included(project), (later, later))
    assert compiles()


@pytest.mark.slow
def test_of_a_library_only_elements_of_one_byte_are_in_the_file():
    text, contents = (built(VENDOR, weights=form) for form in ("text", "binary"))
    arrays, left = (
        set(re.findall(r"^static const (\w+) \w+\[", header(one).read_text(), re.MULTILINE)) for one in (text, contents)
    )
    assert arrays == {"int8_t", "int32_t"}
    assert left == {"int32_t"}
    image = heldout().images[:1]
    np.testing.assert_array_equal(contents.run(image).outputs[0], text.run(image).outputs[0])
