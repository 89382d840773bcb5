"""In which patches the layers of a group have room, for `reloads.py`: what these load, and what the array computes.

A patch is cut out of the last output, along rows and along columns. Each layer has what the layers behind it read of
its output, and local memory holds that with what the layer reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.plan.array.kinds import PSUM_BYTES, Window, geometry
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound.halos import LinesNeeded, lines_needed, patch_cycles, sizes
from byoc_hw.plan.bound.known_layers import KnownLayer
from byoc_hw.plan.bound.seen import fewest_seen
from byoc_hw.plan.bound.ways import Floats, Ints
from byoc_hw.tensor import Tensor


class InPatches:
    """The patches of groups that end before layer `stop`: of each way to cut the rows and columns of the last output,
    whether local memory has room for a patch, and what the array computes."""

    def __init__(self, layers: Sequence[KnownLayer], stop: int, one: Accelerator) -> None:
        self._layers, self._stop, self._room = layers, stop, one.activation_memory
        self._apart = replace(one, packed_rows=False)
        self._needed: dict[int, tuple[Ints, Ints]] = {}  # the fewest rows and columns of a layer's output
        self._beside: dict[int, Floats] = {}  # the fewest bytes of what comes of it
        self._cuts: dict[int, tuple[LinesNeeded, LinesNeeded]] = {}  # what is computed of its rows and columns
        self._array: list[Floats] = []  # cycles beyond those of each layer by itself
        self._counts, self._fits = np.ones((1, 1)), np.ones((1, 1), np.bool_)

    def fitting(self, work: Sequence[int]) -> tuple[Floats, tuple[Ints, ...]]:
        """The numbers of patches of a group with these layers, from the last one to the first, that have room: with
        their places among all."""
        for at in work[len(self._needed) :]:
            self._add(at)
        fits = self._fits
        if not self._layers[work[-1]].by_channels:
            fits = fits & (self._read(work[-1]) + self._beside[work[-1]] <= self._room)
        places = np.nonzero(fits)
        return self._counts[places], places

    def array(self, work: Sequence[int], sliced: int, places: tuple[Ints, ...]) -> tuple[Floats, Floats]:
        """The cycles of the array for these patches beyond those of each layer by itself, and all cycles of the layers
        in front of the last ones, which are `sliced`."""
        again = [one[places] for one in self._array]
        nothing = np.zeros(len(places[0]))
        return sum(again, nothing), sum(
            (more + self._layers[at].array for at, more in zip(work[sliced:], again[sliced:], strict=True)), nothing
        )

    def loaded(self, tensor: Tensor, readers: Sequence[int]) -> Floats:
        """Bytes of a tensor that all patches load."""
        read = [self._reads(reader, tensor) for reader in readers]
        rows, columns = (reduce(LinesNeeded.beside, one) for one in zip(*read, strict=True))
        return np.outer(rows.lines(), columns.lines()) * float(tensor.bytes_of(extents(tensor)[2]))

    def _add(self, at: int) -> None:
        """A layer in front of those so far, of which the first one has another layer in front of it now."""
        layer = self._layers[at]
        if not self._needed:
            height, width = layer.lines
            rows, columns = self._needed[at] = sizes(height), sizes(width)
            self._cuts[at] = lines_needed(height), lines_needed(width)
            self._counts = np.outer(-(-height // rows), -(-width // columns)).astype(np.float64)
            self._beside[at] = np.zeros(self._counts.shape)
            self._fits = np.ones(self._counts.shape, np.bool_)
            self._array.append(self._computed(layer, *self._cuts[at]))
            return
        behind = next(reversed(self._needed))
        if not self._layers[behind].in_slices:
            self._fits &= self._there(behind) <= self._room
        within = [reader for reader in layer.readers if reader < self._stop]
        needed = [self._seen(reader, at) for reader in within]
        self._needed[at] = (
            np.maximum.reduce([rows for rows, _ in needed]),
            np.maximum.reduce([columns for _, columns in needed]),
        )
        made = [self._reads(reader, layer.layer.ofm) for reader in within]
        rows, columns = (reduce(LinesNeeded.beside, one) for one in zip(*made, strict=True))
        self._cuts[at] = rows, columns
        self._array.append(self._computed(layer, rows, columns))
        outputs = self._outputs(at)
        if len(within) == 1 and not layer.elsewhere and (isinstance(geometry(layer.layer), Window) or layer.elements):
            (reader,) = within
            if self._layers[reader].in_slices:
                outputs = np.minimum(outputs, self._beside[reader])
            elif layer.in_slices and self._layers[reader].sums:
                outputs = np.minimum(outputs, PSUM_BYTES * self._outputs(reader))
        self._beside[at] = outputs

    def _computed(self, layer: KnownLayer, rows: LinesNeeded, columns: LinesNeeded) -> Floats:
        """The cycles of the array for a layer beyond those by itself."""
        if not layer.array:
            return np.zeros(self._counts.shape)
        return np.maximum(patch_cycles(layer.layer, rows, columns, self._apart) - layer.array, 0.0)

    def _reads(self, reader: int, tensor: Tensor) -> tuple[LinesNeeded, LinesNeeded]:
        """The rows and columns that a layer reads of an input."""
        layer, (rows, columns) = self._layers[reader].layer, self._cuts[reader]
        form = geometry(layer)
        if isinstance(form, Window):
            return rows.read(form.rows), columns.read(form.columns)
        if tensor.shape != layer.ofm.shape:
            return rows.single(), columns.single()
        return rows, columns

    def _there(self, at: int) -> Floats:
        """The fewest bytes of a patch of what a layer reads, all channels or their sums, and of what comes of it."""
        found = self._read(at) + self._beside[at]
        return np.minimum(found, PSUM_BYTES * self._outputs(at)) if self._layers[at].sums else found

    def _outputs(self, at: int) -> Floats:
        """Bytes of a patch of a layer's output."""
        ofm = self._layers[at].layer.ofm
        return np.outer(*self._needed[at]) * float(ofm.bytes_of(extents(ofm)[2]))

    def _read(self, at: int) -> Floats:
        """Bytes of a patch of a layer's inputs, all channels."""
        layer, plain = self._layers[at].layer, self._layers[at].plain
        form = geometry(layer)
        if isinstance(form, Window):
            return np.outer(*self._seen(at, None)) * float(layer.ifm.bytes_of(form.ifm_channels))
        return self._outputs(at) * len(plain)

    def _seen(self, reader: int, at: int | None) -> tuple[Ints, Ints]:
        """The fewest rows and columns that a layer reads of what layer `at` makes, or of its input."""
        layer, (rows, columns) = self._layers[reader].layer, self._needed[reader]
        form = geometry(layer)
        if isinstance(form, Window):
            return fewest_seen(form.rows)[rows], fewest_seen(form.columns)[columns]
        if at is not None and self._layers[at].layer.ofm.shape != layer.ofm.shape:
            return np.ones_like(rows), np.ones_like(columns)
        return rows, columns
