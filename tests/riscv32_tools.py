"""The tools that tests of bare-metal programs need, and the packages that have them."""

import shutil
import subprocess

import pytest


def needs(packages, there):
    return pytest.mark.skipif(not there, reason=f"install the packages {packages}")


def has(compiler, specs):
    """Whether the compiler is there, with the C library of these specs."""
    if shutil.which(compiler) is None:
        return False
    command = [compiler, f"-print-file-name={specs}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() != specs


needs_riscv32 = needs(
    "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc",
    has("riscv64-unknown-elf-gcc", "picolibc.specs") and shutil.which("qemu-system-riscv32") is not None,
)
needs_cortex_m = needs("gcc-arm-none-eabi libnewlib-arm-none-eabi", has("arm-none-eabi-gcc", "rdimon.specs"))
