"""Puts a compiler that compiles nothing twice (compile_cache.c) in front of each that the tests use."""

import os
import shutil
import subprocess
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang", "riscv64-unknown-elf-gcc", "arm-none-eabi-gcc")
SOURCE = Path(__file__).with_suffix(".c")


def cached(compiler, directory):
    """The program that takes the place of a compiler, and keeps in the directory what that compiled."""
    program = directory / "bin" / Path(compiler).name
    cache = directory / "objects"
    for folder in (program.parent, cache):
        folder.mkdir(exist_ok=True)
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    definitions = [f'-DCOMPILER="{compiler}"', f'-DCACHE="{cache}"']
    subprocess.run(["gcc", *flags, *definitions, SOURCE, "-o", program], check=True)
    return program


def install(directory):
    """Every compiler that is there, from now on, in this process and in those that it starts. Nothing in a session that
    one with the same directory starts."""
    programs, places = str(directory / "bin"), os.environ["PATH"].split(os.pathsep)
    if programs in places or shutil.which("gcc") is None:
        return
    found = [compiler for name in COMPILERS if (compiler := shutil.which(name))]
    for compiler in found:
        cached(compiler, directory)
    os.environ["PATH"] = os.pathsep.join([programs, *places])
