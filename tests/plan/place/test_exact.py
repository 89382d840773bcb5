"""The exact search: smaller than the heuristic where that can be, deterministic, and honest about the rest."""

import subprocess
import sys

import pytest
from plan_samples import hard_lifetimes

from byoc_hw.plan.place.by_lifetime import blocks_from_lifetimes, largest_sum, place
from byoc_hw.plan.place.exact import improved


def heuristic(alignment=16):
    lifetimes = hard_lifetimes()
    blocks = blocks_from_lifetimes(lifetimes, alignment)
    return place(blocks, largest_sum(lifetimes)), blocks


def test_reaches_the_bound_where_the_heuristic_does_not():
    arena, blocks = heuristic()
    found = improved(arena, blocks)
    assert found.nbytes < arena.nbytes
    assert found.gap == 0
    sizes = {block.name: block.nbytes for block in blocks}
    for block in blocks:
        start = found.offsets[block.name]
        assert start % block.alignment == 0
        for other in block.conflicts:
            assert start + block.nbytes <= found.offsets[other] or found.offsets[other] + sizes[other] <= start


@pytest.mark.slow
def test_another_process_finds_the_same_bytes():
    script = (
        "import sys; sys.path[:0] = 'tests/plan', 'tests/plan/place'; from test_exact import heuristic\n"
        "from byoc_hw.plan.place.exact import improved; print(improved(*heuristic()).offsets)"
    )
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout for _ in range(2)]
    assert runs[0] == runs[1] != b""


def test_too_little_work_keeps_the_placement_and_says_what_is_open():
    arena, blocks = heuristic()
    found = improved(arena, blocks, work=1e-9)
    assert found.nbytes == arena.nbytes
    assert found.offsets == arena.offsets
    assert 0 < found.gap <= arena.gap


def test_an_arena_at_its_bound_is_not_searched():
    script = (
        "import sys; from byoc_hw.plan.place.exact import improved; from byoc_hw.plan.place.by_lifetime import place\n"
        "improved(place((), 0), ()); assert 'ortools' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
