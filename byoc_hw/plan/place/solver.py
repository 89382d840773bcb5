"""The solver for arenas of few blocks: it proves what `canonical.py` cannot where there is room to spare.

CP-SAT of OR-tools with one worker, a fixed seed and a limit in its own deterministic unit of work,
never in seconds: the same blocks give the same bytes on every machine. OR-tools is imported only
where a search runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from byoc_hw.plan.place.by_lifetime import Arena, Block

MOST_PAIRS = 4000
"""Number of conflicts beyond which the solver finds nothing in a few seconds."""


def solved(arena: Arena, blocks: Sequence[Block], work: float) -> Arena:
    """A smaller arena than the one given, or the same one, with `proven` as the solver left it.

    `work` is in the solver's deterministic time: about as many seconds.
    """
    sizes = {block.name: block for block in sorted(blocks, key=lambda block: block.name)}
    pairs = sorted((block.name, other) for block in blocks for other in block.conflicts if block.name < other)
    if arena.gap <= 0 or len(pairs) > MOST_PAIRS:
        return arena
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    least = max(arena.lower_bound, arena.proven)
    top = model.new_int_var(least, arena.nbytes, "top")
    starts = {}
    for name, block in sizes.items():
        # In units of the block's own alignment: no constraint is needed for it.
        unit = model.new_int_var(0, max(0, arena.nbytes - block.nbytes) // block.alignment, name)
        starts[name] = unit * block.alignment
        model.add(starts[name] + block.nbytes <= top)
        model.add_hint(unit, arena.offsets[name] // block.alignment)
    for one, other in pairs:
        below = model.new_bool_var(f"{one} below {other}")
        model.add(starts[one] + sizes[one].nbytes <= starts[other]).only_enforce_if(below)
        model.add(starts[other] + sizes[other].nbytes <= starts[one]).only_enforce_if(~below)
    model.minimize(top)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = work
    status = solver.status_name(solver.solve(model))
    proven = max(least, round(solver.best_objective_bound)) if status != "UNKNOWN" else least
    if status not in ("OPTIMAL", "FEASIBLE") or solver.objective_value >= arena.nbytes:
        return replace(arena, proven=min(proven, arena.nbytes))
    offsets = {name: int(solver.value(start)) for name, start in starts.items()}
    nbytes = max(offsets[name] + block.nbytes for name, block in sizes.items())
    return Arena(offsets, nbytes, arena.lower_bound, min(proven, nbytes))
