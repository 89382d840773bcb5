"""A mesh on ranks of MPI, with the commands that a user types."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from byoc_hw import Project
from byoc_hw.__main__ import main
from byoc_hw.demo import heldout, model_path
from byoc_hw.mesh import mpi_ranks
from byoc_hw.mesh.built_mesh import MeshProject

pytest.importorskip("mpi4py", reason="pip install byoc-hw[mesh]")
pytestmark = pytest.mark.slow
MPIRUN = Path(sys.executable).with_name("mpirun")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A mesh of 8 PEs that the command line built."""
    mesh = tmp_path_factory.mktemp("mpi") / "mesh"
    options = ["--pes", "8", "--pipelines", "1", "--output-dir", str(mesh)]
    assert main(["mesh", "build", str(model_path()), *options]) == 0
    assert len(MeshProject(mesh).manifest.pes) == 8
    return mesh


def command(directory, ranks, *options):
    return [str(MPIRUN), "-n", str(ranks), sys.executable, "-m", "byoc_hw", "mesh", "run", str(directory), *options]


def run(*arguments):
    return ended(command(*arguments))


def ended(arguments):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=240, check=False)


def written_frames(tmp_path, count):
    images = heldout().images[:, None]
    given = np.concatenate([images] * (count // len(images) + 1))[:count]
    np.save(tmp_path / "frames.npy", given)
    return given


@pytest.mark.parametrize(("ranks", "options"), [(8, ()), (1, ()), (3, ("--messages",))])
def test_ranks_give_the_bytes_of_the_single_project(directory, tmp_path, ranks, options):
    given = written_frames(tmp_path, 100)
    files = ("--input", str(tmp_path / "frames.npy"), "--output", str(tmp_path / "out.npz"))
    done = run(directory, ranks, *files, *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("100 frames in ")
    outputs = np.load(tmp_path / "out.npz")
    expected = Project(directory / "reference").run_batch(list(given))
    (name,) = outputs
    assert np.array_equal(outputs[name], np.stack([one.outputs[0] for one in expected]))


@pytest.mark.parametrize("options", [(), ("--messages",)])
def test_ranks_compare_what_every_pe_sends(directory, options):
    done = run(directory, 4, "--random", "10", "--validate", *options)
    assert done.returncode == 0, done.stderr
    inner = [one for one in MeshProject(directory).manifest.channels if one.source >= 0]
    assert done.stdout.startswith(f"equal: {len(inner)} channels in 10 frames\n")


# ---------------------------------------------------------------- two machines


def on_two_machines(tmp_path, directories, *options):
    """The command for two ranks on each of two machines, with a directory each and one for temporary files. The
    launcher starts what is for another machine here: for MPI they are two, and share no memory."""
    hosts = tmp_path / "hosts"
    hosts.write_text("first:2\nsecond:2\n")
    arguments = [str(MPIRUN), "-launcher", "fork", "-f", str(hosts)]
    for number, directory in enumerate(directories):
        temporary = tmp_path / f"temporary{number}"
        temporary.mkdir(exist_ok=True)
        part = ["-n", "2", "-env", "TMPDIR", str(temporary), sys.executable, "-m", "byoc_hw", "mesh", "run"]
        arguments += [*([":"] if number else []), *part, str(directory), *options]
    return arguments


@pytest.fixture
def copies(directory, tmp_path):
    """A copy of the mesh for each of two machines."""
    return [shutil.copytree(directory, tmp_path / f"machine{number}" / "mesh") for number in range(2)]


def test_two_machines_with_a_copy_of_the_mesh_each_send_what_the_whole_model_computes(copies, tmp_path):
    done = ended(on_two_machines(tmp_path, copies, "--random", "20", "--validate"))
    assert done.returncode == 0, done.stderr
    inner = [one for one in MeshProject(copies[0]).manifest.channels if one.source >= 0]
    assert done.stdout.startswith(f"equal: {len(inner)} channels in 20 frames\n20 frames in ")


def test_a_pe_of_the_second_machine_that_answers_wrongly_is_named(copies, tmp_path):
    mesh = MeshProject(copies[1])
    program = mesh.manifest.programs[mesh.manifest.pes[5].program]
    weights = copies[1] / program.directory / "src" / f"{program.name}_weights.h"
    weights.write_text(weights.read_text().replace(" 3,", " 4,"))
    assert mesh.build() == [program.name]
    done = ended(on_two_machines(tmp_path, copies, "--random", "5", "--validate"))
    assert done.returncode != 0
    assert f"{mesh.manifest.pes[5].label} answers wrongly: " in done.stdout


def test_a_machine_with_another_mesh_is_named(copies, tmp_path):
    manifest = copies[1] / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    done = ended(on_two_machines(tmp_path, copies, "--random", "5"))
    assert done.returncode != 0
    assert f"all ranks run the mesh of rank 0: rank 2 has another one in {copies[1]} on " in done.stderr
    assert "frames in" not in done.stdout


def many(tmp_path):
    """The options of a run of many frames, and where its outputs would go."""
    output = tmp_path / "out.npz"
    return ("--random", "40000", "--timeout", "2", "--output", str(output)), output


def signalled(arguments, output, ranks, rank, how):
    """The end of a run of which one rank got a signal: exit code, what was said, and the rank's process."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [process.stderr.readline() for _ in range(ranks)]  # which process each rank is
    line = next(one for one in lines if one.startswith(f"rank {rank}: process "))
    number = int(line.split()[3])
    time.sleep(3)
    os.kill(number, how)
    try:
        out, errors = process.communicate(timeout=120)
    finally:
        if how == signal.SIGSTOP:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    assert not output.exists()
    assert "frames in" not in out
    return process.returncode, out + errors, number


def test_a_rank_that_dies_ends_the_run_without_a_result(directory, tmp_path):
    options, output = many(tmp_path)
    code, said, number = signalled(command(directory, 2, *options), output, 2, 1, signal.SIGKILL)
    assert code != 0
    assert f"PID {number} RUNNING AT" in said  # the launcher names the process, of which the rank's line says the PEs


@pytest.mark.parametrize("more", [(), ("--messages",)])
def test_a_rank_that_stands_still_is_named(directory, tmp_path, more):
    options, output = many(tmp_path)
    code, said, _ = signalled(command(directory, 2, *options, *more), output, 2, 1, signal.SIGSTOP)
    assert code != 0
    assert "rank 0: no frame for 2 seconds: slow, or stuck, is rank 1, PE (0, 4)" in said


def test_a_rank_aborts_once_its_last_line_is_read(monkeypatch):
    reader, writer = os.pipe()
    line = b"rank 0: what went wrong\n"
    read = []

    def abort(code):
        raise SystemExit(code, b"".join(read))

    def launcher():
        time.sleep(0.3)
        read.append(os.read(reader, 1000))

    thread = threading.Thread(target=launcher)
    thread.start()
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with pytest.raises(SystemExit) as ended:
            mpi_ranks._abort(SimpleNamespace(rank=0, Abort=abort), "what went wrong")
    thread.join()
    os.close(reader)
    assert ended.value.args == (1, line)


def test_a_rank_of_the_second_machine_that_stands_still_is_named(copies, tmp_path):
    options, output = many(tmp_path)
    code, said, _ = signalled(on_two_machines(tmp_path, copies, *options), output, 4, 3, signal.SIGSTOP)
    assert code != 0
    assert "rank 0: no frame for 2 seconds: slow, or stuck, is rank 3, PE (0, 6)" in said
    assert "Traceback" not in said
