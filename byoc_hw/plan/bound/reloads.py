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
  channel.
- With slices outside of patches, what comes from main memory is loaded once for each slice, and layers before the
  slices work again. The slices begin with the last layer that sums over channels, or behind it.

A layer by itself may be in tiles as well, m of pixels and q of output channels, each over slices of input channels or
over all of them at once. Each tile of pixels loads what its windows see. With pixels outside, each tile of pixels uses
all weights, and each tile of channels all of its input. With channels outside, each tile of channels uses all of the
input, and each tile of pixels all weights of the channels. Nothing is loaded again that local memory holds from one to
the next. Without slices of input channels a tile of pixels is there with all of them, and the weights of a tile of
channels; with slices there are the partial sums of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Weighted
from byoc_hw.integers import ceil_div, largest_allowed
from byoc_hw.plan.array.kinds import PSUM_BYTES, Run, Window, geometry
from byoc_hw.plan.array.tiling import tile_geometry
from byoc_hw.plan.array.window import Axis, extents
from byoc_hw.plan.bound.handed_over import HandedOver
from byoc_hw.plan.bound.in_stripes import InStripes
from byoc_hw.plan.bound.latency import has_jobs, reads_all
from byoc_hw.plan.bound.ways import Floats, Ints, weight_bytes
from byoc_hw.tensor import Pair, Tensor

_LONGEST = 16
"""The most layers with jobs of a group, or those that the tuning space allows if these are more."""


def loads_again(graph: Graph, one: Accelerator) -> float:
    """Cycles of the DMA of copies that no plan of a region does without, beside those of all weights once, and of
    inputs and outputs that local memory has room for; 0 of a region with a layer that no plan has room for."""
    if one.library is not None or any(one.runs_whole(layer) for layer in graph.layers):
        return 0.0
    layers, handed_over = _known(graph, one), HandedOver(graph, one.activation_memory)
    if not handed_over and not any(layer.reads or layer.stored for layer in layers):
        return 0.0
    least = [0.0]  # up to each layer
    for stop in range(1, len(layers) + 1):
        costs = _Groups(layers, handed_over, stop, one).costs()
        least.append(min(least[stop - 1 - at] + cost for at, cost in enumerate(costs)))
    return least[-1] if least[-1] < inf else 0.0


@dataclass(frozen=True)
class _Layer:
    """What is known of a layer, whatever its group.

    `reads` are the inputs beyond local memory of which it reads all, and `readers` the layers that read all of its
    output; `elsewhere` is true if something else reads that, too. `stored` are the bytes of an output beyond local
    memory: they are stored where a reader is in a later group, or where it is an `output` of the region. `stripes` are
    the fewest with its inputs in local memory, and with its output as well, and `most` the rows and columns of one.
    `all_readers` read any of its output, with jobs or not. `plain` are the inputs of its output's
    shape that a layer makes, or that are the region's. It may sum over channels (`sums`), or work channel by channel
    (`by_channels`). It `grows` if each further row needs another one of its input. As a group by itself it loads
    `alone` bytes again.
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
    grows: bool
    alone: float


def _known(graph: Graph, one: Accelerator) -> list[_Layer]:
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
    for layer in graph.layers:
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
                grows=isinstance(form, Run) or (window is not None and _grows(window)),
                alone=_alone(layer, one) if sums and read else 0.0,
            )
        )
    return found


class _Groups:
    """The groups that end before layer `stop`: each one begins a layer before the one that was looked at last."""

    def __init__(self, layers: Sequence[_Layer], handed_over: HandedOver, stop: int, one: Accelerator) -> None:
        self._layers, self._handed_over, self._stop, self._one = layers, handed_over, stop, one
        self._loaded: dict[Tensor, None] = {}
        self._stored = 0
        self._weights = 0.0
        self._work: list[int] = []  # from the last one to the first
        self._stripes: dict[int, float] = {}
        self._patches: _Patches | None = None
        self._ends, self._grows = 0, True
        self._in_lines: tuple[InStripes, ...] | None = InStripes(0), InStripes(1)

    def costs(self) -> Iterator[float]:
        """The cycles that each group copies at least."""
        room, one = self._one.activation_memory, self._one
        each = [one.dma_setup / size + 1 / one.dma_width for size in (room, max(room, one.weight_memory))]
        longest = max(_LONGEST, one.tuning.longest_group)
        for at in reversed(range(self._stop)):
            self._add(at)
            if len(self._work) > longest:
                return
            copied = self._stored + sum(tensor.nbytes for tensor in self._loaded)
            copied += self._handed_over.copied(at, self._stop)
            yield copied * each[0] + self._again() * each[1]

    def _add(self, at: int) -> None:
        layer = self._layers[at]
        within = [reader for reader in layer.readers if reader < self._stop]
        self._loaded.pop(layer.layer.ofm, None)
        self._loaded |= dict.fromkeys(layer.reads)
        if layer.output or len(within) < len(layer.readers):
            self._stored += layer.stored
        if not layer.jobs:
            return
        self._weights += layer.weights
        self._ends += not within
        self._grows &= layer.grows
        self._work.append(at)
        self._stripes[at] = layer.stripes[bool(within)]
        while len(within) == 1 and not self._layers[at].elsewhere and self._stripes[within[0]] < self._stripes[at]:
            self._stripes[within[0]] = self._stripes[at]
            at = within[0]
            within = [reader for reader in self._layers[at].readers if reader < self._stop]

    def _again(self) -> float:
        """The bytes that a group loads again."""
        room = self._one.weight_memory
        if len(self._work) == 1:
            return self._layers[self._work[0]].alone
        if self._weights <= room or not self._work:
            return 0.0
        return min(self._in_stripes(room), self._in_patches(room))

    def _in_stripes(self, room: int) -> float:
        weighted = [(self._stripes[at], self._layers[at].weights) for at in self._work if self._layers[at].weights]
        found = sum((many - 1) * (size - room) for many, size in weighted if size > room)
        if self._ends == 1 and self._grows:
            found = max(found, (min(many for many, _ in weighted) - 1) * (self._weights - room))
            found = max(found, self._of_all_stripes(room))
        return found

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

    def _in_patches(self, room: int) -> float:
        if self._ends > 1:
            return inf
        if self._patches is None:
            self._patches = _Patches(self._layers, self._stop, self._one.activation_memory)
        many = self._patches.fewest(self._work)
        if many == inf:
            return inf
        first, again = self._layers[self._work[-1]], dict(self._loaded)
        for tensor in first.reads if first.by_channels else ():
            again.pop(tensor, None)
        found = (many - 1) * (self._weights - room)
        since = next((place for place, at in enumerate(self._work) if self._layers[at].sums), len(self._work) - 1)
        sliced = sum(self._layers[at].weights for at in self._work[: since + 1])
        before = self._weights - sliced
        nbytes = sum(tensor.nbytes for tensor in again)
        # With more slices, more is loaded for each, and fewer weights again, down to none.
        none = (1 + (many - 1) * sliced / (room - before)) / many if before < room else 2.0
        for slices in {2, max(int(none), 2), max(int(none) + 1, 2)}:
            weights = (slices * many - 1) * (before - room) + (many - 1) * sliced
            found = min(found, (slices - 1) * nbytes + max(weights, 0.0))
        return found


class _Patches:
    """The patches of groups that end before layer `stop`: of each way to cut the rows and columns of the last output,
    whether local memory has room for a patch."""

    def __init__(self, layers: Sequence[_Layer], stop: int, room: int) -> None:
        self._layers, self._stop, self._room = layers, stop, room
        self._needed: dict[int, tuple[Ints, Ints]] = {}  # the fewest rows and columns of a layer's output
        self._beside: dict[int, Floats] = {}  # the fewest bytes of what comes of it
        self._counts, self._fits = np.ones((1, 1)), np.ones((1, 1), np.bool_)

    def fewest(self, work: Sequence[int]) -> float:
        """The fewest patches of a group with these layers, from the last one to the first."""
        for at in work[len(self._needed) :]:
            self._add(at)
        fits = self._fits
        if not self._layers[work[-1]].by_channels:
            fits = fits & (self._read(work[-1]) + self._beside[work[-1]] <= self._room)
        return float(self._counts[fits].min()) if fits.any() else inf

    def _add(self, at: int) -> None:
        """A layer in front of those so far, of which the first one has another layer in front of it now."""
        if not self._needed:
            height, width = _lines(self._layers[at].layer)
            rows, columns = self._needed[at] = _sizes(height), _sizes(width)
            self._counts = np.outer(-(-height // rows), -(-width // columns)).astype(np.float64)
            self._beside[at] = np.zeros(self._counts.shape)
            self._fits = np.ones(self._counts.shape, np.bool_)
            return
        behind = next(reversed(self._needed))
        if not self._layers[behind].by_channels:
            self._fits &= self._there(behind) <= self._room
        within = [reader for reader in self._layers[at].readers if reader < self._stop]
        needed = [self._seen(reader, at) for reader in within]
        self._needed[at] = (
            np.maximum.reduce([rows for rows, _ in needed]),
            np.maximum.reduce([columns for _, columns in needed]),
        )
        made = self._outputs(at)
        if len(within) == 1 and not self._layers[at].elsewhere and isinstance(geometry(self._layers[at].layer), Window):
            (reader,) = within
            if self._layers[reader].by_channels:
                made = np.minimum(made, self._beside[reader])
            elif self._layers[at].by_channels and self._layers[reader].sums:
                made = np.minimum(made, PSUM_BYTES * self._outputs(reader))
        self._beside[at] = made

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


# ---------------------------------------------------------------- a layer by itself


def _alone(layer: Layer, one: Accelerator) -> float:
    """The fewest bytes that a convolution loads again which is a group by itself: in stripes, patches or tiles."""
    form = tile_geometry(layer)
    assert isinstance(form, Window), "layers with weights have one"
    return _alone_of(
        form, layer.ifm.bytes_of(form.ifm_channels), weight_bytes(layer), one.activation_memory, one.weight_memory
    )


@lru_cache(maxsize=256)
def _alone_of(form: Window, pixel: int, weights: float, room: int, weight_room: int) -> float:
    """The same: `pixel` are the bytes of an input in all channels."""
    rows, columns = np.array(_cuts(form.rows)).T, np.array(_cuts(form.columns)).T
    many, pixels, largest, seen = (
        np.outer(one, other).reshape(-1, 1) for one, other in zip(rows, columns, strict=True)
    )
    tiles = -(-form.out_channels // _sizes(form.out_channels))
    outputs = form.out_channels / tiles  # the fewest of each pixel in a tile of channels
    again = (seen - form.rows.ifm * form.columns.ifm) * pixel
    beyond = max(weights - weight_room, 0.0)
    inside = (tiles - 1) * np.maximum(seen * pixel - room, 0)
    inside = inside + (many - 1) * np.maximum(weights - tiles * weight_room, 0)
    # In slices of input channels: what stays of the input lies beside the sums of a tile of pixels.
    left = many * room - PSUM_BYTES * form.rows.ofm * form.columns.ofm * outputs
    outside = (many - 1) * beyond + (tiles - 1) * np.maximum(seen * pixel - left, 0)
    fits = PSUM_BYTES * pixels * outputs + largest <= room
    found = np.where(fits, again + np.minimum(outside, inside), inf)
    # Over all input channels at once.
    outside, inside = (many - 1) * beyond, np.where(tiles * weight_room >= weights, inside, inf)
    fits = largest * pixel <= room
    return float(min(found.min(), np.where(fits, again + np.minimum(outside, inside), inf).min()))


def _sizes(count: int) -> Ints:
    """The sizes of tiles that cut so many evenly, in growing order."""
    return np.array(sorted({ceil_div(count, many) for many in range(1, count + 1)}))


@lru_cache(maxsize=256)
def _cuts(axis: Axis) -> list[tuple[int, int, int, int]]:
    """The ways to cut an axis in tiles of one size, but for the last: for each number of tiles the fewest outputs of a
    whole one, its fewest inputs, and the fewest of all."""
    if axis.reach == axis.stride == 1 and axis.ifm == axis.ofm:  # no tile sees what another one does
        return [(ceil_div(axis.ofm, size), size, size, axis.ofm) for size in _sizes(axis.ofm).tolist()]
    found: dict[int, tuple[int, int, int, int]] = {}
    for size in range(1, axis.ofm + 1):
        tiles = axis.cut(size)
        largest = max(tile.ifm_size for tile in tiles if tile.size == size)
        seen = sum(tile.ifm_size for tile in tiles)
        _, fewest, inputs, of_all = found.get(len(tiles), (0, size, largest, seen))
        found[len(tiles)] = len(tiles), min(fewest, size), min(inputs, largest), min(of_all, seen)
    return list(found.values())
