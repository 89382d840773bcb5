"""Where the parts of a lane lie in its local memories.

The parts of a lane lie one behind the other, as the search for parts takes for granted. Where a part has no room there,
its first copies wait for the part before. So all buffers of a lane are also placed at once, each over the least
recently used bytes (`place/local.py`): weights of a part then come while the part before is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from byoc_hw.errors import PlanError
from byoc_hw.plan.lanes.joint import OrderedParts, PlacedPart, ordered_parts, side_by_side
from byoc_hw.plan.order.copies import order
from byoc_hw.plan.place.local import place_local
from byoc_hw.plan.work.ops import LocalBuffer
from byoc_hw.soc import Soc


def best_placed(parts: Sequence[PlacedPart], chip: Soc) -> OrderedParts:
    """Parts that share no local memory with other lanes, in a possible order, with the addresses of the fewest cycles:
    of each lane, its parts side by side or all placed at once."""
    best = ordered_parts(side_by_side(parts), chip)
    for lane in sorted({part.lane for part in parts}):
        placed = _placed_at_once(best.parts, lane)
        if placed is not None:
            best = min(best, ordered_parts(placed, chip, best), key=lambda one: one.order.cycles)
    return best


def _placed_at_once(parts: Sequence[PlacedPart], lane: int) -> list[PlacedPart] | None:
    """Parts of which all of one lane are placed at once; None where that changes nothing, or they do not fit so."""
    mine = [part.layout for part in parts if part.lane == lane]
    if not any(_overlap(one.places, other.places) for one, other in pairwise(mine)):
        return None
    with suppress(PlanError):  # then they lie side by side
        places = place_local([op for one in mine for op in one.work.ops], mine[0].mapped.accelerator)
        return [_at(part, places) if part.lane == lane else part for part in parts]
    return None


def _overlap(one: Mapping[LocalBuffer, int], other: Mapping[LocalBuffer, int]) -> bool:
    """Whether two parts lie in the same range of a local memory."""
    first, second = _ranges(one), _ranges(other)
    return any(
        first[space][0] < second[space][1] and second[space][0] < first[space][1]
        for space in first.keys() & second.keys()
    )


def _ranges(places: Mapping[LocalBuffer, int]) -> dict[int, tuple[int, int]]:
    """From and to which byte of each local memory the buffers of a part lie."""
    found: dict[int, tuple[int, int]] = {}
    for buffer, at in places.items():
        start, stop = found.get(buffer.space, (at, at))
        found[buffer.space] = min(start, at), max(stop, at + buffer.nbytes)
    return found


def _at(part: PlacedPart, places: Mapping[LocalBuffer, int]) -> PlacedPart:
    """A part whose buffers lie elsewhere."""
    layout = part.layout
    mine = {buffer: places[buffer] for buffer in layout.places}
    return replace(part, layout=replace(layout, places=mine, order=order(layout.work.ops, mine)))
