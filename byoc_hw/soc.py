"""A chip of several accelerators beside one host core, as data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from byoc_hw.accelerator import KIB, Accelerator, check_compiler_name, check_host_cycles
from byoc_hw.arguments import check_type, check_whole, shown, with_plain_numbers
from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Layer
from byoc_hw.html_tables import table_html
from byoc_hw.integers import LARGEST_INT32
from byoc_hw.library_calls import Library
from byoc_hw.limits import Check, Limits, Rule
from byoc_hw.objective import HOST

_MOST_ACCELERATORS = 16

MOST_EVENTS = 64
"""The most events of a chip."""


@dataclass(frozen=True)
class Soc:
    """Several accelerators that share main memory and one host core.

    Takes the place of an `Accelerator` wherever one is given. `name` is the compiler name (`relay.ext.<name>`) and
    the prefix of the composites, `label` is for reports. Each accelerator has a name of its own, the prefix of its
    HAL's functions in C, with limits, memories and costs of its own, and a HAL, or a `library` whose calls only start
    and have costs. `ram` and `flash` in bytes and `host_cycles_per_instruction` are the chip's; those of the
    accelerators do not count.

    The accelerators of each group in `shared`, by name, have one local activation memory: an address is the same byte
    to all of them. Weight memories are their own.

    `events` is the number of counters by which engines order each other without the core, as `hwlib_hal.h` says. They
    lie between accelerators, so they are the chip's: those of `with_events`, by name, reach all of them. That are all
    accelerators with a HAL where it is empty.
    """

    accelerators: tuple[Accelerator, ...]
    """The accelerators, each with a name of its own."""
    name: str = "soc"
    """The compiler's name (`relay.ext.<name>`), a C identifier, and the prefix of the composites."""
    label: str = "SOC"
    """For reports."""
    ram: int = 512 * KIB
    """Bytes of main memory for all that is written."""
    flash: int = 2048 * KIB
    """Bytes of main memory for constant data."""
    host_cycles_per_instruction: float = 1.0
    """Accelerator cycles for each instruction of the core."""
    shared: tuple[tuple[str, ...], ...] = ()
    """Groups of accelerators, by name, that have one local activation memory."""
    events: int = 0
    """Counters by which engines order each other without the core."""
    with_events: tuple[str, ...] = ()
    """The accelerators, by name, whose engines reach the events; all with a HAL where it is empty."""

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        check_compiler_name(self.name)
        check_type(f"chip {self.name}: label", self.label, str, "a string")
        if not self.label or not self.label.isprintable():
            raise InvalidInput(
                f"chip {self.name}: label has at least one character, and can be printed: {self.label!r}"
            )
        check_type(f"chip {self.name}: accelerators", self.accelerators, tuple, "a tuple of Accelerators")
        if not 1 <= len(self.accelerators) <= _MOST_ACCELERATORS:
            rule = f"accelerators are 1 to {_MOST_ACCELERATORS}"
            raise InvalidInput(f"chip {self.name}: {rule}: got {len(self.accelerators)}")
        for one in self.accelerators:
            check_type(f"chip {self.name}: each of accelerators", one, Accelerator, "an Accelerator")
            if one.library is not None:
                _check_library(f"chip {self.name}: library of {one.name}", one.library, one.limits)
        names = [self.name.lower(), *(one.name.lower() for one in self.accelerators)]
        for name in names:
            if names.count(name) > 1:
                raise InvalidInput(
                    f"chip {self.name}: it and its accelerators have names that differ: got {name} twice"
                )
        if HOST in names:
            raise InvalidInput(f"chip {self.name}: {HOST} is the core's name: an accelerator has another one")
        check_host_cycles(f"chip {self.name}:", self.host_cycles_per_instruction)
        for what in ("ram", "flash"):
            check_whole(f"chip {self.name}: {what}", getattr(self, what), 0, LARGEST_INT32)
        self._check_shared()
        self._check_events()

    def _check_events(self) -> None:
        """Raise `InvalidInput` for events of accelerators that cannot have them."""
        check_whole(f"chip {self.name}: events", self.events, 0, MOST_EVENTS)
        prefix = f"chip {self.name}: with_events"
        check_type(prefix, self.with_events, tuple, "a tuple of accelerators' names")
        known = {one.name: one for one in self.accelerators}
        for name in self.with_events:
            if name not in known:
                raise InvalidInput(f"{prefix} names accelerators of the chip, {', '.join(known)}: got {shown(name)}")
            if self.with_events.count(name) > 1:
                raise InvalidInput(f"{prefix} has each accelerator once: got {name} twice")
            if known[name].library is not None:
                raise InvalidInput(f"{prefix}: accelerators with events have a HAL: {name} has a library")
        if self.with_events and not self.events:
            raise InvalidInput(f"{prefix}: events is at least 1 where accelerators have them: got 0")

    def _check_shared(self) -> None:
        """Raise `InvalidInput` for groups of accelerators that cannot have one memory."""
        prefix = f"chip {self.name}: shared"
        check_type(prefix, self.shared, tuple, "a tuple of groups of accelerators' names")
        known = {one.name: one for one in self.accelerators}
        seen: list[str] = []
        for group in self.shared:
            check_type(f"{prefix}: each group", group, tuple, "a tuple of accelerators' names")
            for name in group:
                if name not in known:
                    raise InvalidInput(
                        f"{prefix} names accelerators of the chip, {', '.join(known)}: got {shown(name)}"
                    )
                if name in seen:
                    raise InvalidInput(f"{prefix} has each accelerator once: got {name} twice")
                seen.append(name)
            if len(group) < 2:
                raise InvalidInput(f"{prefix}: a group has at least two accelerators: got {shown(group)}")
            for what in ("activation_memory", "dma_alignment", "local_alignment"):
                found = {name: getattr(known[name], what) for name in group}
                if len(set(found.values())) > 1:
                    text = ", ".join(f"{name} {value}" for name, value in found.items())
                    raise InvalidInput(f"{prefix}: accelerators that share a memory have the same {what}: got {text}")
            for name in group:
                if known[name].library is not None:
                    raise InvalidInput(f"{prefix}: accelerators that share a memory have a HAL: {name} has a library")

    def __repr__(self) -> str:
        return f"<Soc {self.name} ({self.label}): {', '.join(one.name for one in self.accelerators)}>"

    def _repr_html_(self) -> str:
        rows = [
            (one.name, one.label, f"{one.array_rows} x {one.array_columns}", one.activation_memory, one.weight_memory)
            for one in self.accelerators
        ]
        headings = ("accelerator", "label", "array", "activation memory", "weight memory")
        return table_html(repr(self).strip("<>"), headings, rows)

    @property
    def limits(self) -> Mapping[str, Limits]:
        """The limits of each layer kind that any of the accelerators supports: those of the first one."""
        found: dict[str, Limits] = {}
        for one in self.accelerators:
            found = {**one.limits, **found}
        return found

    @property
    def library(self) -> None:
        """None: each accelerator has a HAL or a library of its own."""
        return None

    @property
    def dma_alignment(self) -> int:
        """The largest alignment of any DMA, in bytes."""
        return max(one.dma_alignment for one in self.accelerators)

    def only(self, lanes: Collection[int]) -> Soc:
        """The chip with some of its accelerators, by index: without the memories and events that nobody shares then."""
        kept = [one for lane, one in enumerate(self.accelerators) if lane in lanes]
        names = [one.name for one in kept]
        groups = (tuple(name for name in group if name in names) for group in self.shared)
        reached = any(self.has_events(lane) for lane in lanes)
        return replace(
            self,
            accelerators=tuple(kept),
            shared=tuple(group for group in groups if len(group) > 1),
            events=self.events if reached else 0,
            with_events=tuple(name for name in self.with_events if name in names) if reached else (),
        )

    def divided(self, lanes: Collection[int] | None = None) -> Soc | None:
        """The chip whose shared memories are divided: each accelerator has a share of its own, as `share_of` says.

        None where no memory is shared, or is too small.
        """
        shares = [self.share_of(lane, lanes) for lane in range(len(self.accelerators))]
        if not self.shared or any(start == stop for start, stop in shares):
            return None
        pairs = zip(self.accelerators, shares, strict=True)
        found = (replace(one, activation_memory=stop - start) for one, (start, stop) in pairs)
        return replace(self, accelerators=tuple(found), shared=())

    def share_of(self, lane: int, lanes: Collection[int] | None = None) -> tuple[int, int]:
        """From which byte of its activation memory the share of accelerator `lane` goes, and to which (not included).

        A memory is divided evenly among the accelerators that share it and are `lanes`, by index (None: all of them).
        One that shares with none of these has all of it.
        """
        one, among = self.accelerators[lane], range(len(self.accelerators)) if lanes is None else lanes
        names = {self.accelerators[other].name for other in among}
        sharing = [name for name in self.group_of(lane) if name in names]
        if one.name not in sharing or len(sharing) == 1:
            return 0, one.activation_memory
        nbytes = one.activation_memory // len(sharing)
        nbytes -= nbytes % one.buffer_alignment
        start = sharing.index(one.name) * nbytes
        return start, start + nbytes

    def memory_of(self, lane: int) -> int:
        """The accelerator, by index, that an activation memory goes by: of `lane` itself, or the first of its group."""
        names = [one.name for one in self.accelerators]
        return min(map(names.index, self.group_of(lane)), default=lane)

    def group_of(self, lane: int) -> tuple[str, ...]:
        """The accelerators, by name, that share the activation memory of accelerator `lane`; none if it has its own."""
        name = self.accelerators[lane].name
        return next((group for group in self.shared if name in group), ())

    def has_events(self, lane: int) -> bool:
        """Whether the engines of accelerator `lane` reach the chip's events."""
        one = self.accelerators[lane]
        return bool(self.events) and one.library is None and one.name in (self.with_events or (one.name,))

    def claimed_with(self, lane: int) -> int:
        """The accelerator, by index, that a claim of `lane` goes by: itself, or the first of those that share memories
        or events with it, directly or by others."""
        names = [one.name for one in self.accelerators]
        groups = [{*map(names.index, group)} for group in self.shared]
        groups.append({other for other in range(len(names)) if self.has_events(other)})
        joined = {lane}
        for _ in groups:
            joined.update(*(group for group in groups if joined & group))
        return min(joined)

    def check_numerics(self, numerics: str) -> None:
        """Raise `InvalidInput` for numerics that do not exist, or whose rounding an accelerator lacks."""
        for one in self.accelerators:
            one.check_numerics(numerics)

    def supporting(self, layer: Layer) -> tuple[Accelerator, ...]:
        """The accelerators whose limits a layer keeps."""
        return tuple(one for one in self.accelerators if not any(one.broken_rules(layer)))

    def broken_rules(self, layer: Layer) -> Iterator[tuple[Rule, Check]]:
        """Each limit that the layer breaks, with the value found: of the accelerator where it breaks the fewest, one
        that has its kind if there is any."""
        able = [one for one in self.accelerators if layer.kind in one.limits] or self.accelerators
        yield from min((list(one.broken_rules(layer)) for one in able), key=len)


def _check_library(what: str, library: Library, kinds: Iterable[str]) -> None:
    """Raise `InvalidInput` for a library that cannot work beside other accelerators."""
    if library.wait is None:
        raise InvalidInput(f"{what}: its calls only start, and it has a wait: wait is None")
    for kind in kinds:
        call = library.calls.get(kind)
        if kind != "reshape" and call is None:
            raise InvalidInput(f"{what}: it has a call for each layer kind: none for {kind}")
        if call is not None and call.cycles is None:
            raise InvalidInput(f"{what}: each call has a cost: cycles of {kind} is None")


Hardware = Accelerator | Soc
"""What a model can be partitioned for."""


def accelerators_of(hardware: Hardware) -> tuple[Accelerator, ...]:
    """The accelerators of a chip, or the one that there is."""
    return hardware.accelerators if isinstance(hardware, Soc) else (hardware,)
