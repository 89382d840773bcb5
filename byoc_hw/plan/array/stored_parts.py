"""Tensors that lie in others in main memory: what makes them stores them there, also pixel by pixel and in runs of
channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from byoc_hw.graph import Concat, Graph, Layer, Slice, Transpose
from byoc_hw.plan.array.kinds import copies_only
from byoc_hw.plan.array.mapping import Mapping
from byoc_hw.plan.array.spread import Spread, spread_within, spreads
from byoc_hw.plan.array.storage import Join, NotInPlace, Storage, parts_of_output
from byoc_hw.plan.array.transfers import Permutation
from byoc_hw.plan.array.window import Extents, box_within, extents
from byoc_hw.tensor import Tensor


def store_in_place(index: int, layer: Concat, whole: Storage, of: dict[Tensor, Storage], mapping: Mapping) -> None:
    """Let the inputs of a concatenation be stored as parts of its output, which is in main memory."""
    for tensor, at in parts_of_output(index, layer):
        part = of.get(tensor)
        if part is not None and part.transposed is not None:
            _spread_further(index, layer, tensor, part, Join(whole, at), mapping)
            continue
        if part is not None and part.view is not None:
            _spread_channels(index, layer, part.view, part.extents, Join(whole, at), mapping)
            continue
        if part is None or not part.makers or part.swapped or tensor in part.places:
            raise NotInPlace([index], f"{layer.name}: {tensor.name} is not one layer's output by itself")
        strange = _copied(part, mapping) and not (_is_image(tensor) and _scattered(mapping.layers[part.makers[0]]))
        if strange or part.extents != extents(tensor) or tensor.bytes_of(1) != 1:
            raise NotInPlace([index], f"{layer.name}: {tensor.name} cannot be stored as a part of its output")
        part.joins.append(Join(whole, at))
        whole.parts.append(part)


def store_transposed(index: int, layer: Transpose, ifm: Storage, whole: Storage, mapping: Mapping) -> None:
    """Let the input of a transposition be stored as its output, by the layer that makes it, also by way of another such
    transposition; or by those that make the channels that it is put together of."""
    turned: Permutation | None = Permutation(layer.ifm.shape, layer.axes)
    image, parts = ifm.extents, list(_channels_of(ifm))
    if ifm.transposed is not None and parts:
        turned, image = ifm.transposed.then(Permutation(layer.ifm.shape, layer.axes)), parts[0][0].extents
    there = parts and all(stored_by_one(part, mapping) for part, _ in parts) and layer.ifm not in ifm.places
    found = spreads(turned, image) if there and turned is not None and layer.ifm.bytes_of(1) == 1 else None
    if found is None:
        raise NotInPlace([index], f"{layer.name}: {layer.ifm.name} is not stored in another order by what makes it")
    for part, first in parts:
        some = (one.of_channels(first, first + part.extents[2]) for one in found)
        store_runs(index, layer, part, whole, [run.from_channel(first) for run in some if run is not None], mapping)
    whole.transposed = turned


def store_from(index: int, layer: Slice, whole: Storage, part: Storage, graph: Graph) -> None:
    """Let a slice that goes to arguments alone be stored there by what makes its input."""
    box = box_within(layer.ifm.shape, layer.ofm.shape, layer.begin, layer.steps)
    alone = layer.ofm in graph.outputs and all(layer.ofm not in other.inputs for other in graph.layers)
    made = whole.makers and whole.taken is None and not whole.joined and layer.ifm not in whole.places
    dense = whole.packing is None and whole.extents == extents(layer.ifm)
    if box is None or not (alone and made and dense) or set(box[1]) != {1} or layer.ofm.bytes_of(1) != 1:
        raise NotInPlace([index], f"{layer.name}: what is stored from its input is a box of it, and an output alone")
    part.taken = Join(whole, box[0])
    whole.exits.append(part)


def store_runs(
    index: int, layer: Layer, part: Storage, whole: Storage, runs: Sequence[Spread], mapping: Mapping
) -> None:
    """Let a part be stored in another storage, run by run."""
    if _copied(part, mapping) and any((run.first, run.stop) != (0, part.extents[2]) for run in runs):
        raise NotInPlace([index], f"{layer.name}: copies store all channels of {part.name} equally far apart")
    part.spreads += [(whole, run) for run in runs]
    whole.parts.append(part)


def _channels_of(ifm: Storage) -> Iterator[tuple[Storage, int]]:
    """The storages that have the channels of one, and the first channel of each; none where these lie otherwise."""
    if not ifm.parts:
        yield ifm, 0
        return
    if ifm.transposed is not None:
        yield from [(part, 0) for part in ifm.parts] if len(ifm.parts) == 1 else []
        return
    joins = [(part, join) for part in dict.fromkeys(ifm.parts) for join in part.joins if join.whole is ifm]
    whole = len(joins) == len(ifm.parts)
    if whole and all(part.extents[:2] == ifm.extents[:2] and join.at[:2] == (0, 0) for part, join in joins):
        yield from ((part, join.at[2]) for part, join in joins)


def stored_by_one(part: Storage, mapping: Mapping) -> bool:
    """Whether one layer makes all of a storage as it lies in the model, and can store pixels that lie apart."""
    if len(part.makers) != 1 or part.swapped or part.places:
        return False
    return not _copied(part, mapping) or (_scattered(mapping.layers[part.makers[0]]) and _is_image(part.tensor))


def _copied(part: Storage, mapping: Mapping) -> bool:
    """Whether copies make a storage."""
    return any(copies_only(mapping.layers[maker]) for maker in part.makers)


def _is_image(tensor: Tensor) -> bool:
    return len(tensor.shape) == 4 and tensor.shape[0] == 1


def _spread_further(index: int, layer: Concat, tensor: Tensor, spread: Storage, join: Join, mapping: Mapping) -> None:
    """Let what is stored as the output of a transposition be stored as a part of a concatenation as well."""
    whole, image = join.whole, extents(layer.ofm)
    for part in dict.fromkeys(spread.parts):
        runs = list[Spread]()
        for one in [one for there, one in part.spreads if there is spread]:
            found = spread_within(one, part.extents[:2], extents(tensor), image, join.at)
            if found is None or image != whole.extents:
                raise NotInPlace([index], f"{layer.name}: {tensor.name} cannot be stored as a part of its output")
            runs += found
        store_runs(index, layer, part, whole, runs, mapping)


def _spread_channels(index: int, layer: Concat, view: Join, part: Extents, join: Join, mapping: Mapping) -> None:
    """Let a slice of channels be stored as a part of a concatenation by what makes all channels."""
    made, whole, (row, column, first) = view.whole, join.whole, view.at
    _, width, channels = whole.extents
    channelwise = (row, column, view.steps, *part[:2]) == (0, 0, (1, 1, 1), *made.extents[:2])
    if not (channelwise and stored_by_one(made, mapping) and whole.extents == extents(layer.ofm)):
        raise NotInPlace([index], f"{layer.name}: channels of {made.name} cannot be stored as a part of its output")
    strides = width * channels, channels, 1
    offset = sum(place * stride for place, stride in zip(join.at, strides, strict=True))
    store_runs(index, layer, made, whole, [Spread(first, first + part[2], offset, strides)], mapping)


def _scattered(layer: Layer) -> bool:
    """Whether a layer without jobs can write to rows and pixels that lie apart."""
    return not isinstance(layer, Transpose)


def forget_unread(found: list[Storage]) -> None:
    """Leave out what is put together in main memory and nobody reads, where all parts of it are stored elsewhere."""
    for one in [one for one in found if one.parts and not (one.readers or one.sinks or one.lent)]:
        if not all(_elsewhere(part, one) for part in one.parts):
            continue
        found.remove(one)
        for part in one.parts:
            part.spreads = [(there, spread) for there, spread in part.spreads if there is not one]
            part.joins = [join for join in part.joins if join.whole is not one]


def _elsewhere(part: Storage, whole: Storage) -> bool:
    return any(
        one is not whole for one in (*(there for there, _ in part.spreads), *(join.whole for join in part.joins))
    )
