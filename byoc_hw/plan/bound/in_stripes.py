"""How far the layers of a group are after each of its stripes, and which weights it loads again by that.

Each stripe has lines (rows, or columns) of the last layer, from the first one on, and a layer computes those that the
layers behind it read. At a time it computes no more lines than local memory has room for, with what it reads for them.
So after s stripes the last layer has no more lines than need s times as many of each layer. Each further line needs
another one of the layers before it, until all are there: up to the stripe that needs its last line, a layer computes
something in each one, and uses all of its weights. In each stripe but the first, all that are used have been loaded
before: those are loaded again of which weight memory has no room at the end of the stripe before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from byoc_hw.graph import Layer
from byoc_hw.plan.array.kinds import Run, Window, geometry
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound.ways import Floats, Ints


class InStripes:
    """The lines of layers along an axis, 0 for rows: the last layer of a group is added first."""

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._needed: dict[int, Ints] = {}  # the lines of a layer for so many of the last one
        self._stripes: Floats = np.zeros(1)  # the fewest in which the last layer has so many lines
        self._work: list[tuple[int, float]] = []  # the lines of the last layer that need all of one, and its weights

    @property
    def layers(self) -> int:
        """How many were added."""
        return len(self._work)

    def add(self, at: int, layer: Layer, weights: float, most: int, readers: Sequence[tuple[int, Layer]]) -> bool:
        """A layer, which computes at `most` so many lines at a time, and those of the group that read its output, by
        index. False if it is not known what one of them needs."""
        if readers:
            seen = [self._seen(index, reader, layer) for index, reader in readers]
            if any(one is None for one in seen):
                return False
            needed = np.maximum.reduce([one for one in seen if one is not None])
        else:
            needed = np.arange(extents(layer.ofm)[self._axis] + 1)
        self._needed[at] = needed
        stripes = -(-needed // most) if most else np.where(needed > 0, inf, 0.0)
        self._stripes = np.maximum(self._stripes, stripes)
        self._work.append((int(np.argmax(needed == needed[-1])), weights))
        return True

    def loaded_again(self, room: int) -> float:
        """The bytes of weights that a group loads again, where weight memory has so many; infinite if there are more
        stripes than lines."""
        if self._stripes[-1] >= len(self._stripes):
            return inf
        used = sorted((self._stripes[lines], weights) for lines, weights in self._work if weights)
        found, last, left = 0.0, 1.0, sum(weights for _, weights in used)
        for stripes, weights in used:
            found += max(stripes - last, 0.0) * max(left - room, 0.0)
            last, left = max(stripes, last), left - weights
        return found

    def _seen(self, index: int, reader: Layer, maker: Layer) -> Ints | None:
        """The first lines of what a layer makes that a reader needs of it; None if it is not known."""
        form, lines = geometry(reader), self._needed.get(index)
        if lines is None:
            return None
        if isinstance(form, Run) and maker.ofm.shape == reader.ofm.shape:
            return lines
        if not isinstance(form, Window):
            return None
        axis = (form.rows, form.columns)[self._axis]
        last = (lines - 1) * axis.stride - axis.before + axis.reach
        return np.where(lines > 0, np.clip(last, 0, axis.ifm), 0)
