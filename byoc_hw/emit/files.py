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

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import byoc_hw.hwlib
from byoc_hw.accelerator import Accelerator
from byoc_hw.emit import c
from byoc_hw.emit.chip_files import (
    INTERPRETER_SOURCES,
    TABLE_SOURCE,
    check_library_names,
    chip_context,
    chip_entries,
    chip_runtime,
    library_files,
)
from byoc_hw.emit.directory import GENERATOR, METADATA, digest, replace_project
from byoc_hw.emit.entry import entry_context
from byoc_hw.emit.lanes import in_one_lane, one_lane
from byoc_hw.emit.numbering import number_calls, number_layers
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
from byoc_hw.emit.schedule_rows import schedule_rows, spans
from byoc_hw.emit.trace import trace_entries
from byoc_hw.emit.weight_file import bytes_of_arrays, is_binary, ram_macro, text_of_arrays
from byoc_hw.emit.whole_source import WHOLE_SOURCE, whole_source
from byoc_hw.errors import InvalidInput
from byoc_hw.hwlib.accelerator_header import ACCELERATOR_HEADER, accelerator_header
from byoc_hw.hwlib.names_header import interpreter_name
from byoc_hw.hwlib.sim_config import sim_config
from byoc_hw.params.host_kernels import KERNEL_PARTS, KERNELS
from byoc_hw.plan.chip_plan import ChipPlan, busy_lanes, plan_of_one, works_alone
from byoc_hw.plan.place.arena import ModelMemory
from byoc_hw.plan.planned import TABLES, PlannedRegion, constants_by_layer, flash_bytes, narrow_weights, table_bytes
from byoc_hw.plan.steps import RegionPlan
from byoc_hw.program import ORDERED_TYPES, Buffer, Program, RegionCall, check_mod_name
from byoc_hw.soc import Hardware, Soc, accelerators_of
from byoc_hw.version import __version__

Files = dict[str, str | bytes]

METADATA_FORMAT = 6

_OTHER_SOURCES = ("main", "host", "math", "kernels", "weights")
# Functions of <mod_name>_math.c, which the host functions call in place of the C library's.
_MATH = {
    "expf": "float {}(float x);",
    "softmax_int8": """\
void {}(const int8_t *ifm, int8_t *ofm, uint32_t *exponentials, int32_t rows, int32_t columns,
    int32_t zero_point, int32_t scale);""",
}
_HWLIB = Path(byoc_hw.hwlib.__file__).parent
_HWLIB_FOLDERS = ("include", "src", "sim")
_LIBRARY_FOLDERS = ("library", "sim/library")
_LANES_SOURCE = "hwlib_lanes.c"
_OF_CHIPS = ("hwlib_lanes.h", _LANES_SOURCE, TABLE_SOURCE)
_OF_EVENTS = ("sim_events.c", "sim_signal.c")
_OF_JOINED = ("hwlib_go_on.c",)
_OF_ONE = (*INTERPRETER_SOURCES, "hwlib_steps.h", *_OF_JOINED)


@dataclass(frozen=True)
class Parts:
    """The parts of a project.

    `regions` are the planned regions by symbol, placed as in `memory`. `tvm_arena` is the arena size
    of TVM's own planner for the same module. With `io_in_arena` inputs and outputs are in the arena,
    too. A `polled` model can be run in steps. `host_source` is C text that defines the functions of the
    program's host calls, `host_flash` the bytes of its constants. `optimize` is the objective of the plans.
    `weights` is the form of the regions' constant data. `tuning` has the result for each tuned region; it and `report`
    are JSON values. `versions` has the versions of the tools.
    """

    program: Program
    accelerator: Hardware
    regions: Mapping[str, PlannedRegion]
    memory: ModelMemory
    tvm_arena: int = 0
    io_in_arena: bool = False
    polled: bool = False
    host_source: str = ""
    host_flash: int = 0
    optimize: str = "speed"
    weights: str = "auto"
    numerics: str = "relay"
    tuning: Mapping[str, Any] = field(default_factory=dict)
    report: Any = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def mod_name(self) -> str:
        """The prefix of every global symbol."""
        return self.program.name

    @property
    def tiled(self) -> bool:
        """Whether regions run through HWlib and the HAL, not a vendor library."""
        return bool(self.regions) and self.accelerator.library is None

    @property
    def chip(self) -> Soc | None:
        """The chip, if regions run on one of several accelerators: with those that have work."""
        if not self.tiled or not isinstance(self.accelerator, Soc):
            return None
        return self.accelerator.only(busy_lanes(self.regions.values()))

    @cached_property
    def written(self) -> Mapping[str, PlannedRegion]:
        """The regions as they are written: those of a polled model run in lanes, also on one accelerator, and others
        in lanes only where several accelerators work, or a library, or events."""
        return {name: self._written(region) for name, region in self.regions.items()}

    def _written(self, region: PlannedRegion) -> PlannedRegion:
        if self.polled and isinstance(region, RegionPlan) and isinstance(self.accelerator, Accelerator):
            return in_one_lane(region, self.accelerator)
        if not self.polled and isinstance(region, ChipPlan) and works_alone(region):
            return plan_of_one(region)
        return region

    @property
    def alone(self) -> tuple[Accelerator, ...]:
        """The accelerators of a chip that run a region without the others, in the order of the chip."""
        on = [region.on for region in self.written.values() if isinstance(region, RegionPlan)]
        return tuple(one for one in self.chip.accelerators if one in on) if self.chip else ()

    @property
    def lanes(self) -> Soc | None:
        """The chip whose lanes regions run in: of several accelerators, or of the one of a polled model."""
        if self.tiled and self.polled and isinstance(self.accelerator, Accelerator):
            return one_lane(self.accelerator)
        return self.chip


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
        **(_host(parts) if parts.host_source else {}),
        **_runtime(parts),
        **added,
    }
    files |= _builds(parts, files)
    files[METADATA] = _json(metadata(parts, files)) + "\n"
    return files


def write_project(directory: Path, files: Files, force: bool = False) -> None:
    """Write the files in place of those of an earlier project, all of them or none.

    What is not of an earlier project stays, such as build outputs. So does a file of `app/` that was changed
    since it was written, and one whose contents the new project does not change; `force` replaces them. Raises
    `InvalidInput`, before any change, if the directory holds anything but a project, if another file was
    changed, for links in place of the directory or of its folders, and if nothing can be written there.
    """
    replace_project(directory, {name: _bytes(contents) for name, contents in files.items()}, force)


def _bytes(contents: str | bytes) -> bytes:
    return contents.encode() if isinstance(contents, str) else contents


# ---------------------------------------------------------------- the files


def _fixed(name: str) -> str:
    return render(name)


def _banner(parts: Parts, purpose: str) -> str:
    return c.comment([f"{parts.mod_name}: {purpose}", f"Generated by byoc_hw {__version__}."])


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
        f"include/{mod_name}.h": render("model.h.j2", banner=_banner(parts, "the model."), **context),
        f"src/{mod_name}_main.c": render(
            "model_main.c.j2", banner=_banner(parts, "one inference, call by call."), **context
        ),
        "app/main.c": render("app_main.c.j2", banner=_banner(parts, "a program around the model."), **context),
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
            f"app/{name}": render(f"app_{name}.j2", banner=_banner(parts, purpose), **context)
            for name, purpose in written.items()
        },
        "app/size.awk": _fixed("app_size.awk"),
        **{f"app/riscv32/{name}": _fixed(f"riscv32/{name}") for name in fixed},
        "app/riscv32/link.ld": render(
            "riscv32/link.ld.j2", banner=_banner(parts, "a linker script."), **context, **sizes
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
        _banner(parts, "the regions, for main."),
        f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n",
        *_prototypes(parts),
        "\n#endif\n",
    ]
    early = parts.program.returning_early
    source = [
        _banner(parts, "what runs on the accelerator: descriptors, plans and calls."),
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
        _banner(parts, "constant data of the regions: weights, parameters, constant activations."),
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


def _host(parts: Parts) -> Files:
    banner = _banner(parts, "the host's functions, as TVM generated them.")
    mod_name, source = parts.mod_name, parts.host_source.rstrip()
    math = {name: form.format(f"{mod_name}_{name}") for name, form in _MATH.items() if _calls(source, name)}
    kernels = {name: kernel for name, kernel in KERNELS.items() if _calls(source, name)}
    own, files = "", {}
    if math:
        own += f"#include <math.h>\n{_declared(f'The same on every machine, in {mod_name}_math.c', mod_name, math)}"
        purpose = _banner(parts, "what the host's functions compute in whole numbers.")
        files[f"src/{mod_name}_math.c"] = render("model_math.c.j2", banner=purpose, mod_name=mod_name, functions=math)
    if kernels:
        declared = {name: kernel.prototype(f"{mod_name}_{name}") for name, kernel in kernels.items()}
        own += _declared(f"Not of TVM, in {mod_name}_kernels.c", mod_name, declared)
        purpose = _banner(parts, "what the host computes by functions that are not TVM's.")
        structs = {kernel.struct or name: kernel.fields for name, kernel in kernels.items()}
        needed = [part for part in KERNEL_PARTS if any(part in kernel.parts for kernel in kernels.values())]
        files[f"src/{mod_name}_kernels.c"] = render(
            "model_kernels.c.j2",
            banner=purpose,
            mod_name=mod_name,
            structs=structs,
            needed=needed,
            types=ORDERED_TYPES,
            rounding="upward" if "scale_upward" in needed else "tflite",
        )
    return {f"src/{mod_name}_host.c": f"{banner}\n{own and own + chr(10)}{source}\n", **files}


def _declared(what: str, mod_name: str, prototypes: Mapping[str, str]) -> str:
    """C that declares functions of the project, so that host code calls them without the module's name."""
    lines = "".join(f"{prototype}\n#define {name} {mod_name}_{name}\n" for name, prototype in prototypes.items())
    return f"#include <stdint.h>\n\n/* {what}. */\n{lines}"


def _calls(source: str, function: str) -> bool:
    return re.search(rf"\b{function}\(", source) is not None


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


# ---------------------------------------------------------------- metadata


def metadata(parts: Parts, files: Files) -> dict[str, Any]:
    """The contents of metadata.json: interface, memory map, layers, schedule, report; and the other files' hashes."""
    program, regions, chip = parts.program, parts.regions, parts.accelerator
    return {
        "generator": GENERATOR,
        "format": METADATA_FORMAT,
        "versions": {GENERATOR: __version__, **dict(sorted(parts.versions.items()))},
        "model": {
            "name": program.name,
            "inputs": [_interface_entry(buffer) for buffer in program.inputs],
            "outputs": [_interface_entry(buffer) for buffer in program.outputs],
        },
        "accelerator": {
            "name": parts.accelerator.name,
            "label": parts.accelerator.label,
            "simulated": parts.tiled,
            "macs_per_cycle": sum(one.array_rows * one.array_columns for one in accelerators_of(parts.accelerator)),
            "dma_bytes_per_cycle": sum(one.dma_width for one in accelerators_of(parts.accelerator)),
            "host_cycles_per_instruction": float(parts.accelerator.host_cycles_per_instruction),
        },
        **({"accelerators": chip_entries(chip, parts.chip)} if isinstance(chip, Soc) and parts.chip else {}),
        "numerics": parts.numerics,
        "tuning": dict(parts.tuning),
        "optimize": parts.optimize,
        "memory": {
            "ram": {
                "arena": parts.memory.arena.nbytes,
                "lower_bound": parts.memory.arena.lower_bound,
                "gap": parts.memory.arena.gap,
                "tvm": parts.tvm_arena,
                "peak": {"where": parts.memory.peak.where, "owners": parts.memory.peak.by_owner},
                "buffers": list(_memory_map(parts)),
                "moments": [where for where, _ in parts.memory.moments],
                **({"constants": parts.memory.constants} if parts.memory.constants else {}),
            },
            "flash": {
                **{name: flash_bytes(regions[name]) for name in sorted(regions)},
                **({TABLES: sum(map(table_bytes, parts.written.values()))} if parts.tiled else {}),
                "host": parts.host_flash,
            },
        },
        "layers": list(_layer_entries(program, regions)),
        "schedule": schedule_rows(program, regions, parts.accelerator),
        "trace": trace_entries(program, regions),
        "report": parts.report,
        "files": sorted([*files, METADATA]),
        "sha256": {name: digest(_bytes(files[name])) for name in sorted(files)},
    }


_on_one_line = json.JSONEncoder(ensure_ascii=False).encode


def _json(value: object, line: str = "\n") -> str:
    """Readable JSON, with each list of integers on one line; `line` begins the line that the value ends on."""
    inner = line + " "
    if isinstance(value, dict) and value:
        entries = (f"{_on_one_line(key)}: {_json(one, inner)}" for key, one in value.items())
        return f"{{{inner}{f',{inner}'.join(entries)}{line}}}"
    if isinstance(value, list | tuple) and not all(type(one) is int for one in value):
        return f"[{inner}{f',{inner}'.join(_json(one, inner) for one in value)}{line}]"
    return _on_one_line(value)


def _interface_entry(buffer: Buffer) -> dict[str, Any]:
    known = buffer.quantization
    return {
        "name": buffer.name,
        "dtype": buffer.dtype,
        "shape": list(buffer.shape),
        "bytes": buffer.nbytes,
        "scale": None if known is None else known.scale[0],
        "zero_point": None if known is None else known.zero_point[0],
        "state": buffer.state or None,
    }


def _layer_entries(program: Program, regions: Mapping[str, PlannedRegion]) -> Iterator[dict[str, Any]]:
    narrow = {name: narrow_weights(region) for name, region in regions.items()}
    planned = {(name, layer.name): layer for name, region in regions.items() for layer in region.graph.layers}
    constants = {name: constants_by_layer(region) for name, region in regions.items()}
    for layer in number_layers(program):
        entry: dict[str, Any] = {
            "id": layer.id,
            "name": layer.name,
            "kind": layer.kind,
            "region": layer.region,
            "source": list(layer.source),
        }
        if layer.region is not None:
            bits, saved = narrow[layer.region].get(layer.name, (8, 0))
            one = planned[layer.region, layer.name]
            entry |= {"weights": {"bits": bits, "saved": saved}} if bits < 8 else {}
            entry |= {"axes": one.axes_of_model} if one.axes_of_model else {}
            entry |= {"macs": one.macs, "constants": constants[layer.region].get(layer.name, 0)}
        yield entry


def _memory_map(parts: Parts) -> Iterator[dict[str, Any]]:
    """The blocks of the arena, by offset, then by name. Each is live in `spans` of moments, ends included."""
    offsets = parts.memory.arena.offsets
    alive: dict[str, list[int]] = {block.name: [] for block in parts.memory.blocks}
    for moment, (_, names) in enumerate(parts.memory.moments):
        for name in names:
            alive[name].append(moment)
    for block in sorted(parts.memory.blocks, key=lambda block: (offsets[block.name], block.name)):
        yield {
            "name": block.name,
            "owner": block.owner,
            "offset": offsets[block.name],
            "bytes": block.nbytes,
            "spans": spans(alive[block.name]),
        }
