"""Relay modules of any operator that TVM knows, accepted or not: TVM's own bits, or one of our errors.

Arguments and attributes are guessed until TVM's type inference takes them. Every operator goes through partition and
build by itself; those that are built run together in one program.
"""

from __future__ import annotations

import re

import numpy as np
import tvm
from fuzz_case import QUICK, Case, Finding
from relay_samples import Conv, const, module
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference

MISTYPED = {"nn.contrib_conv3d_winograd_weight_transform"}
"""TVM computes another shape than it says, unless the kernel is a cube: the rest of its output is never written."""

OPERATORS = sorted(
    name
    for name in tvm.ir.Op.list_op_names()
    if not name.startswith(("tir.", "tl.", "relax.", "byoc_hw.")) and name not in MISTYPED
)

SHAPES = [
    (),
    (1,),
    (4,),
    (2, 3),
    (1, 4),
    (4, 4),
    (1, 4, 5),
    (2, 4, 4),
    (1, 4, 6, 6),
    (1, 6, 6, 4),
    (2, 2, 2, 2),
    (1, 2, 3, 4, 4),
]
DTYPES = ["int8", "float32", "uint8", "int32", "int64", "bool", "int16", "float16", "float64", "uint32"]
INDEX = re.compile(
    r"indices|index|axis|begin|end|strides|shape|length|segment|size|^k$|num|valid|seq|start|stop|step|key|pads|depth"
)
LISTS = [
    [0],
    [1],
    [1, 1],
    [2, 2],
    [0, 0],
    [0, 1],
    [1, 0],
    [0, 2, 1],
    [1, 2],
    [0, 2, 3, 1],
    [0, 3, 1, 2],
    [1, 1, 1],
    [4],
    [-1],
    [2, 3],
    [3, 3],
    [1, 1, 1, 1],
    [0, 0, 1, 1],
]
TEXTS = [
    "NCHW",
    "NHWC",
    "OIHW",
    "HWIO",
    "HWOI",
    "NCW",
    "NWC",
    "NCDHW",
    "constant",
    "edge",
    "reflect",
    "add",
    "update",
    "mul",
    "clip",
    "wrap",
    "fast",
    "bilinear",
    "nearest_neighbor",
    "linear",
    "cubic",
    "half_pixel",
    "align_corners",
    "both",
    "values",
    "indices",
    "float32",
    "int8",
    "UPWARD",
    "TONEAREST",
    "int64",
    "ij",
    "xy",
    "",
    "zeros",
    "ab,bc->ac",
]

UNDEFINED = r"gather|scatter|adv_index|fsmn|left_shift|right_shift"
"""Of these, an index outside the tensor, and a shift by more than the bits, has no defined result: not compared."""


def run(case: Case) -> None:
    built = []
    for _ in range(12):
        if len(built) == 4:
            break
        with case.outside("making a module"):
            made = operator_module(case)
        if made is None:
            continue
        name, mod = made
        case.note(name, mod)
        with case.refusing():
            byoc_hw.build(byoc_hw.partition_for_hwlib(mod))
            case.tally["built"] += 1
            if re.search(UNDEFINED, name):
                continue
            with case.outside("TVM"):
                if computes(mod, case):
                    built.append((name, mod))
    if built:
        compare(case, built)


# ---------------------------------------------------------------- one operator


def operator_module(case: Case) -> tuple[str, tvm.IRModule] | None:
    """A module of one operator, perhaps behind a convolution that is offloaded; None if nothing fits it."""
    name = case.rng.choice(OPERATORS)
    operator = tvm.ir.Op.get(name)
    case.note(name, "guessed")
    for _ in range(40):
        guess = Guess(case, operator)
        try:
            mod = module(relay.Call(operator, guess.arguments(), guess.attributes()), *guess.inputs)
        except (tvm.TVMError, TypeError, ValueError, AttributeError, KeyError, IndexError, NotImplementedError):
            continue
        return name, mod
    return None


class Guess:
    """Arguments and attributes of an operator, at random, by the names that they have."""

    def __init__(self, case: Case, operator: tvm.ir.Op) -> None:
        self.rng, self.case, self.operator = case.rng, case, operator
        self.inputs: list[relay.Var] = []
        self.shape = self.rng.choice(SHAPES)
        self.dtype = self.rng.choice(DTYPES[: self.rng.choice([2, 3, 5, 10])])

    def arguments(self) -> list[relay.Expr]:
        names = [str(info.name) for info in self.operator.arguments or []]
        count = self.operator.num_inputs
        if count < 0:
            count = self.rng.randint(1, 3)
        return [self.argument(names[at] if at < len(names) else "") for at in range(count)]

    def argument(self, name: str) -> relay.Expr:
        rng = self.rng
        if "zero_point" in name:
            return const(rng.choice([0, 3, -128, 127, 0]), "int32")
        if "scale" in name:
            return const(rng.choice([0.05, 0.5, 1.0]), "float32")
        if name in ("data", "tensors", "inputs") and rng.random() < 0.15:
            return relay.Tuple([self.variable(self.shape, self.dtype) for _ in range(rng.randint(1, 3))])
        shape = self.shape if rng.random() < 0.6 else rng.choice([*SHAPES, self.shape[-1:], self.shape[:1]])
        if INDEX.search(name):
            dtype = rng.choice(["int32", "int64"])
            if rng.random() < 0.5:
                return const(np.asarray(rng.choice(LISTS)) if rng.random() < 0.7 else rng.randint(0, 2), dtype)
            return self.variable(shape, dtype)
        dtype = self.dtype if rng.random() < 0.9 else rng.choice(DTYPES)
        if name in ("condition", "mask"):
            dtype = "bool"
        if name in ("weight", "kernel") and len(self.shape) >= 3 and rng.random() < 0.7:
            channels = self.shape[1] if rng.random() < 0.5 else self.shape[-1]
            shape = rng.choice(
                [
                    (4, channels, 3, 3),
                    (3, 3, channels, 4),
                    (3, 3, 4, channels),
                    (4, channels, 3),
                    (2, channels, 1, 3, 3),
                ]
            )
        if rng.random() < 0.2:
            return const(values(self.case, shape, dtype, small=True), dtype)
        return self.variable(shape, dtype)

    def variable(self, shape: tuple[int, ...], dtype: str) -> relay.Expr:
        if len(shape) == 4 and dtype == "int8" and min(shape) > 0 and self.rng.random() < 0.2:
            conv = Conv(*shape[1:], filters=shape[3], seed=self.rng.randint(0, 9))
            self.inputs.append(relay.var(f"x{len(self.inputs)}", shape=conv.ifm_shape, dtype=dtype))
            return conv.expr(self.inputs[-1])
        self.inputs.append(relay.var(f"x{len(self.inputs)}", shape=shape, dtype=dtype))
        return self.inputs[-1]

    def attributes(self) -> tvm.ir.Attrs | None:
        key = self.operator.attrs_type_key or attributes_of(self.operator.name)
        if not key:
            return None
        given: dict[str, object] = {}
        for _ in range(12):  # required fields are named by the error, one after another
            try:
                attributes = tvm.ir.make_node(key, **given)
                break
            except AttributeError as error:
                missing = re.search(r"required field '(\w+)'", str(error))
                if missing is None:
                    raise
                given[missing[1]] = self.value(
                    missing[1], self.rng.choice(["int", "Array", "Array", "double", "str", "bool"])
                )
        else:
            raise ValueError("no attributes")
        if hasattr(attributes, "list_field_info"):
            optional = [
                field for field in attributes.list_field_info() if field.name not in given and self.rng.random() < 0.25
            ]
            given |= {field.name: self.value(field.name, field.type_info) for field in optional}
        return tvm.ir.make_node(key, **given)

    def value(self, name: str, kind: str) -> object:
        rng = self.rng
        if "dtype" in name or kind.startswith("DataType"):
            return rng.choice([*DTYPES, ""] if name == "out_dtype" else DTYPES)
        if name in ("axes", "axis", "pad_width", "padding", "newshape", "shape") and kind.startswith(
            ("Array", "int", "double")
        ):
            return self.axes(name)
        if kind.startswith("Array"):
            return rng.choice(LISTS)
        if kind.startswith("bool"):
            return rng.random() < 0.5
        if kind.startswith(("str", "runtime.String")):
            return rng.choice(TEXTS)
        if kind.startswith("double"):
            return rng.choice([0.0, 1.0, -1.0, 0.5, 6.0, 1e-5, 127.0, float("inf")])
        return rng.choice([0, 1, -1, 2, 3, 4, 8])

    def axes(self, name: str) -> object:
        rank, rng = len(self.shape), self.rng
        if name == "axes":
            return (
                rng.sample(range(rank), rank) if rng.random() < 0.7 else rng.sample(range(rank), rng.randint(0, rank))
            )
        if name == "axis":
            return (
                rng.randint(-1, max(rank - 1, 0))
                if rng.random() < 0.5
                else rng.sample(range(rank), min(rank, rng.randint(0, 2)))
            )
        if name == "pad_width":  # TVM mirrors no more than there is, and reads beyond a tensor if it is to
            return [[rng.randint(0, min(2, size - 1)) for _ in range(2)] for size in self.shape]
        if name == "padding":
            return rng.choice([[0, 0], [1, 1], [1, 1, 1, 1], [0], [0, 1, 1, 0]])
        return rng.choice([[-1], [1, -1], list(self.shape), [*self.shape, 1], [2, -1], [0, -1]])


def attributes_of(name: str) -> str:
    """The attributes of an operator that does not say which it has: without them TVM's type inference crashes."""
    words = name.removeprefix("nn.").removeprefix("vision.").replace(".", "_").split("_")
    guesses = ["".join(word.capitalize() for word in words)]
    guesses += {"cum": ["Scanop"], "seg": ["Segment"], "adv": ["AdvIndex"], "hard": ["Hardswish"]}.get(words[0][:3], [])
    if words[-1] == "suppression":
        guesses = ["NonMaximumSuppression", "AllClassNonMaximumSuppression", "RegularNonMaximumSuppression"]
    for guess in guesses:
        try:
            tvm.ir.make_node(f"relay.attrs.{guess}Attrs")
        except AttributeError as error:
            if "required field" not in str(error):
                continue
        except (tvm.TVMError, TypeError):
            continue
        return f"relay.attrs.{guess}Attrs"
    return ""


# ---------------------------------------------------------------- inputs, and TVM's results


def values(case: Case, shape: tuple[int, ...], dtype: str, *, small: bool) -> np.ndarray:
    """Small ones are valid indices and shifts, too."""
    if dtype.startswith("float"):
        return case.arrays.uniform(0.1 if small else -4, 1 if small else 4, shape).astype(dtype)
    if dtype == "bool" or small:
        return case.arrays.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return case.arrays.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def inferences(case: Case, mod: tvm.IRModule) -> list[list[np.ndarray]]:
    """Two, and nothing that TVM has no defined result for: divisors of 0 end the process."""
    types = [(tuple(map(int, p.checked_type.shape)), p.checked_type.dtype) for p in mod["main"].params]
    wide = {"int8", "float32", "bool"}  # in other types most values are no index and no shift
    arrays = [
        [values(case, shape, dtype, small=count == 0 or dtype not in wide) for shape, dtype in types]
        for count in range(2)
    ]
    if re.search(r"div|mod", str(mod)):
        arrays = [[np.where(array == 0, np.ones_like(array), array) for array in inputs] for inputs in arrays]
    return arrays


def computes(mod: tvm.IRModule, case: Case) -> bool:
    """Whether TVM itself has a result."""
    try:
        reference = Reference(mod)
        for inputs in inferences(case, mod):
            reference.run(inputs)
    except Exception as error:  # whatever TVM cannot do
        case.tally["no reference"] += 1
        case.leave("")
        del error
        return False
    return True


def compare(case: Case, built: list[tuple[str, tvm.IRModule]]) -> None:
    """The modules beside each other in one program."""
    inputs, outputs, names = [], [], []
    for number, (name, mod) in enumerate(built):
        renamed = {v: relay.var(f"m{number}_{v.name_hint}", v.type_annotation) for v in mod["main"].params}
        inputs += renamed.values()
        body = relay.bind(mod["main"].body, renamed)
        fields = (
            [relay.TupleGetItem(body, at) for at in range(len(mod["main"].ret_type.fields))]
            if isinstance(mod["main"].ret_type, tvm.ir.TupleType)
            else [body]
        )
        outputs += fields
        names += [name] * len(fields)
    mod = module(relay.Tuple(outputs), *inputs)
    case.note(", ".join(dict.fromkeys(names)), mod)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod))
    arrays = inferences(case, mod)
    with case.outside("TVM"):
        reference = Reference(mod)
        wanted = [reference.run(one) for one in arrays]
    for found, expected in zip(project.run_batch(arrays, toolchain=QUICK), wanted, strict=True):
        for name, one, other in zip(names, found.outputs, expected, strict=True):
            if not same(one, other):
                raise Finding("wrong bits", name, f"{mod}\nproject {one}\nTVM {other}")
    case.tally["exact"] += len(built)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """The same bits, whatever kind of NaN there is."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind == "f":
        one, other = (np.where(np.isnan(array), np.nan, array).astype(array.dtype) for array in (one, other))
    return one.tobytes() == other.tobytes()
