"""Parts of several layers that local memory has no room for, in measured runs of groups (`search/measured.py`).

This takes longer than layouts by estimates, so the search for parts tries it last, near the best plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from byoc_hw.accelerator import Accelerator
from byoc_hw.plan.bound.needs import keeps_sums_whole
from byoc_hw.plan.lanes.oriented import part_structure
from byoc_hw.plan.lanes.profile import Option, Profile, profile_of
from byoc_hw.plan.search.alike import Known
from byoc_hw.plan.search.all_held import all_fit
from byoc_hw.plan.search.measured import MeasuredRuns
from byoc_hw.plan.stages import Layout
from byoc_hw.plan.tune.layers_alone import LayersAlone
from byoc_hw.plan.tune.near_choices import near_groups
from byoc_hw.plan.tune.own_plan import runs_joined
from byoc_hw.plan.tune.space import SearchSpace

_NEAR = 1.1
"""How near the cycles of its jobs a layout is good enough."""


class PartsInRuns:
    """Parts of one accelerator in measured runs. What is known of layers in one part is known of them in all others."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._alone, self._known = LayersAlone(accelerator), Known()
        self._found: dict[Hashable, Profile | None] = {}

    def faster(self, options: Sequence[Option]) -> list[Option]:
        """The measured runs of a part, where they take fewer cycles than the fastest of its layouts."""
        known = min(options, key=lambda one: one.profile.cycles)
        key = part_structure(known.part.mapped), known.profile.choices.packed
        if key not in self._found:
            layout = self._in_runs(known) if is_tight(known) else None
            self._found[key] = None if layout is None else profile_of(layout, pieces=False)
        found = self._found[key]
        return [] if found is None else [Option(known.part, found)]

    def _in_runs(self, known: Option) -> Layout | None:
        mapped = known.placed.layout.mapped
        if len(mapped.graph.layers) == 1 or known.profile.cycles <= _NEAR * mapped.array_cycles:
            return None
        near = near_groups(SearchSpace(mapped.graph, mapped.accelerator))
        allowed = partial(keeps_sums_whole, mapped)
        runs = MeasuredRuns(mapped, self._alone, near, self._known, allowed=allowed)
        found = runs_joined(mapped, runs.best(known.profile.choices))
        return None if found is None or found.cycles >= known.profile.cycles else found


def is_tight(option: Option) -> bool:
    """Whether local memory has no room for all tensors of a part."""
    mapped = option.part.mapped
    return not (mapped.whole or all_fit(mapped))
