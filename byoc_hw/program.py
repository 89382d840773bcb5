"""The whole model: its interface, and the calls of one inference in order.

The calls run host functions and regions; buffers connect them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Graph
from byoc_hw.tensor import Array, Quantization

ALIGNMENT = 16
"""Alignment in bytes of every buffer in the arena, which generated host code relies on."""


QUANTIZED_TYPES = ("int8", "uint8", "int16")
"""The types of inputs and outputs that can have a scale: float32 has every value of them, zero point subtracted."""

SMALLEST_SCALE = 2.0**-126
"""The smallest scale of such a type: the smallest normal number of float32."""


RegionEnd = tuple[str, int]
"""An input or an output of a region, by the region's symbol and the index."""


@dataclass(frozen=True)
class Buffer:
    """A tensor of the whole model: an input, output or intermediate of `<mod_name>_run`.

    Inputs and outputs of the types that can have a scale have their quantization, of one scale, if it is known.
    `state` is the name of an output, for an input whose value in the next inference that output is; else "".
    """

    name: str
    nbytes: int
    role: Literal["input", "output", "intermediate"] = "intermediate"
    shape: tuple[int, ...] = ()
    dtype: str = "int8"
    quantization: Quantization | None = None
    state: str = ""


@dataclass(frozen=True)
class Workspace:
    """Bytes of the arena that a host function uses while it runs; `HostCall.moments` says when."""

    name: str
    nbytes: int
    alignment: int


@dataclass(frozen=True)
class HostCall:
    """A C function that TVM generated. It addresses its own workspace inside the arena.

    It writes the last `results` of its arguments. `moments` are the sets of arguments and workspaces,
    by name, that are live at the same time while it runs; without any, all arguments are live
    throughout.
    """

    symbol: str
    arguments: tuple[Buffer, ...]
    source: tuple[str, ...] = ()
    results: int = 1
    moments: tuple[frozenset[str], ...] = ()

    @property
    def written(self) -> tuple[Buffer, ...]:
        """The arguments that it writes."""
        return self.arguments[len(self.arguments) - self.results :]


@dataclass(frozen=True)
class Quantize:
    """float32 values to int8, at the border of a model: work for the host only."""

    elements: int
    scale: float
    zero_point: int


ORDERED_TYPES = ("int8", "uint8", "int32", "float32")
"""The types of elements that functions of ours put in order."""


@dataclass(frozen=True)
class Sort:
    """The places of elements along one axis, in the order of the elements; equal ones in the order of their places.

    The tensor is (before, extent, after); the result, int32, has the first `count` places of each row. For the host.
    """

    dtype: str
    before: int
    extent: int
    after: int
    count: int
    descending: bool


@dataclass(frozen=True)
class Suppress:
    """Non-maximum suppression of float32 boxes (batches, boxes, values), as Relay's operator has it: for the host.

    `top_k` boxes are looked at, all if it is not positive. Four values from `coord_start` are corners, `score_index` is
    the score, and boxes with different values at `id_index`, unless that is -1 or with `force_suppress`, do not concern
    one another. The result is boxes, with those that are kept first if `invalid_to_bottom`; with `places`
    it is the place of each box that is kept and the number of them, int32.
    """

    batches: int
    boxes: int
    values: int
    top_k: int
    coord_start: int
    score_index: int
    id_index: int
    force_suppress: bool
    invalid_to_bottom: bool
    places: bool


@dataclass(frozen=True)
class Bilinear:
    """int8 pixels between those of an image, in NHWC: work for the host only.

    Output row y lies at `starts[0] + y * steps[0]` in 1/1024 of a row of the input; columns follow the others.
    """

    ifm: tuple[int, int, int, int]
    ofm: tuple[int, int, int, int]
    steps: tuple[int, int]
    starts: tuple[int, int]


HostWork = Quantize | Bilinear | Sort | Suppress
"""What functions of ours compute on the host that is no layer."""


@dataclass(frozen=True)
class KernelCall:
    """What computes one layer on the host: a C function of ours, and the constant arrays that it reads.

    Its parameters are pointers: the layer's inputs, the constants in this order, `workspace` int32 values if there are
    any, and the outputs.
    """

    function: str
    constants: tuple[Array, ...]
    workspace: int = 0


@dataclass(frozen=True)
class RegionCall:
    """A call of a region: the graph's inputs, then its outputs; its scratch comes from the arena."""

    graph: Graph
    arguments: tuple[Buffer, ...]


@dataclass(frozen=True)
class WaitCall:
    """Waits for a region whose call returned while it was running; has the arguments of that call.

    A region without a `WaitCall` has ended when its call returns.
    """

    graph: Graph
    arguments: tuple[Buffer, ...]


@dataclass(frozen=True)
class CopyCall:
    """Copies a buffer to a model output (an input that is passed through, for example)."""

    source: Buffer
    target: Buffer


Call = HostCall | RegionCall | WaitCall | CopyCall


@dataclass(frozen=True)
class ProgramStage:
    """Some calls of a program, one after the other, that are also a function `<mod_name>_<name>_run` of their own. What
    they read of other calls are inputs of the program."""

    name: str
    calls: int


@dataclass(frozen=True)
class Program:
    """A whole model: its interface, and the calls of one inference in order. With `stages`, which all calls are of, it
    is a program whose parts also run one by one, as those of a PE of a mesh do."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    calls: tuple[Call, ...]
    stages: tuple[ProgramStage, ...] = ()

    @property
    def parts(self) -> Iterator[tuple[ProgramStage, Program]]:
        """Each stage, and the program with its calls only."""
        first = 0
        for stage in self.stages:
            yield stage, replace(self, calls=self.calls[first : first + stage.calls], stages=())
            first += stage.calls

    @property
    def regions(self) -> tuple[Graph, ...]:
        return tuple(call.graph for call in self.calls if isinstance(call, RegionCall))

    @property
    def returning_early(self) -> frozenset[str]:
        """The names of the regions that have a `WaitCall`."""
        return frozenset(call.graph.name for call in self.calls if isinstance(call, WaitCall))


_LONGEST_MOD_NAME = 63
_OWN_FILES = ("app", "app_count", "app_io", "count", "extra", "flags", "hal", "io", "library", "map", "semihost", "src")
_C_HEADERS_TEXT = """
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic
stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
"""
_C_HEADERS = frozenset(_C_HEADERS_TEXT.split())


def mod_name_of(text: str) -> str:
    """The `mod_name` of a model that is called `text`, as its file is: with _ for what C does not take.

    A name that cannot be one even so has "model_" in front.
    """
    plain = "".join(one if one.isascii() and one.isalnum() else "_" for one in text)
    try:
        check_mod_name(plain)
    except InvalidInput:
        plain = f"model_{plain}"[:_LONGEST_MOD_NAME]
    return plain


def check_mod_name(mod_name: object) -> None:
    """Raise `InvalidInput` unless `mod_name` can be the prefix of the C names of a project, and name its files."""
    if not isinstance(mod_name, str):
        raise InvalidInput(f"mod_name is a string: got {mod_name!r}")
    if not mod_name:
        raise InvalidInput("mod_name has at least one character: got ''")
    if len(mod_name) > _LONGEST_MOD_NAME:
        raise InvalidInput(f"mod_name has at most {_LONGEST_MOD_NAME} characters: got {len(mod_name)}")
    for character in mod_name:
        if not (character.isascii() and (character.isalnum() or character == "_")):
            raise InvalidInput(f"mod_name {mod_name!r}: characters are letters, digits and _: got {character!r}")
    if mod_name[0].isdigit():
        raise InvalidInput(f"mod_name {mod_name!r}: the first character is a letter or _: got {mod_name[0]!r}")
    # Not even in another case: some file systems do not tell them apart, and macros are in upper case.
    name = mod_name.lower()
    if name in _C_HEADERS:
        raise InvalidInput(f"mod_name is no header of the C library, which <mod_name>.h would hide: got {mod_name!r}")
    if name in _OWN_FILES:
        raise InvalidInput(f"mod_name is none of the project's own files ({', '.join(_OWN_FILES)}): got {mod_name!r}")
    if name.startswith("hwlib"):
        raise InvalidInput(f"mod_name does not start with hwlib, as the names of HWlib do: got {mod_name!r}")
