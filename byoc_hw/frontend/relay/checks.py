"""What a model must be before TVM's passes see it: each check names the operator or input, the rule and the value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relay

from byoc_hw.arguments import check_type, shown
from byoc_hw.errors import InvalidInput, Unsupported
from byoc_hw.frontend.relay.failures import TvmFailed, tvm_errors
from byoc_hw.frontend.relay.opaque import is_type_checked, without_body
from byoc_hw.frontend.relay.record import regions
from byoc_hw.frontend.relay.rewrite.normal_form import in_normal_form
from byoc_hw.frontend.relay.sources import calls_in_order, described, operator_name, with_source_names
from byoc_hw.tensor import Array

HOST_TYPES = (
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float32", "float64", "bool"),
)
"""The element types that the C of host operators has."""

LARGEST_TENSOR = 2**31 - 1
"""In bytes: TVM's C indexes with 32 bits."""

LONGEST_CHAIN = 8000
"""The operators that may depend on one another in a chain: TVM's passes recurse for each of them, on the C++ stack."""

_MARKS = ("annotation.compiler_begin", "annotation.compiler_end")
_TAKE_TUPLES = ("concatenate", "qnn.concatenate", "stack", "einsum", "meshgrid")
_DIVISIONS = ("divide", "floor_divide", "trunc_divide", "mod", "floor_mod", "trunc_mod")
_TRAPPING = ("int32", "int64")


def check_module(mod: object) -> None:
    """`InvalidInput` unless `mod` is a Relay module with a `main`."""
    if not isinstance(mod, tvm.IRModule):
        raise InvalidInput(f"mod is a tvm.IRModule: got {type(mod).__name__}")
    names = [variable.name_hint for variable in mod.get_global_vars()]
    if "main" not in names or not isinstance(mod["main"], relay.Function):
        raise InvalidInput(f"mod has a Relay function main: got {', '.join(names) or 'an empty module'}")


def checked(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with a source name for every operator and a type for every value, without functions that main lacks.

    Raises `Unsupported` for what is no dataflow graph, and for an operator that TVM would not survive; `InvalidInput`
    where types do not agree.
    """
    called = regions(mod)
    _check_parameters(mod["main"])
    main = in_normal_form(mod)
    _check_dataflow(main, {variable.name_hint for variable in called})
    known = {variable.name_hint: function for variable, function in called.items() if is_type_checked(function)}
    empty = {variable: without_body(called[variable]) for variable in called if variable.name_hint in known}
    functions = {mod.get_global_var("main"): with_source_names(main), **called, **empty}
    mod = tvm.IRModule(functions, mod.type_definitions, attrs=mod.attrs)
    try:
        with tvm_errors():
            mod = relay.transform.InferType()(mod)
    except TvmFailed as error:
        operator = error.operator or _first_ill_typed(main)
        where = f"{operator}: " if operator else ""
        raise InvalidInput(f"{where}types of the model agree: {error.said}") from error.__cause__
    _check_operands(mod["main"])
    _check_divisions(mod)
    if not known:
        return mod
    functions = {variable: known.get(variable.name_hint, function) for variable, function in mod.functions.items()}
    return tvm.IRModule(functions, mod.type_definitions, attrs=mod.attrs)


# ---------------------------------------------------------------- weights by name


def bound(main: relay.Function, params: Mapping[str, Any] | None, *, again: bool) -> relay.Function:
    """`main` with its weights for inputs of their names.

    `InvalidInput` for weights that are no arrays of the input's type. With `again`, as after partitioning, weights may
    be bound already.
    """
    if params is None:
        return main
    check_type("params", params, Mapping, "a mapping of names to arrays")
    inputs = {parameter.name_hint: parameter for parameter in main.params}
    names = [parameter.name_hint for parameter in main.params]
    weights = {}
    for name, value in params.items():
        if name in inputs:
            if names.count(name) > 1:
                raise InvalidInput(f"params: the name of weights is that of one input: {name!r} is that of several")
            weights[name] = _weight(str(name), value, inputs[name].type_annotation)
        elif not again:
            raise InvalidInput(f"params are of inputs of the model, {_some(names)}: got {shown(name)}")
    return relay.build_module.bind_params_by_name(main, weights) if weights else main


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "which has none"


def _weight(name: str, value: object, of: object) -> tvm.nd.NDArray:
    check_type(f"params: {name}", value, np.ndarray | np.generic | tvm.nd.NDArray, "an array")
    array: Array = value.numpy() if isinstance(value, tvm.nd.NDArray) else np.asarray(value)
    if not isinstance(of, relay.TensorType):
        raise InvalidInput(f"params: {name} is of an input that is a tensor: the input is {of}")
    if str(array.dtype) != str(of.dtype):
        raise InvalidInput(f"params: {name}: dtype is {of.dtype}: got {array.dtype}")
    extents = [int(extent) if isinstance(extent, tvm.tir.IntImm) else None for extent in of.shape]
    if len(extents) != array.ndim or any(e not in (None, n) for e, n in zip(extents, array.shape, strict=True)):
        raise InvalidInput(f"params: {name}: shape is {_shape(of)}: got {array.shape}")
    return tvm.nd.array(array)


# ---------------------------------------------------------------- what a model is made of


def _check_parameters(main: relay.Function) -> None:
    for number, parameter in enumerate(main.params):
        if not isinstance(parameter.type_annotation, tvm.ir.Type):
            raise InvalidInput(f"input {parameter.name_hint} has a type: it has none")
        if any(parameter.same_as(other) for other in main.params[:number]):
            raise InvalidInput(f"inputs of main are different variables: {parameter.name_hint} is there twice")


def _check_dataflow(main: relay.Function, called: set[str]) -> None:
    """Calls of operators and of regions, tuples, inputs and constants: nothing else; no chain of calls too long.

    A loop, not TVM's visitors: those recurse.
    """
    depth: dict[relay.Expr, int] = {}
    left = [main.body]
    while left:
        node = left[-1]
        operands = [operand for operand in _operands(node, called) if operand not in depth]
        if operands and node not in depth:
            left += operands
            continue
        left.pop()
        if node not in depth:
            depth[node] = 1 + max((depth[operand] for operand in _operands(node, called)), default=0)
    if depth[main.body] > LONGEST_CHAIN:
        raise Unsupported(f"at most {LONGEST_CHAIN} operators depend on one another in a chain: got {depth[main.body]}")


def _operands(node: relay.Expr, called: set[str]) -> list[relay.Expr]:
    if isinstance(node, relay.Call):
        operator = node.op
        if isinstance(operator, tvm.ir.GlobalVar) and operator.name_hint not in called:
            raise Unsupported(f"a model is one function: main calls {operator.name_hint}")
        if not isinstance(operator, tvm.ir.Op | tvm.ir.GlobalVar):
            raise Unsupported(f"a model is a dataflow graph of calls of operators: a {_kind(operator)} is called")
        if isinstance(operator, tvm.ir.Op) and operator.attrs_type_key and node.attrs is None:  # which ends the process
            raise InvalidInput(f"{described(node)} has attributes, {operator.attrs_type_key}: it has none")
        return list(node.args)
    if isinstance(node, relay.Tuple):
        return list(node.fields)
    if isinstance(node, relay.TupleGetItem):
        return [node.tuple_value]
    if not isinstance(node, relay.Var | relay.Constant):
        raise Unsupported(f"a model is a dataflow graph of calls and tuples: got {_kind(node)}")
    return []


def _kind(node: object) -> str:
    return type(node).__name__


# ---------------------------------------------------------------- types


def check_values(main: relay.Function) -> None:
    """`InvalidInput` unless the host's C can hold every value: tensors of a static shape, and a type that C has."""
    for parameter in main.params:
        what = f"input {parameter.name_hint}"
        if not isinstance(parameter.checked_type, relay.TensorType):
            raise InvalidInput(f"{what} is a tensor: got {parameter.checked_type}")
        _check_tensor(what, parameter.checked_type)
    for call in calls_in_order(main.body):
        for one in _tensors(call.checked_type, described(call)):
            _check_tensor(f"{described(call)}: its result", one)
    outputs = list(_tensors(main.body.checked_type, "the output"))
    if not outputs:
        raise InvalidInput("a model has at least one output: main returns an empty tuple")
    for number, one in enumerate(outputs):
        _check_tensor(f"output {number}", one)


def _tensors(of: tvm.ir.Type, what: str) -> Iterator[relay.TensorType]:
    if isinstance(of, tvm.ir.TupleType):
        for field in of.fields:
            yield from _tensors(field, what)
    elif isinstance(of, relay.TensorType):
        yield of
    else:
        raise InvalidInput(f"{what} is a tensor, or a tuple of them: got {_kind(of)}")


def _check_tensor(what: str, of: relay.TensorType) -> None:
    if any(not isinstance(extent, tvm.tir.IntImm) for extent in of.shape):
        raise InvalidInput(f"{what} has a static shape: got {_shape(of)}")
    if str(of.dtype) not in HOST_TYPES:
        raise InvalidInput(f"{what}: dtype is one of {', '.join(HOST_TYPES)}: got {of.dtype}")
    extents = [int(extent) for extent in of.shape]
    if any(extent < 1 for extent in extents):
        raise InvalidInput(f"{what}: dimensions are at least 1: got {_shape(of)}")
    nbytes = prod(extents) * np.dtype(str(of.dtype)).itemsize
    if nbytes > LARGEST_TENSOR:
        raise InvalidInput(f"{what} has at most {LARGEST_TENSOR} bytes: got {nbytes}, of shape {_shape(of)}")


def _shape(of: relay.TensorType) -> str:
    extents = ["?" if isinstance(extent, tvm.tir.Any) else str(extent) for extent in of.shape]
    return f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"


def _first_ill_typed(main: relay.Function) -> str:
    """The first operator, operands first, that TVM cannot type by itself; "" if it can type each."""
    types: dict[relay.Expr, tvm.ir.Type] = {}
    culprits: list[str] = []

    def visit(node: relay.Expr) -> None:
        if culprits:
            return
        try:
            types[node] = _type_of(node, types)
        except TvmFailed:
            culprits.append(described(node))

    relay.analysis.post_order_visit(main.body, visit)
    return "".join(culprits)


def _type_of(node: relay.Expr, types: Mapping[relay.Expr, tvm.ir.Type]) -> tvm.ir.Type | None:
    if isinstance(node, relay.Var):
        return node.type_annotation
    if isinstance(node, relay.Tuple):
        return tvm.ir.TupleType([types[field] for field in node.fields])
    if isinstance(node, relay.TupleGetItem):
        return types[node.tuple_value].fields[node.index]
    if isinstance(node, relay.Constant):
        return relay.TensorType(node.data.shape, node.data.dtype)
    if not isinstance(node, relay.Call) or not isinstance(node.op, tvm.ir.Op):
        return getattr(node, "checked_type", None) if isinstance(node, tvm.ir.GlobalVar) else None
    with tvm_errors():
        return relay.transform.InferType()(module_of(node, types))["main"].ret_type


def module_of(call: relay.Call, types: Mapping[relay.Expr, tvm.ir.Type]) -> tvm.IRModule:
    """A module of one call: what it reads are inputs of these types, or its constants."""
    inputs = {
        argument: relay.Var(f"input{number}", types[argument])
        for number, argument in enumerate(dict.fromkeys(call.args))
        if not isinstance(argument, relay.Constant)
    }
    arguments = [inputs.get(argument, argument) for argument in call.args]
    body = relay.Call(call.op, arguments, call.attrs, call.type_args, call.span)
    return tvm.IRModule.from_expr(relay.Function(list(inputs.values()), body))


# ---------------------------------------------------------------- operands


def _check_operands(main: relay.Function) -> None:
    """TVM types three kinds of calls without looking at them, and later passes end the process."""
    for call in calls_in_order(main.body):
        name = operator_name(call)
        if name in _MARKS:
            raise Unsupported(f"{described(call)}: a model is not annotated for another compiler: got {name}")
        if name == "nn.group_norm" and int(call.attrs.num_groups) < 1:
            raise InvalidInput(f"{described(call)}: num_groups is at least 1: got {int(call.attrs.num_groups)}")
        if isinstance(call.op, tvm.ir.Op) and name not in _TAKE_TUPLES:
            for number, argument in enumerate(call.args):
                if isinstance(argument.checked_type, tvm.ir.TupleType):
                    raise InvalidInput(f"{described(call)}: operand {number} is a tensor: got a tuple")


def _check_divisions(mod: tvm.IRModule) -> None:
    """No constant integer divisor is 0: folded, that is a division by zero in TVM's process, which ends it.

    Nor is the least integer of a constant divided by -1, which ends it too.
    """
    known: dict[relay.Expr, bool] = {}  # whether a value depends on constants alone

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.Call):
            known[node] = isinstance(node.op, tvm.ir.Op) and all(known[argument] for argument in node.args)
            if operator_name(node) in _DIVISIONS and "int" in str(getattr(node.checked_type, "dtype", "")):
                _check_division(mod, node, known)
        elif isinstance(node, relay.Tuple):
            known[node] = all(known[field] for field in node.fields)
        elif isinstance(node, relay.TupleGetItem):
            known[node] = known[node.tuple_value]
        else:
            known[node] = isinstance(node, relay.Constant)

    relay.analysis.post_order_visit(mod["main"].body, visit)


def _check_division(mod: tvm.IRModule, call: relay.Call, known: Mapping[relay.Expr, bool]) -> None:
    dividend, divisor = (_folded(mod, argument) if known[argument] else None for argument in call.args)
    if divisor is None:
        return
    if (divisor == 0).any():
        raise InvalidInput(f"{described(call)}: a constant divisor of integers is not 0: got 0")
    dtype = str(call.checked_type.dtype)
    if dividend is not None and dtype in _TRAPPING:
        least = np.iinfo(dtype).min
        if ((dividend == least) & (divisor == -1)).any():
            raise InvalidInput(f"{described(call)}: the quotient of constants is an {dtype}: got {least} / -1")


def _folded(mod: tvm.IRModule, expr: relay.Expr) -> Array | None:
    """The value of an expression of constants; None where TVM does not fold it."""
    folded = relay.transform.FoldConstantExpr(expr, mod)
    return np.asarray(folded.data.numpy()) if isinstance(folded, relay.Constant) else None
