"""Plan a graph, run the plan, and compare every layer with the reference."""

import numpy as np
from plan_clock import run_time
from plan_machine import Machine
from plan_reference import run_graph

from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.region import plan_region


def check(graph, accelerator, seed=0, choices=None):
    """The plan: it gives the reference's values in every layer and output, in the cycles that were foreseen."""
    random = np.random.default_rng(seed)
    inputs = [random.integers(-128, 128, tensor.shape).astype(tensor.dtype) for tensor in graph.inputs]
    plan = plan_region(graph, accelerator, choices)
    machine = Machine(plan, accelerator, inputs)
    outputs = machine.run()
    expected = run_graph(graph, inputs)
    for layer in graph.layers:
        if layer.kind in ("reshape", "transpose"):
            continue
        values, made = machine.layer_outputs[layer.ofm]
        assert made.all(), f"{layer.name}: not all of its output is computed"
        np.testing.assert_array_equal(values, expected[layer.ofm].ravel(), err_msg=layer.name)
    for tensor, value in zip(graph.outputs, outputs, strict=True):
        np.testing.assert_array_equal(value, expected[tensor], err_msg=tensor.name)
    assert timeline(plan, accelerator).total == run_time(plan, accelerator)
    return plan
