"""Operators in terms of slice, concatenate, transpose and reshape: TVM gives the same for both, bit for bit."""

import numpy as np
import pytest
import tvm
from relay_samples import const, module, variable
from tvm import relay

from byoc_hw.frontend.relay.compose import with_main
from byoc_hw.frontend.relay.golden import golden_executor
from byoc_hw.frontend.relay.rewrite.moves import plain_moves
from byoc_hw.frontend.relay.sources import calls_in_order, operator_name, source_names, with_source_names


def results(mod, inputs):
    """What TVM computes without any pass of ours."""
    executor = golden_executor(mod)
    executor.run(**{name: tvm.nd.array(value) for name, value in inputs.items()})
    return [executor.get_output(index).numpy() for index in range(executor.get_num_outputs())]


def qnn_concatenate(*parts):
    """The second and third input have another scale, or another zero point."""
    scales, zero_points = (
        [const(value, "float32") for value in (0.5, 0.31, 0.5)],
        [const(v, "int32") for v in (3, 3, -90)],
    )
    return relay.qnn.op.concatenate(
        relay.Tuple(parts), relay.Tuple(scales), relay.Tuple(zero_points), scales[0], zero_points[0], 3
    )


REWRITTEN = {
    "split": lambda x, y: relay.Tuple(list(relay.split(x, [1, 5], 3))),
    "split in equal parts": lambda x, y: relay.Tuple(list(relay.split(x, 2, -2))),
    "stack": lambda x, y: relay.stack((x, y), 1),
    "stack, last": lambda x, y: relay.stack((x, y), -1),
    "nn.depth_to_space": lambda x, y: relay.nn.depth_to_space(x, 2, "NHWC", "DCR"),
    "nn.depth_to_space by channel": lambda x, y: relay.nn.depth_to_space(x, 2, "NHWC", "CDR"),
    "nn.depth_to_space NCHW": lambda x, y: relay.nn.depth_to_space(x, 2, "NCHW", "DCR"),
    "nn.depth_to_space NCHW by channel": lambda x, y: relay.nn.depth_to_space(x, 2, "NCHW", "CDR"),
    "nn.space_to_depth": lambda x, y: relay.nn.space_to_depth(x, 2, "NHWC"),
    "nn.space_to_depth NCHW": lambda x, y: relay.nn.space_to_depth(x, 2, "NCHW"),
    "nn.upsampling": lambda x, y: relay.nn.upsampling(x, 2, 3, layout="NHWC"),
    "nn.upsampling by a fraction": lambda x, y: relay.nn.upsampling(x, 1.5, 1.25, layout="NCHW"),
    "nn.upsampling, bilinear": lambda x, y: relay.nn.upsampling(x, 2, 2, "NHWC", "bilinear", align_corners=True),
    "qnn.concatenate": lambda x, y: qnn_concatenate(x, y, x),
}


@pytest.fixture(scope="module")
def both():
    """All of them in one module, and that module rewritten: the results of both."""
    x, y = variable((1, 4, 6, 8)), variable((1, 4, 6, 8), name="y")
    made = [rewritten(x, y) for rewritten in REWRITTEN.values()]
    counts = [len(one.fields) if isinstance(one, relay.Tuple) else 1 for one in made]
    flat = [field for one in made for field in (one.fields if isinstance(one, relay.Tuple) else (one,))]
    mod = module(relay.Tuple(flat), x, y)
    mod = with_main(mod, with_source_names(mod["main"]))
    after = relay.transform.InferType()(plain_moves()(relay.transform.InferType()(mod)))
    random = np.random.default_rng(0)
    inputs = {name: random.integers(-128, 128, (1, 4, 6, 8)).astype(np.int8) for name in ("x", "y")}
    return after, counts, results(mod, inputs), results(after, inputs)


@pytest.mark.parametrize("number", range(len(REWRITTEN)), ids=REWRITTEN)
def test_tvm_gives_the_same(both, number):
    after, counts, expected, got = both
    first = sum(counts[:number])
    for one, other in zip(expected[first : first + counts[number]], got[first : first + counts[number]], strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
    operator = list(REWRITTEN)[number].split(" ")[0].strip(",")
    assert operator not in {operator_name(call) for call in calls_in_order(after["main"].body)}


def test_keeps_the_source_names(both):
    names = {name for call in calls_in_order(both[0]["main"].body) for name in source_names(call.span)}
    assert {"split_1", "stack_1", "nn.depth_to_space_1", "qnn.concatenate_1"} <= names


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_leaves_other_types_alone(dtype):
    x = variable((1, 4, 6, 8), dtype)
    mod = module(relay.Tuple([relay.split(x, 2, 3)[1], relay.nn.depth_to_space(x, 2, "NHWC")]), x)
    assert tvm.ir.structural_equal(plain_moves()(mod), mod)
