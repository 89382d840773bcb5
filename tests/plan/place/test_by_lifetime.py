import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_hw.errors import PlanError
from byoc_hw.plan.place.arena import flash_problem
from byoc_hw.plan.place.by_lifetime import Block, blocks_from_lifetimes, largest_sum, place
from byoc_hw.plan.region_memory import Lifetime

LIFETIMES = st.lists(
    st.tuples(st.integers(1, 500), st.integers(0, 12), st.integers(0, 5)), min_size=0, max_size=18
).map(
    lambda rows: [
        Lifetime(f"t{index:02}", nbytes, first, first + length, f"layer {index}")
        for index, (nbytes, first, length) in enumerate(rows)
    ]
)


def arena_of(lifetimes, alignment=1):
    return place(blocks_from_lifetimes(lifetimes, alignment), largest_sum(lifetimes))


def block(name, nbytes, *conflicts):
    return Block(name, nbytes, 1, frozenset(conflicts), name)


@given(LIFETIMES, st.sampled_from([1, 4, 16]))
@settings(max_examples=200, deadline=None)
def test_blocks_that_are_live_together_never_overlap(lifetimes, alignment):
    arena = arena_of(lifetimes, alignment)
    blocks = blocks_from_lifetimes(lifetimes, alignment)
    sizes = {block.name: block.nbytes for block in blocks}
    assert all(offset % alignment == 0 for offset in arena.offsets.values())
    assert arena.nbytes == max((arena.offsets[name] + sizes[name] for name in sizes), default=0)
    for block in blocks:
        start = arena.offsets[block.name]
        for other in block.conflicts:
            assert start + block.nbytes <= arena.offsets[other] or arena.offsets[other] + sizes[other] <= start


@given(LIFETIMES)
@settings(max_examples=200, deadline=None)
def test_placement_is_never_below_the_bound_and_stays_near_it(lifetimes):
    arena = arena_of(lifetimes)
    assert arena.lower_bound == max(
        (sum(life.nbytes for life in lifetimes if life.first <= step <= life.last) for step in range(20)), default=0
    )
    assert arena.lower_bound <= arena.nbytes <= 1.5 * arena.lower_bound


@given(LIFETIMES, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_placement_does_not_depend_on_the_order_of_the_blocks(lifetimes, random):
    blocks = list(blocks_from_lifetimes(lifetimes, 4))
    shuffled = random.sample(blocks, len(blocks))
    assert place(shuffled, largest_sum(lifetimes)) == place(blocks, largest_sum(lifetimes))


def test_a_chain_takes_no_more_than_its_largest_neighbours():
    sizes = [100, 400, 300, 200, 600, 50]
    lifetimes = [Lifetime(f"t{step}", nbytes, step, step + 1, "") for step, nbytes in enumerate(sizes)]
    assert arena_of(lifetimes).nbytes == 800


def test_a_residual_that_greedy_by_size_misplaces_reaches_the_bound():
    lifetimes = [
        Lifetime("a", 30, 0, 1, ""),
        Lifetime("b", 40, 1, 2, ""),
        Lifetime("c", 50, 2, 3, ""),
        Lifetime("skip", 20, 0, 3, ""),
        Lifetime("d", 10, 3, 4, ""),
    ]
    arena = arena_of(lifetimes)
    assert arena.nbytes == arena.lower_bound == 110


def test_no_blocks_take_no_bytes():
    assert place((), 0).nbytes == 0


def test_refuses_conflicts_that_are_not_mutual():
    with pytest.raises(PlanError, match="conflicts are mutual: a names b, which does not name it back"):
        place([block("a", 1, "b"), block("b", 1)], 1)
    with pytest.raises(PlanError, match="a names gone"):
        place([block("a", 1, "gone")], 1)


def test_refuses_two_blocks_of_one_name():
    with pytest.raises(PlanError, match="two blocks of memory are named a"):
        place([block("a", 1), block("a", 2)], 1)


def test_budget_that_holds_says_nothing():
    assert flash_problem({"a": 20, "b": 10}, 30) is None


def test_budget_lists_the_largest_owners_first():
    owners = {f"layer {index}": index * 100 for index in range(8)}
    lines = flash_problem(owners, 1000, "at least").splitlines()
    assert lines[0] == "flash is 1000 bytes: 2800 bytes needed at least, 1800 too many; the largest:"
    assert [line.split(maxsplit=1) for line in lines[1:3]] == [["700", "layer 7"], ["600", "layer 6"]]
    assert lines[-1].strip() == "and 2 smaller"
