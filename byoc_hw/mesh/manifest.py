"""The manifest of a mesh's directory: what is there, who runs what, and which channel joins which ports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byoc_hw.errors import InvalidInput
from byoc_hw.mesh.machine import Coordinates
from byoc_hw.mesh.network import MeshNetwork, Node
from byoc_hw.mesh.patches import form_of
from byoc_hw.mesh.pe_source import ports_of
from byoc_hw.mesh.pe_stages import stages_by_place
from byoc_hw.mesh.plan import OUTSIDE, Channel, Patch
from byoc_hw.schema import read_json
from byoc_hw.tensor import Array, Tensor

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 2
_LARGEST = 2**28


@dataclass(frozen=True)
class ProgramEntry:
    """A PE program: its name, the directory of its project, relative to the mesh's, and its stages."""

    name: str
    directory: str
    stages: tuple[StageEntry, ...]


@dataclass(frozen=True)
class StageEntry:
    """A stage of a program: its number in the plan, and the pieces that it computes."""

    number: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class PeEntry:
    """One PE: where it is, its pipeline, and the program that it runs, by number."""

    x: int
    y: int
    replica: int
    program: int

    @property
    def label(self) -> str:
        return f"PE ({self.x}, {self.y})"


@dataclass(frozen=True)
class ChannelEntry:
    """A channel between two PEs, by number, and their ports; `OUTSIDE` is the host, which has no ports."""

    source: int
    source_port: int
    target: int
    target_port: int
    replica: int
    tensor: str
    patch: Patch
    nbytes: int
    credits: int
    hops: int


@dataclass(frozen=True)
class TensorEntry:
    """A tensor that enters, leaves, or goes from PE to PE.

    `made_by` is the layer of the model that makes it, as "region:layer", or the function of the host; "" for inputs.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    made_by: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"shape": list(self.shape), "dtype": self.dtype, "made_by": self.made_by}

    def spread(self, frames: Array) -> Array:
        """The values of some frames as frames of rows of pixels of channels, without a copy."""
        form = form_of(Tensor(self.name, self.shape, self.dtype))
        view = frames.view()
        view.shape = (len(frames), form.rows, form.pixels, form.channels)
        return view


@dataclass(frozen=True)
class Manifest:
    """All that a run has to know. `inputs` and `outputs` are the names of the model's, in its order."""

    model: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: dict[str, TensorEntry]
    programs: tuple[ProgramEntry, ...]
    pes: tuple[PeEntry, ...]
    channels: tuple[ChannelEntry, ...]

    @property
    def replicas(self) -> int:
        """The number of pipelines."""
        return 1 + max(pe.replica for pe in self.pes)

    def to_json(self) -> str:
        """The text of the file."""
        channels = [
            {
                "source": None if one.source == OUTSIDE else [one.source, one.source_port],
                "target": None if one.target == OUTSIDE else [one.target, one.target_port],
                "replica": one.replica,
                "tensor": one.tensor,
                "rows": list(one.patch.rows),
                "channels": list(one.patch.channels),
                "bytes": one.nbytes,
                "credits": one.credits,
                "hops": one.hops,
            }
            for one in self.channels
        ]
        plain = {
            "generator": "byoc_hw mesh",
            "format": MANIFEST_FORMAT,
            "model": self.model,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "tensors": {one.name: one.plain() for one in self.tensors.values()},
            "programs": [vars(one) | {"stages": [vars(stage) for stage in one.stages]} for one in self.programs],
            "pes": [vars(one) for one in self.pes],
            "channels": channels,
        }
        return json.dumps(plain, indent=1) + "\n"


def manifest_of(
    network: MeshNetwork,
    channels: Sequence[Channel],
    programs: Sequence[ProgramEntry],
    replicas: Sequence[Sequence[Coordinates]],
) -> Manifest:
    """The manifest of some pipelines: `replicas` has the PEs of each, by stage, `programs` are as `programs_of` has
    them."""
    numbers = [tuple(stage.number for stage in one.stages) for one in programs]
    ports = [ports_of(one, channels) for one in numbers]
    pes, entries = list[PeEntry](), list[ChannelEntry]()
    for replica, places in enumerate(replicas):
        home: dict[int, tuple[int, int]] = {}  # of each stage, the numbers of its PE and of the program
        for here in stages_by_place(places):
            program = numbers.index(here)
            home |= dict.fromkeys(here, (len(pes), program))
            pes.append(PeEntry(*places[here[0]], replica, program))
        for one in channels:
            ends = [(OUTSIDE, 0), (OUTSIDE, 0)]
            for way, stage in enumerate((one.target, one.source)):
                if stage != OUTSIDE:
                    pe, program = home[stage]
                    ends[way] = pe, ports[program][way].index(one)
            entries.append(
                ChannelEntry(
                    *ends[1],
                    *ends[0],
                    replica,
                    one.tensor,
                    one.patch,
                    one.nbytes,
                    one.credits,
                    one.hops,
                )
            )
    names = dict.fromkeys((*network.inputs, *network.outputs, *(one.tensor for one in channels)))
    makers = network.makers
    tensors = {}
    for name in names:
        made_by = _maker(network.nodes[makers[name]]) if name in makers else ""
        tensors[name] = TensorEntry(name, network.tensors[name].shape, network.tensors[name].dtype, made_by)
    return Manifest(network.name, network.inputs, network.outputs, tensors, tuple(programs), tuple(pes), tuple(entries))


def _maker(node: Node) -> str:
    if node.call is not None:
        return node.call.symbol
    return f"{node.region}:{node.layer.name}" if node.region and node.layer is not None else ""


def read_manifest(directory: Path) -> Manifest:
    """The manifest in a directory; `InvalidInput` where there is none that fits."""
    path = directory / MANIFEST
    plain = read_json(path, _LARGEST)
    if not isinstance(plain, dict) or plain.get("generator") != "byoc_hw mesh":
        raise InvalidInput(f"{path} is the manifest of a mesh that byoc_hw wrote: it is something else")
    if plain.get("format") != MANIFEST_FORMAT:
        raise InvalidInput(f"{path} has format {MANIFEST_FORMAT}: got {plain.get('format')!r}")
    try:
        return _read(plain)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidInput(f"{path} is damaged: {type(error).__name__} {error}") from error


def _read(plain: dict[str, Any]) -> Manifest:
    tensors = {
        name: TensorEntry(name, tuple(map(int, one["shape"])), str(one["dtype"]), str(one["made_by"]))
        for name, one in plain["tensors"].items()
    }
    programs = tuple(
        ProgramEntry(
            one["name"],
            one["directory"],
            tuple(StageEntry(int(stage["number"]), tuple(stage["nodes"])) for stage in one["stages"]),
        )
        for one in plain["programs"]
    )
    pes = tuple(PeEntry(**{key: int(value) for key, value in one.items()}) for one in plain["pes"])
    channels = tuple(_channel(one) for one in plain["channels"])
    ends = tuple(plain["inputs"]), tuple(plain["outputs"])
    return Manifest(str(plain["model"]), *ends, tensors, programs, pes, channels)


def _channel(plain: dict[str, Any]) -> ChannelEntry:
    (source, source_port), (target, target_port) = (plain[end] or (OUTSIDE, 0) for end in ("source", "target"))
    rows, channels = plain["rows"], plain["channels"]
    return ChannelEntry(
        int(source),
        int(source_port),
        int(target),
        int(target_port),
        int(plain["replica"]),
        str(plain["tensor"]),
        Patch((int(rows[0]), int(rows[1])), (int(channels[0]), int(channels[1]))),
        int(plain["bytes"]),
        int(plain["credits"]),
        int(plain["hops"]),
    )
