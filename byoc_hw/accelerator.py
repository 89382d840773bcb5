"""The hardware description: the array, its memories and costs, with the limits of each layer kind (`limits.py`).

All parameters of a chip are fields of an `Accelerator` value. The limit checks, the planner and the
generated configuration of the simulator read them. Another chip is another `Accelerator` value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from math import lcm
from typing import Any, get_args

from byoc_hw.arguments import (
    asked,
    check_flag,
    check_number,
    check_one_of,
    check_type,
    check_whole,
    shown,
    with_plain_numbers,
)
from byoc_hw.errors import InvalidInput
from byoc_hw.graph import LAYER_KINDS, Gather, Layer, Ordering, Suppression, Weighted, Whole
from byoc_hw.html_tables import table_html
from byoc_hw.integers import LARGEST_INT32, ceil_div
from byoc_hw.library_calls import Library
from byoc_hw.limits import DEFAULT_LIMITS, Check, Limits, Rule
from byoc_hw.names import is_c_name
from byoc_hw.numerics import NUMERICS
from byoc_hw.program import ORDERED_TYPES
from byoc_hw.tensor import Rounding

KIB = 1024

# ---------------------------------------------------------------- tuning


@dataclass(frozen=True)
class TuningSpace:
    """The choices of the planner and the tuner. A vendor can narrow it to those that pay off on the hardware.

    Up to `longest_group` layers take turns, stripe by stripe; `stripes` lists the numbers of stripes.
    `weight_shares` lists how many of a layer's blocks of weights fit weight memory at once. The flags
    allow to swap height and width (`swap`), to hold tensors in local memory from one group to the next
    (`hold`), to overlap copies with the jobs of the stripe before (`overlap`), to keep weights for all
    stripes (`resident`), to tile a layer by itself along every axis (`tile`), and to compute groups of layers in
    patches of rows and columns and in slices of channels (`patches`), and to keep rows that two stripes share in main
    memory (`halos`), and to pack the rows of whole images (`pack`). A layer that fits in no other way is tiled in any
    case.
    """

    longest_group: int = 8
    """The most layers that take turns, stripe by stripe."""
    stripes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
    """The numbers of stripes that are tried."""
    weight_shares: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12)
    """How many of a layer's blocks of weights fit weight memory at once."""
    swap: bool = True
    """Whether height and width may be swapped."""
    hold: bool = True
    """Whether tensors may stay in local memory from one group to the next."""
    overlap: bool = True
    """Whether copies may overlap with the jobs of the stripe before."""
    resident: bool = True
    """Whether weights may be kept for all stripes."""
    tile: bool = True
    """Whether a layer may be tiled by itself along every axis."""
    patches: bool = True
    """Whether layers that take turns may be cut in columns and slices of channels, too."""
    halos: bool = True
    """Whether rows that two stripes share may be kept in main memory, not computed for both."""
    pack: bool = True
    """Whether images may have packed rows from layer to layer."""

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        check_whole("tuning space: longest_group", self.longest_group, 1)
        for what, values in (("stripes", self.stripes), ("weight_shares", self.weight_shares)):
            numbers = isinstance(values, tuple) and all(type(value) is int and value >= 1 for value in values)
            if not numbers or 1 not in values:
                raise InvalidInput(f"tuning space: {what} are numbers of at least 1, and 1 is one: got {values}")
        for what in ("swap", "hold", "overlap", "resident", "tile", "patches", "halos", "pack"):
            check_flag(f"tuning space: {what}", getattr(self, what))


# ---------------------------------------------------------------- the core that calls a HAL


@dataclass(frozen=True)
class HalInstructions:
    """Instructions of the core inside the functions of a HAL: to start a copy, `rows` more for one of several rows, to
    start a job, to wait for one of them or to ask whether it is done, to have an engine signal or await an event."""

    copy: int = 0
    """To start a copy."""
    rows: int = 0
    """More for a copy of several rows."""
    job: int = 0
    """To start a job."""
    wait: int = 0
    """To wait for one of them, or to ask whether it is done."""
    event: int = 0
    """To have an engine signal or await an event."""

    def __post_init__(self) -> None:
        with_plain_numbers(self)

    def check(self, prefix: str) -> None:
        """Raise `InvalidInput` for a number that none of them can be."""
        for what in ("copy", "rows", "job", "wait", "event"):
            check_whole(f"{prefix} {what}", getattr(self, what), 0, LARGEST_INT32)


NO_INSTRUCTIONS = HalInstructions()
"""As if the HAL took the core no time."""

REGISTERS = HalInstructions(copy=28, rows=6, job=21, wait=14, event=40)
"""Of the HAL over memory-mapped registers (`hwlib/regs`) on rv32imc at -O2, as counted under QEMU by
`tests/hal_instructions.c`. A wait is counted without what it polls in vain."""

# ---------------------------------------------------------------- the accelerator

RESERVED_NAMES = ("default", "ccompiler")
"""Compiler names with a meaning of their own in TVM: the host itself, and TVM's example of a code generator."""

_LONGEST_NAME = 64

_WHOLE_KINDS = tuple(cls.kind for cls in get_args(Whole))

_LEAST = {
    **dict.fromkeys(("array_rows", "array_columns", "depthwise_rows", "elementwise_width", "dma_width", "queue"), 1),
    **dict.fromkeys(("activation_memory", "weight_memory", "dma_alignment"), 1),
    **dict.fromkeys(("job_setup", "job_overhead", "dma_setup", "dma_row_setup", "ram", "flash"), 0),
    "local_alignment": 4,
}
"""The least value of each number of an accelerator."""

_MOST_OF = {
    **dict.fromkeys(("array_rows", "array_columns", "queue"), 1 << 16),
    **dict.fromkeys(("activation_memory", "weight_memory"), 1 << 28),
}
"""The most of numbers of which the simulator has as many bytes or places, or of which reports have products."""

_MOST_HOST_CYCLES = 1 << 20


def check_host_cycles(prefix: str, value: object) -> None:
    """Raise `InvalidInput` unless a value can be the accelerator cycles of an instruction of the core."""
    check_number(f"{prefix} host_cycles_per_instruction", value, positive=True, most=_MOST_HOST_CYCLES)


def check_compiler_name(name: object) -> None:
    """Raise `InvalidInput` unless a name can be an accelerator's: a C identifier that TVM does not use itself."""
    check_type("accelerator name", name, str, "a string")
    if not is_c_name(name) or len(str(name)) > _LONGEST_NAME:
        rule = f"accelerator name is a C identifier of at most {_LONGEST_NAME} characters"
        raise InvalidInput(f"{rule}: got {shown(name)}")
    if name in RESERVED_NAMES:
        raise InvalidInput(f"accelerator name is none that TVM reserves, {', '.join(RESERVED_NAMES)}: got {name!r}")


@dataclass(frozen=True)
class Accelerator:
    """A neural accelerator that is controlled by a small host core.

    `name` is the compiler name (`relay.ext.<name>`) and the prefix of its composites; `label` is
    for reports. Sizes in bytes, costs in accelerator cycles. `limits` maps each layer kind that the
    hardware supports to its limits; all other kinds run on the host. With a `library` the accelerator
    is driven by whole-layer calls, and the array, local memories, DMA and `tuning` do not apply.

    `whole_cycles` are the kinds that a HAL takes as a whole, from main memory to main memory, as a job without a tile,
    each with the cycles that the array takes for a layer. They run beside other accelerators, on a `Soc`.
    """

    name: str = "hwlib"
    """The compiler's name (`relay.ext.<name>`), a C identifier, and the prefix of the composites."""
    label: str = "REFERENCE"
    """For reports."""
    limits: Mapping[str, Limits] = field(default_factory=lambda: DEFAULT_LIMITS, hash=False)
    """The limits of each layer kind that the hardware supports; all other kinds run on the host."""
    library: Library | None = field(default=None, hash=False)
    """Whole-layer calls that drive the accelerator in place of a HAL, or None."""
    whole_cycles: Mapping[str, Callable[[Any], int]] = field(default_factory=dict, hash=False)
    """The layer kinds that a HAL takes without tiles, each with a function of the layer for its cycles."""

    array_rows: int = 16
    """Output channels computed at a time."""
    array_columns: int = 16
    """Output columns computed at a time."""
    depthwise_rows: int = 16
    """Channels that a depthwise job computes at a time."""
    job_setup: int = 0
    """Cycles to start a job, before its groups; `whole_cycles` have their own."""
    job_overhead: int = 23
    """Cycles for each group of rows x columns in an output row."""
    elementwise_width: int = 16
    """Elements that element-wise layers and pooling read per cycle."""
    packed_rows: bool = False
    """Whether a job's input rows may overlap: it takes many rows of an image as one."""

    activation_memory: int = 256 * KIB
    """Bytes of local memory for activations."""
    weight_memory: int = 64 * KIB
    """Bytes of local memory for weights."""
    local_alignment: int = 4
    """Bytes, of a tensor in local memory; int32 sums and parameters need 4."""
    dma_alignment: int = 1
    """Bytes, of each address, length and stride of a copy."""
    dma_setup: int = 70
    """Cycles for each transfer."""
    dma_width: int = 16
    """Bytes per cycle, each row rounded up."""
    dma_row_setup: int = 0
    """Cycles for each further row of a strided transfer, as where it is a burst of its own."""
    dma_reads_flash: bool = True
    """Whether the DMA reads flash; else start-up code copies the constants of its regions to RAM."""
    queue: int = 64
    """Operations that each engine holds, running or waiting; starting one more waits for the oldest."""

    ram: int = 512 * KIB
    """Bytes of main memory for all that is written."""
    flash: int = 2048 * KIB
    """Bytes of main memory for constant data."""

    host_cycles_per_instruction: float = 1.0
    """Accelerator cycles for each instruction of the core beside it."""
    hal_instructions: HalInstructions = NO_INSTRUCTIONS
    """Instructions of that core in the HAL; `REGISTERS` for memory-mapped ones."""

    roundings: tuple[Rounding, ...] = ("upward",)
    """How the hardware rounds when it scales, see `byoc_hw.numerics`."""
    shift_only: bool = False
    """Whether the array scales by powers of two alone: it has shifts and no multiplier."""

    tuning: TuningSpace = field(default_factory=TuningSpace)
    """The choices of the planner and the tuner."""

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        check_compiler_name(self.name)
        prefix = f"accelerator {self.name}:"
        check_type(f"{prefix} label", self.label, str, "a string")
        if not self.label or not self.label.isprintable():
            raise InvalidInput(f"{prefix} label has at least one character, and can be printed: got {self.label!r}")
        for what, least in _LEAST.items():
            check_whole(f"{prefix} {what}", getattr(self, what), least, _MOST_OF.get(what, LARGEST_INT32))
        for what in ("local_alignment", "dma_alignment"):
            alignment = getattr(self, what)
            if alignment & (alignment - 1):
                raise InvalidInput(f"{prefix} {what} is a power of two: got {alignment}")
        check_flag(f"{prefix} dma_reads_flash", self.dma_reads_flash)
        check_flag(f"{prefix} shift_only", self.shift_only)
        check_flag(f"{prefix} packed_rows", self.packed_rows)
        check_type(f"{prefix} hal_instructions", self.hal_instructions, HalInstructions, "a HalInstructions")
        self.hal_instructions.check(f"{prefix} hal_instructions:")
        check_host_cycles(prefix, self.host_cycles_per_instruction)
        check_type(f"{prefix} roundings", self.roundings, tuple, "a tuple of strings")
        if not self.roundings:
            raise InvalidInput(f"{prefix} roundings has at least one of {', '.join(get_args(Rounding))}: got ()")
        for rounding in self.roundings:
            check_one_of(f"{prefix} each of roundings", rounding, get_args(Rounding))
        check_type(f"{prefix} tuning", self.tuning, TuningSpace, "a TuningSpace")
        check_type(f"{prefix} library", self.library, Library | None, "a Library or None")
        check_type(f"{prefix} limits", self.limits, Mapping, "a mapping of layer kinds to Limits")
        for kind, limits in self.limits.items():
            self._check_limits(prefix, kind, limits)
        self._check_whole(prefix)
        if self.library is not None:
            for kind in self.limits.keys() - {"reshape", "transpose"} - self.library.calls.keys():
                raise InvalidInput(f"{prefix} its library has a call for each layer kind: none for {kind}")

    def __repr__(self) -> str:
        if self.library is not None:
            return f"<Accelerator {self.name} ({self.label}): calls of {self.library.header.name}>"
        return (
            f"<Accelerator {self.name} ({self.label}): array {self.array_rows} x {self.array_columns}, local "
            f"{_size(self.activation_memory)} + {_size(self.weight_memory)}, DMA {self.dma_width} bytes a cycle>"
        )

    def _repr_html_(self) -> str:
        kinds = ", ".join(self.limits) or "none"
        return table_html(repr(self).strip("<>"), ("field", "value"), [*_plain_fields(self), ("layer kinds", kinds)])

    def _check_limits(self, prefix: str, kind: str, limits: Limits) -> None:
        if kind not in LAYER_KINDS:
            raise InvalidInput(f"{prefix} limits are of layer kinds, {', '.join(LAYER_KINDS)}: got {shown(kind)}")
        check_type(f"{prefix} limits of {kind}", limits, Limits, "a Limits")
        limits.check(f"{prefix} limits of {kind}:", kind, tiles=self.library is None)

    def _check_whole(self, prefix: str) -> None:
        check_type(f"{prefix} whole_cycles", self.whole_cycles, Mapping, "a mapping of layer kinds to functions")
        for kind, cycles in self.whole_cycles.items():
            if kind not in _WHOLE_KINDS:
                raise InvalidInput(f"{prefix} whole_cycles are of {', '.join(_WHOLE_KINDS)}: got {shown(kind)}")
            if not callable(cycles):
                raise InvalidInput(f"{prefix} whole_cycles of {kind} is a function of the layer: got {shown(cycles)}")
        for kind in _WHOLE_KINDS if self.library is None else ():
            if kind in self.limits and kind not in self.whole_cycles:
                raise InvalidInput(f"{prefix} a kind without tiles has whole_cycles: none for {kind}")

    @property
    def has_whole(self) -> bool:
        """Whether its HAL takes layers without tiles."""
        return self.library is None and any(kind in self.limits for kind in _WHOLE_KINDS)

    def runs_whole(self, layer: Layer) -> bool:
        """Whether the layer is one call or job, from main memory to main memory."""
        return self.library is not None or isinstance(layer, Whole)

    def cycles_of_whole(self, layer: Layer) -> int:
        """The cycles of a layer that runs as a whole. `InvalidInput` for a cost that is none."""
        if self.library is not None:
            return self.library.cycles(layer)
        what = f"accelerator {self.name}: whole_cycles of {layer.kind} {layer.name}"
        cycles = asked(what, self.whole_cycles[layer.kind], layer)
        check_whole(what, cycles, 0, LARGEST_INT32)
        return int(cycles)

    @cached_property
    def buffer_alignment(self) -> int:
        """Alignment in bytes of every buffer in local memory, valid for both the array and the DMA."""
        return lcm(self.local_alignment, self.dma_alignment)

    def whole_words(self, nbytes: int) -> int:
        """The bytes of a memory of this size that the DMA reaches: whole words of it."""
        return nbytes - nbytes % self.dma_alignment

    def check_numerics(self, numerics: str) -> None:
        """Raise `InvalidInput` for numerics that do not exist, or whose rounding the hardware lacks."""
        if not isinstance(numerics, str) or numerics not in NUMERICS:
            raise InvalidInput(f"numerics is one of {', '.join(NUMERICS)}: got {numerics!r}")
        lacking = next((one for one in NUMERICS[numerics] if one not in self.roundings), None)
        if lacking is not None:
            raise InvalidInput(
                f"accelerator {self.name} ({self.label}): numerics {numerics!r} needs the rounding "
                f"{lacking!r}: its roundings are {', '.join(self.roundings) or 'none'}"
            )

    def weight_width(self, layer: Weighted) -> int:
        """Bits of each weight of a layer as it is packed for the array: the fewest that it has and that hold all."""
        limits = self.limits.get(layer.kind)
        return 8 if limits is None or limits.weight_bits is None else _width(limits.weight_bits, layer.weights.bits)

    def broken_rules(self, layer: Layer) -> Iterator[tuple[Rule, Check]]:
        """Each limit of the hardware that the layer breaks, with the value found."""
        limits = self.limits.get(layer.kind, _ALWAYS.get(layer.kind))
        if limits is None:
            kinds = ", ".join(self.limits)
            yield Rule(f"layer kind is one of {kinds}", _unknown_kind), _unknown_kind(layer)
            return
        call = None
        if self.library is not None:  # its calls are over whole kernels
            limits = replace(limits, kernel_parts=False)
            call = self.library.calls.get(layer.kind)
        adds, tiles = call is not None and not call.subtracts, not self.runs_whole(layer)
        for rule in limits.all_rules(layer, tiles=tiles, adds=adds, shifts=self.shift_only):
            check = rule.check(layer)
            if not check.allowed:
                yield rule, check


@lru_cache(maxsize=64)
def _width(widths: tuple[int, ...], least: int) -> int:
    return min((bits for bits in widths if bits >= least), default=8)


_ALWAYS = {"reshape": Limits(batches=None)}
"""The layer kinds that need no hardware: a reshape is its input's bytes, with or without limits of its own."""


def _plain_fields(accelerator: Accelerator) -> Iterator[tuple[str, object]]:
    """The fields that are a number, a text or several of them."""
    for one in fields(accelerator):
        value = getattr(accelerator, one.name)
        if isinstance(value, int | float | str | tuple):
            yield one.name, ", ".join(map(str, value)) if isinstance(value, tuple) else value


def _size(nbytes: int) -> str:
    return f"{nbytes // KIB} KiB" if nbytes % KIB == 0 else f"{nbytes} bytes"


def _unknown_kind(layer: Layer) -> Check:
    return Check(layer.kind, False)


REFERENCE = Accelerator(roundings=("upward", "tflite"), packed_rows=True)
"""The accelerator that the simulator implements by default, with DIANA's published figures.

What is published has one cost for each transfer and one for each group of a job. So starting a job costs nothing more
here (`job_setup`), nor does a further row of a strided transfer (`dma_row_setup`). A chip for which both were measured
sets them; on arrays with a descriptor to fetch a job takes 50 to 200 cycles to start. The core takes no time
in the HAL either (`hal_instructions`): its registers are the chip's.
"""

_UNDILATED: Mapping[str, Limits] = {
    kind: replace(limits, dilations=None if limits.dilations is None else (1,))
    for kind, limits in DEFAULT_LIMITS.items()
}

DIANA_DIGITAL = replace(
    REFERENCE,
    label="DIANA_DIGITAL",
    limits={kind: replace(limits, broadcast=False, kernel_parts=False) for kind, limits in _UNDILATED.items()},
    depthwise_rows=1,
    packed_rows=False,
)
"""As `REFERENCE`, but without dilation and packed rows, with whole kernels only, depthwise jobs compute one channel at
a time, and both inputs of an element-wise layer have one shape: what is published adds feature maps."""

SMALL = replace(
    REFERENCE, label="SMALL", limits=_UNDILATED, activation_memory=32 * KIB, weight_memory=16 * KIB, dma_width=4
)
"""As `REFERENCE`, but without dilation, with 32 KiB of activation memory, 16 KiB of weight memory and 4 DMA bytes per
cycle."""

_DSP_ELEMENTS = 4
"""Elements of layers without tiles that the DSP looks at in a cycle."""


def _ordered_cycles(rows: int, extent: int, count: int) -> int:
    """A heap of the first `count` elements of each row, through which all of its elements go."""
    return rows * ceil_div(extent * (count.bit_length() + 1), _DSP_ELEMENTS)


def order_cycles(layer: Ordering) -> int:
    """The cycles in which the DSP puts elements in order."""
    return _ordered_cycles(layer.rows, layer.extent, layer.ofm.shape[layer.axis])


def gather_cycles(layer: Gather) -> int:
    """The cycles in which the DSP gathers elements."""
    return ceil_div(layer.ofm.elements, _DSP_ELEMENTS)


def suppression_cycles(layer: Suppression) -> int:
    """The cycles of the DSP: the order of the boxes; then each of them is compared with those that are kept."""
    batches, boxes, values = layer.ifm.shape
    seen, kept = layer.seen_and_kept
    moved = ceil_div(layer.ofm.elements, _DSP_ELEMENTS)
    return _ordered_cycles(batches, boxes, boxes) + batches * ceil_div(seen * kept * values, _DSP_ELEMENTS) + moved


DSP = replace(
    REFERENCE,
    name="dsp",
    label="DSP",
    array_rows=8,
    array_columns=8,
    depthwise_rows=8,
    limits={
        **_UNDILATED,
        "order": Limits(batches=None, activation_types=ORDERED_TYPES),
        "gather": Limits(batches=None, activation_types=ORDERED_TYPES),
        "suppression": Limits(batches=None, activation_types=("float32", "int32")),
    },
    whole_cycles={"order": order_cycles, "gather": gather_cycles, "suppression": suppression_cycles},
    dma_width=8,
    packed_rows=False,
)
"""A vector unit beside an accelerator: a quarter of `REFERENCE`'s rate for convolutions and dense layers. What is put
in order, gathered and suppressed it takes as a whole, four elements a cycle."""
