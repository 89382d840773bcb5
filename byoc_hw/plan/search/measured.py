"""Groups that are measured by themselves: the best way through the layers, of exact cycles.

Between some groups nothing stays in local memory. The groups between two such borders are a run: laid out by itself it
takes a number of cycles, and runs that are joined take no more than the sum of theirs (`Choices.apart`). So the fastest
runs from the first layer to the last are a shortest path. Measured are the runs of the cheapest groups by estimate,
which the measurements correct, and each layer alone where that could be faster: what is found is not slower than each
layer alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import inf

from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer
from byoc_hw.plan.array.alike_layer import layer_sizes
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.packing import worth_packing_tiles
from byoc_hw.plan.array.weight_blocks import all_bytes, psum_bytes
from byoc_hw.plan.array.window import extents
from byoc_hw.plan.bound.latency import reads_all
from byoc_hw.plan.bound.ways import least_alone
from byoc_hw.plan.choices import PIECES, Blocks, Choices, Group
from byoc_hw.plan.search.alike import Known
from byoc_hw.plan.search.grouping import Grouping
from byoc_hw.plan.stages import cycles_of_groups

Alone = Callable[[Layer], "tuple[Group, Blocks | None] | None"]
"""The best group of a layer by itself, and the blocks of its weights; None where it cannot be planned so."""

Near = Callable[[Choices, int], Iterable[Choices]]
"""Choices near some, with another form of one of the groups, or other blocks of weights in it."""

_ROUNDS = 8
"""How often the estimates are corrected at most."""

_SURE = 4
"""So many rounds are made, whatever they gain."""

_GAIN = 0.999
"""Further rounds are made while each leaves at most this part of the cycles that there were before it."""

_ROUGH = 2
"""In so many rounds those layers alone are left out by which the fastest way cannot get a good deal shorter, and fine
patches."""

_SHARE = 0.001
"""The part of its cycles that is a good deal."""

_DOUBT = 1.15
"""How much slower the groups that are measured are taken to be than others that are estimated, in one more round."""

_FAR = 1.15
"""How far from the cycles of all jobs the fastest runs are for which that round is made, longer groups are tried, and
others near them."""

_NEAR = 1.1
"""How near the cycles of its jobs a run is good enough."""

_WORK = 18000
"""The copies and jobs of runs near others that are measured in all."""

_TOO_SLOW = 0.15
"""The part of the cycles of a run by which it may be too slow for the fastest way, if others near it are measured."""

_SUMS_SHARE = 32
"""One of so many parts of local memory is much for partial sums of a row."""

_TOO_BOLD = 1.5
"""What is put on the estimate of groups that turn out not to fit."""


@dataclass(frozen=True)
class MeasuredRun:
    """Groups of layers `first` to `stop` (not included) that share local memory with no others, their cycles, and the
    number of their copies and jobs."""

    first: int
    stop: int
    groups: tuple[Group, ...]
    blocks: tuple[Blocks | None, ...]
    cycles: float
    work: int = 0


def _bound(span: tuple[int, int], cycles: float) -> MeasuredRun:
    """A run without groups, of as many cycles as any has at least."""
    return MeasuredRun(*span, (), (), cycles)


class MeasuredRuns:
    """The runs of a mapped region that have been measured. What is `known` of layers that are alike, also in another
    mapping, is neither measured nor estimated again. Runs of `enough` cycles in all are good enough. Groups that
    are not `allowed`, by their first layer, are in none."""

    def __init__(
        self,
        mapped: MappedGraph,
        alone: Alone,
        near: Near,
        known: Known,
        enough: float = 0,
        allowed: Callable[[Group, int], bool] = lambda group, first: True,
    ) -> None:
        self.mapped, self._alone, self._near, self._enough = mapped, alone, near, enough
        self._allowed = allowed
        self._grouping = Grouping(mapped, known=known).further()
        self._groupings = [*_further(self._grouping)]
        if _sums_take_room(self._grouping):
            self._groupings += _further(self._grouping.without_sums())
        self._layers, self._of = mapped.mapping.layers, mapped.storages.of
        order = self._grouping.order
        self._starts = [0, *order[1:], len(self._layers)]
        self._fastest: dict[tuple[int, int], MeasuredRun] = {}
        self._without: dict[tuple[int, int], MeasuredRun] = {}  # those that keep no halos
        self._single: dict[tuple[int, int], MeasuredRun] = {}  # layers alone, with blocks of their own
        self._alike, self._measured = self._grouping.alike, known.measured
        self._bounds = dict(enumerate(least_by_itself(index, mapped) for index in order))
        self._sizes = [layer_sizes(self._layers[index]) for index in order]

    @property
    def estimated(self) -> bool:
        """Whether any groups fit by estimate."""
        return bool(self._grouping.path())

    @property
    def cycles(self) -> float:
        """Cycles of the fastest runs that are known, one after the other."""
        return sum(run.cycles for run in self._shortest({}) or ())

    @property
    def _far(self) -> bool:
        """Whether the fastest runs take far more cycles than all jobs."""
        return not 0 < self.cycles <= _FAR * self.mapped.array_cycles

    def best(self, start: Choices | None) -> list[Choices]:
        """The choices of the fastest runs, and where they keep halos those of the fastest that keep none; joined, these
        may be faster. None where none fit. `start` are choices to begin with."""
        if start is not None:
            for first, stop in _runs(start):
                self._run(start, first, stop)
        if self._improves():
            self._improve_further()
        found = (self._shortest({}, halos=halos) for halos in (True, False))
        return list(dict.fromkeys(self._choices(runs) for runs in found if runs is not None))

    def _improves(self) -> bool:
        """Measure what is estimated to be fast, and layers alone. False where what is found is good enough."""
        cycles = self.cycles
        for number in range(1, _ROUNDS + 1):
            measured = False
            fine = number > _ROUGH and self._far
            for grouping in [one for one in self._groupings if fine or not one.wanted.fine]:
                measured |= self._estimated(grouping)
                if 0 < self.cycles <= self._enough:
                    return False
            alone = self._measures_alone(_SHARE if number <= _ROUGH else 0)
            before, cycles = cycles, self.cycles
            if 0 < cycles <= self._enough:
                return False
            gains = not 0 < _GAIN * before < cycles
            if number > _ROUGH and (not (measured or alone) or (number >= _SURE and not gains)):
                break
        return True

    def _improve_further(self) -> None:
        """Measure longer groups, those that are in doubt, and others near the fastest."""
        far = self._far
        longer = [grouping.longer() for grouping in self._groupings if grouping.wanted.halos]
        for _ in range(_SURE if far else 0):
            measured = [self._estimated(grouping) for grouping in longer]
            if not any(measured):
                break
        for grouping in self._groupings if far else ():
            self._estimated(grouping, _DOUBT)
        self._in_pieces()
        if far:
            self._nearby()

    def _choices(self, runs: Sequence[MeasuredRun]) -> Choices:
        """The choices of runs from the first layer to the last."""
        groups = (group for run in runs for group in run.groups)
        return self.mapped.choices(groups, (cut for run in runs for cut in run.blocks))

    # ------------------------------------------------------------ what is measured

    def _estimated(self, grouping: Grouping, doubt: float = 1.0) -> bool:
        """Measure the runs of the cheapest groups by estimate, and correct the estimates. False if all are known. Those
        that are known may be in `doubt`."""
        path = grouping.path(doubt)
        if not path:
            return False
        blocks = list(grouping.blocks)
        choices = self.mapped.choices((one.group for one in path), blocks)
        for at, (first, stop) in enumerate(choices.spans):
            single = self._single.get((first, stop))
            if single is not None and single.groups == (path[at].group,):
                blocks[first:stop] = single.blocks
        choices = self.mapped.choices(choices.groups, blocks)
        before = len(self._measured)
        for first, stop in _runs(choices):
            cycles = self._run(choices, first, stop)
            plain = [replace(group, alternating=False) for group in choices.groups[first:stop]]
            if cycles is not None and plain != list(choices.groups[first:stop]):
                groups = (*choices.groups[:first], *plain, *choices.groups[stop:])
                cycles = min(filter(None, (cycles, self._run(replace(choices, groups=groups), first, stop))))
            some = path[first:stop]
            factor, estimate = _TOO_BOLD, sum(one.cycles for one in some)
            if cycles is not None:
                factor = cycles / estimate if estimate else 1.0  # runs that are known to take no cycles
            for one in some:
                grouping.correct(one.key, one.cycles * factor, one.group)
        return len(self._measured) > before

    def _in_pieces(self) -> None:
        """Measure the fastest runs with the units that take turns in pieces, where the array waits."""
        for run in chain.from_iterable(self._shortest({}, halos=halos) or () for halos in (True, False)):
            first, choices = self._around(run)
            for finer in self._finer(choices, run, first):
                self._run(finer, first, first + len(run.groups))

    def _finer(self, choices: Choices, run: MeasuredRun, first: int) -> Iterator[Choices]:
        """Choices with a run from a group on, with the units that take turns in pieces, where the array waits."""
        most = PIECES[-1] if self.mapped.accelerator.tuning.overlap else 1
        finer = tuple(replace(one, pieces=most) if _takes_turns(one) else one for one in run.groups)
        if finer != run.groups and run.cycles > _NEAR * self._least_jobs(run):
            stop = first + len(run.groups)
            yield replace(choices, groups=(*choices.groups[:first], *finer, *choices.groups[stop:]))

    def _nearby(self) -> None:
        """Measure runs near those that may shorten the fastest way: first near the one by which it may gain the most
        for each copy and job. The first one that is faster takes its place."""
        left, done = _WORK, set[MeasuredRun]()
        while left > 0:
            gains = {run: gain for run, gain in self._gains() if run not in done}
            if not gains:
                return
            run = max(gains, key=lambda run: gains[run] / run.work)
            done.add(run)
            first, choices = self._around(run)
            stop = first + len(run.groups)
            nearby = chain.from_iterable(self._near(choices, at) for at in range(first, stop))
            for other in chain(self._finer(choices, run, first), nearby):
                left -= run.work
                cycles = self._run(other, first, stop)
                if left <= 0 or (cycles is not None and cycles < run.cycles):
                    break

    def _gains(self) -> Iterator[tuple[MeasuredRun, float]]:
        """The fastest runs, each with what the fastest way may gain at most by a faster one in its place. Of runs on
        another way they are those that are a little too slow for the fastest one, and it counts less."""
        for run, through in self._through(self._fastest.values()):
            too_slow = through - self.cycles
            gain = run.cycles - too_slow - self._least(run)
            most = _TOO_SLOW * run.cycles
            if too_slow < most and gain > 0:
                yield run, gain * (1 - too_slow / most)

    def _least(self, run: MeasuredRun) -> float:
        """Cycles that the jobs of a run's layers take at least, and the copies of all weights, and of tensors that
        other layers make or read."""
        layers = [self._layers[at] for at in range(run.first, run.stop) if self.mapped.mapping.works(at)]
        moved = sum(all_bytes(layer, None, self.mapped.accelerator) for layer in layers)
        for storage in {self._of[tensor] for layer in layers for tensor in (*layer.inputs, layer.ofm)}:
            inside = bool(storage.makers) and min(storage.makers) >= run.first and not storage.sinks
            moved += storage.nbytes * (not inside or any(reader >= run.stop for reader in storage.readers))
        return max(self._least_jobs(run), moved / self.mapped.accelerator.dma_width)

    def _around(self, run: MeasuredRun) -> tuple[int, Choices]:
        """Choices with the groups of a run, and the first of these; of all other layers nothing is known."""
        rest, blocks = [Group(1)] * len(self._layers), self._grouping.blocks
        blocks = (*blocks[: run.first], *run.blocks, *blocks[run.stop :])
        return run.first, self.mapped.choices((*rest[: run.first], *run.groups, *rest[run.stop :]), blocks)

    def _least_jobs(self, run: MeasuredRun) -> float:
        """Cycles that the jobs of a run's layers take at least."""
        return sum(least_jobs(index, self.mapped) for index in range(run.first, run.stop))

    def _run(self, choices: Choices, first: int, stop: int) -> int | None:
        """Cycles of the groups `first` to `stop` (not included) of some choices; None where they do not fit."""
        spans = choices.spans
        start, end = spans[first][0], spans[stop - 1][1]
        groups, blocks = choices.groups[first:stop], choices.blocks[start:end]
        if not all(map(self._allowed, groups, (span[0] for span in spans[first:stop]))):
            return None
        alike = self._alike.span(start, end)
        key = alike.number, *map(alike.plain_group, groups), *blocks
        if key not in self._measured:
            try:
                self._measured[key] = cycles_of_groups(self.mapped, choices, first, stop)
            except PlanError:
                self._measured[key] = None
        measured = self._measured[key]
        if measured is None:
            return None
        keeps = any(group.kept for group in groups)
        for fastest in (self._fastest,) if keeps else (self._fastest, self._without):
            known = fastest.get((start, end))
            if known is None or measured[0] < known.cycles:
                fastest[start, end] = MeasuredRun(start, end, groups, blocks, *measured)
        return measured[0]

    def _measures_alone(self, share: float) -> bool:
        """Measure layers alone by which the fastest way may get shorter by a `share` of it, or by anything. False if
        there are none."""
        found = False
        while self._measures_longest(share * self.cycles):
            found = True
        return found

    def _measures_longest(self, least: float) -> bool:
        """Measure one of the layers that are alone on the shortest path if their bounds are taken for their cycles, and
        those that are alike: the longest, after which the path may go around the others. They are those without which
        the path is at least so many cycles longer; False if there are none."""
        spans = {(self._starts[at], self._starts[at + 1]): at for at in self._bounds}
        bounds = {span: self._bounds[at] for span, at in spans.items()}
        path = self._shortest(bounds) or []
        taken = [spans[run.first, run.stop] for run in path if not run.groups]
        if not taken:
            return False
        around = [inf] * len(self._layers)  # of each layer: the fastest way with a run that is measured for it
        for run, through in self._through([*self._fastest.values(), *(_bound(*one) for one in bounds.items())]):
            for index in range(run.first, run.stop) if run.groups else ():
                around[index] = min(around[index], through)
        gains, shortest = dict[Hashable, float](), sum(run.cycles for run in path)
        for at in taken:
            gains[self._sizes[at]] = gains.get(self._sizes[at], 0) + around[self._starts[at]] - shortest
        worth = [at for at in taken if gains[self._sizes[at]] >= least]
        if not worth:
            return False
        longest = max(worth, key=self._bounds.__getitem__)
        for at in [at for at in taken if self._sizes[at] == self._sizes[longest]]:
            del self._bounds[at]
            self._by_itself(at)
        return True

    def _by_itself(self, at: int) -> None:
        """Measure a layer alone."""
        index, start, stop = self._grouping.order[at], self._starts[at], self._starts[at + 1]
        key, layer = self._grouping.key_alone(at), self._layers[index]
        found = None if key is None else self._alone(layer)
        if found is None:
            return
        group = replace(found[0], layers=stop - start, held=frozenset())
        rest = [Group(count) for count in (start, len(self._layers) - stop)]
        groups = (*rest[: start > 0], group, *rest[1 : 1 + (stop < len(self._layers))])
        blocks = (*self._grouping.blocks[:index], found[1], *self._grouping.blocks[index + 1 :])
        number = int(start > 0)
        if self._run(self.mapped.choices(groups, blocks), number, number + 1) is not None:
            best = self._fastest[start, stop]
            if len(best.groups) == 1:
                self._single[start, stop] = best
                for grouping in self._groupings:
                    grouping.correct(key, best.cycles, best.groups[0])

    # ------------------------------------------------------------ the way through the layers

    def _through(self, some: Iterable[MeasuredRun]) -> list[tuple[MeasuredRun, float]]:
        """Runs from first to last, each with the cycles of the fastest way through it."""
        to, back = {0: 0.0}, {len(self._layers): 0.0}
        runs = sorted(some, key=lambda run: (run.first, run.stop))
        for run in runs:
            to[run.stop] = min(to.get(run.stop, inf), to.get(run.first, inf) + run.cycles)
        for run in sorted(runs, key=lambda run: -run.stop):
            back[run.first] = min(back.get(run.first, inf), back.get(run.stop, inf) + run.cycles)
        return [(run, to.get(run.first, inf) + run.cycles + back.get(run.stop, inf)) for run in runs]

    def _shortest(self, bounds: Mapping[tuple[int, int], float], *, halos: bool = True) -> list[MeasuredRun] | None:
        """The fastest runs from the first layer to the last, None if there is no way; `bounds` are cycles of runs
        without groups. Without `halos`, runs that keep none."""
        measured = (self._fastest if halos else self._without).values()
        edges = [*measured, *(_bound(*one) for one in bounds.items())]
        ways: dict[int, tuple[float, MeasuredRun | None]] = {0: (0, None)}
        for run in sorted(edges, key=lambda run: (run.first, run.stop)):
            if run.first in ways:
                cycles = ways[run.first][0] + run.cycles
                if run.stop not in ways or cycles < ways[run.stop][0]:
                    ways[run.stop] = cycles, run
        at, path = len(self._layers), list[MeasuredRun]()
        while at in ways and (last := ways[at][1]) is not None:
            path.append(last)
            at = last.first
        return path[::-1] or None


def least_one_by_one(mapped: MappedGraph) -> float:
    """Cycles that no plan of each layer alone goes below."""
    layers, works = mapped.mapping.layers, mapped.mapping.works
    return sum(least_by_itself(index, mapped) for index in range(len(layers)) if works(index))


def _sums_take_room(grouping: Grouping) -> bool:
    """Whether partial sums of a row of a layer take much of local memory."""
    accelerator, layers = grouping.mapped.accelerator, grouping.mapped.mapping.layers
    cuts = zip(layers, grouping.blocks, strict=True)
    most = max(psum_bytes(layer, blocks, extents(layer.ofm)[1], accelerator) for layer, blocks in cuts)
    return most * _SUMS_SHARE > accelerator.activation_memory


def _further(grouping: Grouping) -> tuple[Grouping, ...]:
    """A grouping with patches, with halos that are kept, and with finer patches."""
    return grouping.further(), grouping.further(halos=True), grouping.further(fine=True)


def _takes_turns(group: Group) -> bool:
    """Whether the stripes, patches or tiles of a group are copied and computed in turn, each as a whole."""
    several = group.stripes > 1 or group.patched or group.tiling is not None
    return several and not group.overlap and group.pieces == 1


def _runs(choices: Choices) -> list[tuple[int, int]]:
    """The first group of each run, and the first behind it."""
    groups = choices.groups
    cuts = [at for at in range(1, len(groups)) if not groups[at - 1].held & groups[at].held]
    return list(pairwise([0, *cuts, len(groups)]))


def least_jobs(index: int, mapped: MappedGraph) -> float:
    """Cycles that no jobs of a layer go below, in tiles or not: in tiles the rows of a band lie as ever."""
    layer, accelerator = mapped.mapping.layers[index], mapped.accelerator
    known = min(mapped.cycles_of(index), best_cycles(layer, accelerator))
    return min(known, least_alone([layer], accelerator)) if worth_packing_tiles(layer, accelerator) else known


def least_by_itself(index: int, mapped: MappedGraph) -> float:
    """Cycles that no plan of a layer alone goes below: of its jobs, and of its copies."""
    layer, accelerator = mapped.mapping.layers[index], mapped.accelerator
    copied = {layer.ofm, *(layer.inputs if reads_all(layer) else ())}
    weights = all_bytes(layer, None, accelerator)
    copies = accelerator.dma_setup * (len(copied) + (weights > 0))
    moved = (sum(tensor.nbytes for tensor in copied) + weights) / accelerator.dma_width
    jobs = least_jobs(index, mapped)
    # An input, and weights, come before the first one, and an output goes behind the last.
    around = accelerator.dma_setup * (2 + (weights > 0)) if jobs else 0
    return max(jobs + around, moved + copies)
