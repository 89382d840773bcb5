"""The output of every layer from a trace: joins the jobs' records, and adds the layers that only move bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_hw.errors import RunError

_INFERENCE = 0xFFFFFFFF
"""Stands in place of a layer's number in the record that marks the start of an inference."""

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

Records = Mapping[int, Sequence[bytes]]
"""The records of one inference by the layer's number, in the order of the trace."""


@dataclass(frozen=True)
class OutputBox:
    """The bytes of a layer's output that one job writes: `shape` (height, width, channels) from `offset` on.

    `strides` are the distances in bytes between rows, pixels and channels. A job over packed rows writes pixels from
    number `first` on of rows that are `pitch` pixels apart; what lies between the rows is none of the output.
    """

    offset: int
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    pitch: int = 0
    first: int = 0

    @property
    def stop(self) -> int:
        """The end of the last element."""
        return self.offset + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)) + 1

    def places(self, count: int) -> npt.NDArray[np.int64] | None:
        """The place in the output of each byte of a record of `count`, -1 for those between rows; None where they are
        not those of the box."""
        height, width, channels = self.shape
        if not count or (count != height * width * channels if not self.pitch else count % max(channels, 1)):
            return None
        row, column = np.divmod(self.first + np.arange(count // channels), self.pitch or width)
        if row[-1] >= height:
            return None
        pixels = self.offset + row * self.strides[0] + column * self.strides[1]
        places: npt.NDArray[np.int64] = pixels[:, np.newaxis] + np.arange(channels)
        places[column >= width] = -1
        return places.ravel()


@dataclass(frozen=True)
class Jobs:
    """An output of `nbytes` that jobs write, one box each."""

    nbytes: int
    boxes: tuple[OutputBox, ...]

    def output(self, name: str, records: Sequence[bytes]) -> bytes:
        """The whole output. `RunError` if the records do not fit the boxes, leave bytes out, or contradict."""
        whole, written = self.assembled(name, records)
        if not written.all():
            raise RunError(f"trace of {name}: {np.count_nonzero(~written)} bytes of {self.nbytes} that no job writes")
        return whole.tobytes()

    def assembled(self, name: str, records: Sequence[bytes]) -> tuple[Bytes, Mask]:
        """The output, and which bytes of it jobs write. `RunError` if records do not fit, or contradict each other."""
        if len(records) != len(self.boxes):
            raise RunError(f"trace of {name}: {len(self.boxes)} jobs write its output: got {len(records)} records")
        whole, written = np.zeros(self.nbytes, np.uint8), np.zeros(self.nbytes, np.bool_)
        for number, (box, record) in enumerate(zip(self.boxes, records, strict=True)):
            places = box.places(len(record)) if box.stop <= self.nbytes else None
            if places is None:
                raise RunError(
                    f"trace of {name}: job {number} writes {box.shape} bytes of {self.nbytes} from {box.offset} on: "
                    f"got {len(record)}"
                )
            inside = places >= 0
            target, values = places[inside], np.frombuffer(record, np.uint8)[inside]
            if (written[target] & (whole[target] != values)).any():
                raise RunError(f"trace of {name}: job {number} and one before it differ in bytes that both write")
            whole[target], written[target] = values, True
        return whole, written


@dataclass(frozen=True)
class Moved:
    """An output that a layer only moves: `nbytes` of an earlier `layer`, or of the model's `input`, from `offset` on.

    For a transpose, `shape` and `axes` say how an array is reordered; the bytes of an element are its last axis.
    """

    nbytes: int
    layer: int | None
    input: int | None
    offset: int
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def output(self, made: Mapping[int, bytes], inputs: Sequence[bytes]) -> bytes:
        """The output, given the outputs of earlier layers and the model's inputs."""
        source = inputs[self.input] if self.input is not None else made[self.layer or 0]
        data = source[self.offset : self.offset + self.nbytes]
        return np.frombuffer(data, np.uint8).reshape(self.shape).transpose(self.axes).tobytes()


@dataclass(frozen=True)
class TracedBox:
    """A box that is moved unchanged, from `source` (None: the constant) to the output, in elements of a byte.

    Each dimension has its count and its strides, in the source and in the output.
    """

    source: int | None
    start: int
    target: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    target_strides: tuple[int, ...]


@dataclass(frozen=True)
class TracedPart:
    """Bytes from `offset` on of an earlier `layer`, of the model's `input`, or of a `constant`: one of the three."""

    offset: int
    layer: int | None = None
    input: int | None = None
    constant: str = ""

    def bytes_of(self, made: Mapping[int, bytes], inputs: Sequence[bytes]) -> npt.NDArray[np.uint8]:
        """The bytes, given the outputs of earlier layers and the model's inputs."""
        if self.layer is not None:
            data = made[self.layer]
        else:
            data = inputs[self.input] if self.input is not None else bytes.fromhex(self.constant)
        return np.frombuffer(data, np.uint8)[self.offset :]


@dataclass(frozen=True)
class Gathered:
    """An output of `nbytes` that a layer puts together of `boxes` of its inputs, and of the byte `fill`."""

    nbytes: int
    parts: tuple[TracedPart, ...]
    fill: int
    boxes: tuple[TracedBox, ...]

    def output(self, made: Mapping[int, bytes], inputs: Sequence[bytes]) -> bytes:
        """The output. Raises `IndexError` for a box that lies outside, in a damaged file."""
        whole = np.zeros(self.nbytes, np.uint8)
        for box in self.boxes:
            target = _places(box.target, box.counts, box.target_strides)
            if box.source is None:
                whole[target] = self.fill & 0xFF
            else:
                there = self.parts[box.source].bytes_of(made, inputs)
                whole[target] = there[_places(box.start, box.counts, box.strides)]
        return whole.tobytes()


def _places(start: int, counts: tuple[int, ...], strides: tuple[int, ...]) -> npt.NDArray[Any]:
    """The index of each element of a box."""
    places = np.array(start)
    for count, stride in zip(counts, strides, strict=True):
        places = places[..., np.newaxis] + np.arange(count) * stride
    return places


@dataclass(frozen=True)
class TracedPiece:
    """What jobs of one accelerator of a chip write of an output, and the boxes of the output that it fills in turn."""

    accelerator: int
    jobs: Jobs
    boxes: tuple[TracedBox, ...]


@dataclass(frozen=True)
class TracedPieces:
    """An output of `nbytes` that several accelerators of a chip may compute, a piece each."""

    nbytes: int
    pieces: tuple[TracedPiece, ...]

    def assembled(self, number: int, name: str, records: Records) -> tuple[Bytes, Mask]:
        """The output of layer `number`, and which bytes of it are computed: plans for a chip leave out what nobody
        reads. `RunError` if pieces do not fit, or contradict each other."""
        whole, written = np.zeros(self.nbytes, np.uint8), np.zeros(self.nbytes, np.bool_)
        for piece in self.pieces:
            values, computed = piece.jobs.assembled(name, records.get(number | piece.accelerator << 16, ()))
            places = [_places(box.target, box.counts, box.target_strides).ravel() for box in piece.boxes]
            target, values = np.concatenate(places)[computed], values[computed]
            if (written[target] & (whole[target] != values)).any():
                raise RunError(f"trace of {name}: two accelerators differ in bytes that both write")
            whole[target], written[target] = values, True
        return whole, written


Assembly = Jobs | TracedPieces | Moved | Gathered
"""How a layer's output is put together where it is not traced whole."""


def read_assemblies(entries: Mapping[str, Mapping[str, Any]]) -> dict[int, Assembly]:
    """The assemblies of a project's metadata, by the layer's number."""
    return {int(number): _assembly(entry) for number, entry in entries.items()}


def _assembly(entry: Mapping[str, Any]) -> Assembly:
    nbytes = entry["bytes"]
    if "jobs" in entry:
        return _jobs(entry)
    if "pieces" in entry:
        return TracedPieces(
            nbytes,
            tuple(
                TracedPiece(one["accelerator"], _jobs(one), tuple(map(_traced_box, one["boxes"])))
                for one in entry["pieces"]
            ),
        )
    if "boxes" in entry:
        parts = tuple(
            TracedPart(part["offset"], part.get("layer"), part.get("input"), part.get("constant", ""))
            for part in entry["parts"]
        )
        return Gathered(nbytes, parts, entry["fill"], tuple(_traced_box(text) for text in entry["boxes"]))
    origin = entry["from"]
    shape = tuple(entry.get("shape", (nbytes,)))
    axes = tuple(entry.get("axes", (0,)))
    return Moved(nbytes, origin.get("layer"), origin.get("input"), origin["offset"], shape, axes)


def _jobs(entry: Mapping[str, Any]) -> Jobs:
    return Jobs(entry["bytes"], tuple(_box(*map(int, text.split())) for text in entry["jobs"]))


def _traced_box(text: str) -> TracedBox:
    source, start, target, *rest = map(int, text.split())
    dimensions = tuple(rest[0::3]), tuple(rest[1::3]), tuple(rest[2::3])
    return TracedBox(None if source < 0 else source, start, target, *dimensions)


def _box(
    offset: int, height: int, width: int, channels: int, row: int, pixel: int, pitch: int = 0, first: int = 0
) -> OutputBox:
    return OutputBox(offset, (height, width, channels), (row, pixel, 1), pitch, first)


@dataclass(frozen=True)
class Traced:
    """Every layer's output bytes in one inference, by the layer's number; of those that are not computed in full also
    which bytes are: the others nobody reads."""

    outputs: Mapping[int, bytes]
    computed: Mapping[int, Mask]


def layer_outputs(
    names: Mapping[int, str], assemblies: Mapping[int, Assembly], records: Records, inputs: Sequence[bytes]
) -> Traced:
    """Every layer's output in one inference; `names` are the layers', in the order in which they run."""
    outputs: dict[int, bytes] = {}
    computed: dict[int, Mask] = {}
    for number, name in names.items():
        assembly = assemblies.get(number)
        if isinstance(assembly, Jobs):
            outputs[number] = assembly.output(name, records.get(number, ()))
        elif isinstance(assembly, TracedPieces):
            whole, written = assembly.assembled(number, name, records)
            outputs[number] = whole.tobytes()
            if not written.all():
                computed[number] = written
        elif number in records:  # a host function may have several outputs
            outputs[number] = b"".join(records[number])
        elif assembly is not None:
            try:
                outputs[number] = assembly.output(outputs, inputs)
            except IndexError as error:
                raise RunError(f"trace of {name}: what it is made of is there: {error}") from error
            if computed:
                computed |= _computed(number, assembly, outputs, computed, inputs)
    return Traced(outputs, computed)


def _computed(
    number: int,
    assembly: Moved | Gathered,
    outputs: Mapping[int, bytes],
    computed: Mapping[int, Mask],
    inputs: Sequence[bytes],
) -> dict[int, Mask]:
    """Which bytes of a layer that only moves bytes are computed, if not all: it moves ones for bytes that are."""
    made = {
        layer: computed[layer].tobytes() if layer in computed else b"\1" * len(data) for layer, data in outputs.items()
    }
    if isinstance(assembly, Gathered):
        parts = (replace(part, constant="01" * (len(part.constant) // 2)) for part in assembly.parts)
        assembly = replace(assembly, fill=1, parts=tuple(parts))
    mask = np.frombuffer(assembly.output(made, [b"\1" * len(data) for data in inputs]), np.bool_)
    return {} if mask.all() else {number: mask}


def read_records(data: bytes, count: int, name: str) -> list[Records]:
    """The records of `count` inferences; `RunError` where the file ends early."""
    inferences: list[dict[int, list[bytes]]] = []
    for number, contents in _records(data, name):
        if number == _INFERENCE:
            inferences.append({})
        else:
            inferences[-1].setdefault(number, []).append(contents)
    if len(inferences) != count:
        raise RunError(f"{name}: the program traced {len(inferences)} inferences of {count}")
    return [*inferences]


def _records(data: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        head = np.frombuffer(data[at : at + 8].ljust(8, b"\0"), "<u4")
        layer, nbytes = (int(value) for value in head)
        at += 8 + nbytes
        if at > len(data):
            raise RunError(f"{name}: the trace ends in the middle of a record of layer {layer}")
        yield layer, data[at - nbytes : at]
