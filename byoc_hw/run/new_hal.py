"""Writes a HAL to start from: the C of `hwlib/template`, and the numbers of the chip."""

from __future__ import annotations

from pathlib import Path

import byoc_hw.hwlib
from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.errors import InvalidInput
from byoc_hw.hwlib.accelerator_header import accelerator_macros, header_text

NUMBERS = "chip_numbers.h"

_TEMPLATE = Path(byoc_hw.hwlib.__file__).parent / "template"


def new_hal(directory: Path | str, accelerator: Accelerator = REFERENCE) -> None:
    """Write a complete HAL in software for the accelerator: static arrays, `memcpy`, scalar loops.

    `chip_numbers.h` has what the chip has: the accelerator's numbers, to be changed with the chip. A model
    that was compiled for more does not compile with this HAL.

    Raises `InvalidInput`, before anything is written, for a directory that is not new or empty and for an
    accelerator that has no HAL.
    """
    directory = Path(directory)
    if directory.exists() and not directory.is_dir():
        raise InvalidInput(f"a new HAL goes into a directory that is new or empty: {directory} is a file")
    if directory.exists() and any(directory.iterdir()):
        raise InvalidInput(f"a new HAL goes into a directory that is new or empty: {directory} holds files")
    purpose = f"What the chip has: the numbers of the accelerator {accelerator.name} ({accelerator.label})."
    files = {NUMBERS: header_text(NUMBERS, "CHIP", purpose, accelerator_macros(accelerator))}
    files |= {file.name: file.read_text(encoding="utf-8") for file in sorted(_TEMPLATE.glob("*.[ch]"))}
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
