"""The exact search: the smallest placement, deterministic, and honest about the rest."""

import subprocess
import sys
from itertools import permutations

import pytest
from arena import generated
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_samples import hard_lifetimes

from byoc_hw.integers import round_up
from byoc_hw.plan.place.by_lifetime import Arena, Block, blocks_from_lifetimes, largest_sum, live_together, place
from byoc_hw.plan.place.exact import improved
from byoc_hw.plan.region_memory import Lifetime


def heuristic(alignment=16):
    lifetimes = hard_lifetimes()
    blocks = blocks_from_lifetimes(lifetimes, alignment)
    return place(blocks, largest_sum(lifetimes)), blocks, live_together(lifetimes)


def assert_sound(arena, blocks):
    sizes = {block.name: block.nbytes for block in blocks}
    assert arena.nbytes == max(arena.offsets[name] + nbytes for name, nbytes in sizes.items())
    for block in blocks:
        start = arena.offsets[block.name]
        assert start >= 0
        assert start % block.alignment == 0
        for other in block.conflicts:
            assert start + block.nbytes <= arena.offsets[other] or arena.offsets[other] + sizes[other] <= start


def smallest(blocks):
    """The least bytes of any placement: some order in which each block goes on top of those below gives it."""
    best = sum(round_up(block.nbytes, block.alignment) for block in blocks) + 1
    for order in permutations(blocks):
        ends = {}
        for block in order:
            start = max((ends[name] for name in block.conflicts & ends.keys()), default=0)
            ends[block.name] = round_up(start, block.alignment) + block.nbytes
        best = min(best, max(ends.values()))
    return best


# By block: bytes, alignment, and the moments at which it is live: not always one after the other.
BLOCKS = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from([1, 4, 16]), st.sets(st.integers(0, 4), min_size=1, max_size=4)),
    min_size=1,
    max_size=6,
)


@given(BLOCKS)
@settings(max_examples=60, deadline=None)
def test_no_placement_of_a_few_blocks_is_smaller(rows):
    moments = {f"b{index}": live for index, (_, _, live) in enumerate(rows)}
    blocks = [
        Block(name, nbytes, alignment, frozenset(o for o in moments if o != name and moments[o] & live), name)
        for (name, live), (nbytes, alignment, _) in zip(moments.items(), rows, strict=True)
    ]
    alive = [[name for name in moments if moment in moments[name]] for moment in range(5)]
    worst, offsets = 0, {}
    for block in blocks:  # the search starts from blocks in a row, not from what the heuristic finds
        offsets[block.name] = round_up(worst, block.alignment)
        worst = offsets[block.name] + block.nbytes
    found = improved(Arena(offsets, worst, 1), blocks, alive)
    assert_sound(found, blocks)
    assert found.nbytes == smallest(blocks)
    assert found.gap == 0


def test_reaches_the_bound_where_the_heuristic_does_not():
    arena, blocks, alive = heuristic()
    found = improved(arena, blocks, alive)
    assert found.nbytes < arena.nbytes
    assert found.gap == 0
    assert_sound(found, blocks)


def perfect(seed, count):
    """A problem that is known to fit without a gap: its bytes, before and after the search."""
    lifetimes, capacity = generated(seed, count)
    blocks = blocks_from_lifetimes(lifetimes, 1)
    before = place(blocks, largest_sum(lifetimes))
    after = improved(before, blocks, live_together(lifetimes))
    assert_sound(after, blocks)
    return capacity, before, after


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_finds_a_perfect_packing_that_the_heuristic_misses(seed):
    capacity, before, after = perfect(seed, 80)
    assert before.nbytes > 1.08 * capacity
    assert after.nbytes == capacity


@pytest.mark.slow
def test_another_process_finds_the_same_bytes():
    script = (
        "import sys; sys.path[:0] = 'benchmarks', 'tests/plan', 'tests/plan/place'; from test_exact import perfect\n"
        "print(perfect(2, 250)[2].offsets)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    capacity, before, after = perfect(2, 250)
    assert done.stdout == f"{after.offsets}\n"
    assert after.nbytes == capacity < before.nbytes


def test_too_little_work_keeps_the_placement_and_says_what_is_open():
    arena, blocks, alive = heuristic()
    found = improved(arena, blocks, alive, share=1e-9)
    assert found.nbytes == arena.nbytes
    assert found.offsets == arena.offsets
    assert found.gap == arena.gap > 0


def test_padding_counts_but_not_behind_the_last_block():
    lifetimes = [Lifetime("a", 30, 0, 1, ""), Lifetime("b", 40, 1, 2, ""), Lifetime("c", 30, 0, 2, "")]
    blocks = blocks_from_lifetimes(lifetimes, 16)
    worst = Arena({"a": 0, "b": 64, "c": 112}, 142, 100)
    found = improved(worst, blocks, live_together(lifetimes))
    assert_sound(found, blocks)
    assert (found.nbytes, found.gap) == (104, 0)


def test_an_arena_at_its_bound_is_not_searched():
    arena = place((), 0)
    assert improved(arena, (), ()) is arena
