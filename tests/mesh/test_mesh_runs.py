"""PE projects of a model: they compute what one project does, in threads and processes, and failures have names."""

import os
import shutil
import signal
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from bit_exact import input_arrays
from lost_ranks import failing
from relay_samples import Add, Conv, Pool, Quantized, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw import InvalidInput, PlanError, Project, RunError
from byoc_hw.__main__ import main
from byoc_hw.demo import heldout, model_path
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.mesh import group, runs
from byoc_hw.mesh.built_mesh import MeshProject
from byoc_hw.mesh.code_size import code_owners
from byoc_hw.mesh.group import Outside, places_of
from byoc_hw.mesh.libraries import library_of, rings_library
from byoc_hw.mesh.machine import MESH_7296
from byoc_hw.mesh.patches import channels_of
from byoc_hw.mesh.pe_source import ports_of
from byoc_hw.mesh.pieces import NodePiece, PieceBox
from byoc_hw.mesh.pipelines import plan_network
from byoc_hw.mesh.plan import MeshPlan, Stage
from byoc_hw.mesh.rings import Rings
from byoc_hw.mesh.stage_program import stage_program
from byoc_hw.mesh_builder import _open, build_mesh, mesh_network
from byoc_hw.plan.planned import flash_bytes
from byoc_hw.plan.region import plan_region


def rows(node, start, stop):
    return NodePiece(node, PieceBox("rows", start, stop))


# A layer in two halves, a residual connection over two PEs, and a host function on a PE of its own.
STAGES = [
    Stage((NodePiece(0),)),
    Stage((rows(1, 0, 4), rows(2, 0, 4))),
    Stage((rows(1, 4, 8), rows(2, 4, 8))),
    Stage((NodePiece(3), NodePiece(4))),
    Stage((NodePiece(5), NodePiece(6))),
    Stage(tuple(NodePiece(number) for number in range(7, 13))),
    Stage((NodePiece(13),)),
]


@pytest.fixture(scope="module")
def digits():
    return byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(model_path()), "digits")


@pytest.fixture(scope="module")
def mesh(digits, tmp_path_factory):
    return build_mesh(digits, STAGES, output_dir=tmp_path_factory.mktemp("mesh") / "digits")


@pytest.fixture
def own_mesh(mesh, tmp_path):
    """A copy that a test may change."""
    return MeshProject(shutil.copytree(mesh.directory, tmp_path / "mesh"))


def frames(count):
    images = heldout().images
    return [images[at % len(images)][None] for at in range(count)]


def expected(mesh, given):
    return [result.outputs for result in Project(mesh.directory / "reference").run_batch(given)]


def check_equal(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert all(np.array_equal(here, there) for here, there in zip(one, other, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("on", "ranks"), [("threads", None), ("processes", None), ("processes", 2)])
def test_a_hundred_frames_give_the_bytes_of_the_single_project(mesh, on, ranks):
    given = frames(100)
    check_equal(mesh.run(given, on, ranks=ranks).outputs, expected(mesh, given))


@pytest.mark.slow
def test_a_run_with_no_more_room_than_its_credits_gives_the_same_bytes(mesh, monkeypatch):
    given = frames(20)
    roomy = places_of(mesh.manifest, Rings(rings_library(mesh.directory)))
    assert all(slots == 16 * one.credits for one, (_, slots) in zip(mesh.manifest.channels, roomy.rings, strict=True))
    monkeypatch.setattr(group, "_RING_BYTES", 0)
    places = places_of(mesh.manifest, Rings(rings_library(mesh.directory)))
    assert [slots for _, slots in places.rings] == [one.credits for one in mesh.manifest.channels]
    check_equal(mesh.run(given, "threads").outputs, expected(mesh, given))


@pytest.mark.parametrize(("on", "ranks"), [("threads", None), ("processes", 2)])
def test_a_run_says_how_much_of_the_computer_it_took(mesh, on, ranks):
    result = mesh.run(frames(200), on, ranks=ranks)
    assert 0 < result.times.polling < result.times.cpu
    assert result.times.cpu < 2 * os.cpu_count() * result.seconds
    assert f"{1e3 * result.cpu_per_frame:.3f} ms of CPU a frame, {result.polling:.0%} of it to wait" in str(result)


def test_every_pe_sends_what_the_whole_model_computes(mesh):
    found = mesh.validate(frames(20))
    assert found.ok
    assert found.unseen == 0
    assert found.compared == len([one for one in mesh.manifest.channels if one.source >= 0])


@pytest.mark.slow
def test_two_pipelines_share_the_programs(digits, tmp_path):
    stages = [Stage(tuple(NodePiece(number) for number in range(5))), Stage(tuple(map(NodePiece, range(5, 14))))]
    places = [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]
    network = mesh_network(digits)
    plan = MeshPlan(network, tuple(stages), channels_of(network, stages, credits=3), places)
    mesh = build_mesh(digits, plan, output_dir=tmp_path / "two")
    assert len(mesh.manifest.programs) == 2
    assert len(mesh.manifest.pes) == 4
    given = frames(21)
    check_equal(mesh.run(given, "processes", ranks=1).outputs, expected(mesh, given))
    assert mesh.validate(given[:5], "threads").ok


def test_a_program_that_answers_wrongly_is_named(own_mesh):
    program = own_mesh.manifest.programs[4]
    weights = own_mesh.directory / program.directory / "src" / f"{program.name}_weights.h"
    weights.write_text(weights.read_text().replace(" 3,", " 4,"))
    assert own_mesh.build() == [program.name]
    found = own_mesh.validate(frames(3))
    assert not found.ok
    assert str(found.differences[0]).startswith("PE (4, 0) answers wrongly: ")


def test_a_rank_that_dies_is_named(mesh):
    (failure,) = failing(mesh, frames(60_000), 2, signal.SIGKILL)
    assert failure.startswith("rank 2 has ended (signal 9)")


def test_a_rank_that_stands_still_is_named(mesh):
    (failure,) = failing(mesh, frames(60_000), 3, signal.SIGSTOP)
    assert failure.startswith("no frame for 1 seconds: slow, or stuck, is rank 3, PE (3, 0) at frame ")
    assert "rank 2" not in failure
    assert "rank 4" not in failure


class Scribbling(Outside):
    """A host that damages what PE 0 sends to PE 1."""

    def step(self, nanoseconds):
        shared = self._shared
        number = next(at for at, one in enumerate(shared.manifest.channels) if (one.source, one.target) == (0, 1))
        place, slots = shared.layout.rings[number]
        ring = shared._memory[place : place + shared.rings.nbytes(slots, shared.manifest.channels[number].nbytes)]
        ring[192 + 16 + 5] ^= 0x40  # in the first slot, behind the ring's head and the slot's
        return super().step(100_000)


def test_a_damaged_frame_is_noticed_by_the_pe_that_receives_it(mesh, monkeypatch):
    monkeypatch.setattr(runs, "Outside", Scribbling)
    with pytest.raises(RunError, match=r"PE \(1, 0\) failed at frame \d+: receive 0: a frame that is damaged"):
        mesh.run(frames(5000), "threads")
    with pytest.raises(RunError, match=r"rank 1 has ended .*PE \(1, 0\) failed at frame \d+: receive 0"):
        mesh.run(frames(5000), "processes")


def test_a_library_that_was_not_built_of_the_project_is_not_run(own_mesh):
    library = library_of(own_mesh.directory, own_mesh.manifest.programs[1])
    shutil.copyfile(library_of(own_mesh.directory, own_mesh.manifest.programs[0]), library)
    with pytest.raises(RunError, match="digits_pe1: its library is not the one that was built of programs/digits_pe1"):
        own_mesh.run(frames(1))
    own_mesh.build()
    own_mesh.run(frames(1))


@pytest.mark.slow
def test_unchanged_programs_are_not_built_again(digits, own_mesh):
    assert own_mesh.build() == []
    before = {path: path.stat().st_mtime_ns for path in own_mesh.directory.glob("programs/*/metadata.json")}
    lines = []
    build_mesh(digits, STAGES, output_dir=own_mesh.directory, progress=lines.append)
    assert not [line for line in lines if line.startswith("built")]
    assert before == {path: path.stat().st_mtime_ns for path in before}
    other = [*STAGES[:4], Stage((NodePiece(5),)), Stage((NodePiece(6), *STAGES[5].pieces)), STAGES[6]]
    build_mesh(digits, other, output_dir=own_mesh.directory, progress=lines.append)
    built = [line.split(": ")[1] for line in lines if line.startswith("built")]
    assert sorted(built) == ["digits_pe4", "digits_pe5"]


@pytest.mark.slow
def test_the_same_stages_give_the_same_files(digits, mesh, tmp_path):
    other = build_mesh(digits, STAGES, output_dir=tmp_path / "again")
    for name in ("manifest.json", "programs/digits_pe1/link/digits_pe1_pe.c", "programs/digits_pe1/metadata.json"):
        assert (other.directory / name).read_bytes() == (mesh.directory / name).read_bytes()


@pytest.mark.slow
def test_a_program_that_does_not_fit_its_pe_is_named_before_anything_is_written(digits, tmp_path):
    with pytest.raises(
        PlanError, match=r"digits_pe5 does not fit PE \(5, 0\): \d+ bytes of 16384: \d+ of constants"
    ) as error:
        build_mesh(digits, STAGES, output_dir=tmp_path / "small", data=16384)
    assert "buffers of channels" in str(error.value)
    assert not (tmp_path / "small").exists()
    needed = int(str(error.value).split(": ")[1].split()[0])
    with pytest.raises(PlanError):
        build_mesh(digits, STAGES, output_dir=tmp_path / "small", data=needed - 1)
    mesh = build_mesh(digits, STAGES, output_dir=tmp_path / "small", data=needed)
    given = frames(5)
    check_equal(mesh.run(given, "threads").outputs, expected(mesh, given))


@pytest.mark.slow
def test_a_pe_runs_alone_on_riscv32(mesh):
    image = frames(1)[0]
    alone = Project(mesh.directory / "programs" / "digits_pe0")
    assert np.array_equal(alone.run([image], on="riscv32").outputs[0], alone.run([image]).outputs[0])


def test_stages_that_do_not_compute_the_model_once_are_refused(digits):
    network = mesh_network(digits)
    whole = [Stage((NodePiece(number),)) for number in range(len(network.nodes))]
    twice = [*whole, Stage((rows(2, 0, 1),))]
    with pytest.raises(PlanError, match="row 0 is computed twice"):
        channels_of(network, twice)
    with pytest.raises(PlanError, match="the stages compute 1536 of 2048 bytes of its output"):
        channels_of(network, [*whole[:2], Stage((rows(2, 0, 6),)), *whole[3:]])
    knot = [Stage((NodePiece(0), NodePiece(2))), Stage((NodePiece(1), *map(NodePiece, range(3, 14))))]
    with pytest.raises(PlanError, match="stages 0, 1 wait for each other within a frame"):
        channels_of(network, knot)


def test_inputs_that_do_not_fit_are_refused(mesh):
    with pytest.raises(InvalidInput, match="at least one frame: got none"):
        mesh.run([])
    with pytest.raises(InvalidInput, match=r"frame 1: input serving_default_image:0 is int8 \(1, 8, 8, 1\): got float"):
        mesh.run([frames(1)[0], np.zeros((1, 8, 8, 1))])
    with pytest.raises(InvalidInput, match="on is one of threads, processes: got 'gpu'"):
        mesh.run(frames(1), "gpu")
    with pytest.raises(InvalidInput, match="ranks are from 1 to the 7 PEs of the mesh: got 8"):
        mesh.run(frames(1), ranks=8)


def test_the_commands_of_a_mesh(mesh, tmp_path, capsys):
    images = np.stack(frames(6))
    np.save(tmp_path / "frames.npy", images)
    given = ["--input", str(tmp_path / "frames.npy"), "--output", str(tmp_path / "out.npz")]
    assert main(["mesh", "run", str(mesh.directory), *given, "--on", "threads"]) == 0
    assert capsys.readouterr().out.startswith("6 frames in ")
    (outputs,) = dict(np.load(tmp_path / "out.npz")).values()
    assert np.array_equal(outputs, [one[0] for one in expected(mesh, list(images))])
    assert main(["mesh", "run", str(mesh.directory), "--random", "2", "--validate"]) == 0
    assert capsys.readouterr().out == "equal: 9 channels in 2 frames\n"
    np.savez(tmp_path / "other.npz", x=images)
    assert main(["mesh", "run", str(mesh.directory), "--input", str(tmp_path / "other.npz")]) == 2
    assert "has the inputs serving_default_image:0: got x" in capsys.readouterr().err
    assert main(["mesh", "run", str(tmp_path), "--random", "1"]) == 2


@pytest.mark.slow
def test_nodes_and_plans_are_shown(tmp_path, capsys):
    assert main(["mesh", "nodes", str(model_path())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["1", "depthwise_conv2d", "1x8x8x16", "9,216", "336", "1,024", "rows,", "channels"]
    assert lines[-1].split()[1:3] == ["host", "function"]
    plan = tmp_path / "plan.json"
    assert main(["mesh", "plan", str(model_path()), "--pes", "4", "--pipelines", "1", "--output", str(plan)]) == 0
    assert capsys.readouterr().out.startswith("digits_int8 on MESH_7296: 1 pipeline of 4 stages, 4 of 4 PEs")
    directory = tmp_path / "mesh"
    options = ["--pes", "4", "--mapping", str(plan), "--output-dir", str(directory)]
    assert main(["mesh", "build", str(model_path()), *options]) == 0
    assert MeshProject(directory).validate(frames(3)).ok


RISCV = "riscv64-unknown-elf"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(f"{RISCV}-gcc") is None, reason="the compiler for riscv32 is not installed")
def test_code_on_a_core_of_32_bits_takes_no_more_than_it_is_taken_to(digits, mesh, tmp_path):
    """All that a PE's program has in flash, but for its weights."""
    network = mesh_network(digits)
    channels = channels_of(network, STAGES)
    for number, entry in enumerate(mesh.manifest.programs):
        place = mesh.directory / entry.directory
        model = _open(digits, None)
        stage = stage_program(network, STAGES, number, channels, entry.name)
        regions = {graph.name: plan_region(graph, model.accelerator) for graph in stage.program.regions}
        owners = code_owners([(stage.program, regions)], sum(map(len, ports_of([number], channels))))
        found = code_of(place, tmp_path / entry.name) - sum(map(flash_bytes, regions.values()))
        assert 0 < found <= sum(owners.values()) - owners["stack"], entry.name


def code_of(place, out):
    """The bytes of code and constants of a PE's program, compiled for its size."""
    out.mkdir()
    includes = [f"-I{place / folder}" for folder in ("include", "hwlib/include", "link")]
    flags = ["-march=rv32imc", "-mabi=ilp32", "-Os", "--specs=picolibc.specs", "-DNAMES=0", "-fno-strict-aliasing"]
    folders = sorted([*place.glob("src/*.c"), *place.glob("hwlib/src/*.c"), *place.glob("link/hwlib_pe.c")])
    sources = [*folders, *place.glob("link/*_pe[0-9]*_pe.c")]
    for source in sources:
        command = [f"{RISCV}-gcc", *flags, *includes, "-c", str(source), "-o", str(out / f"{source.name}.o")]
        subprocess.run(command, check=True)
    sizes = subprocess.run([f"{RISCV}-size", *map(str, out.glob("*.o"))], check=True, capture_output=True, text=True)
    return sum(int(line.split()[0]) for line in sizes.stdout.splitlines()[1:])


@pytest.mark.slow
def test_a_program_whose_code_does_not_fit_is_named(digits, tmp_path):
    network = mesh_network(digits)
    mesh = replace(MESH_7296.of(2), pe=_open(digits, None).accelerator, memory=2 << 20)
    small, plan = replace(mesh, code=6000), plan_network(network, mesh, pipelines=1)
    with pytest.raises(
        PlanError, match=r"stage \d fits the 6000 bytes of a PE for code: it has \d+; it is of .*tvmgen_digits_"
    ):
        plan_network(network, small, pipelines=1)
    # A function of the host alone is larger than 6000 bytes with what each PE has.
    for room, enough in ((6000, "no number of PEs"), (9800, r"about \d+ PEs")):
        message = (
            rf"the code of digits_pe1 fits {room} bytes of its PE: it has \d+: .*\d+ of stack.*; {enough} would do"
        )
        with pytest.raises(PlanError, match=message):
            build_mesh(digits, replace(plan, mesh=replace(mesh, code=room)), output_dir=tmp_path / "mesh")
    assert not (tmp_path / "mesh").exists()


@pytest.mark.slow
def test_a_latency_plan_in_as_little_memory_as_it_fits_is_built_and_runs(digits, tmp_path):
    network, mesh = mesh_network(digits), replace(MESH_7296.of(6), pe=byoc_hw.REFERENCE, memory=1 << 19)
    plan = plan_network(network, mesh, "latency")
    used = plan.pe_bytes
    assert len(used) < len(plan.stages)  # PEs with several stages
    with pytest.raises(PlanError, match=r"digits_pe\d+ does not fit PE \(\d+, \d+\): \d+ bytes of \d+"):
        build_mesh(digits, plan, output_dir=tmp_path / "latency", data=max(used.values()) - 1)
    built = build_mesh(digits, plan, output_dir=tmp_path / "latency", data=max(used.values()))
    given = frames(5)
    check_equal(built.run(given, "threads").outputs, expected(built, given))
    assert built.validate(given, "threads").ok


@pytest.mark.slow
def test_regions_read_a_buffer_with_the_scales_that_they_state(tmp_path):
    """Not those that another region writes it with, or states none of."""
    x = variable((1, 4, 6, 4))
    convolution, swapped = Conv(4, 6, 4, 4).expr(x), relay.transpose(x, (0, 2, 1, 3))
    sums = [
        Add(lhs=Quantized(0.9, -20), rhs=Quantized(0.2, 3)).expr(value, relay.right_shift(value, const(1, "int8")))
        for value in (convolution, swapped)
    ]
    check_on_two_pes(module(relay.Tuple(sums), x), tmp_path)


@pytest.mark.slow
def test_an_output_has_the_shape_that_the_model_gives_it(tmp_path):
    x = variable((6, 8))
    mean = Pool("mean", shape=(6, 8), axis=(0,), keepdims=True).expr(relay.nn.relu(x))
    check_on_two_pes(module(mean, x), tmp_path)


def check_on_two_pes(mod, tmp_path):
    partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=MESH_7296.pe)
    plan = byoc_hw.pipeline(partitioned, None, MESH_7296.of(2), pipelines=1)
    frames = list(input_arrays(mod, 2))
    result = build_mesh(partitioned, plan, output_dir=tmp_path / "mesh").run(frames, on="threads")
    reference = Reference(mod)
    for frame, outputs in zip(frames, result.outputs, strict=True):
        for found, wanted in zip(outputs, reference.run(frame), strict=True):
            np.testing.assert_array_equal(found, wanted, strict=True)


def test_refuses_a_module_that_is_not_partitioned(tmp_path):
    mod, params = byoc_hw.load_tflite(model_path())
    with pytest.raises(InvalidInput, match="takes a module that partition_for_hwlib made for its PE: got another"):
        build_mesh(mod, STAGES, params, output_dir=tmp_path / "mesh")
    assert not list(tmp_path.iterdir())
