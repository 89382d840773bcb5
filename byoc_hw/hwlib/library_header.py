"""Generates what the HAL over a vendor's library is compiled with, on a chip: the vendor's names, and the queue."""

from __future__ import annotations

from byoc_hw.accelerator import Accelerator
from byoc_hw.hwlib.accelerator_header import header_text
from byoc_hw.library_calls import Library

LIBRARY_HEADER = "hwlib_library.h"


def library_header(library: Library) -> str:
    """The text of `hwlib_library.h`: the vendor's header, and the functions that wait and ask."""
    macros = [("WAIT", str(library.wait), "returns when a call has ended")]
    if library.done is not None:
        macros.append(("DONE", library.done, "whether a call has ended"))
    purpose = "A vendor's library on a chip of several accelerators."
    return header_text(LIBRARY_HEADER, "HWLIB_LIBRARY", purpose, macros, includes=[library.header.name])


def library_sim_config(accelerator: Accelerator) -> str:
    """The text of `hwlib_sim_config.h` for the simulator of a library's calls."""
    macros = [("QUEUE", f"{accelerator.queue}u", "calls that the engine holds")]
    purpose = f"The accelerator {accelerator.name}, for its simulator."
    return header_text("hwlib_sim_config.h", "HWLIB_ACCELERATOR", purpose, macros)
