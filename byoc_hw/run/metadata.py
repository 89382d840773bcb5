"""Reads `metadata.json` of a project: every value in it is checked before it is used."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from byoc_hw.emit.c import POINTEES
from byoc_hw.emit.directory import GENERATOR, LARGEST_METADATA, METADATA, inside, settle
from byoc_hw.emit.metadata_file import METADATA_FORMAT
from byoc_hw.emit.schedule_rows import ENGINES, NO_LAYER, REASONS
from byoc_hw.errors import InvalidInput
from byoc_hw.program import QUANTIZED_TYPES, SMALLEST_SCALE
from byoc_hw.schema import (
    accepted,
    anything,
    boolean,
    integer,
    list_of,
    matching,
    nullable,
    number_from,
    one_of,
    read_json,
    refuse,
    row,
    structure,
    table_of,
    text,
)

_MOST = 2**32
"""More bytes than the address space of any target has, and more of anything in it."""

_HEX = r"([0-9a-f]{2})*"

_count = integer(high=_MOST)
_cycle = integer()
_name = matching(r"[A-Za-z_][A-Za-z0-9_]*", "a C identifier")


def _path(value: Any, field: str) -> None:
    text(value, field)
    if not inside(value):
        refuse(field, "a path inside the project", value)


_entry = structure(
    {
        "name": text,
        "dtype": one_of(*POINTEES),
        "shape": list_of(_count),
        "bytes": _count,
        "scale": nullable(number_from(SMALLEST_SCALE, float(np.finfo(np.float32).max))),
        "zero_point": nullable(integer(-(2**15), 2**16 - 1)),
        "state": nullable(text),
    }
)


def _interface(value: Any, field: str) -> None:
    _entry(value, field)
    expected = prod(value["shape"]) * np.dtype(value["dtype"]).itemsize
    if value["bytes"] != expected:
        refuse(f"{field}.bytes", f"{expected}, for its shape and dtype", value["bytes"])
    if (value["scale"] is None) != (value["zero_point"] is None):
        refuse(f"{field}.zero_point", "given with a scale, and only then", value["zero_point"])
    if value["scale"] is not None:
        if value["dtype"] not in QUANTIZED_TYPES:
            refuse(f"{field}.dtype", f"one of {', '.join(QUANTIZED_TYPES)}, with a scale", value["dtype"])
        limits = np.iinfo(value["dtype"])
        integer(int(limits.min), int(limits.max))(value["zero_point"], f"{field}.zero_point")


_layer = structure(
    {"id": _count, "name": text, "kind": text, "region": nullable(text), "source": list_of(text)},
    {
        "weights": structure({"bits": integer(2, 4), "saved": _count}),
        "macs": integer(),
        "constants": _count,
        "axes": list_of(_count),
    },
)
_jobs = list_of(matching(r"\d{1,9}( \d{1,9}){5}(( \d{1,9}){2})?", "six or eight numbers below 1000000000"))
_moved_box = matching(r"(-1|\d{1,9})( \d{1,9}){2}(( \d{1,9}){3})*", "numbers below 1000000000")
_assembly = structure(
    {"bytes": _count},
    {
        "jobs": _jobs,
        "pieces": list_of(
            structure(
                {"accelerator": integer(high=0xFFFE), "bytes": _count, "jobs": _jobs, "boxes": list_of(_moved_box)}
            )
        ),
        "from": structure({"offset": _count}, {"layer": _count, "input": _count}),
        "shape": list_of(_count),
        "axes": list_of(_count),
        "parts": list_of(
            structure(
                {"offset": _count}, {"layer": _count, "input": _count, "constant": matching(r"([0-9a-f]{2})*", "hex")}
            )
        ),
        "fill": integer(-128, 127),
        "boxes": list_of(_moved_box),
    },
)
_region = structure(
    {
        "name": text,
        "start": _cycle,
        "end": _cycle,
        "work": list_of(row(integer(high=len(ENGINES) - 1), _cycle, _cycle, integer(NO_LAYER, _MOST), _cycle)),
        "bound": _cycle,
        "moved": structure(dict.fromkeys(("weights", "inputs", "outputs", "spilled", "reordered"), _cycle)),
        "waits": list_of(row(integer(high=len(REASONS) - 1), _cycle, _cycle, integer(NO_LAYER, _MOST))),
        "names": list_of(text),
        "local": list_of(row(*[_count] * 4, _cycle, _cycle)),
    },
    {"accelerator": text},
)
_ram = structure(
    {
        **dict.fromkeys(("arena", "lower_bound", "gap", "tvm"), _count),
        "peak": structure({"where": text, "owners": table_of(_count)}),
        "buffers": list_of(
            structure(
                {"name": text, "owner": text, "offset": _count, "bytes": _count, "spans": list_of(row(_count, _count))}
            )
        ),
        "moments": list_of(text),
    },
    {"constants": _count},
)
_METADATA = structure(
    {
        "model": structure({"name": _name, "inputs": list_of(_interface), "outputs": list_of(_interface)}),
        "accelerator": structure(
            {"name": text, "label": text, "simulated": boolean},
            {
                "macs_per_cycle": integer(),
                "dma_bytes_per_cycle": integer(),
                "host_cycles_per_instruction": number_from(0, 2.0**48),
            },
        ),
        "memory": structure({"ram": _ram, "flash": table_of(_count)}),
        "layers": list_of(_layer),
        "schedule": structure({"activations": _count, "weights": _count, "regions": list_of(_region)}),
        "trace": table_of(_assembly, matching(r"0|[1-9]\d{0,8}", "the number of a layer")),
        "report": anything,  # read by `read_report` alone
        "files": list_of(_path),
        "sha256": table_of(matching(r"[0-9a-f]{64}", "64 hexadecimal digits"), _path),
    },
    {
        "optimize": text,
        "accelerators": list_of(
            structure(
                {"name": _name, "label": text, "activations": _count, "weights": _count},
                {"shares": list_of(_name), "events": _count},
            )
        ),
    },
)
_broken = structure({"rule": text, "found": text})
_rejection = structure({"composite": text, "broken": list_of(_broken), "near_miss": text})
_REPORT = structure(
    {
        "mod_name": text,
        "accelerator": nullable(text),
        "numerics": nullable(text),
        "tuning": text,
        "outcomes": list_of(
            structure(
                {
                    "name": text,
                    "placement": one_of("accelerator", "host", "split", "folded"),
                    **dict.fromkeys(("relay", "composites", "regions", "uncovered", "tvm_arithmetic"), list_of(text)),
                    "rejections": list_of(_rejection),
                },
                {**dict.fromkeys(("host_instructions", "macs", "nbytes"), integer()), "reads": list_of(text)},
            )
        ),
    },
    {"planning": text, "engines": table_of(text), "polled": boolean},
)


def read_metadata(directory: Path) -> dict[str, Any]:
    """A project's metadata, but for its report not read further. An interrupted build is ended first.

    `InvalidInput` if the directory holds no project of byoc_hw, or names the field, the rule and the value.
    """
    settle(directory)
    path = directory / METADATA
    try:
        metadata = read_json(path, LARGEST_METADATA)
    except InvalidInput as error:
        raise InvalidInput(f"a project directory holds {METADATA}: {error}") from error
    if not isinstance(metadata, dict) or metadata.get("generator") != GENERATOR:
        raise InvalidInput(f"{METADATA} names {GENERATOR} as its generator: {directory} is another project")
    if metadata.get("format") != METADATA_FORMAT:
        raise InvalidInput(f"format of {METADATA} is {METADATA_FORMAT}: got {metadata.get('format')} in {directory}")
    accepted(path, metadata, _METADATA)
    accepted(path, metadata, _check_references)
    return metadata


def read_report(directory: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    """The offload report in a project's metadata, for `Report.from_plain`."""
    report: dict[str, Any] = accepted(directory / METADATA, metadata["report"], _REPORT, "report")
    return report


def _check_references(metadata: Any, _: str) -> None:
    """Check that numbers of layers, inputs and names lead somewhere."""
    outputs = [output["name"] for output in metadata["model"]["outputs"]]
    for index, entry in enumerate(metadata["model"]["inputs"]):
        nullable(one_of(*outputs))(entry["state"], f"model.inputs[{index}].state")
    names = [one["name"] for one in metadata.get("accelerators", ())]
    for at, one in enumerate(metadata.get("accelerators", ())):
        for name in one.get("shares", names):
            one_of(*names)(name, f"accelerators[{at}].shares")
        if one["name"] not in one.get("shares", names):
            refuse(f"accelerators[{at}].shares", f"a list with {one['name']}", one["shares"])
    layers, inputs = len(metadata["layers"]), len(metadata["model"]["inputs"])
    for index, layer in enumerate(metadata["layers"]):
        integer(index, index)(layer["id"], f"layers[{index}].id")
    for layer, entry in metadata["trace"].items():
        field = f"trace.{layer}"
        integer(high=layers - 1)(int(layer), field)
        if "jobs" in entry:
            continue
        if "pieces" in entry:
            for number, piece in enumerate(entry["pieces"]):
                _check_piece(piece["boxes"], piece["bytes"], entry["bytes"], f"{field}.pieces[{number}]")
            continue
        if "boxes" in entry:
            _check_boxes(entry, int(layer), inputs, field)
            continue
        _check_origin(entry.get("from"), ("layer", "input"), int(layer), inputs, f"{field}.from")
        _check_moved(entry, field)
    for index, region in enumerate(metadata["schedule"]["regions"]):
        field = f"schedule.regions[{index}]"
        for layer, one in [
            *((work[3], "work") for work in region["work"]),
            *((w[3], "waits") for w in region["waits"]),
        ]:
            integer(NO_LAYER, layers - 1)(layer, f"the layer in {field}.{one}")
        for held in region["local"]:
            integer(high=len(region["names"]) - 1)(held[0], f"the name in {field}.local")


def _check_origin(origin: Any, kinds: tuple[str, ...], number: int, inputs: int, field: str) -> None:
    """Check that what layer `number` moves is of one kind, and there before it."""
    if origin is None or len(origin.keys() & set(kinds)) != 1:
        refuse(field, f"made of jobs, or from {', '.join(kinds[:-1])} or {kinds[-1]}", origin)
    for name, count in (("layer", number), ("input", inputs)):
        if name in origin:
            integer(high=count - 1)(origin[name], f"{field}.{name}")


def _check_boxes(entry: dict[str, Any], number: int, inputs: int, field: str) -> None:
    """Check that a layer's boxes come from parts that are there, and lie in its output."""
    for part in entry.get("parts", ()):
        _check_origin(part, ("layer", "input", "constant"), number, inputs, f"{field}.parts")
    integer(-128, 127)(entry.get("fill"), f"{field}.fill")
    for box in entry["boxes"]:
        source, _, target, *rest = map(int, box.split())
        integer(-1, len(entry.get("parts", ())) - 1)(source, f"the part in {field}.boxes")
        last = target + sum((count - 1) * stride for count, stride in zip(rest[::3], rest[2::3], strict=True))
        integer(high=entry["bytes"] - 1)(last, f"the end of a box in {field}.boxes")
        integer(high=entry["bytes"])(prod(rest[::3]), f"the size of a box in {field}.boxes")


def _check_piece(boxes: list[str], held: int, nbytes: int, field: str) -> None:
    """Check that boxes have all the bytes of a piece, and lie in its output."""
    sizes = 0
    for box in boxes:
        _, _, target, *rest = map(int, box.split())
        last = target + sum((count - 1) * stride for count, stride in zip(rest[::3], rest[2::3], strict=True))
        integer(high=nbytes - 1)(last, f"the end of a box in {field}.boxes")
        sizes += prod(rest[::3])
    integer(held, held)(sizes, f"the size of {field}.boxes")


def _check_moved(entry: dict[str, Any], field: str) -> None:
    """Check that the shape of what a layer moves has its bytes, and that its axes are a permutation."""
    shape, axes = entry.get("shape", [entry["bytes"]]), entry.get("axes", [0])
    integer(entry["bytes"], entry["bytes"])(prod(shape), f"the size of {field}.shape")
    if sorted(axes) != list(range(len(shape))):
        refuse(f"{field}.axes", f"a permutation of {len(shape)} axes", axes)
