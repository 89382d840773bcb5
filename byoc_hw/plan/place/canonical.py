"""Branch and bound over canonical placements: whether blocks fit a number of bytes.

In a canonical placement each block rests on the bottom or on another block. The search builds it from below.
A section is a set of blocks that are all live at once; together the sections hold all conflicts. `rest` is the lowest
offset that is left for a block that is not placed yet, the floor of a section the lowest `rest` of its blocks.

- Bound: in each section, the floor and the bytes of the blocks that are not placed fit the capacity.
- Branching: a section whose lowest blocks could all be placed now without covering room that another block could take.
  Either one of them rests on the floor, or none does and the floor rises. A section with a single branch costs nothing
  and is next.
- Dominance: a block that no other one can get in the way of rests where it is; and one that gave up a place does not
  come before another one has taken some of it.
- Symmetry: of equal blocks the first comes first; blocks of the same lifetime that lie on each other are in order.
- Conflicts: each `rest` knows the decisions that raised it. A failure goes back to the last decision that it is due to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_hw.integers import round_up
from byoc_hw.plan.place.by_lifetime import Block

_Integers = npt.NDArray[np.int64]
_PLACED = 1 << 60
"""The `rest` of a block that is placed: above any capacity."""


class Sections:
    """Blocks as arrays. `alive` are sets of names; two blocks conflict where a set has both.

    Row `count` of the arrays by block stands for no block: it fills up sections with few blocks.
    """

    def __init__(self, blocks: Sequence[Block], alive: Iterable[Collection[str]]) -> None:
        self.names = sorted(block.name for block in blocks)
        by_name = {block.name: block for block in blocks}
        index = {name: at for at, name in enumerate(self.names)}
        ordered = [by_name[name] for name in self.names]
        self.count = len(ordered)
        self.unit = gcd(*(block.alignment for block in ordered))
        self.nbytes = np.array([block.nbytes for block in ordered])
        self.alignments = np.array([block.alignment for block in ordered])
        self.padded = np.append([round_up(block.nbytes, self.unit) for block in ordered], 0)
        maximal = _maximal([frozenset(index[name] for name in names) for names in alive])
        self.members = np.full((len(maximal), max(map(len, maximal))), self.count)
        for row, section in zip(self.members, maximal, strict=True):
            row[: len(section)] = sorted(section)
        within = [[at for at, section in enumerate(maximal) if block in section] for block in range(self.count)]
        self.within = [np.array(sections) for sections in within]
        self.flattened = np.concatenate(self.within)
        self.starts = np.cumsum([0, *map(len, within[:-1])])
        self.lengths = np.array([len(sections) for sections in within])
        self.conflicts = [
            np.array(sorted({other for at in sections for other in maximal[at]} - {block}), dtype=np.int64)
            for block, sections in enumerate(within)
        ]
        self.needed = self.padded[self.members].sum(axis=1)
        kinds: dict[object, list[int]] = {}
        for block, sections in enumerate(within):
            kinds.setdefault((tuple(sections), ordered[block].alignment), []).append(block)
        self.alike: list[list[int]] = [[]] * self.count
        for alike in kinds.values():
            for block in alike:
                # Blocks that lie on each other may change places only where none of them needs padding.
                whole = all(self.nbytes[one] % self.alignments[one] == 0 for one in alike)
                self.alike[block] = [one for one in alike if one != block] if whole else []

    @property
    def cells(self) -> int:
        """What a node of the search has to look at."""
        return int(self.members.size + self.flattened.size)


@dataclass(frozen=True)
class Searched:
    """The offsets by name, or None; whether nothing is left to search; and the nodes that were visited."""

    offsets: dict[str, int] | None
    finished: bool
    nodes: int


@dataclass(frozen=True)
class _State:
    """What is left: `rest` by block, bytes `needed` by section, the decisions that a `rest` is due to as bits, and
    by block the offset at which it must not rest, for the order of a lifetime, and the end of the place that it gave up
    for others, 0 where it gave up none or another one has taken some of it."""

    rest: _Integers
    needed: _Integers
    reasons: list[int]
    refused: _Integers
    given_up: _Integers


@dataclass
class _Node:
    """A state with its branches: blocks at the floor of a section, and None where all of them stay above it."""

    state: _State
    floor: list[int]
    branches: list[int | None]
    conflict: int
    chosen: int | None = None
    tried: int = field(default=0)


@dataclass(frozen=True)
class Way:
    """How to go through the placements: blocks of low `rank` first; with `lowest`, of the sections with several
    branches the lowest one first, else the one with the fewest."""

    rank: Sequence[int]
    lowest: bool


def search(sections: Sections, capacity: int, way: Way, most: int) -> Searched:
    """Look for a placement in `capacity` bytes, in at most `most` nodes."""
    return _Search(sections, capacity, way).run(most)


class _Search:
    def __init__(self, sections: Sections, capacity: int, way: Way) -> None:
        self._sections, self._capacity = sections, capacity
        self._rank, self._lowest = way.rank, way.lowest
        self._room = round_up(capacity, sections.unit)
        self._stack: list[_Node] = []

    def run(self, most: int) -> Searched:
        count = self._sections.count
        rest = np.zeros(count + 1, np.int64)
        rest[count] = _PLACED
        state = _State(rest, self._sections.needed, [0] * count, np.full(count + 1, -1), np.zeros(count, np.int64))
        found: _Node | int | tuple[()] | None = self._node(state)
        nodes = 1
        while isinstance(found, _Node):
            self._stack.append(found)
            found = None
            while found is None:
                if not self._stack:
                    return Searched(None, True, nodes)
                node = self._stack[-1]
                if node.tried == len(node.branches):
                    self._fail(self._stack.pop().conflict)
                    continue
                if nodes >= most:
                    return Searched(None, False, nodes)
                nodes += 1
                node.chosen = node.branches[node.tried]
                node.tried += 1
                outcome = self._node(self._decide(node))
                if isinstance(outcome, int):
                    self._fail(outcome)
                else:
                    found = outcome
        if isinstance(found, int):
            return Searched(None, True, nodes)
        return Searched(self._offsets(), True, nodes)

    def _offsets(self) -> dict[str, int]:
        placed = {node.chosen: int(node.state.rest[node.chosen]) for node in self._stack if node.chosen is not None}
        return {name: placed[block] for block, name in enumerate(self._sections.names)}

    def _fail(self, conflict: int) -> None:
        """Go back to the last decision of a conflict: it takes over the others."""
        last = conflict.bit_length() - 1
        del self._stack[last + 1 :]
        if self._stack:
            self._stack[last].conflict |= conflict & ~(1 << last)

    def _decide(self, node: _Node) -> _State:
        bit = 1 << (len(self._stack) - 1)
        if node.chosen is None:
            return self._raised(node, bit)
        return self._placed(node.state, node.chosen, bit)

    def _placed(self, state: _State, block: int, bit: int) -> _State:
        """The state with a block at its lowest offset: blocks in conflict with it go on top."""
        sections = self._sections
        rest, needed, refused = state.rest.copy(), state.needed.copy(), state.refused
        reasons = state.reasons.copy()
        top = rest[block] + sections.padded[block]
        others = sections.conflicts[block]
        raised = others[rest[others] < top]
        rest[raised] = _rounded(top, sections.alignments[raised])
        rest[block] = _PLACED
        needed[sections.within[block]] -= sections.padded[block]
        for other in raised.tolist():
            reasons[other] |= bit
        before = [other for other in sections.alike[block] if self._rank[other] < self._rank[block]]
        if before:
            refused = refused.copy()
            refused[before] = top
        given_up = state.given_up
        taken = others[given_up[others] > state.rest[block]]
        if len(taken):
            given_up = given_up.copy()
            given_up[taken] = 0
        return _State(rest, needed, reasons, refused, given_up)

    def _raised(self, node: _Node, bit: int) -> _State:
        """The state with all blocks above the floor that they could rest on: on another block."""
        sections, state = self._sections, node.state
        floor = set(node.floor)
        onto, known = [], bit
        for block in node.floor:
            around = [one for one in sections.conflicts[block].tolist() if state.rest[one] < _PLACED]
            ends = [int(state.rest[one] + sections.padded[one]) for one in around if one not in floor]
            onto.append(min(ends, default=_PLACED // 2))
            known |= self._reason(state, [block, *around])
        # The first of them rests on a block that is not of this floor, the others may rest on it.
        second = min(first + int(sections.padded[block]) for first, block in zip(onto, node.floor, strict=True))
        rest, reasons, given_up = state.rest.copy(), state.reasons.copy(), state.given_up.copy()
        given_up[node.floor] = state.rest[node.floor] + sections.padded[node.floor]
        for first, block in zip(onto, node.floor, strict=True):
            rest[block] = round_up(min(first, second), int(sections.alignments[block]))
            reasons[block] = known
        return _State(rest, state.needed, reasons, state.refused, given_up)

    def _node(self, state: _State) -> _Node | int | tuple[()]:
        """The next branches; or the conflict, where the blocks do not fit; or nothing, where all are placed."""
        sections = self._sections
        members = state.rest[sections.members]
        floors = members.min(axis=1)
        free = self._room - floors - state.needed
        active = state.needed > 0
        full = np.flatnonzero(active & (free < 0))
        if len(full):
            return min(self._section_reason(state, section) for section in full[:_REASONS])
        if not active.any():
            return ()
        lowest = np.minimum.reduceat(floors[sections.flattened], sections.starts)
        flat = lowest == state.rest[:-1]
        if free[active].any():
            alone = self._alone(state, members, flat)
            if alone is not None:
                return alone
        on_floor = members == floors[:, None]
        branches = on_floor.sum(axis=1) + (free > 0)
        covering = np.append(~flat, False)
        branches[~active | (on_floor & covering[sections.members]).any(axis=1)] = _PLACED
        able = np.flatnonzero(branches == branches.min())
        if self._lowest and branches[able[0]] > 1:
            able = np.flatnonzero(branches < _PLACED)
        section = able[np.lexsort((branches[able], floors[able]))[0]]
        floor = sections.members[section][on_floor[section]].tolist()
        choices: list[int | None] = [*self._distinct(state, floor)]
        if free[section] > 0:
            choices.append(None)
        reason = self._all if state.given_up[floor].any() else self._section_reason(state, section)
        return _Node(state, floor, choices, reason)

    def _alone(self, state: _State, members: _Integers, flat: npt.NDArray[np.bool_]) -> _Node | None:
        """A block that no other one can get in the way of rests where it is: no better place is left to it."""
        sections = self._sections
        second = np.full(len(members), _PLACED) if members.shape[1] < _PAIR else np.partition(members, 1, axis=1)[:, 1]
        above = np.minimum.reduceat(second[sections.flattened], sections.starts)
        alone = np.flatnonzero(flat & (above >= state.rest[:-1] + sections.padded[:-1]))
        if not len(alone):
            return None
        block = int(alone[0])
        others = sections.conflicts[block]
        known = self._reason(state, [block, *others[state.rest[others] < _PLACED].tolist()])
        if state.given_up[block]:
            return _Node(state, [], [], self._all)
        fits = state.rest[block] + sections.nbytes[block] <= self._capacity
        return _Node(state, [], [block] if fits else [], known)

    def _distinct(self, state: _State, floor: Sequence[int]) -> list[int]:
        """The blocks to try on a floor, in order: not those that give what another one gives."""
        kept: list[int] = []
        for block in sorted(floor, key=self._rank.__getitem__):
            nbytes = self._sections.nbytes[block]
            equal = any(one in kept and self._sections.nbytes[one] == nbytes for one in self._sections.alike[block])
            fits = state.rest[block] + nbytes <= self._capacity
            if fits and not equal and not state.given_up[block] and state.refused[block] != state.rest[block]:
                kept.append(block)
        return kept

    @property
    def _all(self) -> int:
        """All decisions: of a failure whose reason is not known."""
        return (1 << len(self._stack)) - 1

    def _section_reason(self, state: _State, section: Any) -> int:
        row = self._sections.members[section]
        return self._reason(state, row[state.rest[row] < _PLACED].tolist())

    def _reason(self, state: _State, blocks: Iterable[int]) -> int:
        found = 0
        for block in blocks:
            found |= state.reasons[block]
        return found


_PAIR = 2

_REASONS = 8
"""The most sections that do not fit of which the reasons are compared."""


def _rounded(offset: Any, alignments: _Integers) -> _Integers:
    rounded: _Integers = -(-offset // alignments) * alignments
    return rounded


def _maximal(sets: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """The sets that no other one contains, in order."""
    distinct = list(dict.fromkeys(sets))
    return [one for one in distinct if one and not any(one < other for other in distinct)]
