"""Compares what PEs send with the layers of the whole model, as one project for one accelerator computes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byoc_hw.errors import RunError
from byoc_hw.mesh.group import SharedFrames
from byoc_hw.mesh.manifest import ChannelEntry, Manifest
from byoc_hw.mesh.plan import OUTSIDE
from byoc_hw.run.host import run_on_host
from byoc_hw.run.metadata import read_metadata
from byoc_hw.tensor import Array

REFERENCE_PROJECT = "reference"
"""The folder of a mesh with the project of the whole model for one accelerator."""

Layers = list[dict[str, Array]]
"""For each frame the bytes of each tensor by its name: of the layers that can be seen."""


@dataclass(frozen=True)
class StageDifference:
    """A PE's output that differs from the whole model's: first in this frame, in `count` of `nbytes` bytes of it."""

    pe: str
    tensor: str
    frame: int
    count: int
    nbytes: int

    def __str__(self) -> str:
        return f"{self.pe} answers wrongly: {self.count} of {self.nbytes} bytes of {self.tensor} in frame {self.frame}"


@dataclass(frozen=True)
class StageValidation:
    """The outcome of a comparison: true if nothing differs.

    `differences` are in the order of the PEs: the others may follow from the first. `compared` and `unseen` count the
    channels whose bytes were compared, and those whose tensor the reference does not show.
    """

    frames: int
    compared: int
    unseen: int
    differences: tuple[StageDifference, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that was compared is equal."""
        return not self.differences

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        scope = f"{self.compared} channels in {self.frames} frames"
        unseen = f" ({self.unseen} channels could not be compared)" if self.unseen else ""
        if self.ok:
            return f"equal: {scope}{unseen}"
        return "\n".join([f"{len(self.differences)} of {scope} differ{unseen}", *map(str, self.differences)])


def reference_layers(directory: Path, manifest: Manifest, inputs: Sequence[Sequence[Array]]) -> Layers:
    """What the whole model computes for some frames, by the project in the mesh's directory."""
    project = directory / REFERENCE_PROJECT
    if not project.is_dir():
        raise RunError(f"{directory} has the project of the whole model in {REFERENCE_PROJECT}/: it has none")
    layers = read_metadata(project)["layers"]
    numbers: dict[str, int] = {_name(one): one["id"] for one in layers}
    found: Layers = []
    for frame, result in zip(inputs, run_on_host(project, inputs, trace=True), strict=True):
        trace = result.trace or {}
        known = dict(zip(manifest.inputs, frame, strict=True)) | dict(
            zip(manifest.outputs, result.outputs, strict=True)
        )
        for tensor in manifest.tensors.values():
            number = numbers.get(tensor.made_by)
            if tensor.name not in known and number is not None and number in trace:
                values = np.frombuffer(trace[number], tensor.dtype)
                if values.size == np.prod(tensor.shape):
                    known[tensor.name] = values.reshape(tensor.shape)
        found.append(known)
    return found


def _name(layer: Mapping[str, Any]) -> str:
    return f"{layer['region']}:{layer['name']}" if layer["region"] else str(layer["name"])


def compare_stages(shared: SharedFrames, layers: Layers, pes: Collection[int] | None = None) -> StageValidation:
    """Compare all frames that are in the rings of a run, which held every frame; with `pes`, those that PEs of these
    numbers have sent."""
    manifest = shared.manifest
    differences, compared, unseen = [], 0, 0
    for number, channel in enumerate(manifest.channels):
        if channel.source == OUTSIDE or (pes is not None and channel.source not in pes):
            continue
        if channel.tensor not in layers[0]:
            unseen += 1
            continue
        compared += 1
        for index, frame in enumerate(range(channel.replica, len(layers), manifest.replicas)):
            found = shared.rings.frame(shared.addresses[number], index, channel.nbytes)
            wrong = int((found != expected_frame(manifest, channel, layers[frame][channel.tensor])).sum())
            if wrong:
                label = manifest.pes[channel.source].label
                differences.append((channel.source, StageDifference(label, channel.tensor, frame, wrong, len(found))))
                break
    ordered = tuple(one for _, one in sorted(differences, key=lambda pair: pair[0]))
    return StageValidation(len(layers), compared, unseen, ordered)


def all_compared(parts: Sequence[StageValidation]) -> StageValidation:
    """The outcome of comparisons of different PEs in the same frames."""
    compared, unseen = sum(one.compared for one in parts), sum(one.unseen for one in parts)
    return StageValidation(
        parts[0].frames, compared, unseen, tuple(found for one in parts for found in one.differences)
    )


def expected_frame(manifest: Manifest, channel: ChannelEntry, values: Array) -> Array:
    """The bytes that a channel carries of a frame with these values of its tensor."""
    spread = manifest.tensors[channel.tensor].spread(np.ascontiguousarray(values)[None])
    patch = spread[0, slice(*channel.patch.rows), :, slice(*channel.patch.channels)]
    return np.ascontiguousarray(patch).reshape(-1).view(np.uint8)
