"""What a project has for a chip of several accelerators: the folder of each, and values for templates and metadata."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from byoc_hw.accelerator import NO_INSTRUCTIONS, Accelerator, HalInstructions
from byoc_hw.errors import InvalidInput
from byoc_hw.hwlib.accelerator_header import ACCELERATOR_HEADER, accelerator_header
from byoc_hw.hwlib.library_header import LIBRARY_HEADER, library_header, library_sim_config
from byoc_hw.hwlib.names_header import NAMES_HEADER, hal_functions, names_header
from byoc_hw.hwlib.sim_config import sim_config
from byoc_hw.library_calls import Library
from byoc_hw.soc import Soc

TABLE_SOURCE = "hwlib_table.c"
"""Compiled once for each accelerator: the table of its HAL's functions."""

INTERPRETER_SOURCES = ("hwlib_copy.c", "hwlib_failed.c", "hwlib_steps.c")
"""Compiled once for each accelerator of a chip that runs a region alone, as for a single accelerator."""

_OTHER_FOLDERS = ("include", "src", "sim", "library")


def chip_runtime(chip: Soc) -> dict[str, str | bytes]:
    """The headers that HAL and simulator of each accelerator are compiled with, by path.

    Raises `InvalidInput` for an accelerator with the name of another folder of `hwlib/`.
    """
    files: dict[str, str | bytes] = {}
    sources: list[Path] = []
    for lane, one in enumerate(chip.accelerators):
        if one.name.lower() in _OTHER_FOLDERS:
            rule = f"an accelerator's name is none of {', '.join(_OTHER_FOLDERS)}, which name other folders of HWlib"
            raise InvalidInput(f"chip {chip.name}: {rule}: got {one.name}")
        files[f"hwlib/{one.name}/{NAMES_HEADER}"] = names_header(one.name, events=chip.has_events(lane))
        if one.library is None:
            files[f"hwlib/{one.name}/{ACCELERATOR_HEADER}"] = accelerator_header(one)
            together = chip.accelerators[chip.memory_of(lane)] if chip.group_of(lane) else None
            files[f"hwlib/{one.name}/hwlib_sim_config.h"] = sim_config(
                one, together, chip if chip.has_events(lane) else None
            )
            continue
        files[f"hwlib/{one.name}/{LIBRARY_HEADER}"] = library_header(one.library)
        files[f"hwlib/{one.name}/hwlib_sim_config.h"] = library_sim_config(one)
        sources += [source for source in library_files(one.library) if source not in sources]
    check_library_names(sources)
    return files | {f"library/{source.name}": source.read_bytes() for source in sources}


def library_files(library: Library) -> tuple[Path, ...]:
    """The files of a library: its header first. `InvalidInput` for one that is not there, or has no name for make."""
    found = library.header, *library.sources
    for path in found:
        if not path.is_file():
            raise InvalidInput(f"library: header and sources are files: {path} is none")
        if not re.fullmatch(r"[\w.+-]+", path.name, re.ASCII):
            raise InvalidInput(f"library: a file's name has letters, digits, '.', '_', '+', '-': got {path.name!r}")
    return found


def check_library_names(sources: Sequence[Path]) -> None:
    """Raise `InvalidInput` unless the files of a project's libraries have names of their own."""
    if len({source.name for source in sources}) != len(sources):
        raise InvalidInput(f"the files of a library have names of their own: {[source.name for source in sources]}")


def _local(accelerator: Accelerator) -> tuple[int, int]:
    """Bytes of its local memories, for activations and weights: a library has none."""
    if accelerator.library is not None:
        return 0, 0
    return accelerator.activation_memory, accelerator.weight_memory


def chip_context(
    chip: Soc | None, each: HalInstructions = NO_INSTRUCTIONS, alone: Collection[Accelerator] = ()
) -> dict[str, object]:
    """The template values that depend on whether there are several accelerators; `chip` is None for a single one,
    whose HAL takes the core `each`. Those of `alone` run regions without the others.

    `own` has the names by which the program around the model calls HAL and simulators.
    """
    if chip is None:
        own = {"sim": "hwlib_sim", "hal": "hwlib_hal_", "cycles": "hwlib_hal_cycles"}
        return {
            "chip": [],
            "own": own,
            "sim": "hwlib_sim",
            "hal_functions": [one.costing(each) for one in hal_functions()],
        }
    functions = [
        function.costing(one.hal_instructions).of(one.name)
        for lane, one in enumerate(chip.accelerators)
        for function in hal_functions(of_chips=True, events=chip.has_events(lane))
    ]
    return {
        "chip": [
            {
                "name": one.name,
                "upper": one.name.upper(),
                "activations": _local(one)[0],
                "library": one.library is not None,
                "alone": [Path(source).stem for source in INTERPRETER_SOURCES] if one in alone else [],
            }
            for one in chip.accelerators
        ],
        "own": {"sim": "app_chip", "hal": "traced->", "cycles": "app_chip_hal_cycles"},
        "sim": f"{chip.accelerators[0].name}_sim",
        "hal_functions": functions,
        "dma_alignment": chip.dma_alignment,
    }


def chip_entries(chip: Soc, busy: Soc) -> list[dict[str, Any]]:
    """The accelerators for the metadata: names, labels, and bytes of the local memories; and what those have in common
    that are `busy`, which have code in the project."""
    common: dict[str, dict[str, Any]] = {
        one.name: {
            **({"shares": list(group)} if (group := busy.group_of(lane)) else {}),
            **({"events": busy.events} if busy.has_events(lane) else {}),
        }
        for lane, one in enumerate(busy.accelerators)
    }
    return [
        {
            "name": one.name,
            "label": one.label,
            "activations": _local(one)[0],
            "weights": _local(one)[1],
            **common.get(one.name, {}),
        }
        for one in chip.accelerators
    ]
