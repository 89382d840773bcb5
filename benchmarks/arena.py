"""Placing an arena that is full to the last byte: problems of 200 to 500 buffers with a known perfect packing.

    python benchmarks/arena.py --check

Each problem is a rectangle of bytes and time that is cut into buffers at random: from side to side, or into five parts
around a middle one, which no cut from side to side gives. `fast` is the arena of the fast heuristics in relation to the
capacity, `placed` that of the planner, which also searches. The goal is 1 for each. With --check the exit code is 1 if
one is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from random import Random

from tables import show

from byoc_hw.plan.place.by_lifetime import blocks_from_lifetimes, largest_sum, live_together, place
from byoc_hw.plan.place.exact import improved
from byoc_hw.plan.region_memory import Lifetime

COLUMNS = ("problem", "buffers", "moments", "fast", "placed", "seconds", "goal", "met")
GRID = 1024
"""Number of steps in time; bytes are in as many parts."""

PART = 1024
"""Bytes of a part."""

BUFFERS = (200, 500)
CUTS_IN_TIME = (0.3, 0.4, 0.5, 0.6, 0.7)
"""Shares of the cuts that end lifetimes; the others divide bytes."""

PINWHEELS = (0.0, 0.1, 0.3)
"""Shares of the cuts into five parts."""

MIDDLE = 2
"""The sides of a part are longer where one can be cut around a middle."""

_Part = tuple[int, int, int, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=50, help="number of problems (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one (%(default)s)")
    parser.add_argument("--check", action="store_true", help="exit 1 if the goal is missed")
    given = parser.parse_args()
    placed: list[float] = []
    fast: list[float] = []
    start = time.perf_counter()

    def rows() -> Iterator[tuple[object, ...]]:
        for seed in range(given.first, given.first + given.problems):
            row = measured(seed)
            fast.append(float(str(row[3])))
            placed.append(float(str(row[4])))
            yield row

    show("arena", COLUMNS, rows(), into_document=False)
    solved = sum(ratio <= 1 for ratio in placed)
    print(
        f"solved {solved} of {len(placed)}; worst {max(placed):.3f} of the capacity, {max(fast):.3f} by the "
        f"heuristics; {time.perf_counter() - start:.0f} s"
    )
    if given.check and solved < len(placed):
        sys.exit(1)


def measured(seed: int) -> tuple[object, ...]:
    """One row: a problem, placed by the heuristics and by the search."""
    lifetimes, capacity = generated(seed, Random(seed).randint(*BUFFERS))
    blocks = blocks_from_lifetimes(lifetimes, 1)
    start = time.perf_counter()
    before = place(blocks, largest_sum(lifetimes))
    after = improved(before, blocks, live_together(lifetimes))
    seconds = time.perf_counter() - start
    ratios = before.nbytes / capacity, after.nbytes / capacity
    moments = len({life.first for life in lifetimes})
    met = "yes" if after.nbytes == capacity else "no"
    return (seed, len(lifetimes), moments, *(f"{ratio:.6f}" for ratio in ratios), f"{seconds:.1f}", 1, met)


def generated(seed: int, count: int) -> tuple[list[Lifetime], int]:
    """A problem of at least `count` buffers in no order, and the bytes that they fill."""
    random = Random(seed)
    in_time, pinwheels = random.choice(CUTS_IN_TIME), random.choice(PINWHEELS)
    parts: list[_Part] = [(0, GRID, 0, GRID)]
    while len(parts) < count:
        areas = [(stop - start) * (top - low) for start, stop, low, top in parts]
        (at,) = random.choices(range(len(parts)), weights=areas)
        parts[at : at + 1] = _cut(parts[at], random, in_time, pinwheels)
    random.shuffle(parts)
    lifetimes = [
        Lifetime(f"b{index:03}", (top - low) * PART, start, stop - 1, "")
        for index, (start, stop, low, top) in enumerate(parts)
    ]
    return lifetimes, GRID * PART


def _cut(part: _Part, random: Random, in_time: float, pinwheels: float) -> list[_Part]:
    """Two or five parts of one, or the same where it is too thin for the cut that is drawn."""
    start, stop, low, top = part
    if random.random() < pinwheels:
        if min(stop - start, top - low) <= MIDDLE:
            return [part]
        a, b = sorted(random.sample(range(start + 1, stop), 2))
        c, d = sorted(random.sample(range(low + 1, top), 2))
        return [(start, b, low, c), (b, stop, low, d), (a, stop, d, top), (start, a, c, top), (a, b, c, d)]
    if random.random() < in_time:
        at = random.randrange(start + 1, stop) if stop - start > 1 else start
        return [(start, at, low, top), (at, stop, low, top)] if at > start else [part]
    at = random.randrange(low + 1, top) if top - low > 1 else low
    return [(start, stop, low, at), (start, stop, at, top)] if at > low else [part]


if __name__ == "__main__":
    main()
