"""Generates `hal_kit_config.h`: what the HAL test kit in `kit/` is told beside the numbers of an `Accelerator`."""

from __future__ import annotations

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import InvalidInput
from byoc_hw.hwlib.accelerator_header import ACCELERATOR_HEADER, Macro, accelerator_macros, header_text

WINDOW = 8192
"""Bytes of local memory that most checks use, where the memories have them; the kit keeps three images of them."""

MAIN = 160 * 1024
"""Bytes of main memory, at most, from which and to which the largest copies go."""

_LEAST_MEMORY = 1024  # a job's operands, its weights and parameters
_LARGEST_ALIGNMENT = 64  # with a larger one, the rows of the kit's copies do not fit the window
_ROWS = 16  # rows of one unit that always fit the window


def kit_config(accelerator: Accelerator, *, refusals: bool, events: int = 0) -> str:
    """The text of `hal_kit_config.h`, which includes `hwlib_accelerator.h`. Sizes in bytes.

    `refusals`: whether the HAL says that it returns an error for what the accelerator cannot do. `events` is the
    number of those of its chip. Raises
    `InvalidInput` for an accelerator that has no HAL, or that the kit's checks do not fit.
    """
    accelerator_macros(accelerator)
    alignment = accelerator.dma_alignment
    if alignment & (alignment - 1) or alignment > _LARGEST_ALIGNMENT:
        rule = f"for the HAL test kit, dma_alignment is a power of two of at most {_LARGEST_ALIGNMENT}"
        raise InvalidInput(f"accelerator {accelerator.name}: {rule}: got {alignment}")
    memories = (accelerator.activation_memory, accelerator.weight_memory)
    least = max(_LEAST_MEMORY, _ROWS * alignment)
    for what, size in zip(("activation_memory", "weight_memory"), memories, strict=True):
        if size < least:
            rule = f"for the HAL test kit, {what} is at least {least} bytes"
            raise InvalidInput(f"accelerator {accelerator.name}: {rule}: got {size}")
    unit = max(alignment, 64)
    window = min(WINDOW, *memories) // unit * unit
    main = max(min(MAIN, accelerator.ram // 2), 2 * window) // unit * unit
    macros: list[Macro] = [
        ("WINDOW", f"{window}u", "bytes of a local memory that most checks work in"),
        ("MAIN", f"{main}u", "bytes of main memory for the largest copies: 2 windows or more"),
        ("MAIN_ALIGNMENT", f"{max(alignment, 4)}u", "of what lies in main memory"),
        ("REFUSALS", str(int(refusals)), "whether the HAL returns an error for what the accelerator cannot do"),
        ("EVENTS", f"{events}u", "events of the chip that the accelerator reaches"),
    ]
    purpose = f"The accelerator {accelerator.name}, for the HAL test kit."
    return header_text("hal_kit_config.h", "HAL_KIT", purpose, macros, includes=[ACCELERATOR_HEADER])
