"""Packed rows in C: a residual network of narrow images gives TVM's bits, whole and in stripes, in fewer cycles; and so
does a layer in tiles."""

from dataclasses import replace

import pytest
from bit_exact import assert_equals_tvm, input_arrays
from relay_samples import Add, Conv, Quantized, module, variable
from sanitizers import SANITIZED

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.compiler import region_graphs
from byoc_hw.plan.region import lay_out_region

SPARE = {"activation_memory": 4096, "weight_memory": 4096, "dma_alignment": 4}
ONE, TWO, THREE, FOUR = (Quantized(0.05, zero_point) for zero_point in (5, -7, 3, 11))


def between(ifm, ofm):
    """The numbers of a convolution from one tensor to another."""
    return {
        "ifm_scale": ifm.scale,
        "ifm_zero_point": ifm.zero_point,
        "ofm_scale": ofm.scale,
        "ofm_zero_point": ofm.zero_point,
    }


def network():
    """conv, stride 2 -> conv -> depthwise, dilated -> + shortcut -> 1 x 1 -> conv of 3 columns"""
    x = variable((1, 14, 14, 8), name="x")
    wide, none = {"padding": (2, 2, 2, 2), "dilation": (2, 2)}, {"padding": (0, 0, 0, 0)}
    first = Conv(14, 14, 8, 16, strides=(2, 2), clip=(5, 90), **between(ONE, ONE)).expr(x)
    second = Conv(7, 7, 16, 16, **between(ONE, TWO)).expr(first)
    third = Conv(7, 7, 16, 16, depthwise=True, **wide, **between(TWO, THREE)).expr(second)
    added = Add((1, 7, 7, 16), lhs=THREE, rhs=ONE, out=TWO).expr(third, first)
    fourth = Conv(7, 7, 16, 12, (1, 1), **none, **between(TWO, FOUR)).expr(added)
    return module(Conv(7, 7, 12, 8, (1, 3), padding=(0, 1, 0, 1), **between(FOUR, ONE)).expr(fourth), x)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [{}, SPARE], ids=["whole", "in stripes"])
def test_a_network_of_narrow_images_is_packed_and_exact(numbers):
    mod, cycles = network(), {}
    for packed in (False, True):
        accelerator = replace(REFERENCE, label="NARROW", packed_rows=packed, **numbers)
        partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=accelerator)
        project = byoc_hw.build(partitioned)
        cycles[packed] = project.schedule.cycles
    assert_equals_tvm(project, partitioned, mod, list(input_arrays(mod, 1)), SANITIZED)
    assert cycles[True] < 0.85 * cycles[False]


@pytest.mark.slow
def test_a_layer_in_tiles_with_packed_rows_is_exact():
    """Local memory holds a few pixels of many channels."""
    x = variable((1, 13, 13, 64), name="x")
    mod = module(Conv(13, 13, 64, 32, padding=(1, 1, 1, 1), **between(ONE, TWO)).expr(x), x)
    accelerator = replace(REFERENCE, label="TINY", activation_memory=4096, array_columns=32, dma_width=4)
    partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=accelerator)
    (graph,) = region_graphs(partitioned).values()
    layout = lay_out_region(graph, accelerator)
    assert any(group.tiling is not None and group.tiling.packed for group in layout.choices.groups)
    project = byoc_hw.build(partitioned)
    assert project.schedule.cycles == layout.cycles
    assert_equals_tvm(project, partitioned, mod, list(input_arrays(mod, 1)), SANITIZED)
