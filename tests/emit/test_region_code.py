"""A region as C: tables without duplicates, descriptors, the function in its two forms."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from emit_samples import sample_graph, tensor

import byoc_hw.hwlib
from byoc_hw.accelerator import REFERENCE
from byoc_hw.emit.region import code, region_source
from byoc_hw.errors import PlanError
from byoc_hw.graph import Add, Graph, Reshape
from byoc_hw.plan.region import plan_region
from byoc_hw.plan.steps import (
    ACTIVATIONS,
    ARGUMENT,
    FLASH,
    SCRATCH,
    WEIGHTS,
    Address,
    Copy,
    CopyWait,
    Job,
    JobWait,
    LayerCall,
    RegionPlan,
)

HERE = Path(__file__).parent
INCLUDE = Path(byoc_hw.hwlib.__file__).parent / "include"
STRICT = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wconversion", f"-I{INCLUDE}"]


def compiles(source: Path, *flags: str) -> None:
    subprocess.run([*STRICT, *flags, "-c", str(source), "-o", str(source.with_suffix(".o"))], check=True)


def two_adds() -> RegionPlan:
    """Two additions in turns, whose tiles and copies are the same; the plan is only for reading."""
    x, y, z = tensor("x", 1, 2, 4, 8), tensor("branch/add", 1, 2, 4, 8), tensor("out", 1, 2, 4, 8)
    graph = Graph(
        "tvmgen_two_hwlib_main_0", (x,), (z,), (Add("branch/add", ("add", "relu"), x, y, x), Add("out", (), y, z, y))
    )
    tile = Job(0, 64, (1, 64, 1), (1, 64, 1), 64, 64, 1, 1, ifm2=0)
    load = Copy(Address(ACTIVATIONS), Address(ARGUMENT), 64)
    first = (load, CopyWait(), tile, JobWait())
    store = Copy(
        Address(ARGUMENT + 1), Address(ACTIVATIONS, 64), 32, rows=2, target_stride=32, source_stride=32, slot=1
    )
    weights = Copy(Address(WEIGHTS), Address(FLASH), 4, target_stride=7)
    places = {x: Address(ARGUMENT), y: Address(SCRATCH, 64), z: Address(ARGUMENT + 1)}
    calls = (LayerCall(0, first), LayerCall(1, (*first, weights)), LayerCall(0, (tile,)), LayerCall(1, (store,)))
    return RegionPlan(graph, graph.layers, calls, bytes(range(4)), 128, places, (CopyWait(slot=1),))


def test_region_reads_as_the_golden_file(tmp_path: Path) -> None:
    golden = HERE / "golden" / "two_adds.c"
    assert code(two_adds(), first_layer=3) == golden.read_text()


def test_refuses_more_copies_than_a_step_can_number() -> None:
    plan = two_adds()
    copies = tuple(Copy(Address(ACTIVATIONS), Address(ARGUMENT, offset), 65536) for offset in range(65537))
    with pytest.raises(PlanError, match="at most 65536 different copies"):
        code(replace(plan, calls=(LayerCall(0, copies),)), first_layer=0)


def test_identical_copies_and_tiles_are_stored_once() -> None:
    plan = two_adds()
    calls = tuple(
        replace(call, steps=tuple(step._replace(nbytes=1 << 16) if isinstance(step, Copy) else step for step in steps))
        for call in plan.calls
        for steps in [call.steps]
    )
    text = code(replace(plan, calls=calls, tail=()), first_layer=0)
    assert text.count("HWLIB_COPY_OTHER(0, 0, 0)") == 2
    assert text.count("HWLIB_JOB(") + text.count("HWLIB_JOB_FORM(0, 0, 0, 0,") == 3
    assert text.count("HWLIB_TILE_FIRST | HWLIB_TILE_LAST") == 1


@pytest.mark.parametrize("flags", [(), ("-DHWLIB_TRACE",), ("-DTVMGEN_DEMO_HWLIB_MAIN_0_SCRATCH=mine",)])
def test_standalone_region_compiles_against_the_prototype_of_tvm(tmp_path: Path, flags: tuple[str, ...]) -> None:
    source = tmp_path / "region.c"
    prototype = "#include <stdint.h>\nint32_t tvmgen_demo_hwlib_main_0(int8_t*, int8_t*);\n"
    source.write_text(prototype + region_source(plan_region(sample_graph(), REFERENCE), REFERENCE))
    compiles(source, *flags)


def test_standalone_region_defines_no_other_global_symbol(tmp_path: Path) -> None:
    source = tmp_path / "region.c"
    source.write_text(region_source(plan_region(sample_graph(), REFERENCE), REFERENCE))
    compiles(source)
    symbols = subprocess.run(
        ["nm", "-g", "--defined-only", str(source.with_suffix(".o"))], check=True, capture_output=True, text=True
    ).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["tvmgen_demo_hwlib_main_0"]


def test_two_standalone_regions_share_a_file(tmp_path: Path) -> None:
    graphs = [sample_graph("region_a"), sample_graph("region_b")]
    source = tmp_path / "regions.c"
    source.write_text("\n".join(region_source(plan_region(graph, REFERENCE), REFERENCE) for graph in graphs))
    compiles(source)


def test_region_without_flash_scratch_or_steps_compiles(tmp_path: Path) -> None:
    x, y = tensor("x", 1, 2, 2, 1), tensor("y", 1, 4)
    graph = Graph("empty_region", (x,), (y,), (Reshape("reshape", (), x, y),))
    places = {x: Address(ARGUMENT), y: Address(ARGUMENT + 1)}
    plan = RegionPlan(graph, graph.layers, (LayerCall(0, ()),), b"", 0, places)
    source = tmp_path / "region.c"
    source.write_text(
        '#include "hwlib.h"\nint32_t empty_region(const int8_t *, int8_t *, uint8_t *);\n' + code(plan, 0)
    )
    compiles(source)
