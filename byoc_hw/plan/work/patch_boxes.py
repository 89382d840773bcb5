"""Propagates each patch of a group's last output back to what every earlier layer must compute, along one axis.

A patch is rows times columns, and what a layer computes of it depends on rows and columns independently. Neighbouring
patches compute the halo between them twice. Slices of channels are cut here as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer, Weighted
from byoc_hw.integers import ceil_div, round_up
from byoc_hw.plan.array.kinds import Run, Window, geometry, rows_at_a_time
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.transfers import linear_chunks
from byoc_hw.plan.array.weight_blocks import WeightRun
from byoc_hw.plan.array.window import Extents, dense_place, extents
from byoc_hw.plan.work.rows_needed import Span
from byoc_hw.tensor import Tensor


@dataclass(frozen=True)
class AxisPiece:
    """A piece of the last output along one axis: the outputs that each layer computes of it, last layer first, and the
    elements that are read of each storage."""

    made: dict[int, Span]
    read: dict[Storage, Span]


def pieces(
    layers: Sequence[Layer], of: Mapping[Tensor, Storage], indices: Sequence[int], count: int, axis: int
) -> Iterator[AxisPiece]:
    """The pieces of a group of layers `indices` along rows (`axis` 0) or columns (1), `count` or fewer of them.

    Every layer computes all of its outputs in the end, also those that no layer reads.
    """
    total = extents(layers[indices[-1]].ofm)[axis]
    done = dict.fromkeys(indices, 0)
    for first, size in linear_chunks(total, ceil_div(total, count)):
        last = first + size == total
        piece = _piece(layers, of, indices, axis, done, (first, first + size), last)
        for index, (_, stop) in piece.made.items():
            done[index] = stop
        yield piece


def _piece(
    layers: Sequence[Layer],
    of: Mapping[Tensor, Storage],
    indices: Sequence[int],
    axis: int,
    done: Mapping[int, int],
    wanted: Span,
    last: bool,
) -> AxisPiece:
    made: dict[int, Span] = {}
    needs: dict[Storage, Span] = {of[layers[indices[-1]].ofm]: wanted}
    for index in reversed(indices):
        layer = layers[index]
        start, stop = needs[of[layer.ofm]]
        made[index] = min(start, done[index]), extents(layer.ofm)[axis] if last else max(stop, done[index])
        for operand, tensor in enumerate(layer.inputs):
            first, end = _read(layer, made[index], operand, axis)
            low, high = needs.get(of[tensor], (first, end))
            needs[of[tensor]] = min(low, first), max(high, end)
    return AxisPiece(made, needs)


def _read(layer: Layer, outputs: Span, operand: int, axis: int) -> Span:
    """What a layer reads of an input for some of its outputs, along one axis."""
    form = geometry(layer)
    if isinstance(form, Run):
        return (0, 1) if form.repeats and operand == 1 else outputs
    assert isinstance(form, Window), "another layer is in no patches"
    extent = (form.rows, form.columns)[axis].extent(outputs[0], outputs[1] - outputs[0])
    return extent.ifm_start, extent.ifm_start + extent.ifm_size


def check_patches(
    layers: Sequence[Layer],
    of: Mapping[Tensor, Storage],
    indices: Sequence[int],
    held: Set[int],
    needs_main: Set[Storage],
    *,
    whole: bool,
) -> None:
    """Check that a group can be computed in patches, or, with `whole`, in slices of channels alone, which may have
    packed rows. Raises `PlanError` naming the layer or tensor that cannot."""
    read = {of[tensor] for index in indices for tensor in layers[index].inputs}
    made = [of[layers[index].ofm] for index in indices]
    for index in indices:
        layer = layers[index]
        if not isinstance(geometry(layer), Window | Run):
            raise PlanError(f"{layer.name}: a {layer.kind} layer has no patches")
        for tensor in (*layer.inputs, layer.ofm):
            one = of[tensor]
            dense = whole if one.packing is not None else one.place(tensor) == dense_place(tensor)
            plain = dense and not one.joined
            if (
                not plain
                or one.exits
                or one.spreads
                or one.gathered
                or one.view
                or extents(tensor) != one.extents
                or tensor.bytes_of(1) != 1
            ):
                raise PlanError(f"{tensor.name}: patches are of tensors that lie by themselves, pixel by pixel")
    for one in made[:-1]:
        if one not in read or one.index in held or one in needs_main or one.joins:
            raise PlanError(f"{one.name}: what lies between layers in patches is read by them alone")


def bytes_of_box(storage: Storage, box: Extents) -> int:
    """Bytes of local memory of a box of a storage."""
    return prod(box) if storage.packing is None else storage.packing.nbytes(box)


@dataclass(frozen=True)
class ChannelRun:
    """Layers of a group that are computed together: if they are `sliced`, in slices of channels, one after the other.

    What comes slice by slice from main memory is `loaded`, for the first layer, or lies `beside` what element-wise ones
    read of the layer before them. Another layer `adds` the slices up as they are made.
    """

    layers: tuple[int, ...]
    sliced: bool
    loaded: Storage | None = None
    adds: int | None = None
    beside: tuple[Storage, ...] = ()

    @property
    def by_slice(self) -> tuple[Storage, ...]:
        """All that comes slice by slice from main memory."""
        return self.beside if self.loaded is None else (self.loaded, *self.beside)

    @property
    def makes(self) -> int:
        """The layer whose output is all there when the run is done."""
        return self.layers[-1] if self.adds is None else self.adds


def runs_of_channels(
    layers: Sequence[Layer],
    of: Mapping[Tensor, Storage],
    indices: Sequence[int],
    slices: int,
    held: Set[int],
    summed: bool = False,
) -> list[ChannelRun]:
    """The layers of a group in runs. `held` are the indices of the storages that are in local memory in full.

    With several `slices`, a run begins with a layer that has a window. The others work channel by channel, each on the
    output of the one before it, which nothing else reads; so several layers are sliced. An element-wise one is among
    them where what it reads beside is loaded, for it alone, and what it makes is in slices, too. Where the first layer
    of the group works channel by channel, its input is loaded slice by slice, and a layer at the end of the group
    stores its output so. With `summed`, a layer by itself that sums over the channels of such a run adds them up.
    """
    if slices == 1:
        return [ChannelRun((index,), False) for index in indices]
    found: list[list[int]] = []
    for index in indices:
        if found and _continues(found[-1], index, layers, of, indices, held):
            found[-1].append(index)
        else:
            found.append([index])
    first = layers[indices[0]]
    loaded = of[first.ifm] if _by_channels(first) else None
    if loaded is not None and (loaded.index in held or any(one in loaded.readers for one in indices[1:])):
        loaded = None
    runs = [ChannelRun(tuple(run), len(run) > 1) for run in found]
    if loaded is not None:
        runs[0] = replace(runs[0], sliced=True, loaded=loaded)
    if summed:
        runs = _with_sums(runs, layers, of)
    runs = [one for run in runs for one in _in_slices(run, layers, of, indices, held)]
    if loaded is not None:
        form = geometry(layers[indices[-1]])
        if len(runs[-1].layers) == 1 and runs[-1].adds is None and isinstance(form, Window) and form.groups == 1:
            runs[-1] = replace(runs[-1], sliced=True)
    return runs


def _in_slices(
    run: ChannelRun, layers: Sequence[Layer], of: Mapping[Tensor, Storage], indices: Sequence[int], held: Set[int]
) -> list[ChannelRun]:
    """A run, without the element-wise layers at its end where what they make is not in slices, and those; with what
    they read beside."""
    last, many = run.layers[-1], len(run.layers)
    if run.adds is None and (last != indices[-1] or of[layers[last].ofm].index in held):
        while many > 1 and isinstance(geometry(layers[run.layers[many - 1]]), Run):
            many -= 1
    made = {of[layers[index].ofm] for index in run.layers}
    beside = (of[tensor] for index in run.layers[1:many] for tensor in layers[index].inputs)
    sliced = run.sliced and (many > 1 or run.loaded is not None)
    kept = replace(run, layers=run.layers[:many], sliced=sliced, beside=tuple(one for one in beside if one not in made))
    return [kept, *(ChannelRun((index,), False) for index in run.layers[many:])]


def _with_sums(runs: Sequence[ChannelRun], layers: Sequence[Layer], of: Mapping[Tensor, Storage]) -> list[ChannelRun]:
    """The runs, with the layers that add up what the sliced ones before them make in those."""
    found: list[ChannelRun] = []
    for run in runs:
        if found and _adds(found[-1], run, layers, of):
            found[-1] = replace(found[-1], adds=run.layers[0])
        else:
            found.append(run)
    return found


def _adds(before: ChannelRun, run: ChannelRun, layers: Sequence[Layer], of: Mapping[Tensor, Storage]) -> bool:
    """Whether a run is a layer that can add up the slices of the run before it, which nothing else reads."""
    if not before.sliced or before.adds is not None or len(run.layers) > 1:
        return False
    layer, form = layers[run.layers[0]], geometry(layers[run.layers[0]])
    between = of[layers[before.layers[-1]].ofm]
    plain = isinstance(form, Window) and isinstance(layer, Weighted) and form.sums and form.groups == 1
    return plain and of[layer.ifm] is between and len(between.readers) == 1


def check_slices_outer(
    runs: Sequence[ChannelRun], layers: Sequence[Layer], of: Mapping[Tensor, Storage], held: Set[int]
) -> None:
    """Check that all patches of a slice can be computed before those of the next one: the last run alone has slices,
    and each of them is stored by itself. Raises `PlanError` naming the last layer."""
    *before, run = runs
    last = layers[run.layers[-1]]
    if not run.sliced or run.adds is not None or any(one.sliced for one in before) or of[last.ofm].index in held:
        raise PlanError(f"{last.name}: the layers that end a group with outer slices alone have slices, and store them")


def _by_channels(layer: Layer) -> bool:
    """Whether a layer makes each channel of its output of the same one of its input."""
    form = geometry(layer)
    return isinstance(form, Window) and not form.sums and form.ifm_channels == form.out_channels


def _continues(
    run: Sequence[int],
    index: int,
    layers: Sequence[Layer],
    of: Mapping[Tensor, Storage],
    indices: Sequence[int],
    held: Set[int],
) -> bool:
    """Whether a layer can be computed in slices with those of a run in front of it."""
    first, before, layer = layers[run[0]], layers[run[-1]], layers[index]
    begins, form = geometry(first), geometry(layer)
    if not isinstance(begins, Window) or begins.groups != 1 or len(of[before.ofm].readers) != 1:
        return False
    if isinstance(form, Window):
        return not form.sums and of[layer.ifm] is of[before.ofm]
    if not isinstance(form, Run) or form.each > 1 or form.repeats or of[before.ofm] not in map(of.get, layer.inputs):
        return False
    beside = {of[tensor] for tensor in layer.inputs} - {of[before.ofm]}
    return all(one.index not in held and not set(indices) & ({*one.makers, *one.readers} - {index}) for one in beside)


def channel_slices(run: Sequence[Layer], slices: int, accelerator: Accelerator) -> list[Span]:
    """The slices of the channels of a run of layers, as whole rows of the array where these are not too many, or where
    it is one layer that sums over channels."""
    channels = run[-1].ofm.shape[-1]
    rows = max((rows_at_a_time(layer, accelerator) for layer in run if isinstance(layer, Weighted)), default=1)
    size = ceil_div(channels, slices)
    whole = size > rows or (len(run) == 1 and not _by_channels(run[0]))
    size = round_up(size, rows if whole else accelerator.dma_alignment)
    return [(start, start + count) for start, count in linear_chunks(channels, size)]


def weight_run(run: ChannelRun, layers: Sequence[Layer], slices: int, accelerator: Accelerator) -> WeightRun:
    """A run of layers as what their weights know of it."""
    if not run.sliced:
        return WeightRun(run.layers)
    spans = channel_slices([layers[index] for index in run.layers], slices, accelerator)
    adds = () if run.adds is None else (run.adds,)
    return WeightRun((*run.layers, *adds), tuple(stop - start for start, stop in spans), bool(adds))
