"""Hostile project directories, metadata, tuning files, .npy files and HAL directories.

Each is used or refused; nothing outside the project is written, removed or run. Whatever still runs is right.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from fuzz_case import QUICK, Case, Finding
from fuzz_oracle import expected
from relay_samples import Conv, Dense
from tvm import relay

import byoc_hw
from byoc_hw.__main__ import main
from byoc_hw.errors import ByocHwError
from byoc_hw.run.toolchain import Toolchain

VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**31,
        2**63,
        2**64,
        10**9,
        10**30,
        -(10**30),
        0.5,
        float("nan"),
        float("inf"),
        1e308,
    ),
    *("", "x", "0", "../../outside/bin/run", "/etc/passwd", "..", ".", "a b", "$(touch ../outside/shell)", "\ud800"),
    *("\x00", "x" * 10000, "int8", "float32", "object", "O", "V8", "(2,3)i4", "<M8[s]", "host", "default", "è", "*/"),
    *([], {}, [[]], [0], [-1], [10**9], [2**40, 2**40], ["x"], {"": 0}, {"x": {}}, [None] * 50),
]


def run(case: Case) -> None:
    project, outside = case.directory / "project", case.directory / "outside"
    shutil.copytree(_built(), project, symlinks=True)
    (outside / "bin").mkdir(parents=True)
    (outside / "canary").write_text("unchanged")
    (outside / "bin" / "run").write_text("#!/bin/sh\ntouch $(dirname $0)/../executed\n")
    (outside / "bin" / "run").chmod(0o755)
    before = _snapshot(outside)
    case.rng.choice([metadata, metadata, metadata, sources, sources, tuning, tuning, arrays, arrays, hal])(
        case, project
    )
    if _snapshot(outside) != before:
        raise Finding("beyond the project", "a file was written, removed or run", f"{_snapshot(outside)}")


def _snapshot(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text(errors="replace") if path.is_file() else ""
        for path in directory.rglob("*")
    }


# ---------------------------------------------------------------- the project that is damaged


TWINS = byoc_hw.Soc(tuple(replace(byoc_hw.REFERENCE, name=name) for name in ("one", "two")), label="TWINS")


@cache
def _model(hardware: byoc_hw.Accelerator | byoc_hw.Soc = byoc_hw.REFERENCE) -> tuple[Conv, Dense, tvm.IRModule]:
    rng = np.random.default_rng(0)
    conv = Conv(6, 6, 3, 4, scales=(0.01,) * 4, weights=rng.integers(-9, 9, (4, 3, 3, 3)), bias_values=np.arange(4))
    dense = Dense(144, 5, scales=(0.01,), weights=rng.integers(-9, 9, (5, 144)), bias_values=np.arange(5))
    (x,) = conv.variables("")
    body = dense.expr(relay.nn.relu(relay.reshape(conv.expr(x), (1, -1))))
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    return conv, dense, byoc_hw.partition_for_hwlib(mod, accelerator=hardware)


@cache
def _kept() -> Path:
    """For what all cases of a process start from."""
    directory = tempfile.mkdtemp(prefix="fuzz_files_")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


@cache
def _built() -> Path:
    directory = _kept() / "project"
    byoc_hw.build(_model()[2], output_dir=directory).build(toolchain=QUICK)
    return directory


@cache
def _tuning(hardware: byoc_hw.Accelerator | byoc_hw.Soc) -> str:
    path = _kept() / "tuning"
    byoc_hw.tune(_model(hardware)[2], budget=5).save(path)
    return path.read_text()


def _image(case: Case) -> np.ndarray:
    return case.arrays.integers(-128, 128, (1, 6, 6, 3)).astype(np.int8)


def _check(case: Case, project: byoc_hw.Project, what: str) -> None:
    """That a project which still runs is right."""
    image = _image(case)
    conv, dense, _ = _model()
    hidden = np.maximum(expected(conv, image)[0].reshape(1, -1), 0)
    found = project.run(image, toolchain=QUICK).outputs[0]
    if not np.array_equal(found, expected(dense, hidden)[0]):
        raise Finding("wrong bits", what, f"{found}")
    case.tally["exact"] += 1


def attempt(case: Case, *uses: Callable[[], object]) -> None:
    """Each use works or is refused, with any of our errors."""
    for use in uses:
        try:
            use()
            case.tally["built"] += 1
        except ByocHwError:
            case.tally["refused"] += 1


def command(*arguments: str | Path) -> None:
    """The command line, without its texts."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main([str(argument).replace("\x00", "") for argument in arguments])


# ---------------------------------------------------------------- what is done to it


def metadata(case: Case, project: Path) -> None:
    path = project / "metadata.json"
    path.write_bytes(damaged(case.rng, path.read_text(encoding="utf-8")))

    def shown(part: Callable[[byoc_hw.Project], object]) -> Callable[[], object]:
        def show() -> None:
            value = part(byoc_hw.Project(project))
            for text in (str(value), repr(value), getattr(value, "_repr_html_", str)()):
                text.encode("utf-8", "replace")

        return show

    attempt(
        case,
        shown(lambda opened: opened),
        shown(lambda opened: opened.mod_name),
        shown(lambda opened: opened.memory),
        shown(lambda opened: opened.report),
        shown(lambda opened: byoc_hw.explain(opened).to_json()),
        shown(lambda opened: opened.schedule),
        shown(lambda opened: opened.layers),
        lambda: byoc_hw.Project(project).run(_image(case), toolchain=QUICK),
        lambda: byoc_hw.Project(project).run(_image(case), toolchain=QUICK, trace=True) if case.chance(0.2) else None,
        lambda: command("run", project, "--random", "1"),
        lambda: command("schedule", project),
        lambda: _check(case, byoc_hw.build(_model()[2], output_dir=project), "a project that was built again"),
    )


def sources(case: Case, project: Path) -> None:
    """Files of the project changed behind its back; then it is run, built again, and run."""
    outside = project.parent / "outside" / "canary"
    for _ in range(case.rng.randint(1, 3)):
        path = case.rng.choice(sorted(path for path in project.rglob("*") if path.is_file()))
        kind = case.rng.randrange(6)
        if kind == 0:
            path.unlink()
        elif kind == 1:
            path.write_bytes(path.read_bytes()[: case.rng.randrange(200)])
        elif kind == 2:
            path.unlink()
            path.symlink_to(outside)
        elif kind == 3:
            path.unlink()
            path.mkdir()
        elif kind == 4:
            new = path.with_name(f"{path.name}.new")
            new.unlink(missing_ok=True)
            new.symlink_to(outside)
        else:
            path.with_name("person.c").write_text("int person;\n")
    attempt(
        case,
        lambda: byoc_hw.Project(project).run(_image(case), toolchain=QUICK),
        lambda: _check(case, byoc_hw.build(_model()[2], output_dir=project), "a project that was built again"),
    )


def tuning(case: Case, project: Path) -> None:
    path = project.parent / "tuning"
    hardware = case.rng.choice([byoc_hw.REFERENCE, TWINS])
    path.write_bytes(damaged(case.rng, _tuning(hardware)))

    def shown() -> None:
        loaded = byoc_hw.Tuning.load(path)
        for text in (str(loaded), repr(loaded), loaded._repr_html_()):
            text.encode("utf-8", "replace")
        loaded.save(project.parent / "saved")

    attempt(case, shown, lambda: _check(case, byoc_hw.build(_model(hardware)[2], tuning=path), "a damaged tuning"))


def arrays(case: Case, project: Path) -> None:
    """Files for --input: a damaged .npy, an archive, or an array of another kind."""
    path, rng = project.parent / "x.npy", case.rng
    kind = rng.randrange(4)
    if kind == 0:
        np.savez(path.with_suffix(".npz"), x=_image(case))
        path = path.with_suffix(".npz")
    elif kind == 1:
        shape = rng.choice([(1, 6, 6, 3), (), (0,), (1, 6, 6), (6, 6, 3, 1)])
        dtype = rng.choice(["int8", "uint8", "float32", "S3", "U2", "complex64", "M8[s]", "bool", ">i4", "V8"])
        np.save(path, np.zeros(shape, dtype))
    elif kind == 2:
        descr = rng.choice(["|i1", "|O", "<i4", "|V99999999999", "nonsense", "", "|S0"])
        shape = rng.choice([(1, 6, 6, 3), (10**12,), (-1,), (2**62, 2), (1, 6, 6, 3.5), ("x",), (1,) * 70])
        header = repr({"descr": descr, "fortran_order": rng.choice([False, True, None]), "shape": shape}).encode()
        header = header.ljust(rng.choice([118, 5000, 200000])) + b"\n"
        path.write_bytes(b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + bytes(108))
    else:
        np.save(path, _image(case))
    if path.exists() and rng.random() < 0.7:
        data = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(min(len(data), 160))] = rng.randrange(256)
        path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
    attempt(case, lambda: command("run", project, "--input", f"x={path}", "--output-dir", project.parent / "results"))


def hal(case: Case, project: Path) -> None:
    """A HAL in a directory whose name means something to a shell or to make, and hostile options."""
    names = [
        "h$(shell touch ../outside/shell)",
        "h`touch ../outside/shell`",
        "h h",
        "h;touch x",
        "h'x",
        'h"x',
        "h#x",
        "h%x",
        "h:x",
        "h=x",
        "h\\x",
        "h\nx",
        "-h",
        "h,x",
        "h(x",
        "é",
    ]
    directory = project.parent / case.rng.choice(names)
    shutil.copytree(project / "hwlib" / "sim", directory)
    (directory / "flags.h").write_text("")
    options = ["", "-DX=1", "'", "-O0 -g", "-DX='a b'", "\n", "-no-such-option", "nofile.c"]
    flags = case.rng.choice(options)
    toolchain = Toolchain(hal=directory, cflags=f"-O0 -DHWLIB_SIM {flags}", ldflags=case.rng.choice(["", *options]))
    attempt(
        case,
        lambda: byoc_hw.Project(project).run(_image(case), toolchain=toolchain),
        lambda: byoc_hw.Project(project).run(_image(case), toolchain=Toolchain(cc=f"gcc {flags}", cflags="-O0")),
    )


def damaged(rng: random.Random, text: str) -> bytes:
    """JSON with other values somewhere in it, or damaged text."""
    kind = rng.random()
    if kind < 0.1:
        return text.encode()[: rng.randrange(len(text))]
    if kind < 0.2:
        data = bytearray(text.encode())
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)
    if kind < 0.24:
        deep = rng.choice([500, 5000, 200_000])
        return text.replace("[", "[" * deep, 1).encode() if rng.random() < 0.5 else b"[" * deep + b"]" * deep
    value = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        _replace(rng, value)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _replace(rng: random.Random, value: Any) -> None:
    """Another value somewhere below a list or an object; higher up more often than evenly chosen leaves would be."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        below = value[key]
        if isinstance(below, dict | list) and below and rng.random() < 0.75:
            value = below
            continue
        kind = rng.random()
        if kind < 0.15:
            del value[key]
        elif kind < 0.25 and isinstance(value, list):
            value.append(rng.choice(value))
        elif kind < 0.3 and isinstance(value, dict):
            value[rng.choice(["", "x", "é", "__class__"])] = value.pop(key)
        elif kind < 0.5 and isinstance(below, int):
            value[key] = below + rng.choice([-1, 1, 2**8, 2**16, 2**32, -below - 1])
        else:
            value[key] = rng.choice(VALUES)
        return
