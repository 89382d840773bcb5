"""The order of a region's layers in which its plan on one accelerator takes the fewest cycles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from byoc_hw.accelerator import Accelerator
from byoc_hw.errors import PlanError
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

_FAR = 1.15
"""How far from the bound the plan of a region with more layers than a few is for that."""

_REMEMBERED = 256
"""The most regions of which the order is remembered."""

_orders: Remembered[LayerOrder] = Remembered(_REMEMBERED)


def in_best_order(graph: Graph, accelerator: Accelerator) -> Graph:
    """The region with its layers in the order, of a few, whose plan is the fastest, as `fastest_of` says; in its own
    where that plan is good enough. Searched once for regions that are equal but for their names.

    Raises `PlanError` naming a layer that does not fit.
    """
    own, *others = orders(graph) if len(graph.layers) <= _MANY else (own_order(graph),)
    if not others:
        return graph
    key = graph_digest(graph), accelerator
    best = _orders.get(key) or _orders.keep(key, _best(graph, accelerator, own, others))
    return graph if best == own else graph_in_order(graph, best)


def _best(graph: Graph, accelerator: Accelerator, own: LayerOrder, others: list[LayerOrder]) -> LayerOrder:
    plan = known_layout(graph, accelerator)
    if plan.cycles <= (NEAR if len(own) <= _FEW else _FAR) * known_bound(graph, accelerator):
        return own
    plans = [*_plans(graph, accelerator, others), (own, plan)]
    best = fastest_of([layout for _, layout in plans])
    return next(order for order, layout in plans if layout is best)


def _plans(graph: Graph, accelerator: Accelerator, tried: list[LayerOrder]) -> Iterator[tuple[LayerOrder, Layout]]:
    for order in tried:
        with suppress(PlanError):  # the region's own order has a plan
            yield order, known_layout(graph_in_order(graph, order), accelerator)
