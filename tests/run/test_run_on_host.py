"""Building a project on the host and running it there."""

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emit_samples import host_only_parts, sample_graph, sample_parts
from sanitizers import SANITIZED

from byoc_hw.accelerator import SMALL
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.errors import InvalidInput, RunError, ToolchainMissing
from byoc_hw.graph import Conv2d, Dense
from byoc_hw.run.host import run_on_host
from byoc_hw.run.toolchain import Toolchain, build_program

NAME = "serving default:x"


def random_input(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-99, 99, (1, 6, 6, 4)).astype(np.int8)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("a path with spaces") / "out"
    write_project(directory, project_files(sample_parts()))
    return directory


def reference(x: np.ndarray) -> list[np.ndarray]:
    """The sample program in numpy, in floats that hold every value exactly."""
    conv, _, _, _, dense = sample_graph().layers
    assert isinstance(conv, Conv2d)
    assert isinstance(dense, Dense)
    assert conv.weights.data is not None
    assert conv.bias is not None
    assert conv.bias.data is not None
    assert dense.weights.data is not None
    halved = np.trunc(x[0] / 2)
    padded = np.pad(halved - 3, ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    sums = np.einsum("yxcij,kijc->yxk", windows, conv.weights.data.astype(float)) + conv.bias.data
    convolved = np.clip(np.floor(sums * 0.25 + 0.5) + 3, -100, 100)
    added = np.clip(2 * (convolved - 3) + 3, -128, 127)
    pooled = np.trunc(added.sum(axis=(0, 1)) / 36)
    scores = np.clip(np.floor(dense.weights.data.astype(float) @ (pooled - 3) * 0.25 + 0.5) + 3, -128, 127)
    return [((scores - 3) * 0.5)[np.newaxis].astype(np.float32), x]


def test_runs_all_inferences_in_order(project: Path) -> None:
    inputs = [random_input(seed) for seed in range(5)]
    results = run_on_host(project, inputs)
    for x, result in zip(inputs, results, strict=True):
        for found, expected in zip(result.outputs, reference(x), strict=True):
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected)


def test_takes_inputs_by_name_in_order_or_alone(project: Path) -> None:
    x = random_input(1)
    results = run_on_host(project, [x, [x], {NAME: x}])
    assert len({result.outputs[0].tobytes() for result in results}) == 1


def test_layers_add_up_to_the_total(project: Path) -> None:
    (result,) = run_on_host(project, [random_input(0)])
    assert result.cycles is not None
    assert result.cycles.total == sum(layer.cycles for layer in result.cycles.by_layer) > 0
    assert [layer.id for layer in result.cycles.by_layer] == list(range(7))
    conv = result.cycles.by_layer[1]
    assert (conv.name, conv.kind) == ("conv/Relu;conv/BiasAdd", "conv2d")
    assert conv.jobs >= 1
    assert result.trace is None


def test_every_inference_takes_as_long(project: Path) -> None:
    one, other = run_on_host(project, [random_input(0), random_input(1)])
    assert one.cycles == other.cycles


def test_another_accelerator_takes_other_cycles(project: Path, tmp_path: Path) -> None:
    write_project(tmp_path, project_files(sample_parts(accelerator=SMALL)))
    (small,), (large,) = (run_on_host(path, [random_input(0)]) for path in (tmp_path, project))
    assert np.array_equal(small.outputs[0], large.outputs[0])
    assert small.cycles is not None
    assert large.cycles is not None
    assert small.cycles.total > large.cycles.total


def test_traces_each_layer(project: Path) -> None:
    x = random_input(2)
    first, second = run_on_host(project, [x, random_input(3)], trace=True)
    assert first.trace is not None
    assert second.trace is not None
    assert np.array_equal(np.frombuffer(first.trace[0], np.int8), np.trunc(x.reshape(-1) / 2))
    assert len(first.trace[1]) == 6 * 6 * 8
    assert np.array_equal(np.frombuffer(first.trace[6], np.float32), reference(x)[0][0])
    assert first.trace[1] != second.trace[1]


def test_a_second_run_does_not_build_again(project: Path) -> None:
    run_on_host(project, [random_input(0)])
    built = {path: path.stat().st_mtime_ns for path in (project / "build").rglob("*") if path.is_file()}
    run_on_host(project, [random_input(7)])
    assert {path: path.stat().st_mtime_ns for path in (project / "build").rglob("*") if path.is_file()} == built


def test_is_clean_under_the_sanitizers(project: Path) -> None:
    toolchains = Toolchain(cflags=SANITIZED), Toolchain()
    (sanitized,), (plain,) = (run_on_host(project, [random_input(4)], chain) for chain in toolchains)
    assert np.array_equal(sanitized.outputs[0], plain.outputs[0])
    programs = [build_program(project, "host", chain, trace=False) for chain in toolchains]
    assert programs[0] != programs[1]


def test_runs_a_project_without_an_accelerator(tmp_path: Path) -> None:
    write_project(tmp_path, project_files(host_only_parts()))
    x = random_input(5)
    (result,) = run_on_host(tmp_path, [x])
    assert np.array_equal(result.outputs[0], np.trunc(x / 2).astype(np.int8))
    assert result.cycles is None


def test_no_inferences_give_no_results(project: Path) -> None:
    assert run_on_host(project, []) == []


# ---------------------------------------------------------------- what can go wrong


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"y": random_input(0)}, "input is one of serving default:x: got 'y'"),
        ({}, "input serving default:x is given: got nothing"),
        (random_input(0)[0], r"input serving default:x: shape is \(1, 6, 6, 4\): got \(6, 6, 4\)"),
        (random_input(0).astype(np.int32), "input serving default:x: dtype is int8: got int32"),
        ([random_input(0)] * 2, "takes 1 inputs: got 2"),
    ],
)
def test_names_the_input_that_does_not_fit(project: Path, inputs: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        run_on_host(project, [inputs])  # type: ignore[list-item]


def test_a_failing_host_function_is_named(project: Path) -> None:
    x = random_input(0)
    x[0, 0, 0, 0] = 99  # the sample's function fails on it
    with pytest.raises(RunError, match=r"layer 0 failed:\n.*tvmgen_demo_fused_halve\n.*status 255"):
        run_on_host(project, [x])


@pytest.mark.slow
def test_without_names_a_failing_layer_has_its_number(project: Path, tmp_path: Path) -> None:
    x = random_input(0)
    x[0, 0, 0, 0] = 99
    (tmp_path / "in.bin").write_bytes(x.tobytes())
    programs = []
    for names in (1, 0):
        build = tmp_path / f"names_{names}"
        made = ["make", "-s", "-C", str(project), f"BUILD={build}", f"NAMES={names}", "WERROR=1"]
        subprocess.run(made, check=True, capture_output=True)
        ran = subprocess.run(
            [build / "demo", tmp_path / "in.bin", build / "out", build / "profile"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "layer 0 failed:\n" in ran.stderr
        assert "status 255" in ran.stderr
        assert ("tvmgen_demo_fused_halve" in ran.stderr) == bool(names)
        programs.append((build / "demo").read_bytes())
    assert [b"conv/Relu;conv/BiasAdd" in program for program in programs] == [True, False]


def test_a_failing_layer_is_named_with_the_reason(tmp_path: Path) -> None:
    """The simulator of another accelerator refuses what the plan asks of it."""
    files = project_files(sample_parts())
    limits = {**SMALL.limits, "conv2d": replace(SMALL.limits["conv2d"], max_kernel=(1, 1))}
    narrow = project_files(sample_parts(accelerator=replace(SMALL, limits=limits)))
    files["hwlib/include/hwlib_accelerator.h"] = narrow["hwlib/include/hwlib_accelerator.h"]
    write_project(tmp_path, files)
    with pytest.raises(RunError, match=r"layer 1 failed:\n.*conv/Relu;conv/BiasAdd\n.*HWLIB_ERROR_LIMIT.*\n.*kernel"):
        run_on_host(tmp_path, [random_input(0)])


def test_a_broken_build_shows_what_the_compiler_said(tmp_path: Path) -> None:
    parts = sample_parts()
    write_project(tmp_path, project_files(replace(parts, host_source=parts.host_source + "int broken = missing;\n")))
    with pytest.raises(RunError, match=r"(?s)demo does not build.*missing"):
        run_on_host(tmp_path, [random_input(0)])


def test_stops_a_program_that_does_not_end(tmp_path: Path) -> None:
    parts = sample_parts()
    endless = parts.host_source.replace("return p0[0] == 99", "for (volatile int i = 1; i;) {}\n  return p0[0] == 99")
    write_project(tmp_path, project_files(replace(parts, host_source=endless)))
    with pytest.raises(RunError, match=r"demo failed: it did not end within 0\.5 seconds"):
        run_on_host(tmp_path, [random_input(0)], timeout=0.5)


@pytest.mark.parametrize("tool", ["make", "gcc"])
def test_names_the_package_to_install(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    other = {"make": "gcc", "gcc": "make"}[tool]
    (tmp_path / other).write_text("#!/bin/sh\n")
    (tmp_path / other).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainMissing, match=f"install the package {tool}"):
        run_on_host(project, [random_input(0)])


def test_refuses_a_directory_that_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"a project directory holds metadata\.json"):
        run_on_host(tmp_path, [random_input(0)])
