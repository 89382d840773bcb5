"""One arena for a whole model: every tensor, intermediate and workspace, by lifetime over all calls.

Time is cut into moments, sets of blocks that live together: one for each layer of a region, and one
for each group of workspaces that a host function uses at once. A region that runs beside a host
function may be at any of its layers: there is a moment for each group with each layer. Two blocks may
share bytes if they have no moment in common. The largest sum of a moment is the lower bound.

A region's intermediates are placed here too, one by one, not as one piece of scratch: its
inputs are live until its layers have read them, its outputs from where they are written. The
region still has one base, its lowest intermediate, to which the offsets in its code are relative.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm

from byoc_hw.integers import round_up
from byoc_hw.plan.place.by_lifetime import Arena, Block, aligned_sum, place
from byoc_hw.plan.place.exact import improved
from byoc_hw.plan.region_memory import RegionMemory
from byoc_hw.program import Buffer, Call, CopyCall, HostCall, Program, RegionCall, WaitCall, Workspace

TENSOR, INTERMEDIATE, WORKSPACE, INTERFACE = "tensor", "region scratch", "host workspace", "input or output"
"""Owners of bytes in the arena."""

CONSTANTS = "constants for a DMA that cannot read flash"
"""The owner of bytes of RAM beside the arena."""

_LARGEST_OWNERS = 5


@dataclass(frozen=True)
class Peak:
    """A moment with the largest sum of live bytes: its name, and the blocks."""

    where: str
    blocks: tuple[Block, ...]

    @property
    def by_owner(self) -> dict[str, int]:
        """Bytes that are live at the peak, by owner."""
        owners = sorted({block.owner for block in self.blocks})
        return {owner: sum(block.nbytes for block in self.blocks if block.owner == owner) for owner in owners}


@dataclass(frozen=True)
class ModelMemory:
    """The arena of a model. `scratch` gives, by region, its base and the offsets relative to that.

    `moments` are all moments in order: the name of each, and the names of the live blocks. `during` has the
    numbers of those of each region's layers, without those of calls beside it. `constants` are bytes of RAM beside the
    arena.
    """

    arena: Arena
    blocks: tuple[Block, ...]
    peak: Peak
    scratch: Mapping[str, tuple[int, Mapping[str, int]]]
    moments: tuple[tuple[str, frozenset[str]], ...]
    during: Mapping[str, range]
    constants: int = 0

    @property
    def ram(self) -> int:
        """Bytes of RAM: the arena, and constants."""
        return self.arena.nbytes + self.constants


def place_model(
    program: Program,
    workspaces: Sequence[Workspace],
    regions: Mapping[str, RegionMemory],
    alignment: int,
    interface: bool = False,
) -> ModelMemory:
    """Place all buffers of a model. `regions` are by symbol, `alignment` is in bytes.

    With `interface` the model's inputs and outputs are in the arena too: an input is live from the start to
    its last reader, an output from its first writer to the end.
    """
    moments = _Moments(program, workspaces, regions, alignment, interface)
    blocks = moments.blocks()
    lower_bound, peak = moments.peak(blocks)
    proven = max((aligned_sum(alive) for alive in moments.alive(blocks)), default=0)
    live = tuple(
        (where, frozenset(block.name for block in moment))
        for where, moment in zip(moments.where, moments.alive(blocks), strict=True)
    )
    arena = improved(place(blocks, lower_bound, proven), blocks, [names for _, names in live])
    scratch = {}
    for symbol, memory in regions.items():
        offsets = {life.name: arena.offsets[life.name] for life in memory.scratch}
        base = min(offsets.values(), default=0)
        scratch[symbol] = base, {name: offset - base for name, offset in offsets.items()}
    constants = sum(memory.constants for memory in regions.values())
    return ModelMemory(arena, blocks, peak, scratch, live, moments.during, constants)


def ram_problem(memory: ModelMemory, limit: int, smallest: str = "") -> str | None:
    """What is short where arena and constants in RAM exceed `limit` bytes, with the blocks at the peak, or None.

    `smallest` says how it is known that no plan needs less.
    """
    if memory.ram <= limit:
        return None
    alive = sorted(memory.peak.blocks, key=lambda block: (-block.nbytes, block.name))
    listed = "".join(f"\n  {block.nbytes:>10}  {block.owner}: {block.name}" for block in alive)
    if memory.constants:
        listed += f"\n  {memory.constants:>10}  {CONSTANTS}"
    return (
        f"{_short('RAM', memory.ram, limit, smallest)}; "
        f"what is alive at once in {memory.peak.where} would have to shrink:{listed}"
    )


def flash_problem(owners: Mapping[str, int], limit: int, smallest: str = "") -> str | None:
    """What is short where the owners of flash have more than `limit` bytes together, with the largest, or None."""
    total = sum(owners.values())
    if total <= limit:
        return None
    largest = sorted(((name, size) for name, size in owners.items() if size), key=lambda item: (-item[1], item[0]))
    listed = "".join(f"\n  {nbytes:>10}  {owner}" for owner, nbytes in largest[:_LARGEST_OWNERS])
    more = f"\n  and {len(largest) - _LARGEST_OWNERS} smaller" if len(largest) > _LARGEST_OWNERS else ""
    return f"{_short('flash', total, limit, smallest)}; the largest:{listed}{more}"


def _short(what: str, needed: int, limit: int, smallest: str) -> str:
    return f"{what} is {limit} bytes: {needed} bytes needed{smallest and f' {smallest}'}, {needed - limit} too many"


@dataclass(frozen=True)
class _Touch:
    """The moments of one call in which a buffer is live.

    A buffer that is live before the call is live up to `until`; one that is live after the call, from `onward` on.
    The moments of a host function have no order: the buffer is live in all of them.
    """

    moments: set[int]
    until: int
    onward: int


@dataclass(frozen=True)
class _Running:
    """A region that runs in parallel with the next calls, and the first and last moment of each buffer it touches."""

    symbol: str
    memory: RegionMemory
    arguments: tuple[tuple[_Touch, int], ...]


class _Moments:
    """The moments of a program, and the live buffers of each."""

    def __init__(
        self,
        program: Program,
        workspaces: Sequence[Workspace],
        regions: Mapping[str, RegionMemory],
        alignment: int,
        interface: bool,
    ) -> None:
        self._program, self._regions, self._interface = program, regions, interface
        self._alignment = lcm(alignment, *(memory.alignment for memory in regions.values()))
        self.where = ["the inputs"]  # the first moment is before any call
        self._moments: dict[str, set[int]] = {space.name: set() for space in workspaces}
        self._sizes = {space.name: (space.nbytes, lcm(alignment, space.alignment), WORKSPACE) for space in workspaces}
        self._touched: dict[Buffer, list[_Touch]] = {}
        self._running: _Running | None = None
        self._words: dict[Buffer, int] = {}  # of the DMA that reads and writes a buffer
        self.during: dict[str, range] = {}
        for call in program.calls:
            self._call(call)
        self.where.append("the outputs")
        self._tensors()

    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the arena."""
        return tuple(
            Block(
                name,
                nbytes,
                alignment,
                frozenset(n for n, m in self._moments.items() if n != name and m & self._moments[name]),
                owner,
            )
            for name, (nbytes, alignment, owner) in sorted(self._sizes.items())
        )

    def alive(self, blocks: Sequence[Block]) -> Iterator[list[Block]]:
        """The live blocks of each moment."""
        for moment in range(len(self.where)):
            yield [block for block in blocks if moment in self._moments[block.name]]

    def peak(self, blocks: Sequence[Block]) -> tuple[int, Peak]:
        """The largest sum of a moment, and the first moment that has it."""
        sums = [(sum(block.nbytes for block in alive), alive) for alive in self.alive(blocks)]
        largest = max(total for total, _ in sums)
        index = next(index for index, (total, _) in enumerate(sums) if total == largest)
        return largest, Peak(self.where[index], tuple(sums[index][1]))

    def _call(self, call: Call) -> None:
        if isinstance(call, RegionCall):
            self._region(call)
        elif isinstance(call, WaitCall):
            self._advance("the end", 1)
            self._running = None
        elif isinstance(call, CopyCall):
            (moments,) = self._advance(f"the copy to {call.target.name}", 1)
            for buffer in (call.source, call.target):
                self._touch(buffer, moments)
        else:
            self._host(call)

    def _advance(self, where: str, count: int) -> list[range]:
        """New moments, `count` groups of them: one each, or one for each moment of a region that is running."""
        running = self._running
        if running is None:
            start = len(self.where)
            self.where += [where] * count
            return [range(at, at + 1) for at in range(start, start + count)]
        groups = []
        for _ in range(count):
            start = len(self.where)
            self.where += [f"{where} beside {running.symbol}: {moment}" for moment in running.memory.moments]
            for life in running.memory.scratch:
                self._moments[life.name].update(range(start + life.first, start + life.last + 1))
            for touch, last in running.arguments:
                touch.moments.update(range(start, start + last + 1))
            groups.append(range(start, len(self.where)))
        return groups

    def _host(self, call: HostCall) -> None:
        moments = call.moments or (frozenset(),)
        known = frozenset().union(*moments)
        start = len(self.where)
        groups = self._advance(call.symbol, len(moments))
        for buffer in call.arguments:
            # TVM's planner does not know the model's inputs and outputs: here they are live throughout.
            live = [
                group
                for group, names in zip(groups, moments, strict=True)
                if buffer.name in names or buffer.name not in known
            ]
            touch = _Touch({at for group in live for at in group}, start - 1, len(self.where))
            self._touched.setdefault(buffer, []).append(touch)
        for group, names in zip(groups, moments, strict=True):
            for name in names & self._moments.keys():
                self._moments[name].update(group)

    def _region(self, call: RegionCall) -> None:
        symbol = call.graph.name
        memory = self._regions[symbol]
        start = len(self.where)
        self.where += [f"{symbol}: {moment}" for moment in memory.moments]
        self.during[symbol] = range(start, len(self.where))
        for life in memory.scratch:
            self._sizes[life.name] = life.nbytes, memory.alignment, INTERMEDIATE
            self._moments.setdefault(life.name, set()).update(range(start + life.first, start + life.last + 1))
        steps: dict[Buffer, list[int]] = {}
        for buffer, span in zip(call.arguments, memory.arguments, strict=True):
            steps.setdefault(buffer, []).extend(span or ())
            self._words[buffer] = lcm(self._words.get(buffer, 1), memory.word)
        touches = []
        for buffer, touched in steps.items():
            if touched:
                self._touch(buffer, range(start + min(touched), start + max(touched) + 1))
                touches.append((self._touched[buffer][-1], max(touched)))
        if symbol in self._program.returning_early:
            self._running = _Running(symbol, memory, tuple(touches))

    def _touch(self, buffer: Buffer, moments: Sequence[int]) -> None:
        """A buffer that is live in these consecutive moments."""
        self._touched.setdefault(buffer, []).append(_Touch(set(moments), min(moments), max(moments)))

    def _tensors(self) -> None:
        """Buffers are live as their first and last call say, and at every moment in between."""
        if self._interface:
            for buffer in self._program.inputs:
                self._touched[buffer] = [_Touch({0}, 0, 0), *self._touched.get(buffer, [])]
            for buffer in self._program.outputs:
                self._touch(buffer, [len(self.where) - 1])
        for buffer, touches in self._touched.items():
            if buffer.role != "intermediate" and not self._interface:
                continue
            name = block_name(buffer)
            owner = TENSOR if buffer.role == "intermediate" else INTERFACE
            self._sizes[name] = round_up(buffer.nbytes, self._words.get(buffer, 1)), self._alignment, owner
            between = range(touches[0].onward, touches[-1].until + 1)
            self._moments[name] = set().union(*(touch.moments for touch in touches), between)


def block_name(buffer: Buffer) -> str:
    """The name of a buffer's block: an input and an output may have the same one."""
    return buffer.name if buffer.role == "intermediate" else f"{buffer.role} {buffer.name}"
