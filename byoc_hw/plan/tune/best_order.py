"""The order of a region's layers in which its plan on one accelerator takes the fewest cycles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
from byoc_hw.garbage import seldom_collected
from byoc_hw.graph import Graph
from byoc_hw.graph_digest import graph_digest
from byoc_hw.plan.bound.prices import known_bound
from byoc_hw.plan.layer_orders import LayerOrder, graph_in_order, orders, own_order
from byoc_hw.plan.stages import Layout
from byoc_hw.plan.tune.fast_plans import fastest_of
from byoc_hw.plan.tune.nearby import NEAR
from byoc_hw.plan.tune.own_plan import known_layout
from byoc_hw.remembered import Remembered

_FEW = 12
"""The layers of a region whose plans take a second: other orders are tried where its own is not near the bound."""

_MANY = 64
"""The most layers of a region of which other orders are tried: each takes as long to plan as the first."""

_LONG = 4000
"""The most copies and jobs of its plan for that."""

_FAR = 1.25
"""How far from the bound the plan of a region with more layers than a few is for that."""

_REMEMBERED = 256
"""The most regions of which the order is remembered."""

_orders: Remembered[LayerOrder] = Remembered(_REMEMBERED)


@seldom_collected()
def in_best_order(graph: Graph, accelerator: Accelerator) -> Graph:
    """The region with its layers in the order, of a few, whose plan is the fastest, as `fastest_of` says; in its own
    where that plan is good enough, or a layer runs as a whole, as on a chip. Searched once for regions that are equal
    but for their names.

    Raises `PlanError` naming a layer that does not fit.
    """
    whole = any(map(accelerator.runs_whole, graph.layers))
    own, *others = (own_order(graph),) if whole or len(graph.layers) > _MANY else orders(graph)
    if not others:
        return graph
    key = graph_digest(graph), accelerator
    best = _orders.get(key)
    if best is not None:
        return graph if best == own else graph_in_order(graph, best)
    plan = known_layout(graph, accelerator)
    tried = [graph_in_order(graph, order) for order in others] if _is_worth_more(plan) else []
    found = fastest_of([*_plans(tried, accelerator), plan]).mapped.graph
    _orders.keep(key, tuple(map(graph.layers.index, found.layers)))
    return found


def _is_worth_more(plan: Layout) -> bool:
    """Whether other orders are tried than that of a plan."""
    few = len(plan.mapped.graph.layers) <= _FEW
    enough = (NEAR if few else _FAR) * known_bound(plan.mapped.graph, plan.mapped.accelerator)
    return plan.cycles > enough and len(plan.work.ops) <= _LONG


def _plans(graphs: list[Graph], accelerator: Accelerator) -> Iterator[Layout]:
    for graph in graphs:
        with suppress(PlanError):  # the region's own order has a plan
            yield known_layout(graph, accelerator)
