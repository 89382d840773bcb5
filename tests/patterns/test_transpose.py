"""transpose: which orders it takes, also as depth_to_space and space_to_depth; what it declines; what comes out."""

import pytest
from pattern_checks import TINY, compare, composites, declined, graphs, partitioned
from relay_samples import module, variable
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.graph import Transpose

COMPOSITE = "transpose"
ALONE = "transpose: matches, but a region of nothing but reshapes is not worth a call"

CHANGES = {
    "all": lambda x: relay.transpose(x),
    "height and width": lambda x: relay.transpose(x, (0, 2, 1, -1)),
    "depth to space": lambda x: relay.nn.depth_to_space(x, 2, "NHWC", "DCR"),
    "depth to space, by channel": lambda x: relay.nn.depth_to_space(x, 2, "NHWC", "CDR"),
    "depth to space, NCHW": lambda x: relay.nn.depth_to_space(x, 2, "NCHW", "DCR"),
    "depth to space, NCHW by channel": lambda x: relay.nn.depth_to_space(x, 2, "NCHW", "CDR"),
    "space to depth": lambda x: relay.nn.space_to_depth(x, 2, "NHWC"),
    "space to depth, NCHW": lambda x: relay.nn.space_to_depth(x, 2, "NCHW"),
}


@pytest.mark.parametrize("accelerator", [byoc_hw.REFERENCE, TINY], ids=["reference", "tiny"])
def test_takes_every_order_and_gives_tvms_results(accelerator):
    x = variable((1, 4, 6, 8))
    mod = module(relay.Tuple([change(x) for change in CHANGES.values()]), x)
    after = partitioned(mod, accelerator=accelerator)
    assert not byoc_hw.explain(after).host
    assert set(composites(after)) <= {COMPOSITE, "reshape"}
    layers = [layer for graph in graphs(after) for layer in graph.layers]
    assert sum(isinstance(layer, Transpose) for layer in layers) == len(CHANGES)
    compare(mod, byoc_hw.build(after), Reference(mod))


def test_declines_other_types():
    x = variable((1, 4, 6, 8), "float32")
    declined(module(relay.transpose(x), x), f"{COMPOSITE}: activation type is int8: got float32")
