"""Places in the local memories: apart while they live, and over what has been dead for longest."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_samples import accelerator

from byoc_hw.errors import PlanError
from byoc_hw.plan.place import local
from byoc_hw.plan.place.by_lifetime import largest_sum
from byoc_hw.plan.place.local import lifetimes, place_in_time, place_local
from byoc_hw.plan.region_memory import Lifetime
from byoc_hw.plan.steps import ACTIVATIONS, WEIGHTS, Address, Copy, Job
from byoc_hw.plan.work.ops import Access, LocalBuffer, Op


def work(*spans, space=ACTIVATIONS):
    """Buffers of (bytes, first, last), and operations that touch them."""
    buffers = [LocalBuffer(str(index), space, nbytes) for index, (nbytes, _, _) in enumerate(spans)]
    step = Copy(Address(space), Address(space), 1)
    ops = []
    for moment in range(max(last for _, _, last in spans) + 1):
        alive = [
            buffer for buffer, (_, first, last) in zip(buffers, spans, strict=True) if moment in range(first, last + 1)
        ]
        ops.append(Op(step, 0, tuple(Access(buffer, 0, buffer.nbytes, True) for buffer in alive), {}, 1))
    return buffers, ops


def places(size, *spans, exact=False, **changes):
    buffers, ops = work(*spans)
    found = place_local(ops, accelerator(size, **changes), exact=exact)
    return [found[buffer] for buffer in buffers]


def assert_sound(starts, spans, size, unit):
    for index, (start, (nbytes, first, last)) in enumerate(zip(starts, spans, strict=True)):
        assert start % unit == 0
        assert 0 <= start <= size - nbytes
        for other, (count, begin, end) in zip(starts[:index], spans[:index], strict=True):
            assert last < begin or end < first or start + nbytes <= other or other + count <= start


SPAN = st.tuples(st.integers(1, 100), st.integers(0, 9), st.integers(0, 4)).map(
    lambda span: (span[0], span[1], span[1] + span[2])
)


@settings(max_examples=200, deadline=None)
@given(st.lists(SPAN, min_size=1, max_size=14), st.sampled_from([4, 16]), st.integers(0, 600))
def test_buffers_that_live_together_share_no_byte(spans, unit, spare):
    _, ops = work(*spans)
    size = largest_sum(lifetimes(ops)[ACTIVATIONS].values()) + spare
    try:
        starts = places(size, *spans, local_alignment=unit, dma_alignment=1)
    except PlanError:
        assert size < sum(-(-nbytes // unit) * unit for nbytes, _, _ in spans)
    else:
        assert_sound(starts, spans, size, unit)


def test_buffer_lies_over_what_has_been_dead_for_longest():
    assert places(96, (32, 0, 1), (32, 0, 0), (32, 0, 2), (32, 3, 3)) == [0, 32, 64, 32]


def test_bytes_that_nothing_used_come_first():
    assert places(96, (32, 0, 0), (32, 1, 1), (32, 2, 2), (32, 3, 3)) == [0, 32, 64, 0]


@pytest.mark.parametrize(("space", "hidden"), [(WEIGHTS, True), (ACTIVATIONS, False)])
def test_weights_that_stay_lie_where_two_others_fit_side_by_side(space, hidden):
    """Over the oldest bytes, the buffer that stays would part the room of two blocks."""
    first, stays, *blocks = (LocalBuffer(str(at), space, nbytes) for at, nbytes in enumerate((32, 16, *[40] * 6)))
    copy, job = Copy(Address(space), Address(space), 1), Job(0, 0, (1, 1, 1), (1, 1, 1), 1, 1, 1, 1)
    work = [(copy, first), (job, first), (copy, stays)]
    work += [some for block in blocks for some in ((copy, block), (job, block, stays))]
    ops = [Op(step, 0, tuple(Access(one, 0, 1, step is copy) for one in touched), {}, 9) for step, *touched in work]
    found = place_local(ops, accelerator(100, 100, local_alignment=4, dma_alignment=1))
    apart = [found[one] >= found[other] + 40 or found[other] >= found[one] + 40 for one, other in pairwise(blocks)]
    assert all(apart[1:]) is hidden  # the first one lies over the bytes that nothing has used
    assert found[stays] == (84 if hidden else 32)


def test_large_buffer_that_finds_no_room_gets_its_place_before_the_others(monkeypatch):
    monkeypatch.setattr(local, "_by_size", lambda alive, *_: None if alive else {})
    spans = (48, 0, 1), (32, 0, 3), (64, 2, 3)
    assert places(96, *spans) == [0, 64, 0]
    monkeypatch.setattr(local, "_RETRIES", 1)
    with pytest.raises(PlanError):
        places(96, *spans)


def test_exact_search_finds_places_that_the_fast_ways_miss():
    sizes = 80, 80, 16, 32, 80, 64, 64, 16, 32, 64, 64, 80
    times = (2, 5), (3, 6), (4, 4), (2, 4), (1, 3), (2, 3), (1, 1), (4, 5), (1, 2), (2, 2), (4, 5), (0, 1)
    spans = [(nbytes, *span) for nbytes, span in zip(sizes, times, strict=True)]
    with pytest.raises(PlanError, match="352 bytes needed, 352 bytes there"):
        places(352, *spans)
    assert_sound(places(352, *spans, exact=True), spans, 352, 4)


def test_buffers_of_layers_that_are_alike_are_placed_by_size_once(monkeypatch):
    """Only names and the time of the first one differ."""
    searches, spans = [], [(80, 2, 5), (48, 3, 6), (32, 4, 4)]
    searched = local.place
    monkeypatch.setattr(local, "place", lambda *given: searches.append(given) or searched(*given))
    local._offsets_by_size.cache_clear()
    one, other = (
        [
            Lifetime(f"{at + number}", size, at + first, at + last, "")
            for number, (size, first, last) in enumerate(spans)
        ]
        for at in (0, 40)
    )
    found = [local._by_size(some, size, 4, False) for some in (one, other) for size in (160, 100)]
    assert list(found[0]) == ["0", "1", "2"]
    assert list(found[2]) == ["40", "41", "42"]
    assert_sound(list(found[0].values()), spans, 160, 4)
    assert list(found[0].values()) == list(found[2].values())
    assert found[1] is None
    assert found[3] is None
    assert len(searches) == 2


@pytest.mark.parametrize(("space", "name"), [(ACTIVATIONS, "activation"), (WEIGHTS, "weight")])
def test_error_names_the_memory_and_both_numbers(space, name):
    _, ops = work((48, 0, 1), (32, 1, 2), (64, 2, 2), space=space)
    with pytest.raises(PlanError, match=f"fits local {name} memory: 96 bytes needed, 90 bytes there"):
        place_local(ops, accelerator(90, 90))


@pytest.mark.parametrize("seed", range(20))
def test_buffers_lie_over_the_least_recently_used_bytes(seed):
    """As trying each byte says: the first start of the offsets whose last use is the longest ago."""
    drawn, size, at, alive = random.Random(seed), 24, 0, []
    for number in range(40):
        at += drawn.randint(1, 2)
        alive.append(Lifetime(f"{number:05}", drawn.randint(1, 8), at, at + drawn.randint(0, 2), "buffer"))
    found = place_in_time(alive, size, 1)
    assert found is not None
    used, edges = [-1] * size, {0}
    for life in alive:
        last = {
            offset: max(used[offset : offset + life.nbytes]) for offset in sorted(edges) if offset + life.nbytes <= size
        }
        assert found[life.name] == min(last, key=last.__getitem__)
        start, stop = found[life.name], found[life.name] + life.nbytes
        used[start:stop] = [life.last] * life.nbytes
        edges = {edge for edge in edges if not start < edge < stop} | {0, start, stop}
