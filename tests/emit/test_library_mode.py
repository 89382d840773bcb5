"""A vendor's library in place of the HAL: its calls, its packing, its tables, and the same results."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emit_samples import graph_without_pooling, sample_parts, sample_program, tensor
from vendor_library import CONVOLUTION, VENDOR, conv_arguments

from byoc_hw.accelerator import REFERENCE, Operands
from byoc_hw.emit.files import project_files, write_project
from byoc_hw.emit.region import code, region_source
from byoc_hw.errors import InvalidInput, RunError, Unsupported
from byoc_hw.graph import Conv2d, Dense, Graph, Reshape, Transpose
from byoc_hw.plan.library import library_plan
from byoc_hw.run.host import run_on_host
from byoc_hw.run.toolchain import Toolchain


def test_library_and_simulator_agree(tmp_path: Path) -> None:
    program = sample_program(graph=graph_without_pooling())
    for accelerator in (REFERENCE, VENDOR):
        write_project(
            tmp_path / accelerator.name, project_files(sample_parts(accelerator=accelerator, program=program))
        )
    inputs = [np.random.default_rng(seed).integers(-128, 128, (1, 6, 6, 4)).astype(np.int8) for seed in range(4)]
    flags = "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
    on_library = run_on_host(tmp_path / "vendor", inputs, Toolchain(cflags=flags), trace=True)
    on_simulator = run_on_host(tmp_path / "hwlib", inputs, trace=True)
    for one, other in zip(on_library, on_simulator, strict=True):
        assert np.array_equal(one.outputs[0], other.outputs[0])
        assert one.trace is not None
        assert other.trace is not None
        for layer in (1, 2, 4):  # all but the reshape, which the library does not see
            assert one.trace[layer] == other.trace[layer]
        assert one.cycles is None
    assert len({one.outputs[0].tobytes() for one in on_library}) > 1


def test_a_status_of_the_library_reaches_the_caller(tmp_path: Path) -> None:
    """vendor_conv returns 7 for a geometry that it cannot do."""

    def wrong_geometry(layer: Conv2d | Dense, operands: Operands) -> list[str]:
        return [*conv_arguments(layer, operands)[:2], "&(const vendor_conv_t){.channels = 5000}", "0", "0", "0"]

    assert VENDOR.library is not None
    calls = {**VENDOR.library.calls, "dense": replace(CONVOLUTION, arguments=wrong_geometry)}
    accelerator = replace(VENDOR, library=replace(VENDOR.library, calls=calls))
    program = sample_program(graph=graph_without_pooling())
    write_project(tmp_path, project_files(sample_parts(accelerator=accelerator, program=program)))
    with pytest.raises(RunError, match=r"layer 4 failed:\n.*fc\n.*status 7"):
        run_on_host(tmp_path, [np.zeros((1, 6, 6, 4), np.int8)], Toolchain(cflags="-O1 -Wno-unused-const-variable"))


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
