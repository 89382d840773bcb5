"""C syntax: identifiers, comments, strings, numbers and arrays.

All names and texts of a model are escaped here before they are written to C.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_hw.errors import InvalidInput
from byoc_hw.names import distinct
from byoc_hw.tensor import Array

WIDTH = 100
"""Columns of a generated line."""

MAX_IDENTIFIER = 63
"""Significant characters of an internal identifier that C11 guarantees."""

POINTEES = {
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float32": "float",
    "float64": "double",
    "bool": "bool",
}
"""The C type of an element, by dtype."""

# Keywords of C11 and of C++ (the headers serve both), and macros and types of the headers that we include.
_TAKEN_TEXT = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
alignas alignof and and_eq asm atomic_cancel atomic_commit bitand bitor bool catch char8_t char16_t char32_t class
compl concept consteval constexpr constinit const_cast co_await co_return co_yield decltype delete dynamic_cast
explicit export false friend mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
public reflexpr reinterpret_cast requires static_assert static_cast synchronized template this thread_local throw
true try typeid typename using virtual wchar_t xor xor_eq
NULL errno assert stdin stdout stderr main linux unix i386
int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t size_t
"""
_TAKEN = frozenset(_TAKEN_TEXT.split())
# SIZE_MAX, EOF, a macro of a vendor's header: a member of that name would not survive the preprocessor.
_LIKE_A_MACRO = r"[A-Z][A-Z0-9_]*[A-Z0-9]|I"


def c_type(dtype: str) -> str:
    """The C type of one element of a tensor; `InvalidInput` for a dtype that C does not have."""
    if dtype not in POINTEES:
        raise InvalidInput(f"dtype is one of {', '.join(POINTEES)}: got {dtype}")
    return POINTEES[dtype]


def identifier(name: str) -> str:
    """A legal C identifier like `name`, and no macro. Different names can give the same one: see `unique`."""
    legal = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if not re.match(r"[A-Za-z]", legal):  # digits are not allowed first, underscores reserved
        legal = f"n{legal}"
    if legal in _TAKEN or re.fullmatch(_LIKE_A_MACRO, legal):
        legal += "_"
    if len(legal) > MAX_IDENTIFIER:
        legal = f"{legal[: MAX_IDENTIFIER - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return legal


def unique(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """An identifier for each name, unique even in upper case (so that they can name macros).

    Of names that collide the first is unchanged, later ones get `_2`, `_3` ...; `taken` are reserved
    identifiers.
    """
    return distinct(map(identifier, names), taken, same=str.upper, longest=MAX_IDENTIFIER)


# ---------------------------------------------------------------- text


def plain(text: str) -> str:
    """`text` in printable ASCII, without the end of a comment, trigraphs and line splices."""
    text = "".join(char if " " <= char <= "~" and char != "\\" else f"<U+{ord(char):04X}>" for char in text)
    text = text.replace("*/", "* /").replace("/*", "/ *")
    return re.sub(r"\?(?=\?)", "? ", text)


def comment(lines: Sequence[str], indent: int = 0) -> str:
    """A block comment of `lines`, each made `plain` and wrapped; words that are too long are broken."""
    margin = " " * indent
    wrapped = [
        piece
        for line in lines
        for piece in textwrap.wrap(plain(line), WIDTH - indent - 6, subsequent_indent="  ", break_on_hyphens=False)
        or [""]
    ]
    if len(wrapped) == 1:
        return f"{margin}/* {wrapped[0]} */"
    body = "\n".join(f"{margin} * {piece}".rstrip() for piece in wrapped[1:])
    return f"{margin}/* {wrapped[0]}\n{body}\n{margin} */"


def string(text: str, width: int = WIDTH - 8) -> list[str]:
    """A string literal of `text` in UTF-8, as adjacent literals that each fit in `width` columns."""
    spelt = [_string_byte(byte) for byte in text.encode("utf-8", "replace")]
    pieces: list[str] = [""]
    for char in spelt:
        if len(pieces[-1]) + len(char) + 2 > width:
            pieces.append("")
        pieces[-1] += char
    return [f'"{piece}"' for piece in pieces]


def _string_byte(byte: int) -> str:
    char = chr(byte)
    if char in '"\\?':  # ?? could start a trigraph
        return f"\\{char}"
    return char if " " <= char <= "~" else f"\\{byte:03o}"


def wrapped(function: str, arguments: Sequence[str], end: str = "", indent: int = 0) -> str:
    """`function(arguments)` on one line, or with one argument per line where that is too long."""
    margin = " " * indent
    line = f"{margin}{function}({', '.join(arguments)}){end}"
    if len(line) <= WIDTH:
        return line
    separator = f",\n{margin}    "
    return f"{margin}{function}(\n{margin}    {separator.join(arguments)}){end}"


# ---------------------------------------------------------------- numbers and arrays


def exact_number(value: Any, dtype: npt.DTypeLike = "int32") -> str:
    """One constant of type `dtype`, exact."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        if not np.isfinite(value):
            raise InvalidInput(f"a constant for C is finite: got {value}")
        exact: Any = dtype.type(value)
        digits = np.format_float_scientific(exact, unique=True, trim="0")
        return digits + ("f" if dtype.itemsize <= 4 else "")
    suffix = {("i", 8): "LL", ("u", 4): "u", ("u", 8): "ULL"}.get((dtype.kind, dtype.itemsize), "")
    lowest = -(2 ** (8 * dtype.itemsize - 1))
    if dtype.itemsize >= 4 and int(value) == lowest:  # its absolute value does not fit: C has no negative constants
        return f"({lowest + 1}{suffix} - 1)"
    return f"{int(value)}{suffix}"


def array_rows(values: Array, indent: int = 2) -> str:
    """The values of an array in rows of at most `WIDTH` columns, each value followed by a comma."""
    flat = np.ascontiguousarray(values, values.dtype.newbyteorder("=")).reshape(-1)
    distinct, places = _places(flat)
    table = [f"{exact_number(value, flat.dtype)}," for value in distinct]
    longest = max(map(len, table), default=1)
    columns = max(1, (WIDTH - indent) // (longest + 1))
    cells = np.array([text.rjust(longest) for text in table], f"S{longest}").view(np.uint8).reshape(-1, longest)
    whole = len(flat) // columns
    rows = places[: whole * columns].reshape(whole, columns)
    parts = [_rows(cells, rows[at : at + _ROWS], indent) for at in range(0, whole, _ROWS)]
    if whole * columns < len(flat):
        parts.append(_rows(cells, places[None, whole * columns :], indent))
    return b"".join(parts)[:-1].decode("ascii")


_ROWS = 1 << 12
"""Rows that are spelt at a time: text takes several times the memory of its values."""


def _places(flat: Array) -> tuple[Array, Array]:
    """The distinct values of an array, and for each of its elements the place among them."""
    bits = flat.view(f"u{flat.dtype.itemsize}")  # which tell -0.0 from 0.0
    if bits.dtype != np.uint8:
        distinct, places = np.unique(bits, return_inverse=True)
        return distinct.view(flat.dtype), places.reshape(-1)
    present = np.zeros(256, bool)
    present[bits] = True
    places = (np.cumsum(present) - 1).astype(np.uint8)
    return np.flatnonzero(present).astype(np.uint8).view(flat.dtype), places[bits]


def _rows(cells: Array, places: Array, indent: int) -> bytes:
    """Rows of cells with a margin before and an end of line behind each."""
    count, columns = places.shape
    text = np.full((count, columns, cells.shape[1] + 1), ord(" "), np.uint8)
    text[:, :, :-1] = cells[places]
    text[:, -1, -1] = ord("\n")
    margin = np.full((count, indent), ord(" "), np.uint8)
    return np.concatenate([margin, text.reshape(count, -1)], axis=1).tobytes()


def array(name: str, values: Array, alignment: int = 16, qualifier: str = "const") -> str:
    """`static` definition of an array of constants. C has no empty arrays: at least one value."""
    if values.size == 0:
        raise InvalidInput(f"an array in C has at least one element: {name} has none")
    if str(values.dtype) not in POINTEES:
        raise InvalidInput(f"{name}: dtype is one of {', '.join(POINTEES)}: got {values.dtype}")
    head = f"static {qualifier} {c_type(str(values.dtype))} {name}[{values.size}]"
    return f"{head} __attribute__((aligned({alignment}))) = {{\n{array_rows(values)}\n}};\n"


def fields(values: Mapping[str, str | Mapping[str, str]], indent: int = 2) -> Iterator[str]:
    """Lines of designated initialisers, one for each field, the values in one column."""
    margin = " " * indent
    longest = max(len(name) for name in values)
    for name, value in values.items():
        yield f"{margin}.{name:<{longest}} = {value if isinstance(value, str) else inline_fields(value)},"


def inline_fields(values: Mapping[str, str | Mapping[str, str]]) -> str:
    """Designated initialisers on one line, in braces."""
    spelt = (f".{name} = {value if isinstance(value, str) else inline_fields(value)}" for name, value in values.items())
    return f"{{{', '.join(spelt)}}}"
