"""The project directory: what it holds, how it is written, and that it builds everywhere it should."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from emit_samples import host_only_parts, sample_parts, sample_program

from byoc_hw.accelerator import SMALL
from byoc_hw.emit.files import Files, project_files, write_project
from byoc_hw.emit.parts import Parts
from byoc_hw.errors import GraphError, InvalidInput
from byoc_hw.hwlib.names_header import hal_functions
from byoc_hw.plan.place.arena import place_model
from byoc_hw.program import Buffer, CopyCall, HostCall, Program


def make(directory: Path, *arguments: str) -> str:
    command = ["make", "-s", "-C", str(directory), "-j2", "CC=gcc", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def text(files: Files, name: str) -> str:
    contents = files[name]
    assert isinstance(contents, str)
    return contents


def test_holds_what_the_design_lists() -> None:
    files = project_files(sample_parts())
    listed = {"include/demo.h", "app/main.c", "app/io.c", "app/io.h", "Makefile", "metadata.json"}
    listed |= {f"src/demo_{part}" for part in ("main.c", "hwlib.c", "hwlib.h", "host.c", "weights.h")}
    listed |= {"hwlib/include/hwlib.h", "hwlib/src/hwlib_steps.c", "hwlib/sim/hwlib_sim_config.h"}
    listed |= {"hwlib/include/hwlib_accelerator.h"}
    assert listed <= files.keys()


def test_same_parts_give_the_same_bytes() -> None:
    assert project_files(sample_parts()) == project_files(sample_parts())


def test_the_simulator_is_configured_for_the_accelerator() -> None:
    files = [
        project_files(sample_parts(accelerator=accelerator)) for accelerator in (SMALL, sample_parts().accelerator)
    ]
    for header in ("include/hwlib_accelerator.h", "sim/hwlib_sim_config.h"):
        assert files[0][f"hwlib/{header}"] != files[1][f"hwlib/{header}"]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("TRACE=1",), ("CFLAGS=-O0 -g -DDEMO_ARENA=mine", "lib")])
def test_builds_without_a_warning(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    write_project(tmp_path, project_files(sample_parts()))
    make(tmp_path, *arguments)


@pytest.mark.parametrize("arguments", [(), ("TRACE=1",)])
def test_a_project_without_regions_needs_no_hwlib(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    files = project_files(host_only_parts())
    write_project(tmp_path, files)
    make(tmp_path, *arguments)
    assert not [name for name in files if "hwlib" in name]


def test_builds_with_a_hal_of_the_users_own(tmp_path: Path) -> None:
    write_project(tmp_path / "out", project_files(sample_parts()))
    (tmp_path / "hal").mkdir()
    functions = hal_functions()
    assert len(functions) == 8
    body = "\n".join(f"{one.type} {one.name}({one.parameters}) {{ __builtin_trap(); }}" for one in functions)
    (tmp_path / "hal/hal.c").write_text(f'#include "hwlib_hal.h"\n{body}\n')
    make(tmp_path / "out", f"HAL={tmp_path / 'hal'}", "CFLAGS=-O1 -Wno-unused-parameter", "BUILD=own")
    assert not (tmp_path / "out/own/hal/sim_job.o").exists()


def test_a_changed_header_and_changed_flags_are_built_again(tmp_path: Path) -> None:
    write_project(tmp_path, project_files(sample_parts()))
    make(tmp_path)
    objects = [tmp_path / "build" / name for name in ("src/demo_main.o", "hwlib/src/hwlib_steps.o", "demo")]
    first = [path.stat().st_mtime_ns for path in objects]
    make(tmp_path)
    assert [path.stat().st_mtime_ns for path in objects] == first
    with (tmp_path / "include/demo.h").open("a") as header:
        header.write("/* changed */\n")
    make(tmp_path)
    second = [path.stat().st_mtime_ns for path in objects]
    assert [new > old for new, old in zip(second, first, strict=True)] == [True, False, True]
    make(tmp_path, "CFLAGS=-O1")
    assert all(path.stat().st_mtime_ns > old for path, old in zip(objects, second, strict=True))


TWO_MODELS = """
#include "alpha.h"
#include "beta.h"
static int8_t x[144] __attribute__((aligned(4))), y[144], z[144];
static float one[5], other[5];
int main(void)
{
  const struct alpha_inputs alpha_in = {x};
  const struct alpha_outputs alpha_out = {one, y};
  const struct beta_inputs beta_in = {x};
  const struct beta_outputs beta_out = {other, z};
  x[7] = 100;
  if (alpha_run(&alpha_in, &alpha_out) != 0 || beta_run(&beta_in, &beta_out) != 0) {
    return 1;
  }
  for (int i = 0; i < 5; ++i) {
    if (one[i] != other[i]) {
      return 2;
    }
  }
  return y[7] == 100 && z[7] == 100 ? 0 : 3;
}
"""


def test_two_models_link_into_one_program(tmp_path: Path) -> None:
    libraries = []
    for name in ("alpha", "beta"):
        write_project(tmp_path / name, project_files(sample_parts(name)))
        make(tmp_path / name, "lib")
        libraries.append(str(tmp_path / name / "build" / f"lib{name}.a"))
    # One HWlib and one simulator serve both: those of the first.
    subprocess.run(["ar", "d", libraries[1], "hwlib_copy.o", "hwlib_failed.o", "hwlib_steps.o"], check=True)
    source = tmp_path / "main.c"
    source.write_text(TWO_MODELS)
    simulator = [str(path) for path in sorted((tmp_path / "alpha/build/hal").glob("*.o"))]
    subprocess.run(["ar", "d", libraries[1], *(Path(path).name for path in simulator)], check=True)
    subprocess.run(
        ["gcc", "-Wall", "-Werror", f"-I{tmp_path}/alpha/include", f"-I{tmp_path}/beta/include", str(source),
         "-Wl,--whole-archive", *libraries, "-Wl,--no-whole-archive", "-lm", "-o", str(tmp_path / "both")],
        check=True,
    )  # fmt: skip
    assert subprocess.run([str(tmp_path / "both")], check=False).returncode == 0


def test_header_serves_cplusplus(tmp_path: Path) -> None:
    header = tmp_path / "demo.h"
    header.write_text(text(project_files(sample_parts()), "include/demo.h"))
    subprocess.run(["gcc", "-x", "c++", "-fsyntax-only", "-Wall", "-Werror", str(header)], check=True)


def test_hostile_names_build(tmp_path: Path) -> None:
    """Names that are keywords, collide, end comments or are as long as a TFLite model's."""
    hostile = ("int", "a:0", "a/0", "A_0", "*/ int x; /*", "??/", "é" * 3, "n" * 258, "arena", "memcpy")
    inputs = tuple(Buffer(name, 4, "input", (4,)) for name in hostile)
    outputs = tuple(Buffer(name, 4, "output", (4,)) for name in hostile)
    between = tuple(Buffer(name, 4, shape=(4,)) for name in hostile)
    calls = (
        *(CopyCall(source, target) for source, target in zip(inputs, between, strict=True)),
        HostCall("tvmgen_hostile_id", (between[0], between[1]), hostile),
        *(CopyCall(source, target) for source, target in zip(between, outputs, strict=True)),
    )
    host = "#include <stdint.h>\nint32_t tvmgen_hostile_id(int8_t *p, int8_t *q, uint8_t *arena);\n"
    host += "int32_t tvmgen_hostile_id(int8_t *p, int8_t *q, uint8_t *arena)\n{\n  q[0] = p[0];\n  return 0;\n}\n"
    program = Program("hostile", inputs, outputs, calls)
    memory = place_model(program, (), {}, 16)
    parts = replace(host_only_parts(), program=program, memory=memory, host_source=host)
    write_project(tmp_path, project_files(parts))
    make(tmp_path)


def test_arena_can_be_empty(tmp_path: Path) -> None:
    x, y = Buffer("x", 4, "input", (4,)), Buffer("y", 4, "output", (4,))
    program = Program("copy", (x,), (y,), (CopyCall(x, y),))
    memory = place_model(program, (), {}, 16)
    parts = replace(host_only_parts("copy"), program=program, memory=memory, host_source="")
    write_project(tmp_path, project_files(parts))
    make(tmp_path)


def test_make_run_reads_and_writes_files(tmp_path: Path) -> None:
    write_project(tmp_path, project_files(host_only_parts()))
    (tmp_path / "in.bin").write_bytes(bytes(range(0, 100, 2)) * 6)  # 300 bytes: two inferences and a bit
    done = subprocess.run(["make", "-C", tmp_path, "run", "INPUTS=in.bin"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "the inputs end in the middle of an inference" in done.stderr
    (tmp_path / "in.bin").write_bytes(bytes(range(0, 100, 2)) * 144)  # 50 inferences
    make(tmp_path, "run", "INPUTS=in.bin", "OUTPUTS=out.bin")
    assert (tmp_path / "out.bin").read_bytes() == bytes(range(50)) * 144


def test_an_interrupted_write_can_be_repeated(tmp_path: Path) -> None:
    files = project_files(sample_parts())
    with pytest.raises(TypeError):
        write_project(tmp_path, {**files, "app/io.c": None})  # type: ignore[dict-item]
    write_project(tmp_path, files)
    assert (tmp_path / "app/io.c").exists()


# ---------------------------------------------------------------- writing


def test_removes_what_an_earlier_project_left(tmp_path: Path) -> None:
    write_project(tmp_path, project_files(sample_parts()))
    (tmp_path / "notes.txt").write_text("mine")
    write_project(tmp_path, project_files(host_only_parts()))
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*project_files(host_only_parts()), "notes.txt"}
    assert not (tmp_path / "hwlib").exists()


def test_rewriting_touches_only_what_changed(tmp_path: Path) -> None:
    write_project(tmp_path, project_files(sample_parts()))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    write_project(tmp_path, project_files(replace(sample_parts(), report={"offloaded": 4})))
    changed = {path.name for path, modified in before.items() if path.stat().st_mtime_ns != modified}
    assert changed == {"metadata.json"}


@pytest.mark.parametrize("contents", [None, "not json", "[]", '{"generator": "another"}'])
def test_refuses_a_directory_of_somebody_else(tmp_path: Path, contents: str | None) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    if contents is not None:
        (tmp_path / "metadata.json").write_text(contents)
    with pytest.raises(InvalidInput, match="new, empty or a project of byoc_hw"):
        write_project(tmp_path, project_files(sample_parts()))
    assert {path.name for path in tmp_path.iterdir()} <= {"thesis.tex", "metadata.json"}


def test_refuses_a_file_as_directory(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InvalidInput, match="out is a file"):
        write_project(tmp_path / "out", {})


def test_stale_files_outside_the_directory_are_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside.c"
    outside.write_text("")
    out = tmp_path / "out"
    write_project(out, project_files(sample_parts()))
    metadata = json.loads((out / "metadata.json").read_text())
    metadata["files"] += ["../outside.c", str(outside)]
    (out / "metadata.json").write_text(json.dumps(metadata))
    write_project(out, project_files(sample_parts()))
    assert outside.exists()


# ---------------------------------------------------------------- refusals, metadata


@pytest.mark.parametrize(("mod_name", "character"), [("my-model", "'-'"), ("1st", "'1'"), ("modèle", "'è'")])
def test_names_the_character_that_mod_name_must_not_have(mod_name: str, character: str) -> None:
    with pytest.raises(InvalidInput, match=character):
        project_files(replace(sample_parts(), program=sample_program(mod_name)))


def test_refuses_an_accelerator_that_is_named_like_another_source() -> None:
    with pytest.raises(InvalidInput, match=r"accelerator name is not one of main, host, math, kernels, .*got host"):
        project_files(sample_parts(accelerator=replace(SMALL, name="host")))


def test_names_the_region_without_a_plan() -> None:
    with pytest.raises(InvalidInput, match="tvmgen_demo_hwlib_main_0 has none"):
        project_files(replace(sample_parts(), regions={}))


def test_names_the_buffer_without_a_place() -> None:
    with pytest.raises(GraphError, match="sid_1 does not"):
        project_files(replace(sample_parts(), memory=place_model(Program("none", (), (), ()), (), {}, 16)))


def test_refuses_to_call_a_region_twice() -> None:
    program = sample_program()
    parts: Parts = replace(sample_parts(), program=replace(program, calls=(*program.calls, program.calls[1])))
    with pytest.raises(GraphError, match="a region is called once: tvmgen_demo_hwlib_main_0"):
        project_files(parts)


def test_metadata_says_what_the_project_is() -> None:
    parts = replace(sample_parts(), versions={"tvm": "0.16"}, host_flash=12)
    metadata = json.loads(text(project_files(parts), "metadata.json"))
    assert metadata["generator"] == "byoc_hw"
    assert metadata["versions"]["tvm"] == "0.16"
    assert metadata["model"]["inputs"] == [
        {
            "name": "serving default:x",
            "dtype": "int8",
            "shape": [1, 6, 6, 4],
            "bytes": 144,
            "scale": 0.5,
            "zero_point": 3,
            "state": None,
        }
    ]
    assert [(layer["id"], layer["kind"]) for layer in metadata["layers"]] == list(
        enumerate(["host", "conv2d", "add", "pool2d", "reshape", "dense", "host"])
    )
    assert metadata["memory"]["flash"]["host"] == 12
    assert metadata["memory"]["ram"]["arena"] == parts.memory.arena.nbytes
    assert {block["name"] for block in metadata["memory"]["ram"]["buffers"]} == set(parts.memory.arena.offsets)
    assert metadata["report"] == {"offloaded": 5}
    assert metadata["files"] == sorted(project_files(parts))
