"""The exact search: smaller than the heuristic where that can be, deterministic, and honest about the rest."""

import random
import subprocess
import sys

from byoc_hw.plan.place.by_lifetime import blocks_from_lifetimes, largest_sum, place
from byoc_hw.plan.place.exact import improved
from byoc_hw.plan.region_memory import Lifetime


def hard_lifetimes():
    """Lifetimes on which the heuristic stays above the bound."""
    for seed in range(200):
        rng = random.Random(seed)
        lifetimes = []
        for index in range(24):
            first = rng.randrange(12)
            lifetimes.append(Lifetime(f"t{index:02}", 16 * rng.randrange(1, 40), first, first + rng.randrange(6), ""))
        if place(blocks_from_lifetimes(lifetimes, 16), largest_sum(lifetimes)).gap:
            return lifetimes
    raise AssertionError("the heuristic has become perfect: make the lifetimes harder")


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


def test_another_process_finds_the_same_bytes():
    script = (
        "import sys; sys.path.insert(0, 'tests/plan/place'); from test_exact import heuristic\n"
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
