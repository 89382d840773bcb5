"""Plan a graph, run the plan, and compare every layer with the reference."""

from dataclasses import astuple, replace

import numpy as np
import plan_scales
from plan_clock import run_time
from plan_machine import Machine
from plan_reference import run_graph

from byoc_hw.graph import Add, MatMul, Moving, Mul, Pool2d
from byoc_hw.params import requantize
from byoc_hw.plan.array.cost import copy_cycles
from byoc_hw.plan.bound.alone import ROUNDING, copied_in_full, least_copying, least_of_both
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.bound.reloads import ENGINE_SHARES
from byoc_hw.plan.bound.spills import spills
from byoc_hw.plan.bound.ways import least_alone, weight_bytes
from byoc_hw.plan.order.timeline import timeline
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.stages import written
from byoc_hw.plan.steps import Copy
from byoc_hw.soc import Soc


def check(graph, accelerator, seed=0, choices=None):
    """The plan: it gives the reference's values in every layer and output, in the cycles that were foreseen."""
    return check_layout(lay_out_region(graph, accelerator, choices), graph, accelerator, seed)


def check_layout(layout, graph, accelerator, seed=0):
    """The same for a plan that is laid out."""
    random = np.random.default_rng(seed)
    inputs = [random.integers(-128, 128, tensor.shape).astype(tensor.dtype) for tensor in graph.inputs]
    plan = written(layout)
    machine = Machine(plan, accelerator, inputs)
    outputs = machine.run()
    expected = run_graph(graph, inputs)
    for layer in graph.layers:
        check_descriptor(layer)
        if isinstance(layer, Moving):
            continue
        values, made = machine.layer_outputs[layer.ofm]
        assert made.all(), f"{layer.name}: not all of its output is computed"
        np.testing.assert_array_equal(values, expected[layer.ofm].ravel(), err_msg=layer.name)
    for tensor, value in zip(graph.outputs, outputs, strict=True):
        np.testing.assert_array_equal(value, expected[tensor], err_msg=tensor.name)
    assert layout.cycles == timeline(plan, accelerator).total == run_time(plan, accelerator)
    assert layout.cycles >= cycles_bound(graph, accelerator)
    assert of_dma(plan, accelerator) >= least_of_dma(graph, accelerator)
    check_both_engines(layout, accelerator)
    return plan


def check_both_engines(layout, accelerator):
    """Any share of the array's cycles and the rest of the DMA's are no less than a plan has at least."""
    graph, chip = layout.mapped.graph, Soc((replace(accelerator, name="alone"),))
    jobs = sum(op.cycles for op in layout.work.ops if op.is_job)
    copies = sum(op.cycles for op in layout.work.ops) - jobs
    least = least_of_both(graph, chip, [least_alone([layer], accelerator) for layer in graph.layers])
    assert (ENGINE_SHARES * jobs + (1 - ENGINE_SHARES) * copies >= least * (1 - ROUNDING)).all()


def of_dma(plan, accelerator):
    """Cycles of all copies of a plan."""
    return sum(copy_cycles(one.nbytes, one.rows, accelerator) for one in plan.steps if isinstance(one, Copy))


def least_of_dma(graph, accelerator):
    """Cycles of copies that no plan goes below."""
    chip = Soc((replace(accelerator, name="alone"),))
    again = least_of_both(graph, chip, [0.0] * len(graph.layers))[0]
    inputs, outputs = copied_in_full(graph)
    sizes = [tensor.nbytes for tensor in {*inputs, *outputs}]
    sizes += [size for some in spills(graph, chip) for size in (some.loaded, some.stored)]
    once = least_copying(sum(map(weight_bytes, graph.layers)), accelerator.weight_memory, accelerator)
    once += sum(least_copying(size, accelerator.activation_memory, accelerator) for size in sizes)
    return max(once, again) * (1 - ROUNDING)


def check_descriptor(layer):
    """The compiler's scales and zero points, which are in no plan, are those that the machine computed with."""
    if isinstance(layer, Add):
        found = *requantize.add_scales(layer), requantize.add_sum_scale(layer)
        assert tuple(map(astuple, found)) == plan_scales.add_scales(layer), layer.name
    if isinstance(layer, Mul):
        assert astuple(requantize.mul_scale(layer)) == plan_scales.mul_scale(layer), layer.name
    if isinstance(layer, MatMul):
        assert astuple(requantize.matmul_scale(layer)) == plan_scales.matmul_scale(layer), layer.name
    if isinstance(layer, Pool2d):
        offset = requantize.pool_offset(layer) if layer.scales_sum else None
        found = astuple(requantize.pool_scale(layer)), *requantize.pool_zero_points(layer), offset
        assert found == plan_scales.pool_scale(layer), layer.name
    for tensor in (*layer.inputs, layer.ofm):
        if tensor.quantization is not None or not isinstance(layer, Moving):
            assert requantize.zero_point(layer, tensor) == plan_scales.zero_point(tensor), tensor.name
