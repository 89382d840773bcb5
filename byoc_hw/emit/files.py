"""The project directory. All files are rendered before the first is written.

include/<mod_name>.h            interface: inputs, outputs, run, sizes
src/<mod_name>_main.c           the calls in order, the arena
src/<mod_name>_hwlib.c, .h      the regions (named after the accelerator)
src/<mod_name>_weights.h        their constant data; the bytes of much of it are in <mod_name>_weights.h.bin
src/<mod_name>_host.c           what TVM generated
src/<mod_name>_math.c           an exponential or a softmax, where the host functions call one
src/<mod_name>_kernels.c        functions of ours for the host: layers in TFLite's arithmetic, orders, suppressions
hwlib/ or library/              HWlib with its simulator, or the vendor's library
hwlib/<accelerator>/            on a chip, what HAL and simulator of each accelerator are compiled with
hwlib/library/                  on a chip with a vendor's library, the HAL that calls it
app/                            a program that runs the model; app/riscv32/ for bare-metal RISC-V
Makefile, metadata.json
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import byoc_hw.hwlib
from byoc_hw.emit.chip_files import (
    INTERPRETER_SOURCES,
    TABLE_SOURCE,
    check_library_names,
    chip_context,
    chip_runtime,
    library_files,
)
from byoc_hw.emit.directory import METADATA, replace_project
from byoc_hw.emit.entry import entry_context
from byoc_hw.emit.host_files import host_sources
from byoc_hw.emit.metadata_file import metadata_text
from byoc_hw.emit.numbering import number_calls
from byoc_hw.emit.parts import Parts
from byoc_hw.emit.region import (
    alignment_of,
    cannot_read_flash,
    code,
    constant_arrays,
    ends_in_flight,
    give_up_prototype,
    joined_state,
    polled_code,
    preamble,
    prototype,
    start_prototype,
    wait_prototype,
)
from byoc_hw.emit.rendering import render
from byoc_hw.emit.weight_file import bytes_of_arrays, is_binary, ram_macro, text_of_arrays
from byoc_hw.emit.whole_source import WHOLE_SOURCE, whole_source
from byoc_hw.errors import InvalidInput
from byoc_hw.hwlib.accelerator_header import ACCELERATOR_HEADER, accelerator_header
from byoc_hw.hwlib.names_header import interpreter_name
from byoc_hw.hwlib.sim_config import sim_config
from byoc_hw.plan.chip_plan import ChipPlan, busy_lanes
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.program import RegionCall, check_mod_name
from byoc_hw.soc import Soc, accelerators_of

Files = dict[str, str | bytes]

_OTHER_SOURCES = ("main", "host", "math", "kernels", "weights")
_HWLIB = Path(byoc_hw.hwlib.__file__).parent
_HWLIB_FOLDERS = ("include", "src", "sim")
_LIBRARY_FOLDERS = ("library", "sim/library")
_LANES_SOURCE = "hwlib_lanes.c"
_OF_CHIPS = ("hwlib_lanes.h", _LANES_SOURCE, TABLE_SOURCE)
_OF_EVENTS = ("sim_events.c", "sim_signal.c")
_OF_JOINED = ("hwlib_go_on.c",)
_OF_ONE = (*INTERPRETER_SOURCES, "hwlib_steps.h", *_OF_JOINED)


def project_files(parts: Parts, added: Mapping[str, str] = MappingProxyType({})) -> Files:
    """Every file of the project by its path in the directory. Deterministic; writes nothing.

    `added` are files of the caller's, by path, in folders of their own.
    """
    check_mod_name(parts.mod_name)
    if parts.accelerator.name in _OTHER_SOURCES:
        raise InvalidInput(
            f"accelerator name is not one of {', '.join(_OTHER_SOURCES)}, which name other sources of the project: "
            f"got {parts.accelerator.name}"
        )
    for graph in parts.program.regions:
        if graph.name not in parts.regions:
            raise InvalidInput(f"each region of the program has a plan: {graph.name} has none")
    files: Files = {
        **_interface(parts),
        **(_regions(parts) if parts.regions else {}),
        **(host_sources(parts) if parts.host_source else {}),
        **_runtime(parts),
        **added,
    }
    files |= _builds(parts, files)
    files[METADATA] = metadata_text(parts, _encoded(files))
    return files


def write_project(directory: Path, files: Files, force: bool = False) -> None:
    """Write the files in place of those of an earlier project, all of them or none.

    What is not of an earlier project stays, such as build outputs. So does a file of `app/` that was changed
    since it was written, and one whose contents the new project does not change; `force` replaces them. Raises
    `InvalidInput`, before any change, if the directory holds anything but a project, if another file was
    changed, for links in place of the directory or of its folders, and if nothing can be written there.
    """
    replace_project(directory, _encoded(files), force)


def _encoded(files: Files) -> dict[str, bytes]:
    return {name: one.encode() if isinstance(one, str) else one for name, one in files.items()}


# ---------------------------------------------------------------- the files


def _fixed(name: str) -> str:
    return render(name)


def _interface(parts: Parts) -> Files:
    ahead = {name for name, region in parts.regions.items() if ends_in_flight(region)}
    context = entry_context(parts.program, parts.memory, parts.accelerator, parts.io_in_arena, parts.polled, ahead)
    mod_name = parts.mod_name
    context |= {
        "region_header": f"{mod_name}_{parts.accelerator.name}.h" if parts.regions else None,
        "hal": parts.tiled,
        "taken": _taken(parts),
        "library": _has_library(parts),
        "whole": _has_library(parts) or bool(_whole(parts)),
        "activation_memory": 0 if isinstance(parts.accelerator, Soc) else parts.accelerator.activation_memory,
        **chip_context(parts.lanes, accelerators_of(parts.accelerator)[0].hal_instructions, parts.alone),
        "flash_apart": parts.tiled and cannot_read_flash(parts.accelerator),
    }
    return {
        f"include/{mod_name}.h": render("model.h.j2", banner=parts.banner("the model."), **context),
        f"src/{mod_name}_main.c": render(
            "model_main.c.j2", banner=parts.banner("one inference, call by call."), **context
        ),
        "app/main.c": render("app_main.c.j2", banner=parts.banner("a program around the model."), **context),
        **_app(parts, context),
    }


def _taken(parts: Parts) -> list[str]:
    """The variables, each of an accelerator or of those that share memory or events, that say whether it is taken."""
    if not parts.tiled:
        return []
    chip = parts.accelerator
    if not isinstance(chip, Soc):
        return ["hwlib_taken"]
    first = {chip.claimed_with(lane) for lane in busy_lanes(parts.regions.values())}
    return [interpreter_name("hwlib_taken", chip.accelerators[lane].name) for lane in sorted(first)]


def _app(parts: Parts, context: Mapping[str, object]) -> Files:
    """The example program without its main: what it writes, file access, counting, start-up."""
    accelerator = parts.accelerator
    sizes = {"label": accelerator.label, "flash": accelerator.flash, "ram": accelerator.ram}
    if not isinstance(accelerator, Soc):
        sizes |= {"activations": accelerator.activation_memory, "weights": accelerator.weight_memory}
    written = {
        "app.h": "the example program: a device has a main.c of its own, the others show what happened.",
        "app.c": "messages and files.",
        "profile.c": "cycles by layer.",
        "trace.c": "what each layer made.",
        "count.h": "what the host core executes.",
        "count.c": "what the host core executes.",
        **({"chip.c": "the accelerators of the chip, for the example program."} if context["chip"] else {}),
    }
    fixed = ("semihost.h", "io.c", "trap.c", "start.S", "start_main.c")
    return {
        "app/io.h": _fixed("app_io.h"),
        "app/io.c": _fixed("app_io.c"),
        **{
            f"app/{name}": render(f"app_{name}.j2", banner=parts.banner(purpose), **context)
            for name, purpose in written.items()
        },
        "app/size.awk": _fixed("app_size.awk"),
        **{f"app/riscv32/{name}": _fixed(f"riscv32/{name}") for name in fixed},
        "app/riscv32/link.ld": render(
            "riscv32/link.ld.j2", banner=parts.banner("a linker script."), **context, **sizes
        ),
    }


def _regions(parts: Parts) -> Files:
    mod_name, name = parts.mod_name, f"{parts.mod_name}_{parts.accelerator.name}"
    written = parts.written
    planned = [
        (written[call.graph.name], layers[0].id if layers else 0)
        for call, layers in number_calls(parts.program)
        if isinstance(call, RegionCall)
    ]
    guard = f"{name}_H".upper()
    header = [
        parts.banner("the regions, for main."),
        f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n",
        *_prototypes(parts),
        "\n#endif\n",
    ]
    early = parts.program.returning_early
    source = [
        parts.banner("what runs on the accelerator: descriptors, plans and calls."),
        preamble(parts.lanes or parts.accelerator, [f"{name}.h", f"{mod_name}_weights.h"], parts.alone),
        *filter(None, [joined_state(parts.regions.values())]),
        *(
            polled_code(region, first)
            if parts.polled and isinstance(region, ChipPlan)
            else code(region, first, returns_early=region.graph.name in early)
            for region, first in planned
        ),
    ]
    return {
        f"src/{name}.h": "\n".join(header),
        f"src/{name}.c": "\n".join(source),
        **_weights(parts, [region for region, _ in planned]),
    }


def _weights(parts: Parts, regions: Sequence[PlannedRegion]) -> Files:
    """The header with the constant data of the regions, and the file of bytes that it includes, if any."""
    hardware, alignment = parts.accelerator, alignment_of(parts.accelerator)
    header = f"{parts.mod_name}_weights"
    guard = f"{header}_H".upper()
    arrays = [array for region in regions for array in constant_arrays(region, hardware)]
    included: Files = {}
    if is_binary(arrays, parts.weights):
        definitions, contents = bytes_of_arrays(arrays, alignment, f"{header}_FILE".upper())
        included = {weights_file(parts.mod_name): contents}
    else:
        definitions = [*([ram_macro()] if cannot_read_flash(hardware) else []), *text_of_arrays(arrays, alignment)]
    text = [
        parts.banner("constant data of the regions: weights, parameters, constant activations."),
        f"#ifndef {guard}\n#define {guard}\n\n#include <stdbool.h>\n#include <stdint.h>\n",
        *definitions,
        "#endif\n",
    ]
    return {f"src/{header}.h": "\n".join(text), **included}


def weights_file(mod_name: str) -> str:
    """The file of the bytes that the header with the constant data includes."""
    return f"src/{mod_name}_weights.h.bin"


def _prototypes(parts: Parts) -> Iterator[str]:
    """Declarations of the functions of the regions."""
    graphs = parts.program.regions
    if parts.polled:
        yield '#include "hwlib_lanes.h"\n'
        yield from (f"{start_prototype(graph)};" for graph in graphs)
        return
    yield from (f"{prototype(graph)};" for graph in graphs)
    yield from (f"{wait_prototype(graph)};" for graph in graphs if graph.name in parts.program.returning_early)
    yield from (f"{give_up_prototype(graph)};" for graph in graphs if ends_in_flight(parts.regions[graph.name]))


def _runtime(parts: Parts) -> Files:
    """The runtime of the regions: HWlib with its simulator, or the vendor library."""
    library = parts.accelerator.library
    if not parts.regions:
        return {}
    if library is not None:
        sources = library_files(library)
        check_library_names(sources)
        return {f"library/{source.name}": source.read_bytes() for source in sources}
    if parts.chip is not None:
        own = _hwlib_copies((*_of_no_lanes(parts), *(() if parts.chip.events else _OF_EVENTS)))
        if _has_library(parts):
            own |= _hwlib_copies((), _LIBRARY_FOLDERS)
        return own | _whole(parts) | chip_runtime(parts.chip)
    assert not isinstance(parts.accelerator, Soc)
    return {
        **_hwlib_copies((*(_OF_ONE if parts.polled else _of_others(parts)), *_OF_EVENTS)),
        **_whole(parts),
        f"hwlib/include/{ACCELERATOR_HEADER}": accelerator_header(parts.accelerator),
        "hwlib/sim/hwlib_sim_config.h": sim_config(parts.accelerator),
    }


def _of_no_lanes(parts: Parts) -> tuple[str, ...]:
    """The files of HWlib that a chip does without: where nothing runs alone, or all that runs."""
    if not parts.alone:
        return _OF_ONE
    lanes = any(isinstance(region, ChipPlan) for region in parts.written.values())
    return _OF_JOINED if lanes else (*_OF_JOINED, _LANES_SOURCE)


def _of_others(parts: Parts) -> tuple[str, ...]:
    """The files of HWlib that regions on a single accelerator do without."""
    return _OF_CHIPS if joined_state(parts.regions.values()) else (*_OF_CHIPS, *_OF_JOINED)


def _has_library(parts: Parts) -> bool:
    """Whether a vendor's library is in the project: in place of HWlib, or beside other accelerators of a chip."""
    if parts.chip is not None:
        return any(one.library is not None for one in parts.chip.accelerators)
    return bool(parts.regions) and not parts.tiled


def _whole(parts: Parts) -> Files:
    """What HALs may run layers without tiles with, if they have any."""
    has_whole = any(one.has_whole for one in accelerators_of(parts.chip or parts.accelerator))
    return {f"hwlib/src/{WHOLE_SOURCE}": whole_source()} if has_whole else {}


def _hwlib_copies(without: Collection[str], folders: Sequence[str] = _HWLIB_FOLDERS) -> Files:
    return {
        f"hwlib/{folder}/{source.name}": source.read_bytes()
        for folder in folders
        for source in sorted((_HWLIB / folder).iterdir())
        if source.suffix in (".c", ".h") and source.name not in without
    }


_BUILDS = {
    "Makefile": "Makefile.j2",
    "CMakeLists.txt": "CMakeLists.txt.j2",
    "zephyr/module.yml": "zephyr_module.yml.j2",
    "zephyr/Kconfig": "zephyr_kconfig.j2",
    "zephyr/CMakeLists.txt": "zephyr_CMakeLists.txt.j2",
}
"""The files from which the project is built, and their templates."""


_CMAKE_TARGETS = (
    "all",
    "clean",
    "depend",
    "edit_cache",
    "help",
    "install",
    "package",
    "preinstall",
    "rebuild_cache",
    "test",
)
"""Names of targets that CMake has itself."""


def _builds(parts: Parts, files: Files) -> Files:
    model = [
        name
        for name in sorted(files)
        if name.endswith(".c")
        and name.startswith(("src/", "hwlib/src/", "library/"))
        and not (parts.chip and name.endswith((f"/{TABLE_SOURCE}", *(f"/{one}" for one in INTERPRETER_SOURCES))))
    ]
    region = f"src/{parts.mod_name}_{parts.accelerator.name}"
    context = {
        "mod_name": parts.mod_name,
        "target": f"{parts.mod_name}_model" if parts.mod_name in _CMAKE_TARGETS else parts.mod_name,
        "upper": parts.mod_name.upper(),
        "model_sources": model,
        "region_object": f"{region}.o",
        "region_source": f"{region}.c",
        "weights_file": next((name for name in files if name == weights_file(parts.mod_name)), None),
        "app": [name for name in ("main", "app", "profile", "chip") if f"app/{name}.c" in files],
        "hal": parts.tiled,
        "host": bool(parts.host_source),
        "library": _has_library(parts),
        "flash_apart": parts.tiled and cannot_read_flash(parts.accelerator),
        **chip_context(parts.chip, alone=parts.alone),
        "hal_functions": chip_context(parts.lanes)["hal_functions"],
    }
    return {name: render(template, **context) for name, template in _BUILDS.items()}
