"""Whole layers from the records of their jobs: overlaps, strides, what only moves bytes, and damaged traces."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from emit_samples import SCALE, place_all, sample_graph, sample_parts, weights

from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.emit.directory import METADATA
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.emit.parts import Parts
from byoc_hw.errors import PlanError, RunError
from byoc_hw.graph import Add, Conv2d, Graph, Reshape, Transpose
from byoc_hw.plan.region import plan_region
from byoc_hw.program import Buffer, Program, RegionCall
from byoc_hw.run.host import run_on_host
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.run.trace import Assembly, Jobs, OutputBox, layer_outputs, read_assemblies, read_records
from byoc_hw.tensor import Quantization, Tensor

SANITIZED = "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"

LEFT, RIGHT = OutputBox(0, (2, 2, 2), (6, 2, 1)), OutputBox(2, (2, 2, 2), (6, 2, 1))
"""The left and the right two of three columns, two rows of two channels."""


def test_boxes_become_a_whole_output() -> None:
    whole = np.arange(12, dtype=np.uint8).reshape(2, 3, 2)
    found = Jobs(12, (LEFT, RIGHT)).output("conv", [whole[:, :2].tobytes(), whole[:, 1:].tobytes()])
    assert found == whole.tobytes()


def test_a_box_may_have_height_and_width_swapped() -> None:
    whole = np.arange(12, dtype=np.uint8).reshape(2, 3, 2)
    swapped = OutputBox(0, (3, 2, 2), (2, 6, 1))
    assert Jobs(12, (swapped,)).output("conv", [whole.transpose(1, 0, 2).tobytes()]) == whole.tobytes()


@pytest.mark.parametrize(
    ("boxes", "records", "said"),
    [
        ((LEFT, RIGHT), [bytes(8)], "trace of conv: 2 jobs write its output: got 1 records"),
        ((LEFT, RIGHT), [bytes(8), bytes(7)], "trace of conv: job 1 writes .* from 2 on: got 7"),
        ((LEFT, OutputBox(3, (2, 2, 2), (6, 2, 1))), [bytes(8)] * 2, "trace of conv: job 1 writes .* from 3 on"),
        ((LEFT, RIGHT), [bytes(8), b"\1" * 8], "trace of conv: job 1 and one before it differ"),
        ((LEFT,), [bytes(8)], "trace of conv: 4 bytes of 12 that no job writes"),
        ((LEFT, LEFT), [bytes(8)] * 2, "trace of conv: 4 bytes of 12 that no job writes"),
    ],
)
def test_refuses_jobs_that_do_not_make_an_output(boxes: tuple[OutputBox, ...], records: list[bytes], said: str) -> None:
    with pytest.raises(RunError, match=said):
        Jobs(12, boxes).output("conv", records)


def gathered(*boxes: str) -> dict[int, Assembly]:
    """A layer 1 of six bytes: of layer 0, of a constant, and filled with -1."""
    parts = [{"layer": 0, "offset": 1}, {"constant": "0708", "offset": 0, "of another version": 1}]
    return read_assemblies({"1": {"bytes": 6, "parts": parts, "fill": -1, "boxes": list(boxes)}})


def test_boxes_of_several_sources_become_an_output() -> None:
    """Every second byte of the first, the bytes of a constant between them, and two bytes that are filled."""
    made = layer_outputs({0: "a", 1: "b"}, gathered("0 0 0 2 2 2", "1 0 1 2 1 2", "-1 0 4 2 0 1"), {0: [b"xABC"]}, [])
    assert made.outputs[1] == b"A\x07C\x08\xff\xff"


def test_refuses_boxes_of_bytes_that_are_not_there() -> None:
    with pytest.raises(RunError, match="trace of b: what it is made of is there"):
        layer_outputs({0: "a", 1: "b"}, gathered("0 0 0 4 1 1"), {0: [b"xABC"]}, [])


def test_refuses_a_trace_that_ends_early() -> None:
    record = np.array([0xFFFFFFFF, 0, 3, 4], "<u4").tobytes() + bytes(4)
    assert read_records(record, 1, "demo") == [{3: [bytes(4)]}]
    for cut in (1, 5):
        with pytest.raises(RunError, match="demo: the trace ends in the middle of a record"):
            read_records(record[:-cut], 1, "demo")
    with pytest.raises(RunError, match="traced 1 inferences of 2"):
        read_records(record, 2, "demo")


@pytest.mark.parametrize("accelerator", [REFERENCE, replace(SMALL, activation_memory=1024)], ids=["whole", "in tiles"])
def test_every_layer_is_in_the_trace(tmp_path: Path, accelerator) -> None:
    write_project(tmp_path, project_files(sample_parts(accelerator=accelerator)))
    x = np.random.default_rng(1).integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
    trace = run_on_host(tmp_path, [x], trace=True)[0].trace
    assert trace is not None
    sizes = [4 * 36, *(layer.ofm.nbytes for layer in sample_graph().layers), 20]
    assert {layer: len(data) for layer, data in trace.items()} == dict(enumerate(sizes))
    assert trace[4] == trace[3]  # the reshape is the pooling


def moving_parts() -> Parts:
    """An input transposed, reshaped, and added to itself: the first two have no jobs."""
    x, moved = Tensor("x", (1, 3, 2, 4), quantization=SCALE), Tensor("t", (1, 2, 4, 3), quantization=SCALE)
    flat, y = Tensor("flat", (1, 24), quantization=SCALE), Tensor("y", (1, 24), quantization=SCALE)
    layers = (Transpose("t", (), x, moved, (0, 2, 3, 1)), Reshape("flat", (), moved, flat), Add("y", (), flat, y, flat))
    graph = Graph("tvmgen_moving_hwlib_main_0", (x,), (y,), layers)
    buffers = (Buffer("x", 24, "input", x.shape), Buffer("y", 24, "output", y.shape))
    program = Program("moving", buffers[:1], buffers[1:], (RegionCall(graph, buffers),))
    memory, regions = place_all(program, {graph.name: plan_region(graph, REFERENCE)})
    return Parts(program, REFERENCE, regions, memory)


def test_fills_in_what_only_moves_bytes(tmp_path: Path) -> None:
    write_project(tmp_path, project_files(moving_parts()))
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 2, 4)).astype(np.int8)
    (result,) = run_on_host(tmp_path, [x], trace=True)
    assert result.trace is not None
    assert result.trace[0] == result.trace[1] == x.transpose(0, 2, 3, 1).tobytes()
    assert result.trace[2] == result.outputs[0].tobytes()


def test_a_wrong_image_names_its_layer(tmp_path: Path) -> None:
    write_project(tmp_path, project_files(sample_parts()))
    metadata = json.loads((tmp_path / METADATA).read_text())
    jobs = metadata["trace"]["1"]["jobs"]
    offset, *shape = jobs[-1].split()
    jobs[-1] = " ".join([str(int(offset) + 8), *shape])
    (tmp_path / METADATA).write_text(json.dumps(metadata))
    with pytest.raises(RunError, match=rf"trace of conv/Relu;conv/BiasAdd: job {len(jobs) - 1} writes"):
        run_on_host(tmp_path, [np.zeros((1, 6, 6, 4), np.int8)], trace=True)


def test_refuses_a_plan_that_does_not_say_where_a_job_writes() -> None:
    parts = moving_parts()
    ((name, region),) = parts.regions.items()
    steps = tuple(step._replace(image=None) if hasattr(step, "image") else step for step in region.calls[-1].steps)
    damaged = replace(region, calls=(*region.calls[:-1], replace(region.calls[-1], steps=steps)))
    with pytest.raises(PlanError, match="y: each job that writes outputs says where they lie"):
        project_files(replace(parts, regions={name: damaged}))


# ---------------------------------------------------------------- on a HAL


def wide_parts(dma_alignment: int) -> Parts:
    """Three pointwise convolutions, in tiles; 12 channels between them, whose rows end inside an aligned piece."""
    channels, layers = (32, 12, 20, 32), []
    tensors = [Tensor(f"t{at}", (1, 9, 7, count), quantization=SCALE) for at, count in enumerate(channels)]
    for at, (ifm, ofm) in enumerate(pairwise(tensors)):
        kernel = weights(f"w{at}", ofm.shape[3], 1, 1, ifm.shape[3])
        layers.append(Conv2d(ofm.name, (), ifm, ofm, kernel, None, Quantization((0.125,), (0,)), -128, 127))
    graph = Graph("tvmgen_wide_hwlib_main_0", (tensors[0],), (tensors[-1],), tuple(layers))
    accelerator = replace(REFERENCE, activation_memory=2048, dma_alignment=dma_alignment)
    buffers = tuple(
        Buffer(one.name, one.nbytes, role, one.shape)
        for one, role in zip((tensors[0], tensors[-1]), ("input", "output"), strict=True)
    )
    program = Program("wide", buffers[:1], buffers[1:], (RegionCall(graph, buffers),))
    memory, regions = place_all(
        program,
        {graph.name: plan_region(graph, accelerator)},
    )
    return Parts(program, accelerator, regions, memory)


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [sample_parts, partial(sample_parts, accelerator=replace(SMALL, activation_memory=1024)), moving_parts,
     *(partial(wide_parts, size) for size in (4, 32))],
    ids=["whole", "in tiles", "only moved", "aligned to 4", "aligned to 32"],
)  # fmt: skip
def test_a_hal_gives_the_simulators_trace(tmp_path: Path, made: Callable[[], Parts]) -> None:
    """The HAL is the simulator's files, without what only the simulator has. It checks every copy of the trace."""
    parts = made()
    write_project(tmp_path, project_files(parts))
    shape = parts.program.inputs[0].shape
    inputs = [np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8) for seed in range(2)]
    toolchain = Toolchain(hal=tmp_path / "hwlib" / "sim", cflags=SANITIZED)
    for there, here in zip(
        run_on_host(tmp_path, inputs, toolchain, trace=True), run_on_host(tmp_path, inputs, trace=True), strict=True
    ):
        assert there.trace == here.trace
        assert [one.tobytes() for one in there.outputs] == [one.tobytes() for one in here.outputs]
