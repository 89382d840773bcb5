"""All plans of a few layers on a chip, of a kind that there are few enough of, to compare the search with."""

from itertools import islice

from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.every import few
from byoc_hw.plan.lanes.joint import joint_work, patient_order, side_by_side
from byoc_hw.plan.lanes.layer_forms import LayerForms
from byoc_hw.plan.lanes.price import PlanCosts, Price
from byoc_hw.plan.lanes.together import Together

KINDS = ((3, 4), (3, 2), (3, 1), (2, 1), (1, 2), (1, 1))
"""The most layers of a part, and the most layouts of each: the first of these kinds of plans of which there are at most
`most` is tried."""

LONGEST_FIRST = ((8, 4), (5, 4), *KINDS)
"""The kinds that `fewest_of_many` tries, in their order."""

_STEPS = 4
"""Engines have so many shares, in all, of what the bound weighs them by."""


class TooManyError(Exception):
    """So many beginnings of plans were looked at."""


class Exhaustive:
    """Every partition of the layers into parts of consecutive layers, each on every accelerator that can run it, or cut
    over some of them by their speed along each axis, in every one of its first layouts."""

    def __init__(self, graph, chip, most):
        costs = [
            {
                lane: best_cycles(layer, one)
                for lane, one in enumerate(chip.accelerators)
                if one in chip.supporting(layer)
            }
            for layer in graph.layers
        ]
        self.chip = chip
        self.layers, self.costs = LayerForms(Region(graph), chip, costs), PlanCosts(Price(), Together())
        self.stops = self.layers.borders[1:]
        self.lanes = len(chip.accelerators)
        self.kind = next((kind for kind in KINDS if 0 < self.count(*kind) <= most), None)

    def count(self, longest, layouts):
        """How many plans there are of a kind, which `fewest` goes through then."""
        self.forms = self._forms(longest, layouts)
        counts = {self.stops[-1]: 1}
        for at in reversed([0, *self.stops[:-1]]):
            counts[at] = sum(counts[stop] * len(forms) for (first, stop), forms in self.forms.items() if first == at)
        return counts[0]

    def _forms(self, longest, layouts):
        """The forms of parts, by their first layer and the one behind their last."""
        return {
            (at, stop): [form for options in self.layers.of(at, stop) for form in islice(few(options), layouts)]
            for at in [0, *self.stops[:-1]]
            for stop in self.stops
            if at < stop and (stop - at <= longest or stop == self._next(at))
        }

    def _next(self, at):
        return min(stop for stop in self.stops if stop > at)

    def fewest_of_many(self, below, most):
        """As `fewest`, of the first kind of plans for which at most so many beginnings of plans are looked at, which is
        `kind` then; None where each kind takes more."""
        for self.kind in LONGEST_FIRST:
            if self.count(*self.kind) > 0:
                try:
                    return self.fewest(below, most)
                except TooManyError:
                    pass
        self.kind = None
        return None

    def fewest(self, below, most=1 << 60):
        """The fewest cycles of all plans; `below` where none has fewer. A plan is passed over only where its beginning
        with any end takes as long as the best plan so far (`Beginning`)."""
        self.rest = {self.stops[-1]: [0.0] * len(self._weights())}
        for at in reversed([0, *self.stops[:-1]]):
            ways = [
                [more + sum(map(_product, weights, _loads(form, self.lanes))) for more, weights in weighed]
                for (first, stop), forms in self.forms.items()
                if first == at
                for weighed in [list(zip(self.rest[stop], self._weights(), strict=True))]
                for form in forms
            ]
            self.rest[at] = [min(some) for some in zip(*ways, strict=True)] or [float("inf")] * len(self._weights())
        self.best, self.plan, self.left = below, None, most
        self._try(0, [], Beginning([0] * self.lanes, [0] * self.lanes, 0, []))
        return self.best

    def _weights(self):
        """What each array, then each DMA, counts: shares of one."""
        return list(_shares(2 * self.lanes, _STEPS))

    def _try(self, at, plan, begun):
        if at == self.stops[-1]:
            if self.costs.of(plan, self.best) < self.best:
                parts = side_by_side([option.placed for form in plan for option in form])
                cycles = patient_order(joint_work(parts, self.chip)).cycles
                if cycles < self.best:
                    self.best, self.plan = cycles, plan
            return
        found = []
        for (first, stop), forms in self.forms.items():
            if first == at:
                for form in forms:
                    then = begun
                    for option in form:
                        then = then.with_part(option, self.costs.together)
                    found.append((self._least(stop, then), stop, form, then))
        self.left -= len(found)
        if self.left < 0:
            raise TooManyError
        for least, stop, form, then in sorted(found, key=lambda one: one[0]):
            if least < self.best:
                self._try(stop, [*plan, form], then)

    def _least(self, at, begun):
        """Cycles that a plan takes at least that begins so: those until the last operation of the beginning, and those
        of all engines, each counted by its weight. An array is busy with the rest after its last job, a DMA with all
        copies from the start on."""
        engines = [*begun.arrays, *begun.copied]
        weighed = (
            sum(map(_product, weights, engines)) + more
            for weights, more in zip(self._weights(), self.rest[at], strict=True)
        )
        return max(begun.end, *weighed)


class Beginning:
    """Parts with the earliest end of each of their operations: behind those that it waits for, and behind the jobs
    before on its array, but as if DMAs took any number of copies at once.

    `arrays` are the ends of the last jobs, `copied` the cycles of all copies of each DMA.
    """

    def __init__(self, arrays, copied, end, parts):
        self.arrays, self.copied, self.end, self.parts = arrays, copied, end, parts

    def with_part(self, option, together):
        """The beginning with one part more."""
        lane, actions = option.part.cut.lane, option.profile.actions
        ready, ends, array = [0] * len(actions), [0] * len(actions), self.arrays[lane]
        for other, its in self.parts:
            for one, then in together._data_edges(other, option):
                ready[then] = max(ready[then], its[one])
        for index, action in enumerate(actions):
            start = ready[index] if action.copies else max(ready[index], array)
            ends[index] = end = start + action.cycles
            if not action.copies:
                array = end
            for other in action.after:
                ready[other] = max(ready[other], end)
        arrays, copied = list(self.arrays), list(self.copied)
        arrays[lane] = array
        copied[lane] += option.profile.load[1]
        return Beginning(arrays, copied, max([self.end, *ends]), [*self.parts, (option, ends)])


def _shares(count, total):
    """All ways to give so many engines some of `total` shares, as parts of one."""
    if count == 1:
        yield (total / _STEPS,)
        return
    for first in range(total + 1):
        for others in _shares(count - 1, total - first):
            yield (first / _STEPS, *others)


def _product(one, other):
    return one * other


def _loads(form, lanes):
    """Cycles of the jobs of a form on each accelerator, and of its copies on each."""
    found = [0] * (2 * lanes)
    for option in form:
        jobs, copies = option.profile.load
        found[option.part.cut.lane] += jobs
        found[lanes + option.part.cut.lane] += copies
    return found
