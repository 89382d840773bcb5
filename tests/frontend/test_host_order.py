"""sort, argsort and topk on the host: what a function of ours takes, and that it has TVM's results to the last tie."""

import numpy as np
import pytest
from relay_samples import Add, module, variable
from riscv32_tools import needs_riscv32
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.reference import Reference

STRICT = f"{SANITIZED} -Wall -Wextra -Werror -Wconversion"
SHAPE = (3, 37, 4)
AS_TVM_HAS_THEM = {"int8": "int32", "uint8": "int32", "int32": "int32", "float32": "float32"}
"""TVM's own sort and argsort have no 8-bit elements: int32 has the same order."""


def every_form(x):
    """Along each axis, in both directions, all elements and some, values and places."""
    return relay.Tuple(
        [
            relay.sort(x, axis=1),
            relay.sort(x, axis=0, is_ascend=False),
            relay.argsort(x, axis=1),
            relay.argsort(x, axis=-1, is_ascend=False, dtype="float32"),
            *relay.topk(x, k=5, axis=1),
            *relay.topk(x, k=1, axis=-1, is_ascend=True, dtype="int64"),
            relay.topk(x, k=37, axis=1, ret_type="indices"),
            relay.topk(x, k=0, axis=0, ret_type="values"),
        ]
    )


def with_ties(dtype, seed=0):
    """Few different values, the ends of the type among them; both zeros among floats."""
    rng = np.random.default_rng(seed)
    if dtype == "float32":
        ends = [-np.inf, np.inf, -0.0, 0.0, np.finfo(np.float32).max, 1e-45, -1e-45, 2.5, -2.5]
    else:
        ends = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1, 7]
    return rng.choice(np.array(ends, dtype), SHAPE)


@pytest.mark.parametrize("dtype", AS_TVM_HAS_THEM)
def test_has_tvms_values_and_places(dtype):
    x, wide = variable(SHAPE, dtype), variable(SHAPE, AS_TVM_HAS_THEM[dtype])
    project, reference = byoc_hw.build(module(every_form(x), x)), Reference(module(every_form(wide), wide))
    inputs = [with_ties(dtype, seed) for seed in range(3)]
    results = project.run_batch([[one] for one in inputs], toolchain=byoc_hw.Toolchain(cflags=STRICT))
    for one, result in zip(inputs, results, strict=True):
        expected = reference.run([one.astype(wide.type_annotation.dtype)])
        assert [found.dtype for found in result.outputs][:2] == [dtype, dtype]
        for index, (found, want) in enumerate(zip(result.outputs, expected, strict=True)):
            np.testing.assert_array_equal(found.astype(want.dtype), want, err_msg=f"output {index}")
            if dtype == "float32":
                np.testing.assert_array_equal(np.signbit(found), np.signbit(want))  # the zeros


@needs_riscv32
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_is_the_same_on_riscv32(dtype):
    x = variable(SHAPE, dtype)
    project, given = byoc_hw.build(module(every_form(x), x)), with_ties(dtype)
    for one, other in zip(project.run(given).outputs, project.run(given, on="riscv32").outputs, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("numerics", ["relay", "tflite"])
def test_behind_an_offloaded_layer_it_is_an_operator_of_the_host(numerics):
    sample = Add(shape=(1, 6, 5, 7))
    inputs = sample.variables("")
    rows = relay.reshape(sample.expr(*inputs), (30, 7))
    mod = module(relay.Tuple([*relay.topk(rows, k=2), rows]), *inputs)
    partitioned = byoc_hw.partition_for_hwlib(mod, numerics=numerics)
    (outcome,) = (one for one in byoc_hw.explain(partitioned).outcomes if "topk" in one.relay)
    assert (outcome.placement, outcome.uncovered, outcome.tvm_arithmetic) == ("host", (), ())
    assert [rejection.composite for rejection in outcome.rejections] == ["topk"]
    project = byoc_hw.build(partitioned)
    given = [np.random.default_rng(0).integers(-9, 9, (1, 6, 5, 7)).astype(np.int8) for _ in range(2)]
    values, places, elements = project.run(given).outputs
    np.testing.assert_array_equal(places, np.argsort(-elements.astype(int), axis=1, kind="stable")[:, :2])
    np.testing.assert_array_equal(values, np.take_along_axis(elements, places, axis=1))
    source = (project.directory / "src" / "default_kernels.c").read_text()
    assert "host_order(" in source
    assert "suppress" not in source
    assert "scaled(" not in source


def declined(elements, **topk):
    x = variable((4, 9), elements)
    return module(relay.topk(x, **{"k": 3, "ret_type": "both", **topk}).astuple(), x)


DECLINED = {
    "int64": (lambda: declined("int64"), "elements are one of int8, uint8, int32, float32: got int64"),
    "float64": (lambda: declined("float64"), "elements are one of int8, uint8, int32, float32: got float64"),
    "places": (lambda: declined("int8", dtype="int8"), "places are one of int32, int64, float32: got int8"),
    "more": (lambda: declined("int8", k=10), "k is at most the 9 elements of axis 1: got 10"),
}


@pytest.mark.parametrize(("mod", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(mod, reason):
    with pytest.raises(Unsupported) as error:
        byoc_hw.build(mod())
    assert str(error.value) == f"topk (topk_1) on the host: {reason}"


@pytest.mark.parametrize(("rank", "axis"), [(2, 2), (0, -1)])
def test_declines_an_axis_that_is_not_there(rank, axis):
    x = variable((3,) * rank)
    with pytest.raises(Unsupported) as error:
        byoc_hw.build(module(relay.argsort(x, axis=axis), x))
    rule = f"axis is one of the {rank} of the elements"
    assert str(error.value) == f"argsort (argsort_1) on the host: {rule}: got {axis}"
