"""The interface of a model: inputs whose names clash in Relay or in C, outputs in nested tuples."""

import numpy as np
import pytest
import tvm
from bit_exact import assert_bit_exact, input_arrays
from relay_samples import Add, Conv, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.run.files import read_model

SHAPE = (1, 2, 2, 4)

CLASHING = (
    "a.b",
    "a_b",
    "in:0",
    "in_0",
    "x",
    "x",
    "x_2",
    "",
    "",
    "_",
    "input_1",
    "output",
    "output0",
    "sid_1",
    "A",
    "a",
)
MACROS = ("UINT32_MAX", "SIZE_MAX", "INT8_MIN", "M_ARENA_SIZE", "M_LAYERS", "EOF", "I", "bool", "int8_t", "status")


def numbered(names, seed=0):
    """Each input through a layer of its own, or as it is: one that stands for another is seen."""
    inputs = [variable(SHAPE, name=name) for name in names]
    outputs = [
        Add(shape=SHAPE).expr(one, relay.const(np.full(SHAPE, index, "int8"))) if index % 2 else relay.nn.relu(one)
        for index, one in enumerate(inputs)
    ]
    return tvm.IRModule.from_expr(relay.Function(inputs, relay.Tuple(outputs)))


def compared(mod, project):
    """Runs a project and TVM on the same inputs."""
    (arrays,) = list(input_arrays(relay.transform.InferType()(mod), 1))[2:]
    for found, wanted in zip(project.run(arrays).outputs, Reference(mod).run(arrays), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("offloaded", [True, False])
def test_inputs_with_clashing_names_stay_apart(offloaded):
    mod = numbered(CLASHING + MACROS)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, None, "M") if offloaded else mod, mod_name="M")
    names = [interface.name for interface in read_model(project.directory).inputs]
    assert len(set(names)) == len(CLASHING + MACROS)
    assert names[:9] == ["a.b", "a_b", "in:0", "in_0", "x", "x_2", "x_2_2", "input_7", "input_8"]
    compared(mod, project)


def test_the_header_keeps_names_readable_and_tells_them_apart():
    project = byoc_hw.build(numbered(("a.b", "a_b", "SIZE_MAX", "image")))
    header = (project.directory / "include" / "default.h").read_text()
    assert [line.split("*")[-1] for line in header.splitlines() if line.startswith("  const int8_t *")] == [
        "a_b;",
        "a_b_2;",
        "SIZE_MAX_;",
        "image;",
    ]


def nested(x):
    y = Conv(2, 2, 4, 4).expr(x)
    z = relay.add(y, y)
    halves = relay.split(z, 2, axis=3)
    return {
        "repeated": relay.Tuple([y, relay.Tuple([y, z])]),
        "deep": relay.Tuple([relay.Tuple([y, relay.Tuple([relay.reshape(y, (16,)), x])]), relay.Tuple([z, x]), x]),
        "of an operator": relay.Tuple([halves.astuple(), halves[0], relay.Tuple([])]),
        "taken apart": relay.Tuple([relay.TupleGetItem(relay.Tuple([y, z]), 0), y]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("offloaded", [True, False])
@pytest.mark.parametrize("case", nested(variable(SHAPE)))
def test_outputs_in_nested_tuples_are_all_written(case, offloaded):
    x = variable(SHAPE)
    mod = tvm.IRModule.from_expr(relay.Function([x], nested(x)[case]))
    compared(mod, byoc_hw.build(byoc_hw.partition_for_hwlib(mod) if offloaded else mod))


def test_layers_of_one_name_stay_apart():
    """Two operators are called `a`, and a third has the name that the second one would get."""
    x = value = variable((1, 8, 8, 4))
    for name in ("a", "a", "a_2"):
        pool = relay.nn.max_pool2d(value, pool_size=(2, 2), layout="NHWC")
        span = tvm.ir.Span(tvm.ir.SourceName(name), 0, 0, 0, 0)
        value = relay.Call(pool.op, pool.args, pool.attrs, pool.type_args, span)
    project = assert_bit_exact(module(value, x))
    assert [layer["name"] for layer in project.layers] == ["a", "a_2", "a_2_2"]
