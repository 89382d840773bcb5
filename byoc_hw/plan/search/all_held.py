"""All storages of a region in local memory in full, each from its first layer to its last."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.kinds import copies_only
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.storage import Storage
from byoc_hw.plan.array.weight_blocks import cut, psum_bytes
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.choices import Blocks, Choices, Group
from byoc_hw.plan.search.estimate import Estimates

_BORDER_STRIPES = (1, 2, 4, 6, 8, 16, 24)
"""Numbers of stripes that are tried for the first and last layer."""

_FIRST_SHARES = (6, 12)
"""Numbers of blocks that share the weight memory in the first layer."""


def bytes_alive(mapped: MappedGraph) -> list[int]:
    """Bytes of storages and partial sums that are live in each layer."""
    layers, estimates = mapped.mapping.layers, mapped.shared(Estimates)
    changes = [0] * (len(layers) + 1)
    for storage in mapped.storages.all:
        first, last = _span(storage)
        changes[first] += estimates.size[storage.index]
        changes[last + 1] -= estimates.size[storage.index]
    outputs = (mapped.mapping.outputs(index, extents(layer.ofm)[0]) for index, layer in enumerate(layers))
    return [
        alive + psum_bytes(layer, blocks, height * width, mapped.accelerator)
        for alive, layer, blocks, (height, width, _) in zip(
            accumulate(changes), layers, estimates.blocks, outputs, strict=False
        )
    ]


def tight_layers(mapped: MappedGraph) -> list[bool]:
    """Of each layer with work, whether a group of it and its neighbours may gain: where more bytes are live than local
    memory has, or where what it makes is stored in another order, in many copies that stripes hide behind jobs."""
    alive, room = mapped.shared(bytes_alive), mapped.accelerator.activation_memory
    made = [mapped.storages.of[layer.ofm] for layer in mapped.mapping.layers]
    return [alive[index] > room or bool(made[index].spreads) for index in mapped.shared(Estimates).order]


def all_fit(mapped: MappedGraph) -> bool:
    """Whether all storages fit local memory."""
    accelerator, layers = mapped.accelerator, mapped.mapping.layers
    if not accelerator.tuning.hold or any(copies_only(layers[index]) for index in mapped.shared(Estimates).order):
        return False
    return max(mapped.shared(bytes_alive), default=0) <= accelerator.activation_memory


def all_held(mapped: MappedGraph) -> Iterator[Choices]:
    """A few numbers of stripes for the first layer (loads) and last (stores)."""
    allowed, layers, storages = mapped.accelerator.tuning, mapped.mapping.layers, mapped.storages.all
    starts: dict[int, list[int]] = {}
    for storage in storages:
        starts.setdefault(_span(storage)[0], []).append(storage.index)
    groups, held = list[Group](), set[int]()
    for index in range(len(layers)):
        held |= set(starts.get(index, ()))
        held = {one for one in held if _span(storages[one])[1] >= index}
        groups.append(Group(1, 1, frozenset(held), allowed.overlap, allowed.resident))
    border = [index for index in mapped.shared(Estimates).order if _at_border(mapped, index)]
    for blocks in _first_blocks(mapped):
        for stripes in _border_stripes([extents(layers[index].ofm)[0] for index in border], allowed.stripes):
            striped = [replace(group, stripes=stripes) if i in border else group for i, group in enumerate(groups)]
            yield mapped.choices(striped, blocks)


def _span(storage: Storage) -> tuple[int, int]:
    """The first and the last layer of a storage."""
    first = storage.makers[0] if storage.makers else min(storage.readers, default=0)
    return first, max(storage.last, first)


def _border_stripes(heights: Sequence[int], allowed: Collection[int]) -> Iterable[int]:
    """Numbers of stripes that cut layers of some heights differently."""
    found: dict[tuple[int, ...], int] = {}
    for count in _BORDER_STRIPES if heights else (1,):
        if count in allowed:
            found.setdefault(tuple(ceil_div(height, count) for height in heights), count)
    return found.values()


def _first_blocks(mapped: MappedGraph) -> Iterator[tuple[Blocks | None, ...]]:
    """The blocks, also with smaller ones for a first layer with large weights: no job hides its first load."""
    one, estimates = mapped.accelerator, mapped.shared(Estimates)
    blocks, load = estimates.blocks, estimates.load
    yield blocks
    index = next((index for index in estimates.order if load[index]), None)
    if index is not None and load[index] > 8 * one.dma_setup:
        for share in [share for share in _FIRST_SHARES if share in one.tuning.weight_shares]:
            yield (*blocks[:index], cut(mapped.mapping.layers[index], one, share), *blocks[index + 1 :])


def _at_border(mapped: MappedGraph, index: int) -> bool:
    """Whether a layer of several rows has much to copy between main memory and local memory."""
    layer = mapped.mapping.layers[index]
    touched = (mapped.storages.of[tensor] for tensor in (*layer.inputs, layer.ofm))
    copied = (one for one in touched if one.maker is None or (one.sinks and one.maker == index))
    return extents(layer.ofm)[0] > 1 and any(one.nbytes > 8 * mapped.accelerator.dma_width for one in copied)
