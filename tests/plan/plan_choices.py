"""The planner's own choices, and what any choices cost: shorter names for tests."""

from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.search import planner
from byoc_hw.plan.stages import lay_out as lay_out_mapped


def choose(graph, accelerator):
    return planner.best_layout(graph, accelerator).choices


def layer_by_layer(graph, accelerator):
    return planner.layer_by_layer(graph, accelerator).choices


def lay_out(graph, choices, accelerator):
    return lay_out_mapped(map_graph(graph, accelerator, choices.swapped, choices.copies_transpose), choices)


def evaluate(graph, choices, accelerator):
    return lay_out(graph, choices, accelerator).cycles
