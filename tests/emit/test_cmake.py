"""The project as CMake and Zephyr build it: the same program as make's, on the host and on riscv32."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import numpy as np
import pytest
from chip_samples import CHIP, chip_plan, two_branches
from emit_samples import graph_without_pooling, sample_parts, sample_program
from riscv32_tools import needs_riscv32
from test_chip_projects import parts_of
from vendor_library import QUEUED

import byoc_hw
from byoc_hw.demo import heldout, model_path
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.run.new_hal import new_hal

CMAKE = which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(CMAKE is None, reason="cmake is not installed: pip install cmake")

TOOLCHAIN = """\
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR riscv32)
set(CMAKE_C_COMPILER riscv64-unknown-elf-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_C_FLAGS_INIT "-march=rv32imc -misa-spec=2.2 -mabi=ilp32 --specs=picolibc.specs")
set(CMAKE_EXE_LINKER_FLAGS_INIT "--crt0=semihost --oslib=semihost -Wl,--defsym=__flash=0x80000000 \
-Wl,--defsym=__flash_size=32M -Wl,--defsym=__ram=0x82000000 -Wl,--defsym=__ram_size=32M \
-Wl,--defsym=__stack_size=64K -Wl,--gc-sections")
"""
QEMU = (
    "qemu-system-riscv32 -machine virt -m 1G -display none -bios none -monitor none -serial none "
    "-chardev stdio,id=sh0,signal=off -semihosting-config enable=on,target=native,chardev=sh0"
)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    mod, params = byoc_hw.load(model_path())
    mod = byoc_hw.partition_for_hwlib(mod, params, "digits", accelerator=byoc_hw.SMALL)
    return byoc_hw.build(mod, output_dir=tmp_path_factory.mktemp("cmake") / "digits", weights="binary")


def command(*arguments):
    done = subprocess.run([str(one) for one in arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def built(source, build, *options, target=()):
    said = command(CMAKE, "-S", source, "-B", build, "-G", "Unix Makefiles", "-DCMAKE_C_COMPILER=gcc", *options)
    assert "Warning" not in said, said
    command(CMAKE, "--build", build, *target)
    return build


def outputs_of(*program, image, folder):
    (folder / "in.bin").write_bytes(image.tobytes())
    command(*program, folder / "in.bin", folder / "out.bin", folder / "profile.jsonl")
    return (folder / "out.bin").read_bytes()


@pytest.mark.slow
def test_the_host_program_is_the_same_as_makes(digits, tmp_path):
    build = built(digits.directory, tmp_path / "build", "-DDIGITS_WERROR=ON")
    image = heldout().images[:1]
    expected = digits.run(image).outputs[0].tobytes()
    assert outputs_of(build / "digits_app", image=image, folder=tmp_path) == expected


@pytest.mark.slow
@needs_riscv32
def test_the_program_for_riscv32_is_the_users_toolchain_files(digits, tmp_path):
    (tmp_path / "rv32.cmake").write_text(TOOLCHAIN)
    sources = ";".join(str(digits.directory / "app" / "riscv32" / name) for name in ("io.c", "trap.c"))
    options = [f"-DCMAKE_TOOLCHAIN_FILE={tmp_path / 'rv32.cmake'}", f"-DDIGITS_APP_IO={sources}", "-DDIGITS_WERROR=ON"]
    said = command(CMAKE, "-S", digits.directory, "-B", tmp_path / "build", "-G", "Unix Makefiles", *options)
    assert "Warning" not in said, said
    command(CMAKE, "--build", tmp_path / "build")
    image = heldout().images[:1]
    (tmp_path / "in.bin").write_bytes(image.tobytes())
    arguments = "".join(f",arg={tmp_path / name}" for name in ("in.bin", "out.bin", "profile.jsonl"))
    command(*f"{QEMU}{arguments}".split(), "-kernel", tmp_path / "build" / "digits_app")
    assert (tmp_path / "out.bin").read_bytes() == digits.run(image).outputs[0].tobytes()


PROGRAM = """\
#include <stdio.h>
#include <digits.h>
#include <demo.h>
int main(void)
{
  printf("%u %u", (unsigned)sizeof(struct digits_inputs), (unsigned)sizeof(struct demo_inputs));
  return !&demo_run || !&digits_run;
}
"""


@pytest.mark.slow
def test_two_models_are_libraries_of_one_program(digits, tmp_path):
    write_project(tmp_path / "demo", project_files(sample_parts()))
    (tmp_path / "main.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(both C)\n"
        f"add_subdirectory({digits.directory} digits)\nadd_subdirectory(demo)\n"
        "add_executable(both main.c)\ntarget_link_libraries(both digits demo m)\n"
    )
    build = built(tmp_path, tmp_path / "build")
    assert re.fullmatch(r"\d+ \d+", command(build / "both"))
    assert not list(build.rglob("*_app"))


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True])
def test_a_chip_has_a_hal_for_each_accelerator(own, tmp_path):
    write_project(tmp_path / "twin", project_files(parts_of(chip_plan(two_branches()), CHIP)))
    options = ["-DDEMO_WERROR=ON"]
    if own:
        new_hal(tmp_path / "npu", CHIP.accelerators[0])
        options.append(f"-DDEMO_HAL_NPU={tmp_path / 'npu'}")
    built(tmp_path / "twin", tmp_path / "build", *options)
    assert list((tmp_path / "build").glob("demo_app"))


@pytest.mark.slow
def test_a_vendor_library_and_traces(tmp_path):
    parts = sample_parts(accelerator=QUEUED, program=sample_program(graph=graph_without_pooling()))
    write_project(tmp_path / "vendor", project_files(parts))
    built(tmp_path / "vendor", tmp_path / "build", "-DDEMO_WERROR=ON", "-DDEMO_TRACE=ON", "-DDEMO_NAMES=OFF")


@pytest.mark.slow
def test_a_hal_of_ones_own_and_a_folder_without_one(digits, tmp_path):
    new_hal(tmp_path / "hal", byoc_hw.SMALL)
    build = built(digits.directory, tmp_path / "build", f"-DDIGITS_HAL={tmp_path / 'hal'}")
    image = heldout().images[:1]
    found = outputs_of(build / "digits_app", image=image, folder=tmp_path)
    np.testing.assert_array_equal(np.frombuffer(found, np.int8), digits.run(image).outputs[0].ravel())
    done = subprocess.run(
        [CMAKE, "-S", digits.directory, "-B", tmp_path / "other", f"-DDIGITS_HAL={tmp_path / 'none'}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode
    assert "DIGITS_HAL is a directory with C files" in done.stderr


ZEPHYR = """\
cmake_minimum_required(VERSION 3.16)
project(firmware C)
add_library(zephyr_interface INTERFACE)
target_compile_definitions(zephyr_interface INTERFACE ZEPHYR=1)
add_executable(app main.c)
macro(zephyr_link_libraries)
  target_link_libraries(app ${ARGN} m)
endmacro()
macro(zephyr_include_directories)
  target_include_directories(app PRIVATE ${ARGN})
endmacro()
set(CONFIG_DIGITS y)
set(CONFIG_DIGITS_NAMES y)
set(CONFIG_DIGITS_HAL hwlib/sim)
"""


@pytest.mark.slow
def test_the_module_for_zephyr_builds_with_its_functions(digits, tmp_path):
    """The functions of Zephyr that it calls are stood in for: what they are given is a library that links."""
    zephyr = digits.directory / "zephyr"
    assert "cmake: zephyr" in (zephyr / "module.yml").read_text()
    assert set(re.findall(r"^config (\w+)", (zephyr / "Kconfig").read_text(), re.M)) == {
        "DIGITS_NAMES",
        "DIGITS_TRACE",
        "DIGITS_HAL",
    }
    (tmp_path / "main.c").write_text("#include <digits.h>\nint main(void) { return !&digits_run; }\n")
    (tmp_path / "CMakeLists.txt").write_text(f"{ZEPHYR}add_subdirectory({zephyr} digits)\n")
    command(built(tmp_path, tmp_path / "build") / "app")
    (tmp_path / "CMakeLists.txt").write_text(ZEPHYR.replace("DIGITS y", "DIGITS n") + f"add_subdirectory({zephyr} d)\n")
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    built(tmp_path, tmp_path / "without")
    assert not list((tmp_path / "without").rglob("*.a"))


def test_a_model_called_as_a_target_of_cmake_has_another_target():
    files = project_files(sample_parts("test"))
    assert "add_library(test_model STATIC" in files["CMakeLists.txt"]
