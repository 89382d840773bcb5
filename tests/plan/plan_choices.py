"""The planner's own choices, and what any choices cost: shorter names for tests."""

from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.search import planner
from byoc_hw.plan.stages import lay_out as lay_out_mapped


def choose(graph, accelerator):
    return lay_out_region(graph, accelerator).choices


def estimated(graph, accelerator):
    """Those that the search by estimates finds, before others near them are tried."""
    return planner.best_layout(graph, accelerator).choices


def layer_by_layer(graph, accelerator):
    return planner.layer_by_layer(graph, accelerator).choices


def lay_out(graph, choices, accelerator):
    return lay_out_mapped(planner.map_choices(graph, accelerator, choices), choices)


def evaluate(graph, choices, accelerator):
    return lay_out(graph, choices, accelerator).cycles
