"""All plans of a few layers on a chip, of a kind that there are few enough of, to compare the search with."""

from itertools import islice

from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.lanes.cut import Region
from byoc_hw.plan.lanes.every import few
from byoc_hw.plan.lanes.joint import joint_work, patient_order, side_by_side
from byoc_hw.plan.lanes.search import _Search

KINDS = ((3, 4), (3, 2), (3, 1), (2, 1), (1, 2), (1, 1))
"""The most layers of a part, and the most layouts of each: the first of these kinds of plans of which there are at most
`most` is tried."""


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
        self.search = _Search(Region(graph), chip, costs)
        self.stops = [stop for stop in range(1, len(graph.layers) + 1) if self.search.may_stop(stop)]
        self.lanes = len(chip.accelerators)
        self.kind = next((kind for kind in KINDS if 0 < self._count(*kind) <= most), None)

    def _count(self, longest, layouts):
        """How many plans there are."""
        self.forms = self._forms(longest, layouts)
        counts = {self.stops[-1]: 1}
        for at in reversed([0, *self.stops[:-1]]):
            counts[at] = sum(counts[stop] * len(forms) for (first, stop), forms in self.forms.items() if first == at)
        return counts[0]

    def _forms(self, longest, layouts):
        """The forms of parts, by their first layer and the one behind their last."""
        return {
            (at, stop): [form for options in self.search.forms(at, stop) for form in islice(few(options), layouts)]
            for at in [0, *self.stops[:-1]]
            for stop in self.stops
            if at < stop and (stop - at <= longest or stop == self._next(at))
        }

    def _next(self, at):
        return min(stop for stop in self.stops if stop > at)

    def fewest(self, below):
        """The fewest cycles of all plans; `below` where none has fewer. A plan is passed over only where one of its
        arrays alone takes as long as the best plan so far."""
        least = {self.stops[-1]: 0}
        for at in reversed([0, *self.stops[:-1]]):
            least[at] = min(
                least[stop] + min((sum(_loads(form, self.lanes)) for form in forms), default=1 << 60)
                for (first, stop), forms in self.forms.items()
                if first == at
            )
        self.best, self.least, self.plan = below, least, None
        self._try(0, [], [0] * self.lanes)
        return self.best

    def _try(self, at, plan, loads):
        if max(max(loads), (sum(loads) + self.least[at]) / self.lanes) >= self.best:
            return
        if at == self.stops[-1]:
            if self.search.cost(plan, self.best) < self.best:
                parts = side_by_side([option.placed for form in plan for option in form])
                cycles = patient_order(joint_work(parts, self.chip)).cycles
                if cycles < self.best:
                    self.best, self.plan = cycles, plan
            return
        for (first, stop), forms in self.forms.items():
            if first == at:
                for form in forms:
                    more = [a + b for a, b in zip(loads, _loads(form, self.lanes), strict=True)]
                    self._try(stop, [*plan, form], more)


def _loads(form, lanes):
    """Cycles of the jobs of a form on each accelerator."""
    found = [0] * lanes
    for option in form:
        found[option.part.cut.lane] += option.profile.load[0]
    return found
