"""Plan a graph, run the plan, and compare every layer with the reference."""

import numpy as np
from plan_machine import Machine
from plan_reference import run_graph

from byoc_hw.plan import plan_region


def check(graph, accelerator, seed=0):
    """The plan, after it has given the reference's values in every layer and output."""
    random = np.random.default_rng(seed)
    inputs = [random.integers(-128, 128, tensor.shape).astype(tensor.dtype) for tensor in graph.inputs]
    plan = plan_region(graph, accelerator)
    machine = Machine(plan, accelerator, inputs)
    outputs = machine.run()
    expected = run_graph(graph, inputs)
    for tensor, value in machine.layer_outputs.items():
        np.testing.assert_array_equal(value, expected[tensor], err_msg=tensor.name)
    for tensor, value in zip(graph.outputs, outputs, strict=True):
        np.testing.assert_array_equal(value, expected[tensor], err_msg=tensor.name)
    return plan
