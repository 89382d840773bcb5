"""Modules of odd structure and odd arguments: TVM's own result, or one of our errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from fuzz_case import QUICK, Case, Finding
from fuzz_relay import inferences, same
from relay_samples import Add, Conv, Dense, Pool, const
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference

SHAPE = (1, 6, 6, 4)


class Draft:
    """A module in the making: its inputs, values to go on from, and what else partition and build are given."""

    def __init__(self, case: Case) -> None:
        self.case, self.rng = case, case.rng
        self.inputs: list[relay.Var] = []
        self.functions: dict[relay.GlobalVar, relay.Function] = {}
        self.params: Any = None
        self.partition: dict[str, Any] = {}
        self.build: dict[str, Any] = {}
        self.values: list[relay.Expr] = [self.input()]
        self.outputs: Callable[[], relay.Expr] = self.plain_outputs
        self.mod: Any = None

    def input(self, shape: Any = SHAPE, dtype: str = "int8", name: str = "") -> relay.Var:
        self.inputs.append(relay.var(name or f"x{len(self.inputs)}", shape=shape, dtype=dtype))
        return self.inputs[-1]

    def value(self) -> relay.Expr:
        return self.rng.choice(self.values)

    def plain_outputs(self) -> relay.Expr:
        return self.values[-1]

    def module(self) -> Any:
        if self.mod is not None:
            return self.mod
        mod = tvm.IRModule()
        for variable, function in self.functions.items():
            mod[variable] = function
        mod["main"] = relay.Function(self.inputs, self.outputs())
        return mod


def layer(draft: Draft, value: relay.Expr) -> relay.Expr:
    """A layer or a host operator that keeps the shape."""
    seed = draft.rng.randrange(9)
    return draft.rng.choice(
        [
            lambda: Conv(6, 6, 4, 4, seed=seed).expr(value),
            lambda: Add(SHAPE).expr(value, draft.value()),
            lambda: Pool("nn.max_pool2d", SHAPE, (3, 3), (1, 1), (1, 1, 1, 1)).expr(value),
            lambda: relay.nn.relu(value),
            lambda: relay.negative(value),
            lambda: relay.reshape(relay.reshape(value, (-1,)), SHAPE),
        ]
    )()


# ---------------------------------------------------------------- what is odd


def of_calls(draft: Draft) -> None:
    """A call of a closure, of a global function, or of one that calls itself."""
    a = relay.var("a", shape=SHAPE, dtype="int8")
    function = relay.Function([a], layer(draft, a) if draft.case.chance(0.7) else a)
    kind = draft.rng.randrange(5)
    if kind == 0:
        draft.values.append(relay.Call(function, [draft.value()]))
    elif kind == 1:
        attribute = draft.rng.choice(["Primitive", "Compiler", "Composite", "Inline", "hwlib"])
        function = function.with_attr(attribute, draft.rng.choice([1, "hwlib", "other", "hwlib.qnn_conv2d"]))
        draft.values.append(relay.Call(function, [draft.value()]))
    elif kind == 2:
        name = relay.GlobalVar(draft.rng.choice(["f", "tvmgen_default_hwlib_main_0", "default_run"]))
        draft.functions[name] = function
        draft.values.append(relay.Call(name, [draft.value()]))
    elif kind == 3:
        name = relay.GlobalVar("g")
        draft.functions[name] = relay.Function([a], relay.Call(name, [a]), relay.TensorType(SHAPE, "int8"))
        draft.values.append(relay.Call(name, [draft.value()]))
    else:
        own = relay.var("own")
        draft.values.append(relay.Let(own, function, relay.Call(own, [draft.value()])))


def of_control(draft: Draft) -> None:
    value, kind = draft.value(), draft.rng.randrange(4)
    if kind == 0:
        chosen = draft.input((), "bool") if draft.case.chance(0.5) else const(True, "bool")
        draft.values.append(relay.If(chosen, layer(draft, value), value))
    elif kind == 1:
        name = relay.var("named")
        draft.values.append(relay.Let(name, layer(draft, value), layer(draft, name)))
    elif kind == 2:
        reference = relay.RefCreate(value)
        draft.values.append(relay.RefRead(reference))
    else:
        draft.values.append(
            relay.TupleGetItem(relay.Tuple([value, layer(draft, value)]), draft.rng.choice([0, 1, 2, -1]))
        )


def of_outputs(draft: Draft) -> None:
    def tuples(depth: int) -> relay.Expr:
        if depth == 0 or draft.case.chance(0.3):
            return draft.rng.choice([*draft.values, const(3, "int8"), *draft.inputs])
        return relay.Tuple([tuples(depth - 1) for _ in range(draft.rng.randint(0, 3))])

    draft.outputs = lambda: tuples(draft.rng.randint(0, 3))


def of_types(draft: Draft) -> None:
    """Inputs of types that C or TVM hardly know."""
    size = tvm.tir.Var("n", "int32")
    shape = draft.rng.choice(
        [
            (relay.Any(), 4),
            (size, 4),
            (0, 4),
            (4, 0),
            (),
            (1,) * 9,
            (1, 6, 6, 4),
            (2**31, 2),
            (2**20, 2**20),
            (-1, 4),
            (1, 1),
        ]
    )
    dtype = draft.rng.choice(
        [
            "int8",
            "int4",
            "uint1",
            "bfloat16",
            "float16",
            "int8x4",
            "uint4",
            "int64",
            "bool",
            "handle",
            "float64",
            "uint64",
        ]
    )
    odd = draft.input(shape, dtype)
    if draft.case.chance(0.1):
        odd = relay.Var("pair", relay.TupleType([relay.TensorType((4,), "int8")] * 2))
        draft.inputs.append(odd)
        odd = relay.TupleGetItem(odd, 0)
    use = draft.rng.choice(
        [
            lambda: odd,
            lambda: relay.add(odd, odd),
            lambda: relay.cast(odd, "int8"),
            lambda: relay.copy(odd),
            lambda: relay.sum(odd),
        ]
    )
    previous = draft.outputs
    draft.outputs = lambda: relay.Tuple([previous(), use()])


def of_sizes(draft: Draft) -> None:
    """Extents at which planning may take for ever, or numbers overflow."""
    height, width, channels = (draft.rng.choice([1, 3, 255, 256, 4096, 20000, 65536]) for _ in range(3))
    channels = draft.rng.choice([1, 3, channels])
    x = draft.input((1, height, width, channels))
    size = draft.rng.choice([1, 3])
    filters = draft.rng.choice([2, 8, 300])
    if channels * filters * size * size < 1_000_000:
        draft.values.append(Conv(height, width, channels, filters, (size, size), padding=(size // 2,) * 4).expr(x))


def of_numbers(draft: Draft) -> None:
    """Scales and zero points that mean nothing."""
    rng = draft.rng
    scale = rng.choice([0.0, -1.0, float("inf"), float("nan"), 1e-45, 1e-38, 3e38, -0.0])
    zero_point = rng.choice([0, 0, 128, -129, 255, 2**31 - 1, -(2**31)])
    which = rng.choice(["ifm_scale", "ofm_scale", "ifm_zero_point", "ofm_zero_point", "weight_zero_point", "scales"])
    given = (scale,) if which == "scales" else scale if which.endswith("scale") else zero_point
    largest = 2**31 - 2**23  # sums beyond 32 bits are undefined in TVM
    bias = rng.choice([None, np.full(4, -largest), np.full(4, largest)])
    draft.values.append(Conv(6, 6, 4, 4, per_channel=False, bias_values=bias, **{which: given}).expr(draft.value()))


def of_depth(draft: Draft) -> None:
    value = draft.value()
    for _ in range(draft.rng.choice([50, 300, 1200])):
        value = relay.nn.relu(value) if draft.case.chance(0.9) else relay.negative(value)
    draft.values.append(value)


def of_width(draft: Draft) -> None:
    """Many inputs and outputs of a region, or many regions."""
    count = draft.rng.choice([20, 45, 90])
    outputs = []
    for number in range(count):
        x = draft.input((1, 1, 1, 4))
        outputs.append(Add((1, 1, 1, 4)).expr(x, draft.inputs[-2] if number else x))
    draft.outputs = lambda: relay.Tuple(outputs)


def of_errors(draft: Draft) -> None:
    """Modules that TVM's type inference refuses. (Without attributes that an operator needs, it ends the process.)"""
    value = draft.value()
    stranger = relay.var("stranger", shape=SHAPE, dtype="int8")
    draft.values.append(
        draft.rng.choice(
            [
                lambda: relay.add(value, stranger),
                lambda: relay.add(value, const(np.zeros(5), "int8")),
                lambda: relay.add(value, const(1.0, "float32")),
                lambda: relay.Call(relay.op.get("add"), [value]),
                lambda: relay.TupleGetItem(value, 0),
                lambda: relay.Call(value, [value]),
                lambda: Dense(24, 10).expr(value),
                lambda: relay.Call(relay.GlobalVar("nowhere"), [value]),
            ]
        )()
    )


def of_params(draft: Draft) -> None:
    draft.params = draft.rng.choice(
        [
            {"x0": np.zeros(SHAPE, np.int8)},
            {"x0": np.zeros((2, 2), np.int8)},
            {"x0": np.zeros(SHAPE, np.float64)},
            {"nobody": np.zeros(3)},
            {"x0": "text"},
            {"x0": None},
            {"x0": [1, 2]},
            {1: np.zeros(3)},
            {"x0": np.array(["a"])},
            {"x0": np.zeros(SHAPE, object)},
        ]
    )


def of_arguments(draft: Draft) -> None:
    """Values that are none; those of another Python type are for `mod` and `accelerator` only."""
    odd: list[Any] = [None, 1.5, "", "hwlib", b"x", [], {}, tvm.IRModule(), relay.Function([], const(1, "int8"))]
    text = draft.rng.choice(["", "x", "hwlib", "a b", "../x", "x" * 300, "qnn_conv2d", "nn.relu", "relay", "1"])
    which = draft.rng.choice(
        ["mod", "accelerator", "mod_name", "numerics", "deny", "nonsense", "tuning", "output_dir", "io_in_arena"]
    )
    if which == "mod":
        draft.mod = draft.rng.choice(odd)
    elif which == "io_in_arena":
        draft.build[which] = True
    elif which in ("tuning", "output_dir"):
        draft.build[which] = text
    else:
        given = {"accelerator": draft.rng.choice(odd), "deny": [text, text]}
        draft.partition[which] = given.get(which, text)


ODDITIES = [of_calls, of_control, of_outputs, of_types, of_numbers, of_errors, of_params, of_arguments]
SLOW = [of_sizes, of_depth, of_width]
"""TVM takes its time for these: they are tried less often."""


def run(case: Case) -> None:
    with case.outside("making a module"):
        draft = Draft(case)
        for _ in range(case.rng.randint(0, 3)):
            draft.values.append(layer(draft, draft.value()))
        oddities = case.rng.sample(ODDITIES, case.rng.choice([0, 1, 1, 1, 2, 2, 3]))
        if case.chance(0.1):
            oddities.append(case.rng.choice(SLOW))
        for odd in oddities:
            odd(draft)
            if case.chance(0.3):
                draft.values.append(layer(draft, draft.value()))
        try:
            mod = draft.module()
        except tvm.TVMError:  # it does not get into a module
            case.leave("")
            return
    described = "+".join(sorted(odd.__name__ for odd in oddities))
    case.note(described, mod)
    if case.chance(0.15):
        project = byoc_hw.build(mod, draft.params, **draft.build)
    else:
        partitioned = byoc_hw.partition_for_hwlib(mod, draft.params, **draft.partition)
        str(byoc_hw.explain(partitioned))
        project = byoc_hw.build(partitioned, **draft.build)
    with case.outside("TVM"):
        try:
            reference = Reference(mod, draft.params)
            typed = relay.transform.InferType()(mod)
            arrays = inferences(case, typed)
            wanted = [reference.run(inputs) for inputs in arrays]
        except Exception:  # what the C project can, and TVM's graph executor cannot
            arrays = []
    if not arrays or sum(array.size for array in arrays[0]) > 1_000_000:
        case.tally["built"] += 1
        return
    bound = [p.name_hint in (draft.params or {}) for p in typed["main"].params]
    given = [[array for array, fixed in zip(inputs, bound, strict=True) if not fixed] for inputs in arrays]
    for result, expected in zip(project.run_batch(given, toolchain=QUICK), wanted, strict=True):
        if len(result.outputs) != len(expected):
            raise Finding("silent loss", "another number of outputs", str(mod))
        for number, (one, other) in enumerate(zip(result.outputs, expected, strict=True)):
            if not same(one, other):
                raise Finding("wrong bits", described, f"output {number}: {one}, not {other}\n{mod}")
    case.tally["exact"] += 1
