"""A-normal form, called functions and constant outputs are normalised: the same graph, and TVM's results."""

import numpy as np
import pytest
import tvm
from bit_exact import assert_bit_exact
from relay_samples import Add, Conv, Pool, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.checks import checked
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.frontend.relay.sources import calls_in_order


def network():
    x = variable((1, 8, 8, 4))
    y = Conv(filters=4).expr(x)
    return module(relay.Tuple([Pool().expr(Add().expr(y, x)), y]), x)


def a_normal_form():
    return relay.transform.ToANormalForm()(network())


def composites():
    from byoc_hw.frontend.relay.table import pattern_table  # the calls of a module that was matched before

    return relay.transform.MergeComposite(list(pattern_table("hwlib")))(network())


def module_functions():
    """A function of the module that calls another, and one bound by `let` with a free variable; called twice."""
    mod, inner, outer = tvm.IRModule(), relay.GlobalVar("inner"), relay.GlobalVar("outer")
    a, b, c, x = (variable((4,), "int32", name) for name in "abcx")
    of = relay.TensorType((4,), "int32")
    mod[inner] = relay.Function([a], relay.add(a, a), of)
    f, free = relay.var("f"), relay.var("free", of)
    closure = relay.Function([c], relay.multiply(c, free), of)
    both = relay.subtract(relay.Call(f, [b]), relay.Call(inner, [relay.Call(f, [free])]))
    mod[outer] = relay.Function([b], relay.Let(free, relay.Call(inner, [b]), relay.Let(f, closure, both)), of)
    mod["main"] = relay.Function([x], relay.add(relay.Call(outer, [x]), relay.Call(outer, [relay.Call(inner, [x])])))
    return mod


def test_a_normal_form_is_the_graph_that_it_was_made_of():
    assert tvm.ir.structural_equal(checked(a_normal_form())["main"], checked(network())["main"])
    assert tvm.ir.structural_equal(checked(composites())["main"], checked(network())["main"])
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(a_normal_form()))
    assert {outcome.placement for outcome in report.outcomes} == {"accelerator"}


def test_functions_are_put_where_they_are_called():
    """x and y = 2x: each v becomes v * 2v - 2 * (2v * 2v)."""
    x = np.array([1, 2, -3, 40], np.int32)
    expected = sum(v * 2 * v - 2 * (2 * v * 2 * v) for v in (x, 2 * x))
    np.testing.assert_array_equal(byoc_hw.build(module_functions()).run(x).outputs[0], expected)


def test_a_long_chain_of_lets_needs_no_deep_stack():
    x = variable((4,), "int32")
    names = [relay.var(f"v{index}") for index in range(3000)]
    body = names[-1]
    for index in reversed(range(3000)):
        body = relay.Let(names[index], relay.add(names[index - 1] if index else x, const(1, "int32")), body)
    main = checked(tvm.IRModule.from_expr(relay.Function([x], body)))["main"]
    assert len(calls_in_order(main)) == 3000


# ---------------------------------------------------------------- constant outputs


def constants(dtype):
    limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    values = [limits.min, limits.max, 0, 1, *([np.inf, -np.inf, np.nan, -0.0, 1e-40] if dtype == "float32" else [])]
    return const(np.array(values, dtype), dtype)


@pytest.mark.parametrize("offloaded", [True, False])
def test_a_constant_output_is_written_by_the_host(offloaded):
    """Of every type; also one that TVM folds, one that comes twice, and between outputs that are computed."""
    x = variable((1, 8, 8, 4))
    given = [constants(dtype) for dtype in ("int8", "uint8", "int16", "int32", "int64", "float32", "float64")]
    folded = relay.add(const([1, 2], "int8"), const([3, 4], "int8"))
    flags = const(np.array([True, False]), "bool")
    body = relay.Tuple([*given[:3], Conv().expr(x), *given[3:], relay.nn.relu(x), folded, given[0], flags, x])
    mod = module(body, x)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod) if offloaded else mod)
    values = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 4)).astype(np.int8)
    outputs, expected = project.run(values, trace=True).outputs, Reference(mod).run([values])
    assert len(outputs) == len(expected) == 13
    for found, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert project.memory.flash["host"] >= sum(one.data.numpy().nbytes for one in given)


@pytest.mark.parametrize("offloaded", [True, False])
def test_a_model_of_constants_alone(offloaded):
    x = variable((2,))
    mod = module(relay.Tuple([const([1, 2, 3], "int8"), const(7, "int32")]), x)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod) if offloaded else mod)
    values, number = project.run(np.zeros(2, np.int8)).outputs
    np.testing.assert_array_equal(values, [1, 2, 3])
    assert number == 7


def test_a_network_in_a_normal_form_is_bit_exact():
    assert_bit_exact(a_normal_form())
