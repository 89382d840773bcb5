"""Models that TVM cannot do with: each ends as an error of byoc_hw with the operator, the rule and the value."""

import subprocess
import sys

import numpy as np
import pytest
import tvm
from relay_samples import Add, Conv, Dense, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.errors import ByocHwError, InvalidInput, PlanError, Unsupported
from byoc_hw.frontend.relay import checks
from byoc_hw.frontend.relay.checks import LONGEST_CHAIN
from byoc_hw.frontend.relay.serial import serial


def of(body, *inputs):
    """As `module`, without type inference: some of these have no types."""
    return tvm.IRModule.from_expr(relay.Function(list(inputs), body))


def floats(shape=(2,), name="x"):
    return variable(shape, "float32", name)


def unary(operator, shape=(4,), dtype="float32"):
    x = variable(shape, dtype)
    return of(operator(x), x)


def of_two(main, other):
    mod = tvm.IRModule()
    mod[relay.GlobalVar("f")] = other
    mod["main"] = main(mod.get_global_var("f"))
    return mod


# ---------------------------------------------------------------- what is no dataflow graph of operators


def endless_closure():
    x, y, f = floats(), floats(name="y"), relay.var("f")
    return of(relay.Let(f, relay.Function([y], relay.Call(f, [relay.add(x, y)])), relay.Call(f, [x])), x)


def function_as_a_value():
    x, y = floats(), floats(name="y")
    return of(relay.Tuple([x, relay.Function([y], y)]), x)


def global_function():
    f = relay.GlobalVar("f")
    x, y, result = floats(), floats(name="y"), relay.TensorType((2,), "float32")
    mod = tvm.IRModule()
    inner = relay.nn.relu(x)
    mod[f] = relay.Function([x], relay.Call(f, [inner]), result)
    mod["main"] = relay.Function([y], relay.Call(f, [y]), result)
    return mod


def doubling(count=20):
    """Functions each of which calls the one before twice."""
    mod, x, y = tvm.IRModule(), floats(), floats(name="y")
    result = relay.TensorType((2,), "float32")
    before = relay.GlobalVar("f0")
    mod[before] = relay.Function([x], relay.nn.relu(x), result)
    for number in range(1, count):
        x, f = floats(), relay.GlobalVar(f"f{number}")
        mod[f] = relay.Function([x], relay.add(relay.Call(before, [x]), relay.Call(before, [x])), result)
        before = f
    mod["main"] = relay.Function([y], relay.Call(before, [y]), result)
    return mod


def branch():
    condition, x = variable((), "bool", "condition"), floats()
    return of(relay.If(condition, relay.nn.relu(x), x), condition, x)


def reference():
    return unary(lambda x: relay.RefRead(relay.RefCreate(x)))


def match_of_a_type():
    mod, box = tvm.IRModule(), relay.GlobalTypeVar("Box")
    boxed = relay.Constructor("boxed", [relay.TensorType((2,), "float32")], box)
    mod[box] = relay.TypeData(box, [], [boxed])
    x, inside = floats(), relay.var("inside")
    clause = relay.Clause(relay.PatternConstructor(boxed, [relay.PatternVar(inside)]), inside)
    mod["main"] = relay.Function([x], relay.Match(boxed(x), [clause]))
    return mod


NO_GRAPH = {
    "closure that calls itself": (endless_closure, "calls of operators: a Var is called"),
    "function as a value": (function_as_a_value, "got Function"),
    "recursion": (global_function, "a model is one function: main calls f"),
    "functions without end": (doubling, "functions are called at most 10000 times: got more"),
    "if": (branch, "got If"),
    "reference": (reference, "got RefRead"),
    "match": (match_of_a_type, "got Match"),
}


@pytest.mark.parametrize(("make", "message"), NO_GRAPH.values(), ids=NO_GRAPH)
def test_refuses_what_is_no_graph_of_operators(make, message):
    mod = make()
    for function in (byoc_hw.partition_for_hwlib, byoc_hw.build):
        with pytest.raises(Unsupported, match=message):
            function(mod)


# ---------------------------------------------------------------- types that do not agree, and C cannot hold


def ill_typed():
    x, y = floats(), floats((3,), "y")
    return of(relay.add(x, y), x, y)


def dividing_by_zero():
    return unary(lambda x: relay.divide(x, const([1, 0, 1, 1], "int32")), dtype="int32")


def dividing_constants(dividend, divisor):
    quotient = relay.divide(const([dividend] * 2, "int32"), relay.add(const([divisor] * 2, "int32"), const(0, "int32")))
    return unary(lambda x: relay.add(x, quotient), (2,), "int32")


def normalized(groups):
    scale, shift = (const([1.0] * 4, "float32") for _ in range(2))
    return unary(lambda x: relay.nn.group_norm(x, scale, shift, groups), (1, 4, 6, 6), "float32")


def untyped():
    x = relay.var("x")
    return of(relay.nn.relu(x), x)


ILL_TYPED = {
    "shapes": (ill_typed, "add_1: types of the model agree: Incompatible broadcast"),
    "no type": (untyped, "input x has a type: it has none"),
    "axis": (lambda: of_axis(), "qnn.requantize: types of the model agree: axis 9 is out of range"),
    "stride of zero": (lambda: unary(lambda x: relay.nn.max_pool2d(x, strides=(0, 0)), (1, 1, 4, 4)), "Divide by zero"),
    "softmax of a scalar": (lambda: unary(relay.nn.softmax, ()), "nn.softmax_1: types of the model agree: Wrong axis"),
    "no groups": (lambda: normalized(0), r"nn.group_norm \(nn.group_norm_1\): num_groups is at least 1: got 0"),
    # TVM folds constants: these two would end the process.
    "division by a constant 0": (
        dividing_by_zero,
        r"divide \(divide_1\): a constant divisor of integers is not 0: got 0",
    ),
    "constants divided by 0": (lambda: dividing_constants(1, 0), "a constant divisor of integers is not 0: got 0"),
    "quotient beyond its type": (lambda: dividing_constants(-(2**31), -1), "is an int32: got -2147483648 / -1"),
}


@pytest.mark.parametrize(("make", "message"), ILL_TYPED.values(), ids=ILL_TYPED)
def test_refuses_operators_that_have_no_result(make, message):
    mod = make()
    for function in (byoc_hw.partition_for_hwlib, byoc_hw.build):
        with pytest.raises(InvalidInput, match=message):
            function(mod)


def of_axis():
    sample = Conv(requantize_axis=9)
    inputs = sample.variables("")
    return of(sample.expr(*inputs), *inputs)


def test_nothing_of_it_reaches_the_terminal(capfd):
    with pytest.raises(InvalidInput):
        byoc_hw.build(ill_typed())
    assert capfd.readouterr() == ("", "")


def test_tvms_own_renderer_of_diagnostics_stays(capfd):
    with pytest.raises(InvalidInput):
        byoc_hw.build(ill_typed())
    with pytest.raises(tvm.error.DiagnosticError):
        relay.transform.InferType()(ill_typed())
    assert "Incompatible broadcast type" in "".join(capfd.readouterr())


def dynamic(shape, operator=relay.nn.relu, dtype="float32"):
    x = relay.var("x", relay.TensorType(shape, dtype))
    return of(operator(x), x)


def of_tuple():
    pair = relay.var("pair", relay.TupleType([relay.TensorType((2,), "float32")] * 2))
    return of(relay.add(relay.TupleGetItem(pair, 0), relay.TupleGetItem(pair, 1)), pair)


def of_function():
    kind = relay.TensorType((2,), "float32")
    f, x = relay.var("f", relay.FuncType([kind], kind)), floats()
    return of(relay.Tuple([f, relay.nn.relu(x)]), f, x)


def twice(x):
    return relay.add(x, x)


NO_C = {
    "dynamic input": (lambda: dynamic((relay.Any(), 4)), r"input x has a static shape: got \(\?, 4\)"),
    "dynamic inside": (
        lambda: unary(relay.argwhere),
        r"argwhere \(argwhere_1\): its result has a static shape: got \(\?",
    ),
    "tuple": (of_tuple, "input pair is a tensor: got"),
    "function": (of_function, "input f is a tensor: got"),
    "dimension of 0": (lambda: unary(relay.nn.relu, (1, 0, 3)), r"input x: dimensions are at least 1: got \(1, 0, 3\)"),
    "empty slice": (
        lambda: unary(lambda x: relay.strided_slice(x, [2], [2])),
        r"dimensions are at least 1: got \(0,\)",
    ),
    "negative": (lambda: unary(relay.nn.relu, (-3,)), r"input x: dimensions are at least 1: got \(-3,\)"),
    "too large": (
        lambda: unary(relay.nn.relu, (2**20, 2**20)),
        "input x has at most 2147483647 bytes: got 4398046511104",
    ),
    **{
        dtype: (lambda dtype=dtype: unary(twice, dtype=dtype), f"input x: dtype is one of int8, .*: got {dtype}")
        for dtype in ("int4", "float16", "bfloat16", "int1", "int128", "handle", "float32x4")
    },
    "int4 inside": (
        lambda: unary(lambda x: relay.cast(relay.cast(x, "int4"), "int8"), dtype="int8"),
        r"cast \(cast_1\): its result: dtype is one of int8, .*: got int4",
    ),
}


@pytest.mark.parametrize(("make", "message"), NO_C.values(), ids=NO_C)
def test_build_refuses_values_that_c_cannot_hold(make, message):
    mod = make()
    for given in (mod, byoc_hw.partition_for_hwlib(mod)):
        with pytest.raises(InvalidInput, match=message):
            byoc_hw.build(given)


def test_refuses_an_empty_tuple_of_outputs():
    with pytest.raises(InvalidInput, match="a model has at least one output: main returns an empty tuple"):
        byoc_hw.build(of(relay.Tuple([]), floats()))


def of_a_pair():
    x, y = floats(), floats(name="y")
    return of(relay.collapse_sum_like(relay.Tuple([x, y]), const([0.0], "float32")), x, y)


def annotated():
    x = floats()
    attributes = tvm.ir.make_node("relay.attrs.CompilerAttrs", compiler="other")
    return of(relay.Call(relay.op.get("annotation.compiler_end"), [relay.nn.relu(x)], attributes), x)


def without_attributes():
    x = variable((1, 6, 6, 4))
    return of(relay.Call(relay.op.get("vision.multibox_prior"), [x]), x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (without_attributes, r"vision.multibox_prior has attributes, relay.attrs.MultiBoxPriorAttrs: it has none"),
        (of_a_pair, r"collapse_sum_like \(collapse_sum_like_1\): operand 0 is a tensor: got a tuple"),
        (annotated, r"a model is not annotated for another compiler: got annotation.compiler_end"),
    ],
)
def test_refuses_calls_that_would_end_the_process(make, message):
    for compiled in (byoc_hw.partition_for_hwlib, byoc_hw.build):
        with pytest.raises((InvalidInput, Unsupported), match=message):
            compiled(make())


def test_declines_dimensions_of_0():
    report = str(byoc_hw.explain(byoc_hw.partition_for_hwlib(Add(shape=(1, 0)).module())))
    assert "qnn_add: dimensions of ifm are at least 1: got (1, 0)" in report


# ---------------------------------------------------------------- what TVM's compiler does not know


def adding(scale):
    x = variable((1, 4))
    numbers = [const(0.1, "float32"), const(0, "int32")] * 2 + [scale, const(0, "int32")]
    return x, relay.qnn.op.add(x, x, *numbers)


def scale_as_input():
    scale = variable((), "float32", "scale")
    x, y = adding(scale)
    return of(y, x, scale)


UNKNOWN = {
    "a number that a type does not have": (
        lambda: unary(lambda x: relay.clip(x, 0, 9), dtype="bool"),
        r"clip \(clip_1\): TVM cannot compile it: .*value 9 exceeds maximum of bool",
    ),
    "scale that is an input": (
        scale_as_input,
        r"qnn.add \(qnn.add_1\): TVM cannot compile it: Expr must be a constant",
    ),
    "empty window": (
        lambda: unary(lambda x: relay.nn.max_pool2d(x, pool_size=(0, 0), layout="NHWC"), (1, 4, 4, 1)),
        r"nn.max_pool2d \(nn.max_pool2d_1\): TVM cannot compile it: Divide by zero",
    ),
}


@pytest.mark.parametrize(("make", "message"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_build_that_fails_inside_tvm_names_the_operator(make, message):
    with pytest.raises(Unsupported, match=message) as raised:
        byoc_hw.build(byoc_hw.partition_for_hwlib(make()))
    assert isinstance(raised.value.__cause__, tvm.TVMError)


@pytest.mark.parametrize("own", [PlanError("no room"), InvalidInput("no name")])
def test_own_errors_from_inside_tvm_come_out_as_themselves(own):
    @relay.transform.function_pass(opt_level=0)
    def failing(function, mod, context):
        raise own

    @serial
    def run():
        failing(Dense().module())

    with pytest.raises(type(own)) as raised:
        run()
    assert str(raised.value) == str(own)


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError("too deep"), AssertionError()])
def test_any_other_error_is_one_of_ours_with_its_cause(error):
    @serial
    def run():
        raise error

    with pytest.raises(ByocHwError, match=type(error).__name__) as raised:
        run()
    assert raised.value.__cause__ is error


# ---------------------------------------------------------------- what works


def scalars():
    x = variable((), "float32")
    return of(relay.sum(relay.add(x, const([1.0, 2.0], "float32"))), x)


WORKS = {
    "scalars": scalars,
    "no operators": lambda: unary(lambda x: x),
    "unused functions": lambda: of_two(
        lambda f: relay.Function([x := floats()], relay.nn.relu(x)), relay.Function([y := floats(name="y")], y)
    ),
}


@pytest.mark.parametrize("make", WORKS.values(), ids=WORKS)
def test_builds_unusual_models(make):
    byoc_hw.build(byoc_hw.partition_for_hwlib(make()))


# ---------------------------------------------------------------- deep models


def chain(length):
    x = floats()
    y = x
    for _ in range(length):
        y = relay.nn.relu(y)
    return of(y, x)


def test_a_chain_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(checks, "LONGEST_CHAIN", 50)
    byoc_hw.partition_for_hwlib(chain(49))  # the input is one more
    for function in (byoc_hw.partition_for_hwlib, byoc_hw.build):
        with pytest.raises(Unsupported, match="at most 50 operators depend on one another in a chain: got 51"):
            function(chain(50))


@pytest.mark.slow
def test_the_longest_chain_leaves_stack_to_spare():
    """An eighth of it in an eighth of the usual stack of 8 MiB, and of that not even all."""
    script = f"""
import resource, sys, threading; sys.path[:0] = {sys.path!r}
threading.stack_size(768 << 10)
import byoc_hw
from test_failures import chain
mod = chain({LONGEST_CHAIN // 8 - 2})
thread = threading.Thread(target=lambda: print(byoc_hw.build(byoc_hw.partition_for_hwlib(mod)).mod_name))
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "default\n"


# ---------------------------------------------------------------- weights by name

WEIGHTS = np.zeros((10, 24), np.int8)

PARAMS = {
    "unknown name": ({"v": WEIGHTS}, "params are of inputs of the model, x, w: got 'v'"),
    "shape": ({"w": WEIGHTS.T}, r"params: w: shape is \(10, 24\): got \(24, 10\)"),
    "rank": ({"w": WEIGHTS[0]}, r"params: w: shape is \(10, 24\): got \(24,\)"),
    "type": ({"w": WEIGHTS.astype("float32")}, "params: w: dtype is int8: got float32"),
    "objects": ({"w": np.full((10, 24), None)}, "params: w: dtype is int8: got object"),
    "no array": ({"w": [1, 2]}, r"params: w is an array: got \[1, 2\]"),
    "nothing": ({"w": None}, "params: w is an array: got None"),
    "no mapping": ([WEIGHTS], "params is a mapping of names to arrays: got a list"),
}


@pytest.mark.parametrize(("params", "message"), PARAMS.values(), ids=PARAMS)
@pytest.mark.parametrize("function", [byoc_hw.partition_for_hwlib, byoc_hw.build])
def test_refuses_params_that_are_no_weights(function, params, message):
    with pytest.raises(InvalidInput, match=message):
        function(Dense(constant_weights=False).module(), params)


def test_weights_that_are_bound_already_may_be_given_again():
    params = {"w": WEIGHTS}
    mod = byoc_hw.partition_for_hwlib(Dense(constant_weights=False).module(), params)
    assert len(byoc_hw.build(mod, params).report.offloaded) == 3


def test_refuses_params_of_an_input_that_a_region_reads():
    mod = byoc_hw.partition_for_hwlib(Add((1, 2, 2, 3)).module())
    message = r"constant when the module is partitioned, or computed: got int8 of \(1, 2, 2, 3\) that are"
    with pytest.raises(Unsupported, match=message):
        byoc_hw.build(mod, {"y": np.ones((1, 2, 2, 3), np.int8)})


def test_refuses_weights_of_two_inputs_of_one_name():
    x, y = variable((4,), name="x"), variable((4,), name="x")
    with pytest.raises(InvalidInput, match="the name of weights is that of one input: 'x' is that of several"):
        byoc_hw.build(module(relay.add(x, y), x, y), {"x": np.zeros(4, np.int8)})
