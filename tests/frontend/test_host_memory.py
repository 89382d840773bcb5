"""Buffers of host functions that share bytes: never two that one loop uses."""

from types import SimpleNamespace

import pytest
from bit_exact import assert_equals_tvm, input_arrays
from relay_samples import const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.errors import PlanError
from byoc_hw.frontend.relay.host_memory import check_apart
from byoc_hw.program import Buffer, HostCall, Program


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


def info(name, nbytes, *conflicts):
    return SimpleNamespace(
        name_hint=name, size_bytes=nbytes, conflicts=[SimpleNamespace(name_hint=n) for n in conflicts]
    )


def check(space_at, *conflicts):
    """Two means in a chain, and a rounding with one function before each: t is made and read between the means."""
    x, first, t, then, second, last = (Buffer(name, 32) for name in ("x", "first", "t", "then", "second", "last"))
    calls = [
        ("mean", x, first),
        ("round", first, t),
        ("copy", t, then),
        ("mean", then, second),
        ("round", second, last),
    ]
    program = Program("net", (), (), tuple(HostCall(symbol, (one, other)) for symbol, one, other in calls))
    offsets = {"first": 96, "t": 32, "then": 64, "second": 128, "last": 160, "sum": space_at}
    infos = [info(name, 32, *(conflicts if name == "sum" else ())) for name in offsets]
    check_apart(program, infos, offsets, {"mean": [("sum", 32)], "round": [], "copy": []})


def test_a_workspace_may_lie_where_no_tensor_lives_while_its_functions_run():
    """TVM says of t that it lives until the second rounding, as both have one function."""
    check(32, "t", "then", "second")
    check(0, "t", "then", "second")


@pytest.mark.parametrize(("space_at", "beside"), [(64, "then"), (127, "second"), (159, "second"), (96, "first")])
def test_a_workspace_on_bytes_of_a_tensor_that_its_function_touches_is_refused(space_at, beside):
    with pytest.raises(PlanError, match=f"sum and {beside} are alive at once: they share bytes"):
        check(space_at, "t", beside)
