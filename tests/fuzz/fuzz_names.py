"""Hostile names of a model, its operators, its project and its accelerator: a right program, or a refusal."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import tvm
from fuzz_case import Case, Finding
from fuzz_oracle import expected
from relay_samples import Dense, const, module
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.run.toolchain import Toolchain

_PLAIN = """
x y in out a.b a_b a:b in:0 in_0 x_2 x_1 serving_default_x:0 data input output inputs outputs arena result status layer
run default int while class template bool NULL INT8_MIN UINT32_MAX SIZE_MAX M_ARENA_SIZE EOF errno main linux unix
printf malloc exit string stdint flags map app src hal hwlib io count math host weights lib build all clean size
HWLIB_OK hwlib_start hwlib_hal_init hwlib_kind_t uint8_t int8_t TRACE COUNT expf softmax_int8 memcpy abs y0 j1 gamma
DEFAULT default_run default_inputs default_host input_0 output_0 tvmgen_default tvmgen_default_run _ __ _x __x E 0 9x
CON nul signal time time_t I complex _Bool true false std operator not_eq asm typeof register environ stdout
"""
PLAIN = _PLAIN.split()
STRANGE = [
    *("", " ", "a b", "a\tb", "a\nb", "*/ int x; /*", "//", "\\", "a\\", '"', "'", '";', "%s%n", "??/", "??)"),
    *(
        "$(touch canary)",
        "`touch canary`",
        "$HOME",
        "a$b",
        "a;b",
        "a&b",
        "#",
        "{{ x }}",
        "{% x %}",
        "<b>",
        "../x",
        "/x",
    ),
    *("é", "名", "\u202e", "\x00", "\x7f", "\ud800", "x" * 63, "x" * 64, "x" * 300, "y" * 5000, "-x", "-", "=", "a=b"),
]


def run(case: Case) -> None:
    rng = case.rng
    names = [name(case) for _ in range(rng.randint(1, 4))]
    if case.chance(0.2):
        names.append(rng.choice(names))
    mod_name = name(case) if case.chance(0.5) else rng.choice(PLAIN)
    hardware = replace(REFERENCE, name=name(case)) if case.chance(0.2) else REFERENCE
    directory = case.directory / "place" / ((name(case).replace("/", "_") if case.chance(0.3) else "") or "project")
    description = f"inputs {names!r}, mod_name {mod_name!r}, accelerator {hardware.name!r}, {directory.name!r}"
    with case.outside("making a module"):
        mod, samples = _module(case, names)
    partitioned = byoc_hw.partition_for_hwlib(mod, mod_name=mod_name, accelerator=hardware)
    project = byoc_hw.build(partitioned, output_dir=directory, io_in_arena=case.chance(0.2))
    _check_header(project, len(names), description)
    inputs = [case.arrays.integers(-128, 128, (1, 24)).astype(np.int8) for _ in names]
    compiler = "clang" if case.chance(0.3) and shutil.which("clang") else None
    result = project.run(inputs, toolchain=Toolchain(cc=compiler, cflags="-O0"))
    for number, (sample, one, found) in enumerate(zip(samples, inputs, result.outputs, strict=True)):
        wanted = expected(sample, one)[0] if sample else (one + np.int8(number)).astype(np.int8)
        if not np.array_equal(found, wanted):
            raise Finding("wrong bits", "an input or an output is another one", f"output {number}: {description}")
    if list(case.directory.rglob("canary")):
        raise Finding("executed", "a name was run by a shell", description)
    case.tally["exact"] += 1


def name(case: Case) -> str:
    if case.chance(0.5):
        return case.rng.choice(PLAIN)
    if case.chance(0.6):
        return case.rng.choice(STRANGE)
    return case.rng.choice(PLAIN) + case.rng.choice(["_", ".", ":", "/", " "]) + case.rng.choice([*PLAIN, *STRANGE])


def _module(case: Case, names: list[str]) -> tuple[tvm.IRModule, list[Dense | None]]:
    """Each output is another function of its own input; some are dense layers, for the accelerator."""
    inputs = [relay.var(one.encode("utf-8", "replace").decode(), shape=(1, 24), dtype="int8") for one in names]
    outputs, samples = [], []
    for number, one in enumerate(inputs):
        sample = None
        if case.chance(0.5):
            weights, bias = case.arrays.integers(-127, 128, (5, 24)), case.arrays.integers(-99, 99, 5)
            sample = Dense(24, 5, scales=(0.01,), weights=weights, bias_values=bias)
        samples.append(sample)
        outputs.append(_named(case, sample.expr(one) if sample else relay.add(one, const(number, "int8"))))
    return module(relay.Tuple(outputs) if len(outputs) > 1 else outputs[0], *inputs), samples


def _named(case: Case, body: relay.Call) -> relay.Call:
    """As an importer names an operator: by its span."""
    text = name(case).encode("utf-8", "replace").decode()
    span = relay.Span(relay.SourceName(text), 0, 0, 0, 0)
    return relay.Call(body.op, body.args, body.attrs, body.type_args, span)


def _check_header(project: byoc_hw.Project, count: int, description: str) -> None:
    header = project.directory / "include" / f"{project.mod_name}.h"
    struct = re.search(rf"struct {project.mod_name}_inputs {{(.*?)\n}};", header.read_text(encoding="utf-8"), re.S)
    members = re.findall(r"^ .*\*\s*(\w+);$", struct[1], re.M) if struct else []
    if len(set(members)) != count:
        raise Finding("silent loss", "the header has not every input", f"{members}: {description}")
    if shutil.which("g++"):
        strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"]
        done = subprocess.run(
            ["g++", *strict, header.name], cwd=header.parent, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Finding("does not compile", f"C++: {done.stderr.splitlines()[-1]}", f"{done.stderr}\n{description}")
