"""Buffers of host functions that share bytes: never two that one loop uses."""

import pytest
from bit_exact import assert_equals_tvm, input_arrays
from relay_samples import const, module, variable
from tvm import relay

import byoc_hw


def batch_matmul():
    """Its loop over outputs reads both inputs in a loop inside, then sums up in a workspace, round by round."""
    x, y = variable((3, 40), "float32"), variable((7, 40), "float32", "y")
    return module(relay.nn.batch_matmul(relay.expand_dims(x, 0), relay.expand_dims(y, 0)), x, y)


def roi_align():
    """So many workspaces in one loop that their sets of conflicts are counted fast or never."""
    x = variable((1, 4, 8, 8), "float32")
    return module(relay.vision.roi_align(x, const([[0, 0, 0, 4, 4]], "float32"), (3, 3), 1.0, 2), x)


@pytest.mark.parametrize("model", [batch_matmul, roi_align])
@pytest.mark.filterwarnings(r"ignore:visit_\w+ is deprecated")  # TVM's own, of roi_align
def test_a_workspace_does_not_overwrite_what_the_next_round_of_its_loop_reads(model):
    mod = model()
    assert_equals_tvm(byoc_hw.build(mod), mod, mod, list(input_arrays(mod)))
