"""The tiling of a single layer: the cheapest of a few shapes that fit the local memories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain, product
from math import lcm, prod
from typing import Any

from byoc_hw.accelerator import Accelerator, TuningSpace
from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer
from byoc_hw.integers import ceil_div, even_size, largest_allowed, round_up
from byoc_hw.plan.array.alike_layer import AlikeLayer
from byoc_hw.plan.array.kinds import Alias, CopiesOnly, Entire, Product, Run, Window, geometry, parts_of_kernel
from byoc_hw.plan.array.packing import least_packed, worth_packing_tiles
from byoc_hw.plan.array.tiling import Tiler, TilingCost, tile_geometry
from byoc_hw.plan.array.transfers import Transfer, linear_chunks, tile_transfers
from byoc_hw.plan.choices import Tiling
from byoc_hw.plan.steps import ACTIVATIONS, SCRATCH, Address, Copy
from byoc_hw.plan.work.ops import misalignment, padded_end
from byoc_hw.plan.work.tiles import Tile, tiles


def single_tiling(layer: Layer, accelerator: Accelerator) -> Tiling | None:
    """The tiling of a layer with the fewest cycles of copies and jobs one after the other, None for one that has only
    copies.

    Raises `PlanError` naming the layer with the memory that its smallest tile does not fit, or with
    the DMA's rule that its cheapest tiling breaks.
    """
    packs = worth_packing_tiles(layer, accelerator)
    return next(iter(_cheapest(AlikeLayer.of(layer), _part(accelerator, 1), True, 1, 1, packs)), None)


@lru_cache(maxsize=256)
def _part(accelerator: Accelerator, activations: int) -> Accelerator:
    """An accelerator with one of so many parts of local activation memory. What a tiling does not depend on is left
    out: it is found once for all accelerators that differ in nothing else."""
    return replace(
        accelerator,
        activation_memory=max(accelerator.activation_memory // activations, 1),
        tuning=TuningSpace(),
        packed_rows=False,
    )


_ROOMS = (1, 2)
"""Numbers of tiles, and of blocks of weights, that have room at a time, for which the cheapest tiling is found."""


@lru_cache(maxsize=4096)
def _cheapest(
    alike: AlikeLayer, accelerator: Accelerator, even: bool, blocks: int, inputs: int, packs: bool
) -> tuple[Tiling, ...]:
    """The tiling of a layer with the fewest cycles of copies and jobs one after the other, and the one with the fewest
    if the array computes while the DMA copies. So many `blocks` of weights have room at a time, and so many `inputs`.
    If it `packs`, rows may be packed, and where that is the cheapest, the same two without come behind."""
    layer, form = alike.layer, tile_geometry(alike.layer)
    _check_steps(layer, accelerator)
    if isinstance(form, Run):
        return (_runs(layer, form, accelerator, inputs),)
    if isinstance(form, Product):
        return (_products(layer, form, accelerator),)
    if not isinstance(form, Window):
        return ()
    tiler = Tiler(layer, form, accelerator, blocks, inputs)
    costs = _candidates(tiler, even)
    if not costs:
        raise PlanError(_too_large(tiler))
    packed = _packed(tiler, costs) if packs else {}
    kinds = (costs | packed, costs) if packed else (costs,)
    return tuple(dict.fromkeys(_first_allowed(tiler, some, room) for some in kinds for room in _ROOMS))


def _first_allowed(tiler: Tiler, costs: Mapping[Tiling, TilingCost], room: int) -> Tiling:
    """The cheapest tiling that breaks no rule of the DMA, where so many tiles and blocks of weights have room at a
    time."""
    ranked = sorted(costs, key=lambda tiling: (costs[tiling].rank(room, room), _preference(tiling)))
    for tiling in ranked:
        if _dma_problem(tiler, tiling) is None:
            return tiling
    raise PlanError(f"{tiler.layer.name}: {_dma_problem(tiler, ranked[0])}")


def tilings(
    layer: Layer, accelerator: Accelerator, parts: Iterable[tuple[int, int]], *, even: bool = True
) -> Iterator[Tiling]:
    """Tilings of a layer that are sized for parts of the local memories: for so many tiles, and so many blocks of
    weights, at a time. With `even` there are also tiles that leave a part of the array idle where it waits for the DMA,
    and tiles for two inputs beside one output; of an element-wise layer there are tiles for one input more."""
    seen: set[Tiling] = set()
    packs = worth_packing_tiles(layer, accelerator)
    form = tile_geometry(layer)
    beside = 1 if isinstance(form, Run) else 2 if even and isinstance(form, Window) and form.sums else None
    for activations, weights, inputs in chain.from_iterable(_rooms(*part, beside) for part in parts):
        try:
            part = _part(accelerator, activations)
            found = _cheapest(AlikeLayer.of(layer), part, even, weights, inputs, packs)
        except PlanError:
            continue  # a larger part may do
        yield from (tiling for tiling in found if tiling not in seen)
        seen.update(found)


def _rooms(activations: int, weights: int, beside: int | None) -> Iterator[tuple[int, int, int]]:
    """The part of each local memory for a tile, and the inputs that it has room for. Where that is for `beside` tiles,
    also for an input more beside one output: with its partial sums, of a layer that sums over channels."""
    yield activations, weights, 1
    if activations == beside:
        yield 1, weights, 2


MOST_STEPS = 1 << 13
"""The most jobs and copies of one layer. A plan of more takes minutes to make, and hundreds of KiB of tables."""


def _check_steps(layer: Layer, accelerator: Accelerator) -> None:
    """Raise `PlanError` for a layer with so large tensors that every tiling has too many jobs and copies.

    A tile is loaded, computed (unless the layer only copies; by a job for each part of a kernel) and stored; its
    inputs and its output are in local memory together. A lower bound: the search for the tiling itself takes long
    for such a layer.
    """
    form, inputs = geometry(layer), dict.fromkeys(layer.inputs)
    if isinstance(form, Alias | Entire):
        return
    together, each = layer.ofm.nbytes, 3
    if isinstance(form, CopiesOnly):
        each = 2
    elif isinstance(form, Product):
        together += sum(tensor.nbytes for tensor in inputs)
    elif isinstance(form, Run):
        runs = runs_loaded(layer, form)
        together, each = (runs + 1) * layer.ofm.nbytes, runs + 2
    else:
        each = 2 + len(parts_of_kernel(layer, accelerator))
        if form.rows.stride <= form.rows.reach and form.columns.stride <= form.columns.reach:
            together += layer.ifm.nbytes  # every input is read
    least = each * ceil_div(together, accelerator.activation_memory)
    if least > MOST_STEPS:
        raise PlanError(f"{layer.name}: at most {MOST_STEPS} jobs and copies are wanted: at least {least} are needed")


def _runs(layer: Layer, form: Run, accelerator: Accelerator, room: int) -> Tiling:
    """The longest runs of an element-wise layer that fit with their output, in units of `each` elements. One of the
    inputs has `room` so many times: the next one is loaded while the array computes."""
    unit, inputs = accelerator.buffer_alignment, runs_loaded(layer, form) + room - 1
    each = layer.ofm.bytes_of(form.each)
    stays = round_up(each, unit) if form.repeats else 0
    total = layer.ofm.elements // form.each
    step = lcm(unit, each) // each  # pixels that end on an aligned byte
    most = max(accelerator.activation_memory - stays, 0) // (inputs + 1) // unit * unit // each
    if most < total:
        most -= most % step
    if most == 0:
        needed = (inputs + 1) * round_up(min(step, total) * each, unit) + stays
        raise PlanError(
            f"{layer.name}: the smallest tile fits local activation memory: {needed} bytes needed, "
            f"{accelerator.activation_memory} bytes there"
        )
    return Tiling(1, min(most, total), form.each, form.each)


def runs_loaded(layer: Layer, form: Run) -> int:
    """The runs that are loaded for each one of an element-wise layer's output."""
    return 1 if form.repeats else len(dict.fromkeys(layer.inputs))


def _products(layer: Layer, form: Product, accelerator: Accelerator) -> Tiling:
    """The most rows of a matrix product that fit beside an item of its second input."""
    unit, step = accelerator.buffer_alignment, accelerator.dma_alignment

    def needed(rows: int) -> int:
        return sum(round_up(nbytes, unit) for nbytes in (form.item_bytes, rows * form.depth, rows * form.channels))

    most = largest_allowed(form.rows, lambda rows: needed(rows) <= accelerator.activation_memory)
    if most == 0:
        raise PlanError(
            f"{layer.name}: an item of the second input and one row fit local activation memory: {needed(1)} bytes "
            f"needed, {accelerator.activation_memory} bytes there"
        )
    rows = even_size(form.rows, most)
    if rows < form.rows:
        rows = max(rows - rows % step, 1)
    for nbytes in (form.item_bytes, *(count * each for count in _sizes(form, rows) for each in form.vectors)):
        problem = misalignment(Copy(_LOCAL, _MAIN, nbytes), step)
        if problem is not None:
            raise PlanError(f"{layer.name}: {problem}")
    return Tiling(rows, 1, form.channels, form.depth)


def _sizes(form: Product, rows: int) -> tuple[int, ...]:
    """The numbers of rows of a product's tiles; that of an item, at which the next one starts, is a sum of them."""
    return tuple(dict.fromkeys(count for _, count in linear_chunks(form.rows, rows)))


def _dma_problem(tiler: Tiler, tiling: Tiling) -> str | None:
    """The DMA's rule that a copy of these tiles would break, or None. Starts of tensors are aligned, ends padded."""
    alignment = tiler.accelerator.dma_alignment
    if alignment == 1:
        return None
    for tile in tiles(tiler.window, tiling):
        for move in _moves(tiler, tiling, tile):
            problem = misalignment(move.load(_MAIN, _LOCAL), alignment)
            if problem is not None:
                return problem
    return None


def _moves(tiler: Tiler, tiling: Tiling, tile: Tile) -> Iterator[Transfer]:
    """The copies of a tile's input and output, and of zero points."""
    window, alignment = tiler.window, tiler.accelerator.dma_alignment
    sizes, pitch, start = (prod(tile.ifm.extents), prod(tile.ofm.extents)), 0, 0
    if tiling.packed:
        packing, (height, width, channels) = tiler.packing(tile.row, tile.column), tile.ofm.extents
        yield from packing.fills(tile.ifm.extents, tiler.accelerator)
        sizes = packing.nbytes(tile.ifm.extents), packing.pixels(height, width) * channels
        pitch, start = packing.pitch, packing.head * tile.ifm.extents[2]
    for move in tile_transfers(tile.ifm, window.columns.ifm, window.ifm_channels, pitch, start):
        yield padded_end(move, tiler.layer.ifm.nbytes, sizes[0], alignment)
    for move in tile_transfers(tile.ofm, window.columns.ofm, window.out_channels, pitch):
        yield padded_end(move, tiler.layer.ofm.nbytes, sizes[1], alignment)


_LOCAL, _MAIN = Address(ACTIVATIONS), Address(SCRATCH)
"""Any aligned start: the DMA's rules do not depend on which one."""


def _preference(tiling: Tiling) -> tuple[int, ...]:
    """Prefers larger tiles among tilings of the same cost."""
    return (-tiling.depth, -tiling.rows, -tiling.columns, -tiling.channels, tiling.rows_outer)


def _candidates(tiler: Tiler, even: bool) -> dict[Tiling, TilingCost]:
    """Tilings that fit, with their costs."""
    window, accelerator = tiler.window, tiler.accelerator
    whole = Tiling(window.rows.ofm, window.columns.ofm, window.group_channels, window.in_channels)
    found: dict[Tiling, TilingCost] = {}
    if tiler.fits(whole):
        # One tile moves every byte once with the fewest copies: nothing can be cheaper.
        found[whole] = tiler.cost(whole)
        if accelerator.dma_alignment == 1:
            return found

    def add(tilings: Iterable[Tiling]) -> None:
        found.update((tiling, tiler.cost(tiling)) for tiling in tilings if tiling not in found)

    columns = _divisions(window.columns.ofm, accelerator.array_columns)
    channels = _divisions(window.group_channels, accelerator.array_rows)
    coarse = dict.fromkeys(product(columns, channels))
    add(_fitting(tiler, coarse))
    # Slices of a few channels pay the array's overhead and the DMA's setup for each.
    deep_enough = min(window.in_channels, accelerator.dma_width)
    enough = accelerator.dma_alignment == 1 and any(tiling.depth >= deep_enough for tiling in found)
    if enough and not (even and _waits(found.values())):
        return found
    # Tiles that leave a part of the array idle: where memory is very small, or the DMA slow.
    fine_columns = _halves(accelerator.array_columns, window.columns.ofm)
    fine_channels = _halves(accelerator.array_rows, window.group_channels)
    both = product((*columns, *fine_columns), (*channels, *fine_channels))
    finer = _fitting(tiler, (pair for pair in both if pair not in coarse))
    if not enough:
        add(finer)
    else:
        _add_cheap(tiler, found, chain(finer, _balanced(tiler)))
    for room in _ROOMS:
        _improve(tiler, found, room)
    return found


def _packed(tiler: Tiler, known: Mapping[Tiling, TilingCost]) -> dict[Tiling, TilingCost]:
    """Tilings with packed rows that fit, with their costs; none where these cannot take the array fewer cycles."""
    window, accelerator = tiler.window, tiler.accelerator
    if min(cost.jobs for cost in known.values()) <= least_packed(tiler.layer, accelerator):
        return {}
    found: dict[Tiling, TilingCost] = {}
    total = window.columns.ofm
    for width in dict.fromkeys(ceil_div(total, count) for count in _PARTS if count <= total):
        for channels in _divisions(window.group_channels, accelerator.array_rows):
            for shape in _deepest(tiler, Tiling(1, width, channels, window.in_channels, packed=True)):
                for tiling in _orders(tiler, _tallest(tiler, shape)):
                    found[tiling] = tiler.cost(tiling)
    for room in _ROOMS:
        _improve(tiler, found, room)
    return found


def _add_cheap(tiler: Tiler, found: dict[Tiling, TilingCost], tilings: Iterable[Tiling]) -> None:
    """Add tilings, without those that surely take more cycles than one that is there, with room for any of `_ROOMS`."""
    best = [min(cost.rank(room, room) for cost in found.values()) for room in _ROOMS]

    def is_dear(least: TilingCost) -> bool:
        return all(least.rank(room, room) > cheapest for room, cheapest in zip(_ROOMS, best, strict=True))

    for tiling in tilings:
        if tiling in found or is_dear(tiler.least_cost(tiling, weights=False)) or is_dear(tiler.least_cost(tiling)):
            continue
        found[tiling] = cost = tiler.cost(tiling)
        best = [min(cost.rank(room, room), cheapest) for room, cheapest in zip(_ROOMS, best, strict=True)]


def _improve(tiler: Tiler, found: dict[Tiling, TilingCost], room: int) -> None:
    """Add tilings near the cheapest one with room for so many tiles, as long as one of them is cheaper."""

    def cost(tiling: Tiling) -> float:
        if tiling not in found:
            found[tiling] = tiler.cost(tiling)
        return found[tiling].rank(room, room)

    best = min(found, key=cost, default=None)
    while best is not None:
        nearby = min(_near(tiler, best), key=cost, default=best)
        best = nearby if cost(nearby) < cost(best) else None


def _near(tiler: Tiler, tiling: Tiling) -> Iterator[Tiling]:
    """Tilings that fit, with one axis in a part more or less, and with another one in as few parts as fit then."""
    totals = _totals(tiler.window)
    for axis, total in totals.items():
        for moved in (_sized(tiling, axis, size) for size in _next_sizes(total, getattr(tiling, axis))):
            if tiler.fits(moved):
                yield moved
            for other in [name for name in totals if name != axis]:
                large = _largest(tiler, moved, other, totals[other])
                if large is not None:
                    yield large


def _totals(window: Window) -> dict[str, int]:
    """The sizes of what a tiling cuts, by the names of its fields."""
    sizes = {"rows": window.rows.ofm, "columns": window.columns.ofm, "channels": window.group_channels}
    return sizes | ({"depth": window.in_channels} if window.sums else {})


def _sized(tiling: Tiling, axis: str, size: int) -> Tiling:
    changed: dict[str, Any] = {axis: size}
    return tiling._replace(**changed)


def _next_sizes(total: int, size: int) -> list[int]:
    """The sizes of a part less and of a part more, or of as many more as make parts smaller."""
    parts = ceil_div(total, size)
    smaller = even_size(total, size - 1) if size > 1 else size
    return [one for one in (ceil_div(total, max(parts - 1, 1)), smaller) if one != size]


def _largest(tiler: Tiler, tiling: Tiling, axis: str, total: int) -> Tiling | None:
    """The tiling with an axis in as few parts as fit; None where no size does."""
    if axis == "rows":
        most = tiler.most_rows(tiling)
    else:
        most = largest_allowed(total, lambda size: tiler.fits(_sized(tiling, axis, size)))
    return _sized(tiling, axis, even_size(total, most)) if most else None


def _waits(costs: Collection[TilingCost]) -> bool:
    """Whether the array waits for the DMA in the cheapest of some tilings."""
    return min(cost.cycles(2, 2) for cost in costs) > min(cost.jobs for cost in costs)


def _balanced(tiler: Tiler) -> Iterator[Tiling]:
    """Tiles of all widths, channels and slices that cut a layer evenly, as high as fits; both loop orders."""
    window = tiler.window
    for width in _evenly(window.columns.ofm, tiler.accelerator.array_columns):
        for count in _evenly(window.group_channels, tiler.accelerator.array_rows):
            for depth in _slices(window):
                shape = Tiling(1, width, count, depth)
                if tiler.fits(shape):
                    yield from _orders(tiler, _tallest(tiler, shape))


def _slices(window: Window) -> tuple[int, ...]:
    """All input channels, and slices of them."""
    return tuple(dict.fromkeys(ceil_div(window.in_channels, count) for count in _PARTS if window.sums or count == 1))


def _evenly(total: int, unit: int) -> tuple[int, ...]:
    """The sizes of a few numbers of parts that are as large as each other: of a unit and less, down to an eighth."""
    sizes = {ceil_div(total, count) for count in _PARTS if count <= total}
    return tuple(sorted((size for size in sizes if unit <= size * _LEAST <= unit * _LEAST), reverse=True))


_PARTS = (1, *(base << shift for shift in range(10) for base in (2, 3)))
"""Numbers of parts that an axis is cut in evenly."""

_LEAST = 8
"""The part of the array's rows or columns that tiles use at least: one of so many."""


def _divisions(total: int, unit: int) -> tuple[int, ...]:
    """`total`, and its half, third, quarter, sixth, eighth ... in whole units, largest first."""
    parts = sorted({1, *(base << shift for base in (2, 3) for shift in range(total.bit_length()))})
    sizes = {min(total, round_up(ceil_div(total, count), unit)) for count in parts}
    return tuple(sorted(sizes, reverse=True))


def _halves(unit: int, total: int) -> tuple[int, ...]:
    """Powers of two below `unit`, down to 1, that `total` has."""
    return tuple(1 << shift for shift in reversed(range(unit.bit_length())) if 1 << shift < min(unit, total + 1))


def _fitting(tiler: Tiler, sizes: Iterable[tuple[int, int]]) -> Iterator[Tiling]:
    """For each width and number of channels the deepest, then tallest, tiles that fit; both loop orders."""
    for width, count in sizes:
        for shape in _deepest(tiler, Tiling(1, width, count, tiler.window.in_channels)):
            yield from _orders(tiler, _tallest(tiler, shape))


def _orders(tiler: Tiler, tiling: Tiling) -> Iterator[Tiling]:
    """A tiling in both loop orders, where they differ."""
    yield tiling
    ifm_stays = tiling.depth == tiler.window.in_channels or tiling.whole_ifm
    if tiler.window.sums and ifm_stays and tiling.channels < tiler.window.out_channels:
        yield tiling._replace(rows_outer=True)


def _tallest(tiler: Tiler, shape: Tiling) -> Tiling:
    """The tiling of that shape with the most rows that fit, all tiles as high as each other."""
    total = tiler.window.rows.ofm
    most = tiler.most_rows(shape)
    return shape._replace(rows=even_size(total, most))


def _deepest(tiler: Tiler, shape: Tiling) -> Iterator[Tiling]:
    """One output row with all input channels, or else with the largest slices that fit."""
    if tiler.fits(shape):
        yield shape
    elif tiler.window.sums:
        # A slice of an input tile that stays starts at its first channel: that must be aligned.
        yield from _sliced(tiler, shape._replace(whole_ifm=True), tiler.alignment)
        yield from _sliced(tiler, shape, tiler.accelerator.dma_alignment)


def _sliced(tiler: Tiler, shape: Tiling, unit: int) -> Iterator[Tiling]:
    """The shape with the largest slices that fit, if any does: of one size, and of whole units."""
    total, largest = tiler.window.in_channels, tiler.most_depth(shape)
    largest -= largest % unit
    if largest == 0:
        return
    slices = ceil_div(total, largest)
    # Also a multiple of the DMA's alignment, where that does not add a slice.
    words = round_up(ceil_div(total, slices), lcm(unit, tiler.accelerator.dma_width))
    yield shape._replace(depth=words if words <= largest else round_up(ceil_div(total, slices), unit))


def _too_large(tiler: Tiler) -> str:
    """Which memory the smallest tile does not fit."""
    window, accelerator = tiler.window, tiler.accelerator
    # The narrowest slice is not always the smallest tile: it needs partial sums.
    narrowest = min(accelerator.dma_alignment, window.in_channels)
    tilings = [Tiling(1, 1, 1, depth) for depth in (narrowest, window.in_channels)]
    sizes = [(tiler.activation_bytes(one), tiler.weight_bytes(one)) for one in tilings]
    activations, weights = min(sizes, key=sum)
    memories = {"activation": (activations, tiler.room), "weight": (weights, accelerator.weight_memory)}
    what, (needed, there) = next(item for item in memories.items() if item[1][0] > item[1][1])
    return f"{tiler.layer.name}: the smallest tile fits local {what} memory: {needed} bytes needed, {there} bytes there"
