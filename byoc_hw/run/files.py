"""The files between a runner and the generated program: inputs, outputs, profile, trace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np

from byoc_hw.arguments import check_type, shown
from byoc_hw.errors import InvalidInput, RunError
from byoc_hw.run.metadata import read_metadata
from byoc_hw.run.real_values import Interface
from byoc_hw.run.result import Cycles, EndToEnd, HostInstructions, LayerCount, LayerCycles, Polls, Result
from byoc_hw.run.trace import Assembly, Traced, layer_outputs, read_assemblies, read_records
from byoc_hw.tensor import Array

Inputs = Array | Sequence[Array] | Mapping[str, Array]
"""The inputs of one inference: an array where the model has one input, a list in the model's order, or by name."""


@dataclass(frozen=True)
class ProjectModel:
    """The part of a project's metadata that a run needs. `accelerators` are the names of those of a chip,
    `shared` of those that share an activation memory, `with_events` of those that reach the chip's events. `regions`
    has the region of each layer, "" of functions of the host."""

    name: str
    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]
    layers: tuple[LayerCycles, ...]
    simulated: bool
    trace: Mapping[int, Assembly]
    accelerators: tuple[str, ...] = ()
    shared: tuple[tuple[str, ...], ...] = ()
    with_events: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()


def read_model(directory: Path) -> ProjectModel:
    """Read the part of a project's metadata that a run needs."""
    metadata = read_metadata(directory)
    model = metadata["model"]
    return ProjectModel(
        model["name"],
        tuple(Interface.from_plain(entry) for entry in model["inputs"]),
        tuple(Interface.from_plain(entry) for entry in model["outputs"]),
        tuple(LayerCycles(layer["id"], layer["name"], layer["kind"], 0) for layer in metadata["layers"]),
        metadata["accelerator"]["simulated"],
        read_assemblies(metadata["trace"]),
        tuple(entry["name"] for entry in metadata.get("accelerators", ())),
        tuple(dict.fromkeys(tuple(one["shares"]) for one in metadata.get("accelerators", ()) if "shares" in one)),
        tuple(one["name"] for one in metadata.get("accelerators", ()) if one.get("events")),
        tuple(layer["region"] or "" for layer in metadata["layers"]),
    )


def check_inputs(expected: Sequence[Interface], inputs: Inputs) -> list[Array]:
    """The arrays of one inference in the model's order; `InvalidInput` names the input and the rule."""
    named = _by_name(expected, inputs)
    names = [interface.name for interface in expected]
    for name in named:
        if name not in names:
            raise InvalidInput(f"input is one of {', '.join(names) or 'none'}: got {name!r}")
    arrays = []
    for interface in expected:
        if interface.name not in named:
            raise InvalidInput(f"input {interface.name} is given: got {', '.join(named) or 'nothing'}")
        check_type(f"input {interface.name}", named[interface.name], np.ndarray | np.generic, "an array")
        array = np.asarray(named[interface.name])
        if array.dtype != np.dtype(interface.dtype):
            raise InvalidInput(f"input {interface.name}: dtype is {interface.dtype}: got {array.dtype}")
        if array.shape != interface.shape:
            raise InvalidInput(f"input {interface.name}: shape is {interface.shape}: got {array.shape}")
        arrays.append(array)
    return arrays


def stored_inputs(expected: Sequence[Interface], inputs: Inputs) -> dict[str, Array]:
    """The inputs of one inference by name, from real values; those without a scale as they are given."""
    known = {interface.name: interface for interface in expected}
    given = _by_name(expected, inputs).items()
    return {name: known[name].stored(values) if name in known else values for name, values in given}


def _by_name(expected: Sequence[Interface], inputs: Inputs) -> Mapping[str, Array]:
    if isinstance(inputs, Mapping):
        return inputs
    if not isinstance(inputs, np.ndarray | Sequence):
        raise InvalidInput(f"inputs are an array, a list of arrays, or arrays by name: got {shown(inputs)}")
    given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    if len(given) != len(expected):
        raise InvalidInput(f"the model takes {len(expected)} inputs: got {len(given)}")
    return {interface.name: array for interface, array in zip(expected, given, strict=True)}


def read_array(path: Path, interface: Interface) -> Array:
    """The array in a .npy file. Type, shape and size are checked before it is read: `InvalidInput` names the rule."""
    place = f"input {interface.name}: {path}"
    try:
        if not path.is_file():
            raise InvalidInput(f"{place} is a .npy file: {'it is something else' if path.exists() else 'no such file'}")
        with path.open("rb") as file:
            shape, dtype = _header(file)
            if dtype != np.dtype(interface.dtype):
                raise InvalidInput(f"{place}: dtype is {interface.dtype}: got {dtype}")
            if shape != interface.shape:
                raise InvalidInput(f"{place}: shape is {interface.shape}: got {shape}")
            found = path.stat().st_size - file.tell()
            if found != interface.nbytes:
                raise InvalidInput(f"{place} holds {interface.nbytes} bytes of data: got {found}")
            file.seek(0)
            array: Array = np.lib.format.read_array(file, allow_pickle=False)  # type: ignore[no-untyped-call]
            return array
    except (OSError, ValueError, SyntaxError, TokenError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{place} is a .npy file with an array: {error}") from error


def _header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype that a .npy file states; `ValueError` if it is none."""
    version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
    if version != (1, 0):  # others are for headers above 64 KiB, which no plain array has
        raise ValueError(f"version of the format is 1.0: got {version[0]}.{version[1]}")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)  # type: ignore[no-untyped-call]
    return shape, dtype


def write_inputs(path: Path, inferences: Sequence[Sequence[Array]]) -> None:
    """Write the inputs of all inferences, little endian, as the program reads them: of a model without any, a byte."""
    with path.open("wb") as file:
        for inference in inferences:
            if not inference:
                file.write(b"\0")
            for array in inference:
                file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())


def read_results(
    model: ProjectModel,
    inferences: Sequence[Sequence[Array]],
    outputs: Path,
    profile: Path,
    trace: Path | None,
    *,
    timed: bool,
) -> list[Result]:
    """The results that the program wrote, one for each inference.

    `timed` says whether the profile's times hold how long the host waited for the accelerator, as they also do where a
    simulator has a profile by layer.
    """
    count = len(inferences)
    arrays = _outputs(model, count, outputs.read_bytes())
    traces = [_UNTRACED] * count if trace is None else _traces(model, inferences, trace.read_bytes())
    records: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for line in profile.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        records[record.pop("inference")].append(record)
    return [
        Result(
            values,
            _cycles(model, profiled),
            None if trace is None else traced.outputs,
            *_counts(model, profiled, timed),
            _polls(model, profiled),
            computed=traced.computed,
        )
        for values, profiled, traced in zip(arrays, records, traces, strict=True)
    ]


def _outputs(model: ProjectModel, count: int, data: bytes) -> list[list[Array]]:
    if len(data) != count * sum(interface.nbytes for interface in model.outputs):
        raise RunError(f"{model.name}: the program wrote {len(data)} bytes of outputs for {count} inferences")
    results: list[list[Array]] = []
    at = 0
    for _ in range(count):
        results.append([])
        for interface in model.outputs:
            dtype = np.dtype(interface.dtype).newbyteorder("<")
            values = np.frombuffer(data[at : at + interface.nbytes], dtype)
            results[-1].append(values.astype(interface.dtype).reshape(interface.shape))
            at += interface.nbytes
    return results


def _cycles(model: ProjectModel, records: Sequence[dict[str, Any]]) -> Cycles | None:
    found = {record["layer"]: record for record in records if "layer" in record}
    if not model.simulated or (model.layers and not found):  # your own HAL has no profile by layer
        return None
    (total,) = (record["total"] for record in records if "total" in record)
    layers = (replace(layer, **_without(found[layer.id], "layer")) for layer in model.layers)
    return Cycles(total, tuple(layers))


def _polls(model: ProjectModel, records: Sequence[dict[str, Any]]) -> Polls | None:
    """How often and how long the model was polled, if it was built for that."""
    for record in records:
        if "polls" in record:
            layer = record.get("layer_of_longest")
            names = [*(one.name for one in model.layers), "main"]
            return Polls(record["polls"], record.get("longest"), None if layer is None else names[layer])
    return None


def _without(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != key}


def _counts(
    model: ProjectModel, records: Sequence[dict[str, Any]], timed: bool
) -> tuple[HostInstructions | None, EndToEnd | None]:
    """The counts of the core, if the program has any: a record for each layer, then one for main."""
    counted = [record for record in records if "counted" in record]
    if not counted:
        return None, None
    *layers, main = counted

    def by_layer(key: str) -> tuple[LayerCount, ...]:
        found = zip(model.layers, layers, strict=True)
        return tuple(LayerCount(layer.id, layer.name, layer.kind, record[key]) for layer, record in found)

    executed, times = by_layer("instructions"), by_layer("time")
    host = sum(layer.count for layer in executed if layer.kind == "host")
    regions = sum(layer.count for layer in executed) - host
    instructions = HostInstructions(
        host + regions + main["instructions"], regions, host, main["instructions"], executed
    )
    if not timed and not any("layer" in record for record in records):
        return instructions, None
    cycles = {record["layer"]: record["cycles"] for record in records if "layer" in record}
    costs = _costs(times, executed, model.regions, [cycles.get(layer.id, 0) for layer in model.layers])
    return instructions, EndToEnd(sum(layer.count for layer in times) + main["time"], main["time"], costs)


def _costs(
    times: Sequence[LayerCount], executed: Sequence[LayerCount], regions: Sequence[str], cycles: Sequence[int]
) -> tuple[LayerCount, ...]:
    """The times of layers by what they cost: the core's waits in a region are shared by the layers' cycles.

    The core waits where the plan needs a result, mostly in a region's last layers, for what layers before them do.
    """
    costs = [layer.count for layer in times]
    for region in dict.fromkeys(filter(None, regions)):
        own = [index for index, name in enumerate(regions) if name == region]
        parts = [cycles[index] for index in own]
        if not any(parts):
            continue  # not known by layer
        kept = [min(times[index].count, executed[index].count) for index in own]
        waits = sum(times[index].count for index in own) - sum(kept)
        ends = [waits * done // sum(parts) for done in accumulate(parts)]
        for index, core, share in zip(own, kept, (end - begin for begin, end in pairwise([0, *ends])), strict=True):
            costs[index] = core + share
    return tuple(replace(layer, count=count) for layer, count in zip(times, costs, strict=True))


_UNTRACED = Traced({}, {})


def _traces(model: ProjectModel, inferences: Sequence[Sequence[Array]], data: bytes) -> list[Traced]:
    names = {layer.id: layer.name for layer in model.layers}
    return [
        layer_outputs(names, model.trace, records, [array.tobytes() for array in inputs])
        for records, inputs in zip(read_records(data, len(inferences), model.name), inferences, strict=True)
    ]
