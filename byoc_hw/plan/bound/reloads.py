"""What the DMA of an accelerator copies at least where local memory is small: what is loaded again counts.

A plan computes a region group by group (`choices.py`): consecutive layers, portion by portion. A portion is a stripe, a
patch, a tile, or one of these in a slice of channels. Any groups may be chosen, so the cheapest ones from the first
layer to the last are a bound, a shortest path. This takes for granted that plans are made of such groups, in the order
of the layers and of no more than `_LONGEST`, and that partial sums stay in local memory until they are complete; the
rest holds for any choices.

A tensor that is larger than local memory is in no group in full. A group that does not make it loads what it reads of
it, and stores what others read. Of smaller ones a group hands over no more than have room (`handed_over.py`).

Each portion of a group uses all weights of the layers that it computes something of, and finds no more of them than
weight memory holds. So with n portions of which each computes something of all layers, beyond all weights once, the
weights less weight memory are loaded n - 1 times again; or, whatever the other layers do, those of each layer less
weight memory as often as the layer has portions but one. How many portions there are, local memory says:

- In stripes a layer has what it reads of a stripe, and what it makes if the group reads that, at a time. Rows that it
  computes in all stripes are all rows, so one stripe has at least the average, and reads no fewer rows than as many at
  a border. A layer computes something in each stripe in which the only layer does that reads it; rows that are needed
  grow from stripe to stripe until all are there, so of several layers the stripes with the fewest are those of all.
  Where it is known what all readers need, the stripes of each layer count by themselves (`in_stripes.py`).
- In patches that is so for rows and columns at once, and each patch computes something of all layers. With slices of
  channels, a layer that sums over channels has all of those that it reads of a patch, or partial sums of all that it
  makes. Other tensors between layers are there in slices only, as is the input of a first layer that works channel by
  channel, and what element-wise layers read.
- With slices outside of patches, what comes from main memory is loaded once for each slice, and layers before the
  slices work again. The slices begin with the last layer that sums over channels, or behind it. What element-wise
  layers behind that read is loaded once.

A layer by itself may be in tiles as well (`by_itself.py`). Rows and columns that neighbouring portions share are loaded
again, or computed again, or kept (`halos.py`). This counts for tensors beyond local memory, as smaller ones may be
there in full.

- In stripes the outputs on both sides of a border see some inputs in common. A layer has as many borders as stripes but
  one; of those of a group there are no more than its last output has rows or columns.
- In patches each layer computes all that is needed of it, and what lies between layers is read by them alone. The
  pieces are all of one size but for the last, along rows and along columns, so what all of them need is counted.

What the array computes again is in no relation to what the DMA copies: large patches share less, and need more room.
So for some shares the least sum of that part of the array's cycles and the rest of the DMA's is found. No plan takes
fewer cycles than such a sum of its own, as it takes no fewer than either engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from math import inf

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.integers import ceil_div, largest_allowed
from byoc_hw.plan.array.kinds import PSUM_BYTES, Run, Window, geometry
from byoc_hw.plan.array.window import Axis, extents
from byoc_hw.plan.bound.by_itself import by_itself
from byoc_hw.plan.bound.halos import (
    LinesNeeded,
    lines_needed,
    patch_cycles,
    pixel_cycles,
    shared,
    sizes,
    stored_of_shared,
)
from byoc_hw.plan.bound.handed_over import HandedOver
from byoc_hw.plan.bound.in_stripes import InStripes
from byoc_hw.plan.bound.latency import has_jobs, reads_all
from byoc_hw.plan.bound.ways import Floats, Ints, weight_bytes
from byoc_hw.tensor import Pair, Tensor

_LONGEST = 16
"""The most layers with jobs of a group, or those that the tuning space allows if these are more."""

ENGINE_SHARES = np.linspace(0.0, 1.0, 9)
"""The parts of the array's cycles that are added to the rest of the DMA's."""


def loads_again(graph: Graph, one: Accelerator) -> float:
    """Cycles of the DMA of copies that no plan of a region does without, beside those of all weights once, and of
    inputs and outputs that local memory has room for; 0 of a region with a layer that no plan has room for."""
    return float(_least(graph, one, [0.0] * len(graph.layers), ENGINE_SHARES[:1])[0])


def both_engines(graph: Graph, one: Accelerator, array: Sequence[float]) -> Floats:
    """For each of `ENGINE_SHARES`, the least sum of that part of the array's cycles and the rest of `loads_again`, of
    any plan; `array` are the least cycles of the array for each layer. 0 where all tensors fit local memory."""
    return _least(graph, one, array, ENGINE_SHARES)


def _least(graph: Graph, one: Accelerator, array: Sequence[float], shares: Floats) -> Floats:
    """The same for some shares."""
    nothing = np.zeros(len(shares))
    if one.library is not None or any(one.runs_whole(layer) for layer in graph.layers):
        return nothing
    layers, handed_over = _known(graph, one, array), HandedOver(graph, one.activation_memory)
    if not handed_over and not any(layer.reads or layer.stored for layer in layers):
        return nothing
    least = [nothing]  # up to each layer
    for stop in range(1, len(layers) + 1):
        groups, found = _Groups(layers, handed_over, stop, one, shares), np.full(len(shares), inf)
        for before, once in zip(reversed(least), groups.once(), strict=False):
            if (before + once < found).any():
                found = np.minimum(found, before + once + groups.again())
        least.append(found)
    return least[-1] if np.isfinite(least[-1]).all() else nothing


@dataclass(frozen=True)
class _Layer:
    """What is known of a layer, whatever its group.

    `reads` are the inputs beyond local memory of which it reads all, and `readers` the layers that read all of its
    output; `elsewhere` is true if something else reads that, too. `stored` are the bytes of an output beyond local
    memory: they are stored where a reader is in a later group, or where it is an `output` of the region. `stripes` are
    the fewest with its inputs in local memory, and with its output as well, and `most` the rows and columns of one.
    `all_readers` read any of its output, with jobs or not. `plain` are the inputs of its output's shape that a layer
    makes, or that are the region's. It may sum over channels (`sums`), or work channel by channel (`by_channels`), or
    element by element (`elements`). It `grows` if each further row needs another one of its input. The array needs
    `array` cycles for it, and for each pixel that it computes again `pixel`. `alone` are, as a group by itself, cycles
    of the array and of copies beyond those, of all ways that may be the best.
    """

    layer: Layer
    jobs: bool
    weights: float
    reads: tuple[Tensor, ...]
    readers: tuple[int, ...]
    all_readers: tuple[int, ...]
    elsewhere: bool
    stored: int
    output: bool
    stripes: tuple[float, float]
    most: tuple[Pair, Pair]
    plain: tuple[Tensor, ...]
    sums: bool
    by_channels: bool
    elements: bool
    grows: bool
    alone: tuple[Floats, Floats]
    array: float
    pixel: float

    @property
    def lines(self) -> tuple[int, int]:
        """The rows and columns of its output."""
        return _lines(self.layer)

    @property
    def in_slices(self) -> bool:
        """Whether slices of its inputs may be all that is there of them."""
        return self.by_channels or self.elements


def _known(graph: Graph, one: Accelerator, array: Sequence[float]) -> list[_Layer]:
    room, outputs = one.activation_memory, set(graph.outputs)
    readers: dict[Tensor, list[int]] = {}
    everywhere: dict[Tensor, list[int]] = {}
    others = set(outputs)
    for index, layer in enumerate(graph.layers):
        for tensor in dict.fromkeys(layer.inputs):
            everywhere.setdefault(tensor, []).append(index)
            if has_jobs(layer) and reads_all(layer):
                readers.setdefault(tensor, []).append(index)
            else:
                others.add(tensor)
    plain = {layer.ofm for layer in graph.layers if has_jobs(layer)} | set(graph.inputs)
    found = []
    for layer, cycles in zip(graph.layers, array, strict=True):
        jobs, form = has_jobs(layer), geometry(layer)
        window = form if isinstance(form, Window) else None
        same = tuple(one for one in dict.fromkeys(layer.inputs) if one in plain and one.shape == layer.ofm.shape)
        reads = [one for one in dict.fromkeys(layer.inputs) if one in plain and one.nbytes > room]
        sums = window is not None and isinstance(layer, Weighted) and window.sums and window.groups == 1
        by_channels = window is not None and not window.sums
        read = tuple(reads) if jobs and reads_all(layer) else ()
        most = _most(layer, len(same), room, False), _most(layer, len(same), room, True)
        found.append(
            _Layer(
                layer=layer,
                jobs=jobs,
                weights=weight_bytes(layer) if jobs else 0.0,
                reads=read,
                readers=tuple(readers.get(layer.ofm, ())) if jobs else (),
                all_readers=tuple(everywhere.get(layer.ofm, ())),
                elsewhere=layer.ofm in others,
                stored=layer.ofm.nbytes if jobs and layer.ofm.nbytes > room else 0,
                output=layer.ofm in outputs,
                stripes=(_stripes(layer, most[0]), _stripes(layer, most[1])),
                most=most,
                plain=same,
                sums=sums,
                by_channels=by_channels,
                elements=isinstance(form, Run) and form.each == 1 and not form.repeats,
                grows=isinstance(form, Run) or (window is not None and _grows(window)),
                alone=by_itself(layer, one, cycles)
                if isinstance(layer, Weighted) and sums and read
                else (np.zeros(1), np.zeros(1)),
                array=cycles if jobs else 0.0,
                pixel=pixel_cycles(layer, one) if jobs and cycles else 0.0,
            )
        )
    return found


class _Groups:
    """The groups that end before layer `stop`: each one begins a layer before the one that was looked at last. Of each
    the cost is a part of the array's cycles, for all `shares` of them, and the rest of the DMA's."""

    def __init__(
        self, layers: Sequence[_Layer], handed_over: HandedOver, stop: int, one: Accelerator, shares: Floats
    ) -> None:
        self._layers, self._handed_over, self._stop = layers, handed_over, stop
        self._one, self._shares = one, shares
        room = one.activation_memory
        self._copy, self._load = (
            one.dma_setup / size + 1 / one.dma_width for size in (room, max(room, one.weight_memory))
        )
        self._loaded: dict[Tensor, list[int]] = {}  # with the layers that read it
        self._stored = 0
        self._weights = self._array = 0.0
        self._work: list[int] = []  # from the last one to the first
        self._stripes: dict[int, float] = {}
        self._patches = _Patches(layers, stop, one)
        self._ends, self._grows, self._inside = 0, True, True
        self._in_lines: tuple[InStripes, ...] | None = InStripes(0), InStripes(1)

    def once(self) -> Iterator[Floats]:
        """What each group costs at least; what it costs `again` is on top."""
        longest = max(_LONGEST, self._one.tuning.longest_group)
        for at in reversed(range(self._stop)):
            self._add(at)
            if len(self._work) > longest:
                return
            copied = self._stored + sum(tensor.nbytes for tensor in self._loaded)
            copied += self._handed_over.copied(at, self._stop)
            yield self._mixed(self._array, copied * self._copy)

    def _mixed(self, array: float, copied: float) -> Floats:
        return self._shares * array + (1 - self._shares) * copied

    def _best(self, array: Floats, copied: Floats) -> Floats:
        """The least of several ways."""
        mixed = np.outer(self._shares, array) + np.outer(1 - self._shares, copied)
        return np.asarray(mixed.min(axis=1, initial=inf))

    def _within(self, at: int) -> list[int]:
        """The layers of the group that read what a layer makes."""
        return [reader for reader in self._layers[at].readers if reader < self._stop]

    def _add(self, at: int) -> None:
        layer, within = self._layers[at], self._within(at)
        self._loaded.pop(layer.layer.ofm, None)
        for tensor in layer.reads:
            self._loaded.setdefault(tensor, []).append(at)
        elsewhere = layer.output or len(within) < len(layer.readers)
        if elsewhere:
            self._stored += layer.stored
        if not layer.jobs:
            return
        self._inside &= not self._work or not elsewhere
        self._weights += layer.weights
        self._array += layer.array
        self._ends += not within
        self._grows &= layer.grows
        self._work.append(at)
        self._stripes[at] = layer.stripes[bool(within)]
        while len(within) == 1 and not self._layers[at].elsewhere and self._stripes[within[0]] < self._stripes[at]:
            self._stripes[within[0]] = self._stripes[at]
            at = within[0]
            within = self._within(at)

    def again(self) -> Floats:
        """What the group that is looked at costs beside all of its work once."""
        room, nothing = self._one.weight_memory, np.zeros(len(self._shares))
        if not self._work:
            return nothing
        if len(self._work) == 1:
            return self._best(*self._layers[self._work[0]].alone)
        large = self._loaded or any(self._layers[at].stored and self._within(at) for at in self._work)
        if self._weights <= room and not large:
            return nothing
        stripes = self._in_stripes(room)
        return np.minimum(stripes, self._in_patches(room)) if stripes.any() else stripes

    def _in_stripes(self, room: int) -> Floats:
        if max(self._stripes.values()) > max(self._layers[self._work[0]].lines):
            return np.full(len(self._shares), inf)
        weighted = [(self._stripes[at], self._layers[at].weights) for at in self._work if self._layers[at].weights]
        found = sum((many - 1) * (size - room) for many, size in weighted if size > room)
        if self._ends == 1 and self._grows and self._weights > room:
            found = max(found, (min(many for many, _ in weighted) - 1) * (self._weights - room))
            found = max(found, self._of_all_stripes(room))
        if found == inf:
            return np.full(len(self._shares), inf)
        cost = self._mixed(0.0, found * self._load)
        for tensor, readers in self._loaded.items():
            cost += np.maximum.reduce([self._halo(reader, tensor, None) for reader in readers])
        for at in self._work:
            within = self._within(at)
            if self._layers[at].stored and within:
                cost += np.maximum.reduce([self._halo(reader, self._layers[at].layer.ofm, at) for reader in within])
        return cost

    def _of_all_stripes(self, room: int) -> float:
        """The weights that layers load again stripe by stripe; 0 if it is not known what they need."""
        for at in self._work[self._in_lines[0].layers :] if self._in_lines else ():
            layer, readers = self._layers[at], self._layers[at].all_readers
            behind = [(one, self._layers[one].layer) for one in readers if one < self._stop]
            most = layer.most[any(one < self._stop for one in layer.readers)]
            for one, lines in zip(self._in_lines or (), most, strict=True):
                if not one.add(at, layer.layer, layer.weights, lines, behind):
                    self._in_lines = None
                    return 0.0
        return min((one.loaded_again(room) for one in self._in_lines or ()), default=0.0)

    def _halo(self, reader: int, tensor: Tensor, maker: int | None) -> Floats:
        """What the stripes of a layer share of a tensor: it is loaded again, or layer `maker` computes it again, or it
        is kept."""
        form, borders = geometry(self._layers[reader].layer), int(self._stripes[reader]) - 1
        costs = [np.full(len(self._shares), inf)]
        if not isinstance(form, Window) or not borders:
            return np.zeros(len(self._shares))
        for axis, other in ((form.rows, form.columns), (form.columns, form.rows)):
            lines = shared(axis, borders)
            if lines is None:
                continue
            pixels = lines * other.ifm
            copied = tensor.bytes_of(pixels * form.ifm_channels) * self._copy
            if maker is None:
                costs.append(self._mixed(0.0, copied))
                continue
            one = self._layers[maker]
            computed = max(one.pixel * (axis.ifm * other.ifm + pixels) - one.array, 0.0)
            kept = self._mixed(0.0, copied * (1 + stored_of_shared(axis)))
            costs.append(np.minimum(self._mixed(computed, 0.0), kept))
        return np.asarray(np.minimum.reduce(costs))

    def _in_patches(self, room: int) -> Floats:
        """The best patches: of each number of them the cycles of the array, and bytes that are loaded again."""
        if self._ends > 1 or not self._inside:
            return np.full(len(self._shares), inf)
        many, lines = self._patches.fitting(self._work)
        since = next((place for place, at in enumerate(self._work) if self._layers[at].sums), len(self._work) - 1)
        array, before = self._patches.array(self._work, since + 1, lines)
        first = self._layers[self._work[-1]]
        inputs = [self._patches.loaded(tensor, readers)[lines] for tensor, readers in self._loaded.items()]
        loaded = sum(inputs, np.zeros(len(many)))
        again = loaded - sum(tensor.nbytes for tensor in self._loaded)
        for tensor, nbytes in zip(self._loaded, inputs, strict=True):
            behind = all(self._layers[at].elements and at in self._work[:since] for at in self._loaded[tensor])
            loaded -= nbytes * (behind or (first.by_channels and tensor in first.reads))
        weights = (many - 1) * max(self._weights - room, 0.0)
        options = [(array, again * self._copy + weights * self._load)]
        # With slices outside, what comes from main memory is loaded for each, and layers before them work again.
        sliced = sum(self._layers[at].weights for at in self._work[: since + 1])
        rest = self._weights - sliced
        # With more slices, fewer weights are loaded again, down to none.
        none = (1 + (many - 1) * sliced / (room - rest)) / many if rest < room else np.full(len(many), 2.0)
        for slices in (np.full(len(many), 2.0), *(np.maximum(np.floor(none) + more, 2.0) for more in (0, 1))):
            weights = np.maximum((slices * many - 1) * (rest - room) + (many - 1) * sliced, 0.0)
            nbytes = (again + (slices - 1) * loaded) * self._copy + weights * self._load
            options.append((array + (slices - 1) * before, nbytes))
        return np.asarray(np.minimum.reduce([self._best(*one) for one in options]))


class _Patches:
    """The patches of groups that end before layer `stop`: of each way to cut the rows and columns of the last output,
    whether local memory has room for a patch, and what the array computes."""

    def __init__(self, layers: Sequence[_Layer], stop: int, one: Accelerator) -> None:
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

    def _computed(self, layer: _Layer, rows: LinesNeeded, columns: LinesNeeded) -> Floats:
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
            return _table(form.rows)[rows], _table(form.columns)[columns]
        if at is not None and self._layers[at].layer.ofm.shape != layer.ofm.shape:
            return np.ones_like(rows), np.ones_like(columns)
        return rows, columns


# ---------------------------------------------------------------- how many portions a layer has


def _stripes(layer: Layer, most: Pair) -> float:
    """The fewest stripes of a layer, of at most so many rows, or else columns."""
    return min(ceil_div(lines, size) if size else inf for lines, size in zip(_lines(layer), most, strict=True))


def _most(layer: Layer, operands: int, room: int, inside: bool) -> Pair:
    """The most rows of a layer that have room with what it reads for them, and with `inside` with what it makes as
    well; and the most columns, which may be rows of the plan."""
    (height, width), made = _lines(layer), layer.ofm.bytes_of(extents(layer.ofm)[2]) * inside

    def fits(rows: int, columns: int) -> bool:
        return _read(layer, operands, rows, columns) + made * rows * columns <= room

    return (
        largest_allowed(height, lambda rows: fits(rows, width)),
        largest_allowed(width, lambda columns: fits(height, columns)),
    )


def _lines(layer: Layer) -> tuple[int, int]:
    """The rows and columns of a layer's output."""
    form = geometry(layer)
    return (form.rows.ofm, form.columns.ofm) if isinstance(form, Window) else extents(layer.ofm)[:2]


def _read(layer: Layer, operands: int, rows: int, columns: int) -> float:
    """Bytes that a layer reads at least for so many rows and columns of its output; an element-wise one reads as much
    of so many `operands`."""
    form = geometry(layer)
    if isinstance(form, Window):
        return layer.ifm.bytes_of(_seen(form.rows, rows) * _seen(form.columns, columns) * form.ifm_channels)
    if isinstance(form, Run):
        return operands * layer.ofm.bytes_of(rows * columns * extents(layer.ofm)[2])
    return 0


def _grows(window: Window) -> bool:
    """Whether each further row, or column, of the output needs another one of the input, until all are needed."""
    return all(axis.before < axis.reach for axis in (window.rows, window.columns))


@lru_cache(maxsize=1024)
def _table(axis: Axis) -> Ints:
    """`_seen` of all numbers of outputs."""
    return np.array([0, *(_seen(axis, size) for size in range(1, axis.ofm + 1))])


@lru_cache(maxsize=1 << 14)
def _seen(axis: Axis, size: int) -> int:
    """The fewest inputs that so many outputs in a row see, wherever they lie."""
    return min(axis.extent(0, size).ifm_size, axis.extent(axis.ofm - size, size).ifm_size)
