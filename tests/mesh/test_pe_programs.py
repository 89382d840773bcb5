"""PEs with several stages: each has one program, which is linked as one image and computes what every stage should."""

import json
import re
import shutil
import signal
import subprocess
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sanitizers
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from lost_ranks import failing
from mesh_samples import network_of, program_of, random_stages, random_values, run_graph
from plan_graphs import graphs
from riscv32_tools import needs_riscv32

import byoc_hw
from byoc_hw import PlanError, Project
from byoc_hw.accelerator import REFERENCE
from byoc_hw.commands.arrays import random_samples
from byoc_hw.demo import heldout, model_path
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.emit.parts import Parts
from byoc_hw.mesh import group
from byoc_hw.mesh.code_size import CODE_OF_A_CALL, CODE_OF_A_FUNCTION, CODE_OF_A_PORT, LIBRARY_CODE
from byoc_hw.mesh.machine import MESH_7296
from byoc_hw.mesh.patches import channels_of
from byoc_hw.mesh.pe_program import PePlan
from byoc_hw.mesh.pe_source import channel_buffer_bytes
from byoc_hw.mesh.pe_stages import programs_of, stage_label
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.plan import OUTSIDE, MeshPlan, Stage
from byoc_hw.mesh.plan_file import plan_json, read_plan
from byoc_hw.mesh.stage_check import expected_frame, reference_layers
from byoc_hw.mesh.stage_plan import plan_stage
from byoc_hw.mesh.stage_program import stage_program
from byoc_hw.mesh_builder import build_mesh, mesh_network
from byoc_hw.mesh_pipeline import pipeline
from byoc_hw.plan.planned import TABLES
from byoc_hw.run.metadata import read_metadata
from byoc_hw.run.qemu import QEMU

FRAMES = 5
TINY = replace(REFERENCE, activation_memory=1024)  # stages have scratch in the arena that they share
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
HOST = ["-Wno-unused-const-variable", "-Wno-unused-parameter", "-Wno-conversion", "-fno-strict-aliasing", "-fwrapv"]


@pytest.fixture(scope="module")
def digits():
    return byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), "digits", accelerator=MESH_7296.pe)


@pytest.fixture(scope="module")
def plan(digits):
    found = pipeline(digits, None, MESH_7296.of(3), objective="latency")
    assert found.pes < len(found.stages)
    return found


@pytest.fixture(scope="module")
def mesh(digits, plan, tmp_path_factory):
    return build_mesh(digits, plan, output_dir=tmp_path_factory.mktemp("mesh") / "digits")


@pytest.fixture(scope="module")
def layers(mesh):
    """What the whole model computes in each frame."""
    return reference_layers(mesh.directory, mesh.manifest, mesh.checked(frames()))


def frames():
    return [image[None] for image in heldout().images[:FRAMES]]


def shared(mesh):
    """The numbers of the PEs with several stages."""
    programs = mesh.manifest.programs
    return [number for number, pe in enumerate(mesh.manifest.pes) if len(programs[pe.program].stages) > 1]


@pytest.mark.slow
def test_there_is_one_program_for_each_pe(mesh, plan):
    numbers = [tuple(stage.number for stage in one.stages) for one in mesh.manifest.programs]
    assert numbers == programs_of(plan.replicas)
    assert sorted(number for one in numbers for number in one) == list(range(len(plan.stages)))
    assert len(mesh.manifest.pes) == plan.pes == len(list((mesh.directory / "programs").iterdir()))
    assert shared(mesh)


@pytest.mark.slow
def test_a_hundred_frames_give_the_bytes_of_the_single_project_and_every_stage_sends_what_it_should(mesh, monkeypatch):
    given = [image[None] for image in heldout().images[:100]]
    wanted = Project(mesh.directory / "reference").run_batch(given)
    for outputs, one in zip(mesh.run(given, "processes").outputs, wanted, strict=True):
        assert np.array_equal(outputs[0], one.outputs[0])
    monkeypatch.setattr(group, "_RING_BYTES", 0)  # no more room than the channels' credits
    found = mesh.validate(given[:5], "threads")
    assert found.ok
    assert found.unseen == 0
    assert found.compared == len([one for one in mesh.manifest.channels if one.source != OUTSIDE])


@pytest.mark.slow
def test_pipelines_share_the_programs_of_pes_with_several_stages_and_what_has_not_changed_is_not_built(tmp_path):
    """The first and the last stage, with a function of the host, are on one PE."""
    digits = byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), "digits")
    network = mesh_network(digits)

    def built(cut):
        ends = [0, cut, len(network.nodes) - 1, len(network.nodes)]
        stages = [Stage(tuple(map(NodePiece, range(*pair)))) for pair in pairwise(ends)]
        places = [[(0, row), (1, row), (0, row)] for row in range(2)]
        lines = []
        plan = MeshPlan(network, tuple(stages), channels_of(network, stages, credits=3), places)
        mesh = build_mesh(digits, plan, output_dir=tmp_path / "two", progress=lines.append)
        return mesh, sorted(line.split(": ")[1] for line in lines if line.startswith("built"))

    mesh, names = built(5)
    assert [[stage.number for stage in one.stages] for one in mesh.manifest.programs] == [[0, 2], [1]]
    assert names == ["digits_pe0", "digits_pe1"]
    assert [(pe.x, pe.y, pe.replica, pe.program) for pe in mesh.manifest.pes] == [
        (0, 0, 0, 0),
        (1, 0, 0, 1),
        (0, 1, 1, 0),
        (1, 1, 1, 1),
    ]
    given = [image[None] for image in heldout().images[:21]]
    wanted = Project(mesh.directory / "reference").run_batch(given)
    for outputs, one in zip(mesh.run(given, "processes", ranks=2).outputs, wanted, strict=True):
        assert np.array_equal(outputs[0], one.outputs[0])
    assert mesh.validate(given[:4], "threads").ok
    assert built(5)[1] == []
    assert built(6)[1] == names


@pytest.mark.slow
def test_a_lost_rank_is_named(mesh):
    many = [image[None] for image in heldout().images] * 150
    (failure,) = failing(mesh, many, 1, signal.SIGKILL)
    assert failure.startswith("rank 1 has ended (signal 9)")


def test_a_channel_without_a_credit_is_refused_with_the_stages_that_wait(digits, plan, tmp_path):
    plain = json.loads(plan_json(plan))
    channel = next(one for one in plain["channels"] if None not in (one["source"], one["target"]))
    channel["credits"] = 0
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plain))
    name = f"stage {channel['source']} waits for a credit of stage {channel['source']} -> stage {channel['target']}"
    with pytest.raises(PlanError, match=f"channels have too few credits: .*{name}, which has 0"):
        read_plan(path, mesh_network(digits), MESH_7296.of(3))


# ---------------------------------------------------------------- images


def frames_of_ports(mesh, layers, pe):
    """For each receive of a PE, and each send, its frames, as the whole model computes them."""
    ends = {}
    for channel in mesh.manifest.channels:
        values = [expected_frame(mesh.manifest, channel, frame[channel.tensor]) for frame in layers]
        if channel.target == pe:
            ends["received", channel.target_port] = np.concatenate(values)
        if channel.source == pe:
            ends["sent", channel.source_port] = np.concatenate(values)
    return ends


def frames_header(ends):
    lines = ["#include <stdint.h>", f"enum {{ FRAMES = {FRAMES} }};"]
    for way in ("received", "sent"):
        ports = sorted(port for other, port in ends if other == way)
        assert ports == list(range(len(ports)))
        for port in ports:
            values = ", ".join(map(str, ends[way, port]))
            lines.append(f"static const uint8_t {way}{port}[] = {{{values}}};")
        lines.append(f"static const uint8_t *const {way}[] = {{{', '.join(f'{way}{port}' for port in ports)}}};")
        lines.append(f"enum {{ IMAGE_{'RECEIVES' if way == 'received' else 'SENDS'} = {len(ports)} }};")
    return "\n".join(lines) + "\n"


def linked(mesh, layers, pe, out, compiler, flags, link=()):
    """The firmware of a PE as one image: all C of its project, and the test's link layer.

    In a copy of the project, with its paths: what PEs have in common is compiled once (compile_cache.py).
    """
    shutil.copytree(mesh.directory / mesh.manifest.programs[mesh.manifest.pes[pe].program].directory, out)
    (out / "image_frames.h").write_text(frames_header(frames_of_ports(mesh, layers, pe)))
    shutil.copy(Path(__file__).with_name("image.c"), out)
    includes = [f"-I{folder}" for folder in (".", "include", "src", "link", "hwlib/include", "hwlib/sim")]
    sources = [path for folder in ("src", "hwlib/src", "hwlib/sim") for path in sorted(out.glob(f"{folder}/*.c"))]
    sources += [out / "link/hwlib_pe.c", *out.glob("link/*_pe[0-9]*_pe.c"), out / "image.c"]
    objects = []
    for source in sources:
        objects.append(f"{source.stem}.o")
        own = HOST if source.name.endswith("_host.c") else ()
        command = [compiler, *STRICT, *own, *flags, "-DHWLIB_SIM", *includes]
        subprocess.run([*command, "-c", source.relative_to(out), "-o", objects[-1]], check=True, cwd=out)
    subprocess.run([compiler, *flags, *link, *objects, "-lm", "-o", "image"], check=True, cwd=out)
    return out / "image"


def computed(stdout):
    return [int(line.split()[1]) for line in stdout.splitlines() if line.startswith("computed")]


@pytest.fixture(scope="module")
def images(mesh, layers, tmp_path_factory):
    """The images of the PEs with several stages, by their numbers, with the sanitizers of the host."""
    out = tmp_path_factory.mktemp("images")
    return {pe: linked(mesh, layers, pe, out / f"pe{pe}", "gcc", sanitizers.FLAGS) for pe in shared(mesh)}


def run_image(image, *arguments):
    return subprocess.run([image, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_each_shared_pe_is_one_image_that_sends_what_the_whole_model_computes(mesh, images):
    for pe, image in images.items():
        done = run_image(image)
        assert done.returncode == 0, done.stdout + done.stderr
        stages = mesh.manifest.programs[mesh.manifest.pes[pe].program].stages
        assert computed(done.stdout) == [FRAMES] * len(stages)


@pytest.mark.slow
def test_a_stage_without_a_credit_keeps_no_other_stage_from_running(mesh, images):
    done = run_image(images[shared(mesh)[0]], "held", "0")
    first, *others = computed(done.stdout)
    assert done.returncode == 1
    assert first == 2  # as many as there are buffers for
    assert others == [FRAMES] * len(others)


@pytest.mark.slow
def test_a_lost_neighbour_is_named_by_its_stage_and_port(mesh, images):
    pe = shared(mesh)[0]
    port = max(one.target_port for one in mesh.manifest.channels if one.target == pe)
    done = run_image(images[pe], "lost", str(port))
    last = len(mesh.manifest.programs[mesh.manifest.pes[pe].program].stages) - 1
    assert done.returncode == 1
    assert f"failed -1: error 3, stage {last}, port {port}" in done.stdout


RISCV = "riscv64-unknown-elf"
RISCV32 = ["-march=rv32imc", "-mabi=ilp32", "-Os", "--specs=picolibc.specs", "-DHWLIB_NO_NAMES"]
AT = ["--crt0=semihost", "--oslib=semihost", "-Wl,--defsym=__flash=0x80000000,--defsym=__flash_size=32M"]
AT += ["-Wl,--defsym=__ram=0x82000000,--defsym=__ram_size=32M,--defsym=__stack_size=64K"]
MACHINE = ["-machine", "virt", "-m", "1G", "-display", "none", "-bios", "none", "-serial", "none", "-monitor", "none"]
SEMIHOSTED = ["-chardev", "stdio,id=sh0", "-semihosting-config", "enable=on,target=native,chardev=sh0"]


@pytest.mark.slow
@needs_riscv32
def test_each_shared_pe_is_one_image_on_riscv32_with_no_more_code_than_the_plan_counts(mesh, layers, tmp_path):
    for pe in shared(mesh):
        image = linked(mesh, layers, pe, tmp_path / f"pe{pe}", f"{RISCV}-gcc", RISCV32, AT)
        command = [QEMU, *MACHINE, *SEMIHOSTED, "-kernel", image]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stdout + done.stderr
        entry = mesh.manifest.programs[mesh.manifest.pes[pe].program]
        flash = read_metadata(mesh.directory / entry.directory)["memory"]["flash"]
        assert 0 < code_of(image.parent) - sum(flash.values()) + flash.get(TABLES, 0) <= counted_code(mesh, entry), (
            entry.name
        )


@pytest.mark.slow
@needs_riscv32
def test_all_stages_of_a_pe_run_one_after_the_other_on_host_and_riscv32(mesh):
    entry = mesh.manifest.programs[mesh.manifest.pes[shared(mesh)[0]].program]
    alone = Project(mesh.directory / entry.directory)
    (inputs,) = random_samples(alone.inputs, 0, 1)
    found, other = (alone.run(inputs, on=on).outputs for on in ("host", "riscv32"))
    assert len(found) >= len(entry.stages)
    assert all(np.array_equal(here, there) for here, there in zip(found, other, strict=True))


@pytest.mark.slow
@settings(max_examples=examples(6), deadline=None)
@given(graphs(TINY, 8), st.integers(0, 99))
def test_random_stages_on_one_pe_compute_what_each_computes_alone(graph, number):
    network, random = network_of(program_of(graph)), np.random.default_rng(number)
    stages = random_stages(network, random, 4)
    channels = channels_of(network, stages)
    plans = {at: planned_stage(network, stages, at, channels) for at in range(0, len(stages), 2)}
    shared_pe = PePlan("pe", plans)
    assert shared_pe.memory.arena.nbytes == max(one.arena for one in plans.values())
    assert shared_pe.nbytes == sum(one.nbytes - one.arena for one in plans.values()) + shared_pe.memory.arena.nbytes
    regions = {name: one.placed(shared_pe.memory.scratch[name][1]) for name, one in shared_pe.regions.items()}
    parts = Parts(shared_pe.program, TINY, regions, shared_pe.memory, report={})
    inputs = {buffer.name: random_values(buffer, random) for buffer in shared_pe.program.inputs}
    with tempfile.TemporaryDirectory() as folder:
        write_project(Path(folder, "pe"), project_files(parts))
        found = Project(Path(folder, "pe")).run(inputs).outputs
    wanted = [values for one in plans.values() for values in computed_alone(one.stage.program, inputs)]
    assert len(found) == len(wanted)
    assert all(np.array_equal(here.reshape(-1), there.reshape(-1)) for here, there in zip(found, wanted, strict=True))


def planned_stage(network, stages, number, channels):
    names = f"pe_{stage_label(number)}", f"stage {number} "
    stage = stage_program(network, stages, number, channels, *names)
    return plan_stage(stage, TINY, network, channel_buffer_bytes(stage, number, channels), None)


def computed_alone(program, inputs):
    """The outputs of a stage in numpy."""
    values = dict(inputs)
    for call in program.calls:
        count = len(call.graph.inputs)
        reads = [values[one.name] for one in call.arguments[:count]]
        made = run_graph(call.graph, reads)
        values |= {one.name: made[t] for t, one in zip(call.graph.outputs, call.arguments[count:], strict=True)}
    return [values[one.name] for one in program.outputs]


def code_of(folder):
    """The bytes of code, constants and state of a PE's objects, without the simulator and the test's link layer."""
    objects = [one for one in folder.glob("*.o") if not one.name.startswith(("sim_", "hwlib_sim", "image"))]
    command = [f"{RISCV}-size", *map(str, objects)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[1:]
    return sum(int(line.split()[0]) for line in lines) + sizes(folder / "image", "computed|received|sent")


def counted_code(mesh, entry):
    """The bytes that a plan counts for the code of a program, but for the stack."""
    metadata = read_metadata(mesh.directory / entry.directory)
    functions = [one for one in metadata["layers"] if one["region"] is None]
    regions = {one["region"] for one in metadata["layers"]} - {None}
    number = next(at for at, pe in enumerate(mesh.manifest.pes) if mesh.manifest.programs[pe.program] is entry)
    ports = sum((one.source == number) + (one.target == number) for one in mesh.manifest.channels)
    calls = CODE_OF_A_CALL * (len(regions) + len(functions)) + CODE_OF_A_FUNCTION * len(functions)
    return LIBRARY_CODE + metadata["memory"]["flash"].get(TABLES, 0) + calls + CODE_OF_A_PORT * ports


def sizes(path, pattern):
    """The bytes of the symbols of an object or image whose names fit."""
    lines = subprocess.run(["nm", "-S", path], capture_output=True, text=True, check=True).stdout.splitlines()
    fields = [line.split() for line in lines]
    return sum(int(one[1], 16) for one in fields if len(one) == 4 and re.fullmatch(pattern, one[3]))


def test_the_plan_counts_the_bytes_that_a_program_has(mesh, plan):
    """The arena, which its stages share, the buffers of its channels, and constants."""
    assert max(one.credits for one in mesh.manifest.channels) <= 2  # the link layer holds no frames beside buffers
    for pe in mesh.manifest.pes:
        entry = mesh.manifest.programs[pe.program]
        memory = read_metadata(mesh.directory / entry.directory)["memory"]
        arena, flash = memory["ram"]["arena"], memory["flash"]
        library = mesh.directory / "build" / f"{entry.name}.so"
        assert sizes(library, f"{entry.name}_arena") == max(1, arena)
        found = arena + sizes(library, r"(input|output)\d+") + sum(flash.values()) - flash.get(TABLES, 0)
        assert found == plan.pe_bytes[pe.x, pe.y]
