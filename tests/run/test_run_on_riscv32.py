"""Building a project for a RISC-V core without an operating system, and running it in QEMU."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emit_samples import graph_without_pooling, host_only_parts, sample_parts, sample_program
from riscv32_tools import needs_cortex_m, needs_riscv32
from vendor_library import VENDOR

from byoc_hw.accelerator import SMALL
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.emit.parts import Parts
from byoc_hw.errors import InvalidInput, RunError, ToolchainMissing
from byoc_hw.project import Project
from byoc_hw.run.files import read_model
from byoc_hw.run.host import run_on_host
from byoc_hw.run.qemu import run_on_riscv32
from byoc_hw.run.toolchain import Toolchain, build_program

PLAIN = Toolchain(startup="plain")
TRAP = '__asm__ volatile("unimp")'

pytestmark = needs_riscv32


def random_input(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-99, 99, (1, 6, 6, 4)).astype(np.int8)


def with_host_statement(parts: Parts, statement: str) -> Parts:
    """The sample, with a statement in its first function."""
    source = parts.host_source.replace("return p0[0] == 99", f"{statement};\n  return p0[0] == 99")
    assert source != parts.host_source
    return replace(parts, host_source=source)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("a path with spaces") / "out"
    write_project(directory, project_files(sample_parts()))
    return directory


@pytest.mark.parametrize("startup", ["picolibc", "plain"])
def test_gives_what_the_host_gives_layer_by_layer(project: Path, startup: str) -> None:
    inputs = [random_input(seed) for seed in range(3)]
    expected = run_on_host(project, inputs, trace=True)
    for found, wanted in zip(
        run_on_riscv32(project, inputs, Toolchain(startup=startup), trace=True), expected, strict=True
    ):
        assert [output.tobytes() for output in found.outputs] == [output.tobytes() for output in wanted.outputs]
        assert found.trace == wanted.trace
        assert found.cycles == wanted.cycles


@pytest.mark.parametrize("startup", ["picolibc", "plain"])
def test_runs_a_project_without_an_accelerator(tmp_path: Path, startup: str) -> None:
    write_project(tmp_path, project_files(host_only_parts()))
    x = random_input(5)
    (result,) = run_on_riscv32(tmp_path, [x], Toolchain(startup=startup))
    assert np.array_equal(result.outputs[0], np.trunc(x / 2).astype(np.int8))
    assert result.cycles is None
    assert result.host_instructions is not None
    assert result.end_to_end is not None
    assert result.end_to_end.total == result.host_instructions.total > 144


# ---------------------------------------------------------------- counts


def test_counts_add_up(project: Path) -> None:
    (result,) = run_on_riscv32(project, [random_input(0)])
    instructions, time = result.host_instructions, result.end_to_end
    assert instructions is not None
    assert time is not None
    assert result.cycles is not None
    by_layer = {layer.id: layer.count for layer in instructions.by_layer}
    assert instructions.host_operators == by_layer[0] + by_layer[6]
    assert instructions.regions == sum(by_layer[layer] for layer in range(1, 6))
    assert instructions.total == instructions.regions + instructions.host_operators + instructions.main
    assert all(layer.count > 0 for layer in instructions.by_layer if layer.kind != "reshape")
    assert time.total == time.main + sum(layer.count for layer in time.by_layer)
    longest = max(instructions.total, result.cycles.total)
    assert longest < time.total <= instructions.total + result.cycles.total


def test_waits_are_the_time_of_the_layers_that_the_core_waits_for(project: Path) -> None:
    """In each region as the accelerator's cycles are; the core itself waits in the last layers."""
    (result,) = run_on_riscv32(project, [random_input(0)])
    assert result.cycles is not None
    assert result.host_instructions is not None
    assert result.end_to_end is not None
    regions = read_model(project).regions
    pairs = zip(result.end_to_end.by_layer, result.host_instructions.by_layer, strict=True)
    waits = [time.count - executed.count for time, executed in pairs]
    for region in set(regions):
        own = [index for index, name in enumerate(regions) if name == region]
        cycles = [result.cycles.by_layer[index].cycles for index in own]
        waited = sum(waits[index] for index in own)
        if not region:
            assert waited == 0
            continue
        assert waited > 0
        for index, part in zip(own, cycles, strict=True):
            assert abs(waits[index] - waited * part / sum(cycles)) < 1


def test_counts_are_the_same_in_every_run_and_inference(project: Path) -> None:
    x = random_input(0)
    (alone,), (first, second) = (run_on_riscv32(project, inferences) for inferences in ([x], [x, x]))
    assert alone.host_instructions == first.host_instructions == second.host_instructions
    assert alone.end_to_end == first.end_to_end == second.end_to_end


def test_tracing_is_not_counted(project: Path) -> None:
    """The function that records a layer costs its call, and nothing that it does."""
    plain, traced = (run_on_riscv32(project, [random_input(0)], trace=trace)[0] for trace in (False, True))
    assert plain.host_instructions is not None
    assert traced.host_instructions is not None
    assert 0 <= traced.host_instructions.total - plain.host_instructions.total < 50 * 7


def test_the_simulator_is_not_counted(project: Path, tmp_path: Path) -> None:
    """A slower accelerator makes the simulator work as much, and the host wait longer."""
    files = project_files(sample_parts())
    slow = project_files(sample_parts(accelerator=replace(sample_parts().accelerator, dma_setup=7000)))
    files["hwlib/sim/hwlib_sim_config.h"] = slow["hwlib/sim/hwlib_sim_config.h"]
    write_project(tmp_path, files)
    (fast,), (slowed,) = (run_on_riscv32(path, [random_input(0)]) for path in (project, tmp_path))
    assert fast.host_instructions == slowed.host_instructions
    assert fast.end_to_end is not None
    assert slowed.end_to_end is not None
    assert slowed.end_to_end.total > fast.end_to_end.total + 7000


def test_instructions_of_a_known_loop_are_counted_exactly(tmp_path: Path) -> None:
    totals = []
    for index, statement in enumerate((";", '__asm__ volatile(".rept 1000\\n\\tnop\\n\\t.endr")')):
        write_project(tmp_path / str(index), project_files(with_host_statement(host_only_parts(), statement)))
        (result,) = run_on_riscv32(tmp_path / str(index), [random_input(0)])
        assert result.host_instructions is not None
        totals.append(result.host_instructions.host_operators)
    assert totals[1] - totals[0] == 1000


def test_the_host_does_not_count(project: Path) -> None:
    (result,) = run_on_host(project, [random_input(0)])
    assert result.host_instructions is None
    assert result.end_to_end is None


# ---------------------------------------------------------------- what can go wrong


@pytest.mark.parametrize("startup", ["picolibc", "plain"])
def test_a_trap_is_named_with_its_place_and_layer(tmp_path: Path, startup: str) -> None:
    write_project(tmp_path, project_files(with_host_statement(sample_parts(), TRAP)))
    message = (
        r"demo failed: illegal instruction \(mcause 2, mtval 0x\w+\) at mepc 0x8\w+ in tvmgen_demo_fused_halve, "
        r"layer 0 \(host\): tvmgen_demo_fused_halve"
    )
    with pytest.raises(RunError, match=message):
        run_on_riscv32(tmp_path, [random_input(0)], Toolchain(startup=startup))


def test_a_stack_that_runs_over_is_a_trap(tmp_path: Path) -> None:
    """The plain start-up has nothing below its RAM, and the trap a stack of its own."""
    statement = '__asm__ volatile("li sp, 0\\n\\tsw zero, -16(sp)")'
    write_project(tmp_path, project_files(with_host_statement(sample_parts(), statement)))
    with pytest.raises(RunError, match=r"store access fault \(mcause 7, mtval 0xfffffff0\).*layer 0"):
        run_on_riscv32(tmp_path, [random_input(0)], PLAIN)


def test_a_program_that_does_not_end_is_stopped_and_says_where_it_was(tmp_path: Path) -> None:
    endless = "for (volatile int i = 1; i;) {}"
    write_project(tmp_path, project_files(with_host_statement(sample_parts(), endless)))
    message = (
        r"demo failed: it did not end within 1 seconds: it was at 0x8\w+ in tvmgen_demo_fused_halve, layer 0 \(host"
    )
    with pytest.raises(RunError, match=message):
        run_on_riscv32(tmp_path, [random_input(0)], timeout=1)


def test_a_failing_layer_is_named_with_the_reason(tmp_path: Path) -> None:
    files = project_files(sample_parts())
    limits = {**SMALL.limits, "conv2d": replace(SMALL.limits["conv2d"], max_kernel=(1, 1))}
    narrow = project_files(sample_parts(accelerator=replace(SMALL, limits=limits)))
    files["hwlib/include/hwlib_accelerator.h"] = narrow["hwlib/include/hwlib_accelerator.h"]
    write_project(tmp_path, files)
    with pytest.raises(RunError, match=r"layer 1 failed:\s+demo:\s+conv/Relu;conv/BiasAdd\s.*HWLIB_ERROR_LIMIT"):
        run_on_riscv32(tmp_path, [random_input(0)])


def test_a_failing_host_function_is_named(project: Path) -> None:
    x = random_input(0)
    x[0, 0, 0, 0] = 99  # the sample's function fails on it
    with pytest.raises(RunError, match=r"(?s)layer 0 failed:.*tvmgen_demo_fused_halve.*status 255"):
        run_on_riscv32(project, [x])


@pytest.mark.parametrize(
    ("tool", "package"),
    [
        ("riscv64-unknown-elf-gcc", "gcc-riscv64-unknown-elf"),
        ("qemu-system-riscv32", "qemu-system-misc"),
    ],
)
def test_names_the_package_to_install(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, package: str
) -> None:
    for other in {"make", "riscv64-unknown-elf-gcc", "qemu-system-riscv32"} - {tool}:
        (tmp_path / other).write_text("#!/bin/sh\n")
        (tmp_path / other).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainMissing, match=f"{tool} is not installed: install the package {package}"):
        run_on_riscv32(project, [random_input(0)])


def test_a_missing_c_library_is_named(project: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho \"gcc: fatal error: cannot read spec file 'picolibc.specs'\" >&2; exit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(ToolchainMissing, match="install the package picolibc-riscv64-unknown-elf"):
        Project(project).run(random_input(0), "riscv32", toolchain=Toolchain(str(compiler)))


def test_what_does_not_fit_is_named_with_the_bytes(tmp_path: Path) -> None:
    """The linker script has the accelerator's memories; here they are smaller than the model."""
    parts = sample_parts()
    tiny = replace(parts.accelerator, ram=4096, flash=2048)
    write_project(tmp_path, project_files(replace(parts, accelerator=tiny)))
    with pytest.raises(
        RunError, match=r"demo does not fit its memories \(linker script app/riscv32/link\.ld\): FLASH is exceeded "
        r"by \d+ bytes; RAM is exceeded by \d+ bytes$"
    ):  # fmt: skip
        run_on_riscv32(tmp_path, [random_input(0)], PLAIN)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"startup": "fancy"}, "startup is one of picolibc, plain: got 'fancy'"),
        ({"hal": "nowhere"}, "hal is a directory with C files: nowhere has none"),
        ({"ldscript": "nowhere.ld"}, r"ldscript is a file: nowhere\.ld is none"),
        ({"cc": " "}, "cc is a command: got an empty one"),
    ],
)
def test_names_the_field_of_a_toolchain_that_cannot_be(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Toolchain(**arguments)  # type: ignore[arg-type]


def test_names_the_places_where_a_project_can_run(project: Path) -> None:
    with pytest.raises(InvalidInput, match="on is one of host, riscv32: got 'mars'"):
        Project(project).run(random_input(0), "mars")


def test_fields_of_a_toolchain_are_no_arguments_of_a_run(project: Path) -> None:
    for method in (Project(project).run, Project(project).run_batch):
        with pytest.raises(TypeError, match="unexpected keyword argument 'cflags'"):
            method(random_input(0), cflags="-O1")  # type: ignore[call-arg]


# ---------------------------------------------------------------- toolchains


def test_the_environment_of_another_build_does_no_harm(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CC", "AR", "CFLAGS", "LDFLAGS", "TARGET", "ARCH", "COUNT", "STARTUP"):
        monkeypatch.setenv(name, "x86")
    shutil.copytree(project, tmp_path / "out", ignore=shutil.ignore_patterns("build*"))
    (result,) = run_on_riscv32(tmp_path / "out", [random_input(0)])
    assert result.host_instructions is not None


def test_a_vendors_library_is_counted_layer_by_layer(tmp_path: Path) -> None:
    program = sample_program(graph=graph_without_pooling())
    write_project(tmp_path, project_files(sample_parts(accelerator=VENDOR, program=program)))
    x = random_input(6)
    (found,), (wanted,) = run_on_riscv32(tmp_path, [x], trace=True), run_on_host(tmp_path, [x], trace=True)
    assert found.trace == wanted.trace
    assert found.cycles is None
    assert found.host_instructions is not None
    by_layer = {layer.kind: layer.count for layer in found.host_instructions.by_layer}
    assert by_layer["conv2d"] > by_layer["dense"] > 100


def test_make_runs_it_without_python(project: Path, tmp_path: Path) -> None:
    x = random_input(1)
    (tmp_path / "in.bin").write_bytes(x.tobytes())
    inputs, outputs = (f"{name}={tmp_path / file}" for name, file in (("INPUTS", "in.bin"), ("OUTPUTS", "out.bin")))
    subprocess.run(["make", "-s", "-C", project, "HAL=sim", "run-riscv32", inputs, outputs], check=True)
    (result,) = run_on_host(project, [x])
    assert (tmp_path / "out.bin").read_bytes() == b"".join(output.tobytes() for output in result.outputs)


def test_other_flags_give_the_same_outputs(project: Path) -> None:
    x = random_input(3)
    found, wanted = (
        Project(project).run(x, "riscv32", toolchain=Toolchain(cflags="-Os -g", ldflags="-Wl,--defsym=unused=0")),
        run_on_host(project, [x])[0],
    )
    assert found.outputs[0].tobytes() == wanted.outputs[0].tobytes()


def test_runs_on_a_hal_and_a_linker_script_of_the_users_own(project: Path, tmp_path: Path) -> None:
    """The user's HAL here is the simulator under another name; it counts, but nobody knows how long it waits."""
    shutil.copytree(project / "hwlib/sim", tmp_path / "hal")
    script = tmp_path / "board.ld"
    script.write_text((project / "app/riscv32/link.ld").read_text().replace("0x90000000", "0x91000000"))
    x = random_input(4)
    toolchain = Toolchain(hal=tmp_path / "hal", ldscript=script, startup="plain")
    result = Project(project).run(x, "riscv32", trace=True, toolchain=toolchain)
    (wanted,) = run_on_host(project, [x], trace=True)
    assert result.trace == wanted.trace
    assert result.outputs[0].tobytes() == wanted.outputs[0].tobytes()
    assert result.cycles is None
    assert result.end_to_end is None
    assert result.host_instructions is not None


def test_size_is_shown_by_section_and_owner(project: Path) -> None:
    command = ["make", "-s", "-C", str(project), "TARGET=riscv32", "STARTUP=plain", "size"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [re.split(r" {2,}", line.strip()) for line in shown.splitlines()]
    sections = {name: int(nbytes) for name, nbytes in lines[1:] if name.startswith(".")}
    assert sections[".activations"] == sample_parts().accelerator.activation_memory
    assert sections[".weights"] == sample_parts().accelerator.weight_memory
    assert {"model", "weights", "HWlib", "host operators", "HAL", "program around the model"} <= {n for n, _ in lines}
    (weights,) = (int(nbytes) for name, nbytes in lines if name == "weights")
    assert weights == sum(len(region.flash) for region in sample_parts().regions.values())  # type: ignore[union-attr]


@pytest.mark.slow
@needs_cortex_m
def test_compiles_for_cortex_m(project: Path) -> None:
    flags = "-mcpu=cortex-m4 -mthumb -Os"
    command = ["make", "-s", "-C", str(project), "CC=arm-none-eabi-gcc", "AR=arm-none-eabi-ar", f"CFLAGS={flags}"]
    subprocess.run([*command, "BUILD=build-cortex-m", "lib"], check=True)
    linked = Toolchain("arm-none-eabi-gcc", flags, "--specs=rdimon.specs")
    assert build_program(project, "host", linked, trace=False).exists()
