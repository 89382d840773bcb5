"""metadata.json: interface, memory map, layers, schedule and report of a project, for whoever runs or shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from byoc_hw.emit.chip_files import chip_entries
from byoc_hw.emit.directory import GENERATOR, METADATA, digest
from byoc_hw.emit.numbering import number_layers
from byoc_hw.emit.parts import Parts
from byoc_hw.emit.schedule_rows import schedule_rows, spans
from byoc_hw.emit.trace import trace_entries
from byoc_hw.plan.planned import TABLES, PlannedRegion, constants_by_layer, flash_bytes, narrow_weights, table_bytes
from byoc_hw.program import Buffer, Program
from byoc_hw.soc import Soc, accelerators_of
from byoc_hw.version import __version__

METADATA_FORMAT = 6


def metadata_text(parts: Parts, files: Mapping[str, bytes]) -> str:
    """The contents of metadata.json, with the hashes of the other files."""
    return _json(_metadata(parts, files)) + "\n"


def _metadata(parts: Parts, files: Mapping[str, bytes]) -> dict[str, Any]:
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
        "sha256": {name: digest(files[name]) for name in sorted(files)},
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
