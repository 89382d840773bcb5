"""The exact search for a smaller placement, where the heuristic misses the lower bound.

It tries the lower bound first, then sizes between what was given up and the best so far. For each size, `canonical.py`
runs again and again with other orders of the blocks and, slowly, more nodes. It finds packings without room to spare,
of hundreds of blocks. What it leaves open with few blocks is the solver's. All limits are numbers of steps, never
seconds: the same blocks give the same bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from random import Random

from byoc_hw.plan.place.by_lifetime import Arena, Block
from byoc_hw.plan.place.canonical import Searched, Sections, Way, search
from byoc_hw.plan.place.solver import MOST_PAIRS, solved

_WORK = 1 << 31
"""The limit: steps of some nanoseconds each."""

_SOLVER = 4.0
"""The limit of the solver."""

_BEFORE_SOLVER = 8
"""Part of the limit for what the solver can take over."""

_NODE = 5000
"""Steps of a node of the search, besides those for each of its cells."""

_LEAST_NODES, _NODES_OF_A_BLOCK = 4000, 400
"""Number of nodes, and of more for each block, beyond which a search finds nothing."""


_MOST_BLOCKS = 1000
"""Number of blocks beyond which there is no search."""


def improved(arena: Arena, blocks: Sequence[Block], alive: Iterable[Collection[str]], share: float = 1.0) -> Arena:
    """A smaller arena than the one given, or the same one, with `proven` as the search left it.

    `alive` are the names of the blocks that are live together, for each moment. `share` is that of the limits:
    with less than all of them, only what the solver can take over is searched.
    """
    least = max(arena.lower_bound, arena.proven)
    if arena.nbytes <= least or len(blocks) > _MOST_BLOCKS:
        return arena
    pairs = sum(len(block.conflicts) for block in blocks) // 2
    if pairs > MOST_PAIRS and share < 1:
        return arena
    sections = Sections(blocks, alive)
    nodes = min(_WORK // (_NODE + sections.cells), _LEAST_NODES + _NODES_OF_A_BLOCK * sections.count)
    nodes = int(nodes * share) // (_BEFORE_SOLVER if pairs <= MOST_PAIRS else 1)
    best, given_up, proven = arena, least - 1, least
    while best.nbytes > given_up + 1 and nodes > 0:
        # The bound with most of the nodes; then halfway between what was given up and the best.
        first = given_up < least
        size = least if first else (given_up + best.nbytes) // 2
        found = _fit(sections, size, nodes - nodes // (4 if first else 2))
        nodes -= found.nodes
        if found.offsets is not None:
            top = max(found.offsets[block.name] + block.nbytes for block in blocks)
            best = replace(arena, offsets=found.offsets, nbytes=top)
            continue
        if found.finished:
            proven = max(proven, size + 1)
        given_up = size
    return solved(replace(best, proven=min(proven, best.nbytes)), blocks, _SOLVER * share)


def _fit(sections: Sections, capacity: int, nodes: int) -> Searched:
    """Search with one order after the other, until one finds a placement or that there is none."""
    visited, most = 0, 200 + 2 * sections.count
    ways = _ways(sections)
    found = Searched(None, finished=False, nodes=0)
    while visited < nodes and not found.finished:
        found = search(sections, capacity, next(ways), min(most, nodes - visited))
        visited += found.nodes
        most += most // 16
    return replace(found, nodes=visited)


def _ways(sections: Sections) -> Iterator[Way]:
    """Orders of the blocks without end: by each of some weights, then with the weights changed at random."""
    random = Random(0)
    sizes, lengths = sections.nbytes.tolist(), sections.lengths.tolist()
    pairs = list(zip(sizes, lengths, strict=True))
    longest = max(lengths, default=1)
    weights = (
        [nbytes * length for nbytes, length in pairs],
        sizes,
        [longest * 64 // length for length in lengths],
        lengths,
        [nbytes * length**2 for nbytes, length in pairs],
        [nbytes**2 * length for nbytes, length in pairs],
        [1] * len(pairs),
    )
    factors = [1] * len(pairs)
    for lowest in cycle((True, False)):
        for weight in weights:
            keys = [-one * factor for one, factor in zip(weight, factors, strict=True)]
            order = sorted(range(len(keys)), key=keys.__getitem__)
            rank = [0] * len(keys)
            for place, block in enumerate(order):
                rank[block] = place
            yield Way(rank, lowest)
            factors = [256 + random.randrange(768) for _ in pairs]
