"""Widths for all layers at once: for each cost the least loss, found exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

_POINTS = 24
"""Costs that the front is looked for at, evenly between the least and the most."""

_LOSS_UNITS = 1_000_000
_SECONDS = 5.0
"""Deterministic time of the solver for a point: far more than it takes to prove one."""


@dataclass(frozen=True)
class Choice:
    """A width of one layer: what it costs, and what it loses."""

    bits: int
    cost: int
    loss: float


@dataclass(frozen=True)
class Widths:
    """The widths of all layers, by number: the least `loss` of all that cost at most `cost`."""

    bits: Mapping[int, int]
    cost: int
    loss: float


def front(choices: Mapping[int, tuple[Choice, ...]]) -> tuple[Widths, ...]:
    """Widths from the cheapest to the best: none costs and loses more than another."""
    costs = [[choice.cost for choice in layer] for layer in choices.values()]
    least, most = sum(map(min, costs)), sum(map(max, costs))
    found: list[Widths] = []
    for budget in np.unique(np.linspace(least, most, _POINTS).astype(int)):
        point = within(choices, int(budget))
        if point is not None and (not found or point.loss < found[-1].loss):
            found = [one for one in found if one.cost < point.cost] + [point]
    return tuple(found)


def within(choices: Mapping[int, tuple[Choice, ...]], budget: int) -> Widths | None:
    """The widths with the least loss whose cost is at most `budget`, and of these the cheapest; None without any."""
    if not choices:
        return Widths({}, 0, 0.0)
    from ortools.sat.python import cp_model  # takes a second to import, and little else of the package needs it

    model = cp_model.CpModel()
    picks = {
        (number, choice.bits): model.new_bool_var(f"{number}_{choice.bits}")
        for number, layer in choices.items()
        for choice in layer
    }
    flat = [(picks[number, choice.bits], choice) for number, layer in choices.items() for choice in layer]
    for number, layer in choices.items():
        model.add_exactly_one(picks[number, choice.bits] for choice in layer)
    cost = sum(pick * choice.cost for pick, choice in flat)
    loss = sum(pick * round(choice.loss * _LOSS_UNITS) for pick, choice in flat)
    model.add(cost <= budget)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _SECONDS
    for goal in (loss, cost):
        model.minimize(goal)
        solver.solve(model)
        if solver.status_name() not in ("OPTIMAL", "FEASIBLE"):
            return None
        best = round(solver.objective_value)
        model.add(goal <= best)
    chosen = {
        number: choice
        for number, layer in choices.items()
        for choice in layer
        if solver.value(picks[number, choice.bits])
    }
    return Widths(
        {number: choice.bits for number, choice in chosen.items()},
        sum(choice.cost for choice in chosen.values()),
        sum(choice.loss for choice in chosen.values()),
    )
