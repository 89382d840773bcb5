"""The cheapest form of a group of layers, by estimate: in stripes, patches, slices or tiles, or as a transpose."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from byoc_hw.graph import Layer
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.array.kinds import Run, Window, copies_only, job_cycles
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.packing import worth_packing_tiles
from byoc_hw.plan.array.storage import can_tile, needs_all_of
from byoc_hw.plan.array.tiling import Tiler, tile_geometry, with_memories
from byoc_hw.plan.array.weight_blocks import tile_cycles
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.choices import Group, Tiling
from byoc_hw.plan.search.alike import AlikeLayers, GroupForm
from byoc_hw.plan.search.all_held import tight_layers
from byoc_hw.plan.search.estimate import Estimates, HeldSet
from byoc_hw.plan.search.halo_estimate import KeptHalos
from byoc_hw.plan.search.patch_estimate import PatchedGroup
from byoc_hw.plan.search.single_layer import runs_loaded, tilings
from byoc_hw.plan.work.halo import keepable

LONGEST = 4
"""The most layers of a group that keeps no halos in the planner; the tuner's limit is in the accelerator's
`TuningSpace`."""

_FURTHER = 3
"""How many numbers of stripes are tried beyond the smallest that fits."""

_CLEARLY = 1.25
"""How much faster tiles of a layer are by estimate where they are taken in place of stripes."""

_TILE_SHARES = ((2, 2), (1, 2), (1, 1))
"""Tiles, and blocks of weights, that have room at a time: both are copied beside the jobs, weights alone, or none."""

_NEAR = 1.02
"""How near the busier engine's cycles a group in stripes is for which no patches are tried."""

_SLOW = 1.25
"""The same for patches in which the array has less to do at a time, and for slices that are summed, or outer."""

_Used = tuple[int, int, HeldSet, HeldSet, HeldSet]


@dataclass(frozen=True, eq=False)
class GroupSpan:
    """The layers of a group, `at` to `stop` (not included) in the order of those with work, and in that of all layers
    `first` to `end`. The storages `held` are in local memory in full before the group, `after` after it, `full` during
    it: `used` has those that its layers touch, the others take `passing` bytes. If it is not `tight`, all storages may
    be there. `estimated` says what an estimate of its cycles is for."""

    at: int
    stop: int
    held: HeldSet
    after: HeldSet
    full: HeldSet
    first: int
    end: int
    used: _Used
    passing: int
    tight: bool
    estimated: Hashable


@dataclass(frozen=True)
class Wanted:
    """The forms that are looked for: in `room` bytes of local memory, with `step_price` cycles for each layer in each
    stripe, and also in stripes of `single_rows`.

    Further ones are groups in `patches` and slices of channels, those in stripes that keep `halos`, and `fine` patches
    in which the array has less to do at a time, or slices that are summed. Blocks of weights of stripes, and of
    patches, may come in alternating order.
    """

    room: int
    step_price: float = 0.0
    single_rows: bool = False
    patches: bool = False
    halos: bool = False
    fine: bool = False
    alternating: bool = False
    alternating_patches: bool = False


class GroupForms:
    """The cheapest forms of the groups of a mapped region. Layers that are alike have them in common: they may be
    `known` from another mapping."""

    def __init__(
        self, mapped: MappedGraph, estimates: Estimates, alike: AlikeLayers, known: dict[Hashable, GroupForm | None]
    ) -> None:
        self._estimates, self._alike, self._known = estimates, alike, known
        self._accelerator, self._allowed = mapped.accelerator, mapped.accelerator.tuning
        self._layers, self._order, self._of = mapped.mapping.layers, estimates.order, mapped.storages.of
        self._packed = mapped.mapping.rows.layers
        self._tight = mapped.shared(tight_layers)
        self._put_together = [one for one in mapped.storages.all if one.parts or one.gathered or one.view]
        self._always = frozenset(one.index for one in mapped.storages.all if one.joined or one.interleaved)
        inputs = (self._layers[index].inputs for index in self._order)
        self._reads = [{self._of[tensor].index for tensor in tensors} for tensors in inputs]
        self._spans: dict[tuple[int, int, HeldSet, HeldSet], GroupSpan] = {}
        self._patched: dict[_Used, list[PatchedGroup]] = {}
        self._keeping: dict[_Used, KeptHalos | None] = {}

    def span(self, at: int, stop: int, held: HeldSet, after: HeldSet) -> GroupSpan:
        """A group of the layers with work from `at` to `stop` (not included)."""
        key = at, stop, held, after
        if key not in self._spans:
            touched, order = self._estimates.touched(at, stop), self._order
            read = frozenset[int]().union(*self._reads[at:stop])
            full = (held & read) | after | (touched & self._always)
            used = at, stop, held & touched, after & touched, full & touched
            passing = self._estimates.bytes_of(full - touched)
            first, end = order[at] if at else 0, order[stop] if stop < len(order) else len(self._layers)
            tight = any(self._tight[at:stop])
            self._spans[key] = GroupSpan(*key, full, first, end, used, passing, tight, (used, passing))
        return self._spans[key]

    def cheapest(self, span: GroupSpan, wanted: Wanted, in_two: Callable[[GroupSpan], float]) -> GroupForm | None:
        """The cheapest form of a group; None where nothing fits. `in_two` gives the cycles of its layers in two groups
        one after the other."""
        alike = self._alike.span(span.first, span.end)
        held = map(alike.plain, (span.held, span.after, span.full))
        key = alike.number, *held, span.passing, span.tight, wanted
        if key not in self._known:
            found = self._found(span, wanted, in_two)
            self._known[key] = None if found is None else (found[0], alike.plain_group(found[1]))
        form = self._known[key]
        if form is None:
            return None
        cycles, group = form
        return cycles, replace(group, layers=span.end - span.first, held=span.full, kept=alike.named(group.kept))

    # The forms below are of one layer that holds nothing: `cheapest` says which layers these are.

    def _found(self, span: GroupSpan, wanted: Wanted, in_two: Callable[[GroupSpan], float]) -> GroupForm | None:
        """The cheapest form of a group of whose like none is known."""
        indices, touched = self._order[span.at : span.stop], self._estimates.touched(span.at, span.stop)
        if any(needs_all_of(one, indices) for one in self._put_together if one.index in touched):
            return None
        if not (wanted.halos or wanted.fine):
            return self._plain(span, wanted)
        best = None
        if len(indices) <= LONGEST:
            best = self.cheapest(span, replace(wanted, halos=False, fine=False), in_two)
        if len(indices) == 1 or not span.tight or copies_only(self._layers[indices[0]]):
            return best
        if wanted.halos:
            once = self._with_halos(span, wanted, best, in_two(span))
            best = min(filter(None, (best, once)), key=_cycles, default=None)
        for patched in self._in_patches(span) if wanted.fine else ():
            if best is None or best[0] > _SLOW * patched.least:
                best = self._patches_of(patched, span, wanted, best, fine=not patched.summed)
        return best

    def _plain(self, span: GroupSpan, wanted: Wanted) -> GroupForm | None:
        """The cheapest form that keeps no halos, and is in no fine patches."""
        indices = self._order[span.at : span.stop]
        if copies_only(self._layers[indices[0]]):
            return self._transposed(span)
        best = self._in_stripes(span, wanted)
        if len(indices) == 1 and not span.used[-1] and (best is None or self._packs_tiles(indices[0])):
            tiled = self._tiled(span, wanted)
            if best is None or (tiled is not None and tiled[0] * _CLEARLY < best[0]):
                best = tiled
        if wanted.patches and len(indices) > 1 and span.tight:
            for patched in self._in_patches(span):
                near = _SLOW if patched.outer else _NEAR
                if not patched.summed and (best is None or best[0] > near * patched.least):
                    best = self._patches_of(patched, span, wanted, best)
        return best

    def _packs_tiles(self, index: int) -> bool:
        """Whether tiles with packed rows may take the array fewer cycles than stripes."""
        worth = worth_packing_tiles(self._layers[index], self._accelerator)
        return self._allowed.tile and index not in self._packed and worth

    def _height(self, span: GroupSpan) -> int:
        """The rows that stripes cut."""
        return extents(self._layers[self._order[span.stop - 1]].ofm)[0]

    def _counts(self, span: GroupSpan, counts: Collection[int]) -> list[int]:
        """Numbers of stripes that differ, in growing order."""
        height = self._height(span)
        return sorted({ceil_div(height, ceil_div(height, one)) for one in counts})

    def _resident(self, span: GroupSpan) -> bool:
        """Whether the weights of a group are to stay in local memory."""
        return self._allowed.resident and self._estimates.weights_stay(span.at, span.stop)

    def _turns(self, span: GroupSpan, wanted: Wanted) -> bool:
        """Whether blocks of weights of a group can come in alternating order, which saves loads."""
        return wanted.alternating and self._estimates.alternates(span.at, span.stop)

    def _in_stripes(self, span: GroupSpan, wanted: Wanted) -> GroupForm | None:
        """The cheapest stripes of a group; None where nothing fits."""
        at, stop, estimates = span.at, span.stop, self._estimates
        best: GroupForm | None = None
        fitting = before = 0
        height, most = self._height(span), estimates.largest_tiles(at, stop, span.full)
        for stripes in sorted(self._allowed.stripes):
            # Under a bound on main memory also stripes of single rows: one number beyond the height.
            if (before if wanted.single_rows else stripes - 1) >= height or fitting > _FURTHER:
                break
            before = stripes
            if most > stripes * wanted.room:
                continue
            actual = ceil_div(height, ceil_div(height, stripes))
            turns = stripes > 1 and self._turns(span, wanted)
            if best is not None and estimates.weights(at, stop, actual, turns) >= best[0]:
                break  # more stripes load the weights more often
            for overlap in (True, False) if stripes > 1 and self._allowed.overlap else (False,):
                form = at, stop, span.held, span.after, span.full, stripes, overlap, wanted.room
                found = _in_better_order(partial(estimates.striped, *form), turns)
                if found is None:
                    continue
                cost, alternating = found[0] + wanted.step_price * stripes * (stop - at), found[1]
                fitting += 1
                if best is None or cost < best[0]:
                    resident = stripes > 1 and self._resident(span)
                    best = cost, Group(1, stripes, overlap=overlap, resident=resident, alternating=alternating)
                break
        return best

    def _with_halos(self, span: GroupSpan, wanted: Wanted, known: GroupForm | None, apart: float) -> GroupForm | None:
        """The cheapest stripes of a group that keep what two of them share; None where none fit, or where those that
        are `known` are near all that the array has to do, or its layers in two groups, `apart`, do not take longer."""
        kept = self._keeps(span)
        if kept is None or (known is not None and known[0] <= _NEAR * kept.least):
            return None
        at, stop, estimates = span.at, span.stop, self._estimates
        room, most = wanted.room - estimates.bytes_of(span.full), estimates.largest_tiles(at, stop, span.full)
        best: GroupForm | None = None
        turns, fitting, least = self._turns(span, wanted), 0, min(apart, inf if known is None else known[0])
        for stripes in self._counts(span, self._allowed.stripes):
            if stripes == 1 or most > stripes * room:
                continue
            if fitting > _FURTHER or estimates.weights(at, stop, stripes, turns) >= least:
                break  # more stripes load the weights more often
            if fitting and kept.jobs(stripes) >= least:
                fitting += 1
                continue
            found = _in_better_order(partial(kept.cycles, stripes, room), turns)
            if found is None:
                continue
            cost, alternating = found[0] + wanted.step_price * stripes * (stop - at), found[1]
            fitting += 1
            if best is None or cost < best[0]:
                form = Group(1, stripes, overlap=False, resident=self._resident(span), kept=kept.halos)
                best = cost, replace(form, alternating=alternating)
                least = min(least, cost)
        return best

    def _keeps(self, span: GroupSpan) -> KeptHalos | None:
        """The estimates for a group that keeps what stripes share; None where it has nothing that could be kept."""
        if span.used not in self._keeping:
            halos = keepable(self._layers, self._of, self._order[span.at : span.stop], span.full)
            self._keeping[span.used] = KeptHalos(self._estimates, *span.used, halos) if halos else None
        return self._keeping[span.used]

    def _patches_of(
        self, patched: PatchedGroup, span: GroupSpan, wanted: Wanted, best: GroupForm | None, fine: bool = False
    ) -> GroupForm | None:
        """The cheapest patches and slices of a group, or the `best` form that is known; None where nothing fits."""
        room, alternating = wanted.room - span.passing, wanted.alternating_patches
        options = self._counts(span, {1} if patched.packs else self._allowed.stripes)
        for columns, slices in patched.forms(fine):
            fitting = 0
            for stripes in options[patched.first_fitting(options, columns, slices, room) :]:
                if fitting > _FURTHER:
                    break
                for overlap in (True, False) if self._allowed.overlap else (False,):
                    least = inf if best is None else best[0]
                    form = stripes, columns, slices, overlap, room
                    cycles = patched.cycles(*form, least, alternating=alternating)
                    if cycles is None:
                        continue
                    cost = cycles + wanted.step_price * stripes * columns * slices * (span.stop - span.at)
                    fitting += 1
                    if best is None or cost < best[0]:
                        resident = self._allowed.resident if patched.outer else self._resident(span)
                        group = Group(1, stripes, overlap=overlap, resident=resident, columns=columns, slices=slices)
                        group = replace(group, summed=patched.summed and slices > 1, slices_outer=patched.outer)
                        saves = alternating and (patched.cycles(*form) or inf) > cycles
                        best = cost, replace(group, alternating=saves)
                    break
        return best

    def _in_patches(self, span: GroupSpan) -> list[PatchedGroup]:
        """The estimates for patches of a group, for those whose slices are summed, and for those in outer slices; none
        where it cannot be computed so."""
        if span.used not in self._patched:
            kinds = (False, False), (True, False), (False, True)
            found = (PatchedGroup(self._estimates, *span.used, summed, outer) for summed, outer in kinds)
            self._patched[span.used] = [patched for patched in found if patched.possible()]
        return self._patched[span.used]

    def _transposed(self, span: GroupSpan) -> GroupForm | None:
        layer = self._layers[self._order[span.at]]
        if span.used[-1]:
            return None
        return copy_cycles(layer.ifm.nbytes, 1, self._accelerator) + layer.ofm.nbytes, Group(1)

    def _tiled(self, span: GroupSpan, wanted: Wanted) -> GroupForm | None:
        """The cheapest tiles of a layer by itself; None where nothing fits, or where it has none."""
        layer = self._layers[self._order[span.at]]
        if not can_tile(layer, self._of) or (self._of[layer.ofm].in_boxes and self._accelerator.dma_alignment > 1):
            return None  # tiles are sized for the words of its own output
        room = max(wanted.room - span.passing, 1)
        within = with_memories(self._accelerator, room, self._accelerator.weight_memory)
        best: GroupForm | None = None
        for share in _TILE_SHARES if self._allowed.overlap else _TILE_SHARES[1:]:
            for tiling in tilings(layer, within, (share,), even=False):
                cost = self._tile_costs(self._order[span.at], tiling, share, room)
                if best is None or cost < best[0]:
                    best = cost, Group(1, overlap=share == _TILE_SHARES[0], resident=False, tiling=tiling)
        return best

    def _tile_costs(self, index: int, tiling: Tiling, share: tuple[int, int], room: int) -> float:
        """Cycles of a layer in tiles, where local memory has `room`: for so many tiles and blocks of weights."""
        layer, form = self._layers[index], tile_geometry(self._layers[index])
        if isinstance(form, Window):
            return Tiler(layer, form, self._accelerator).cycles(tiling, *share)
        if isinstance(form, Run):
            return self._run_costs(layer, form, tiling, room)
        extent = extents(layer.ofm)
        jobs = tile_cycles(layer, None, extent, self._accelerator)
        copied = sum(copy_cycles(tensor.nbytes, extent[0], self._accelerator) for tensor in (*layer.inputs, layer.ofm))
        return (1.5 if share == _TILE_SHARES[0] else 2.0) * (jobs + copied)

    def _run_costs(self, layer: Layer, form: Run, tiling: Tiling, room: int) -> float:
        """Cycles of an element-wise layer in runs: as many copies as have room beside a job are done while it lasts."""
        one, shape = self._accelerator, form.shape(tiling.columns * form.each)
        nbytes, copies = layer.ofm.bytes_of(tiling.columns * form.each), runs_loaded(layer, form) + 1
        beside = min(max(room // nbytes - copies, 0), copies)
        copied, job = copy_cycles(nbytes, 1, one), job_cycles(layer, shape, shape, one)
        runs = ceil_div(layer.ofm.elements, tiling.columns * form.each)
        return runs * (max(job, beside * copied) + (copies - beside) * copied)


def _cycles(found: GroupForm) -> float:
    return found[0]


def _in_better_order(cycles: Callable[[bool], float | None], turns: bool) -> tuple[float, bool] | None:
    """The fewest cycles, with blocks of weights in alternating order or not, and whether they are; None where nothing
    fits. Where that saves nothing, more of them can come ahead in the same order."""
    plain, turned = cycles(False), cycles(True) if turns else None
    if plain is None or turned is None or plain <= turned:
        return None if plain is None else (plain, False)
    return turned, True
