"""Constant data of regions in `<mod_name>_weights.h`: as text, or as bytes of a file beside it.

Every compiler takes text, and people can read it. For a few MB of it a compiler takes many seconds, and hundreds of MB
of memory; an assembler includes bytes as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from byoc_hw.emit import c
from byoc_hw.tensor import Array

WEIGHTS = ("auto", "text", "binary")
"""How constant data can be written: "auto" is "binary" for projects with much of it, else "text"."""

LARGE = 1 << 20
"""Bytes of constant data from which "auto" is "binary"."""

IN_RAM = "HWLIB_IN_RAM"
"""The macro before constants that lie in RAM."""

_SECTION = "HWLIB_IN_RAM_SECTION"
_IN_RAM_WHY = (
    "Constants that a DMA reads which cannot read flash: start-up code copies them to RAM, as any initialised data."
)


@dataclass(frozen=True, eq=False)
class ConstantArray:
    """An array of C, in RAM for a DMA that cannot read flash."""

    name: str
    values: Array
    in_ram: bool = False


def is_binary(arrays: Sequence[ConstantArray], form: str) -> bool:
    """Whether arrays are written as bytes, by one of `WEIGHTS`."""
    wanted = form == "binary" or (form == "auto" and sum(one.values.nbytes for one in arrays) >= LARGE)
    return wanted and any(map(_of_bytes, arrays))


def ram_macro() -> str:
    """The definition that text of arrays in RAM needs."""
    return _macro(IN_RAM, '__attribute__((section(".data.hwlib_weights")))')


def text_of_arrays(arrays: Sequence[ConstantArray], alignment: int) -> Iterator[str]:
    """Definitions of arrays with their values."""
    for one in arrays:
        yield c.array(one.name, one.values, alignment, IN_RAM if one.in_ram else "const")


def bytes_of_arrays(arrays: Sequence[ConstantArray], alignment: int, macro: str) -> tuple[list[str], bytes]:
    """C that includes the bytes of arrays, and the contents of the file that it includes them from.

    That is the file of the C with `.bin` behind its name, unless the `macro` names another one. The C has a hash of the
    bytes: it changes with them, as compiler caches and dependencies want it. Elements of several bytes stay text, as
    their order is the target's.
    """
    contents = b"".join(one.values.tobytes() for one in arrays if _of_bytes(one))
    text, offset = [_head(contents, macro)], 0
    if any(one.in_ram for one in arrays):
        text.append(_macro(_SECTION, '".data.hwlib_weights"'))
    for one in arrays:
        if _of_bytes(one):
            text.append(_included(one, alignment, macro, offset))
            offset += one.values.nbytes
        else:
            text.extend(text_of_arrays([one], alignment))
    return text, contents


def _of_bytes(one: ConstantArray) -> bool:
    return one.values.size > 0 and one.values.dtype in (np.dtype(np.int8), np.dtype(np.uint8))


def _macro(name: str, value: str) -> str:
    return f"{c.comment([_IN_RAM_WHY])}\n#ifndef {name}\n#define {name} {value}\n#endif\n"


def _head(contents: bytes, macro: str) -> str:
    explained = c.comment(
        [
            "The assembler includes the bytes of the file with this one's name and .bin behind it, "
            f"or of {macro}, relative to where the compiler runs. SHA-256 of its {len(contents)} bytes:",
            hashlib.sha256(contents).hexdigest(),
        ]
    )
    return f"""\
{explained}
#if !defined(__GNUC__) || !defined(__ELF__)
#error "this compiler does not include bytes by GNU assembly: build the project with weights as text"
#endif
#ifndef {macro}
#define {macro} __FILE__ ".bin"
#endif
"""


def _included(one: ConstantArray, alignment: int, macro: str, offset: int) -> str:
    """A declaration, and the assembly of the definition; its last line fails if the file is too short."""
    name, nbytes = one.name, one.values.nbytes
    element = f"{'' if one.in_ram else 'const '}{c.c_type(str(one.values.dtype))}"
    section = f'" {_SECTION} ",\\"aw\\"' if one.in_ram else f'.rodata.{name},\\"a\\"'
    return f"""\
extern {element} {name}[{nbytes}] __asm__("{name}") __attribute__((aligned({alignment})));
__asm__(
  ".pushsection {section},%progbits\\n"
  ".balign {alignment}\\n"
  ".globl {name}\\n"
  ".hidden {name}\\n"
  ".type {name},%object\\n"
  ".size {name},{nbytes}\\n"
  "{name}:\\n"
  ".incbin \\"" {macro} "\\",{offset},{nbytes}\\n"
  "9:\\n"
  ".org 9b + (9b - {name}) - {nbytes}\\n"
  ".popsection\\n");
"""
