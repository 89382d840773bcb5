"""A vendor's library in place of the HAL: its calls, its packing, its tables, and the same results."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emit_samples import graph_without_pooling, sample_parts, sample_program, tensor
from vendor_library import CONVOLUTION, QUEUED, QUEUED_CONVOLUTION, VENDOR, conv_arguments

from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.emit.region import code, region_source
from byoc_hw.errors import InvalidInput, RunError, Unsupported
from byoc_hw.graph import Conv2d, Dense, Graph, Reshape, Transpose
from byoc_hw.library_calls import Operands
from byoc_hw.plan.library import library_plan
from byoc_hw.run.host import run_on_host
from byoc_hw.run.toolchain import Toolchain


@pytest.mark.parametrize("library", [VENDOR, QUEUED], ids=lambda one: one.name)
def test_library_and_simulator_agree(tmp_path: Path, library: Accelerator) -> None:
    program = sample_program(graph=graph_without_pooling())
    for accelerator in (REFERENCE, library):
        write_project(
            tmp_path / accelerator.name, project_files(sample_parts(accelerator=accelerator, program=program))
        )
    inputs = [np.random.default_rng(seed).integers(-128, 128, (1, 6, 6, 4)).astype(np.int8) for seed in range(4)]
    flags = "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
    on_library = run_on_host(tmp_path / library.name, inputs, Toolchain(cflags=flags), trace=True)
    untraced = run_on_host(tmp_path / library.name, inputs, Toolchain(cflags=flags))
    on_simulator = run_on_host(tmp_path / "hwlib", inputs, trace=True)
    for one, plain, other in zip(on_library, untraced, on_simulator, strict=True):
        assert np.array_equal(one.outputs[0], other.outputs[0])
        assert np.array_equal(plain.outputs[0], other.outputs[0])
        assert one.trace is not None
        assert other.trace is not None
        for layer in (1, 2, 4):  # all but the reshape, which the library does not see
            assert one.trace[layer] == other.trace[layer]
        assert one.cycles is None
    assert len({one.outputs[0].tobytes() for one in on_library}) > 1


def refusing(channels: int):
    """`conv_arguments`, but of a geometry that the library cannot do."""

    def arguments(layer: Conv2d | Dense, operands: Operands) -> list[str]:
        geometry = f"&(const vendor_conv_t){{.channels = {channels}, .out_height = 1}}"
        return [*conv_arguments(layer, operands)[:2], geometry, "0", "0", "0"]

    return arguments


REFUSED = {
    "vendor_conv returns 7": (VENDOR, CONVOLUTION, 5000, 7),
    "a wait returns 7": (QUEUED, QUEUED_CONVOLUTION, 5000, 7),
    "a start returns 9": (QUEUED, QUEUED_CONVOLUTION, 9000, 9),
}


@pytest.mark.parametrize(("accelerator", "call", "channels", "status"), REFUSED.values(), ids=REFUSED)
def test_a_status_of_the_library_reaches_the_caller(tmp_path: Path, accelerator, call, channels, status) -> None:
    library = accelerator.library
    calls = {**library.calls, "dense": replace(call, arguments=refusing(channels))}
    accelerator = replace(accelerator, library=replace(library, calls=calls))
    program = sample_program(graph=graph_without_pooling())
    write_project(tmp_path, project_files(sample_parts(accelerator=accelerator, program=program)))
    with pytest.raises(RunError, match=rf"layer 4 failed:\n.*fc\n.*status {status}"):
        run_on_host(tmp_path, [np.zeros((1, 6, 6, 4), np.int8)], Toolchain(cflags="-O1 -Wno-unused-const-variable"))


def test_calls_that_start_are_waited_for_once_at_the_end() -> None:
    text = code(library_plan(graph_without_pooling(), QUEUED), 0)
    assert text.count("status = region_ended(&token);") == 1
    assert text.index("vendor_conv_start(\n      out0") < text.index("status = region_ended(&token);")
    early = code(library_plan(graph_without_pooling(), QUEUED), 0, returns_early=True)
    started, waits = early.split("_wait(void)")
    assert "status = region_ended" not in started
    assert "status = region_ended(&tvmgen_demo_hwlib_main_0_token);" in waits


def test_a_wait_that_is_left_out_is_seen(tmp_path: Path) -> None:
    """The engine of the vendor's queue is as late as it may be: without the wait nothing has been computed."""
    program = sample_program(graph=graph_without_pooling())
    files = project_files(sample_parts(accelerator=QUEUED, program=program))
    image = np.random.default_rng(0).integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
    text = files["src/demo_queued.c"]
    without = text.replace("status = region_ended(&token);", "status = 0;")
    assert without != text
    found = []
    for name, source in (("right", text), ("wrong", without)):
        write_project(tmp_path / name, {**files, "src/demo_queued.c": source})
        found.append(run_on_host(tmp_path / name, [image], Toolchain(cflags="-O1"))[0].outputs[0])
    assert not np.array_equal(*found)


def test_project_holds_the_library_and_no_hwlib() -> None:
    files = project_files(sample_parts(accelerator=VENDOR, program=sample_program(graph=graph_without_pooling())))
    assert {"library/vendor_nn.h", "library/vendor_nn.c", "src/demo_vendor.c"} <= files.keys()
    assert not [name for name in files if name.startswith("hwlib/")]


def test_reshape_between_layers_shares_the_bytes() -> None:
    plan = library_plan(graph_without_pooling(), VENDOR)
    text = code(plan, 0)
    assert "memcpy" not in text
    assert "The same bytes:" in text
    assert len(plan.scratch) == 2


def test_reshape_to_an_output_copies() -> None:
    x, y = tensor("x", 1, 2, 2, 1), tensor("y", 1, 4)
    plan = library_plan(Graph("region", (x,), (y, x), (Reshape("reshape", (), x, y),)), VENDOR)
    text = code(plan, 0)
    assert "memcpy(out0, in0, 4);" in text
    assert "memcpy(out1, in0, 4);" in text


def test_blocks_that_live_together_lie_apart() -> None:
    plan = library_plan(graph_without_pooling(), VENDOR)
    (conv, conv_at), (added, added_at) = plan.scratch.items()
    assert abs(conv_at - added_at) >= conv.nbytes == added.nbytes
    assert not conv_at <= plan.workspaces[0] < conv_at + conv.nbytes
    assert plan.scratch_bytes == 2 * 288


def test_standalone_region_names_the_library_header() -> None:
    text = region_source(library_plan(graph_without_pooling(), VENDOR), VENDOR)
    assert '#include "vendor_nn.h"' in text
    assert "hwlib.h" not in text


def test_declines_a_transpose_that_the_library_lacks() -> None:
    x, y = tensor("x", 1, 2, 2, 1), tensor("y", 1, 1, 2, 2)
    graph = Graph("region", (x,), (y,), (Transpose("to_nchw", (), x, y, axes=(0, 3, 1, 2)),))
    with pytest.raises(Unsupported, match="to_nchw: the library has a call for each layer kind: none for transpose"):
        library_plan(graph, VENDOR)


def test_asks_for_a_library() -> None:
    with pytest.raises(InvalidInput, match="hwlib has none"):
        library_plan(graph_without_pooling(), REFERENCE)
