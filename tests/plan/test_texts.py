"""Every stage of planning as text, beside golden files: that is how a change of the planner is reviewed.

`BYOC_HW_UPDATE_GOLDEN=1 pytest tests/plan/test_texts.py` writes the files anew; read the difference before it is
committed.
"""

import os
from pathlib import Path

import pytest
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.graph import Graph
from byoc_hw.plan.region import lay_out_region
from byoc_hw.plan.stages import STAGES

GOLDEN = Path(__file__).parent / "golden"


def residual():
    """Everything stays in local memory; the weights of the second convolution come in blocks."""
    samples = Samples()
    ifm = samples.tensor((1, 8, 8, 16))
    first = samples.conv2d(ifm, 16, padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 16, padding=(1, 1, 1, 1), bits=4)
    total = samples.add(second.ofm, ifm)
    return graph_of([ifm], [first, second, total], [total.ofm]), accelerator(8192, 2048)


def striped():
    """Too large for local memory: stripes through several layers."""
    samples = Samples()
    ifm = samples.tensor((1, 16, 16, 16))
    first = samples.depthwise(ifm, padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 24, kernel=(1, 1))
    pooled = samples.pool(second.ofm, mode="max")
    return graph_of([ifm], [first, second, pooled], [pooled.ofm]), accelerator(8000, 1024)


def turned():
    """NCHW at the border, where the copies of the input transpose; and a change of shape, which costs nothing."""
    samples = Samples()
    ifm = samples.tensor((1, 8, 64, 4))
    before = samples.transpose(ifm, (0, 2, 3, 1))
    layer = samples.conv2d(before.ofm, 16, padding=(1, 1, 1, 1))
    flat = samples.reshape(layer.ofm, (1, 64 * 4 * 16))
    dense = samples.dense(flat.ofm, 10)
    return graph_of([ifm], [before, layer, flat, dense], [dense.ofm]), accelerator()


def tiled():
    """One layer that fits no other way: cut along every axis, with partial sums."""
    samples = Samples()
    ifm = samples.tensor((1, 4, 5, 32))
    layer = samples.conv2d(ifm, 16, strides=(2, 2))
    return graph_of([ifm], [layer], [layer.ofm]), accelerator(500, 3000)


REGIONS = {"residual": residual, "striped": striped, "turned": turned, "tiled": tiled}


@pytest.mark.parametrize("region", REGIONS)
def test_the_stages_read_as_the_golden_file(region):
    layout = lay_out_region(*REGIONS[region]())
    text = "".join(f"# {stage}\n\n{show(layout)}\n\n" for stage, show in STAGES.items())
    golden = GOLDEN / f"{region}.txt"
    if os.environ.get("BYOC_HW_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text(), f"{golden.name} differs: BYOC_HW_UPDATE_GOLDEN=1 writes it anew"


def test_a_graph_prints_as_one_line_a_layer_with_values_by_name():
    samples = Samples()
    ifm, constant = samples.tensor((1, 4, 4, 8)), samples.constant((1, 4, 4, 8))
    conv = samples.conv2d(ifm, 8, kernel=(3, 3), strides=(2, 1), padding=(1, 1, 1, 1), bits=4)
    add = samples.add(ifm, constant)
    graph = Graph("region", (ifm,), (conv.ofm, add.ofm), (conv, add))
    assert str(graph).splitlines() == [
        "graph region(%in0: 1x4x4x8) -> (%0, %1)",
        f"%0 = conv2d(%in0) kernel 3x3, strides 2x1, padding 1x1x1x1, weights of 4 bits -> 1x2x4x8  # {conv.name}",
        f"%1 = add(%in0, %c0) -> 1x4x4x8  # {add.name}",
    ]
    assert repr(graph) == "<Graph region: 2 layers>"
