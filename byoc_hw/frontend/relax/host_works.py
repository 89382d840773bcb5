"""The layers on the host that functions of ours compute, as calls by symbol, and what is then left to TVM."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from byoc_hw.frontend.host_layers import HOST_FUNCTIONS, has_kernel
from byoc_hw.frontend.relax.bindings import names_in, steps_of, with_steps
from byoc_hw.frontend.relax.forms import QdqJob, composite_layer, fusions
from byoc_hw.frontend.relax.qdq_moves import host_moves_of_stored
from byoc_hw.frontend.relax.qdq_tables import with_host_tables
from byoc_hw.frontend.relax.regions import composite_name, composites_in, external
from byoc_hw.frontend.relax.versions import Literal, array_of, dtype_of, name_of, type_of
from byoc_hw.frontend.seam import FixedPoint
from byoc_hw.graph import Add, Layer, Softmax
from byoc_hw.numerics import in_numerics
from byoc_hw.program import HostWork, KernelCall
from byoc_hw.tensor import Array

Kernels = Callable[[Layer | HostWork], KernelCall]

_SOFTMAX_SCALES = 2.0**-25, 2.0**7
"""Lower bound, and upper bound that is outside: what fits the fixed point of `softmax_int8`."""

_MOVES_TEXT = "concat expand_dims flip permute_dims reshape split squeeze strided_slice take tile"
_COMPARES_TEXT = "argmax argmin clip max maximum min minimum nn.max_pool2d nn.relu"
_MOVES, _COMPARES = frozenset(_MOVES_TEXT.split()), frozenset(_COMPARES_TEXT.split())


@dataclass(frozen=True)
class HostLayer:
    """A layer that a host function of ours computes, and its call; None for `softmax_int8`."""

    layer: Layer
    made: KernelCall | None
    inputs: tuple[int | Array, ...]
    """What the layer reads, in its order: an argument of the call, or a constant."""


def with_works(
    mod: tvm.IRModule, numerics: str, kernel: Kernels, by: FixedPoint
) -> tuple[tvm.IRModule, dict[str, HostLayer]]:
    """The module with a call by symbol for each region and each layer that a function of ours computes; and these.

    What is left of operators between 8-bit values are tables, moves and comparisons of integers.
    """
    regions = {variable: variable.name_hint for variable in external(mod)}
    fused = _with_host_composites(mod, numerics)
    main, variable = host_moves_of_stored(fused["main"]), fused.get_global_var("main")
    fused = with_host_tables(tvm.IRModule({**fused.functions, variable: main}), numerics, by)
    works: dict[str, HostLayer] = {}
    called: dict[Any, str] = dict(regions)
    for number, (variable, function) in enumerate(_host_composites(fused).items()):
        called[variable] = f"host_{number}"
        works[called[variable]] = _host_layer(function, numerics, kernel)
    steps = [(variable, _by_symbol(value, called)) for variable, value in steps_of(fused["main"])]
    return tvm.IRModule({"main": with_steps(fused["main"], steps)}), works


def _host_composites(mod: tvm.IRModule) -> dict[Any, Any]:
    """The layers of main that functions of ours compute, by global variable."""
    mark = f"{HOST_FUNCTIONS.name}."
    there = composites_in(mod).items()
    return {variable: one for variable, one in there if str(one.attrs["Composite"]).startswith(mark)}


def _with_host_composites(mod: tvm.IRModule, numerics: str) -> tvm.IRModule:
    """The module with a composite for each layer of main that a function of ours computes."""
    job = QdqJob(HOST_FUNCTIONS, lambda layer, accelerator: None, numerics="tflite")
    table = [
        (name, pattern, annotations, functools.partial(_wanted, check, name, numerics))
        for name, pattern, annotations, check in fusions(job)
    ]
    return relax.transform.FuseOpsByPattern(table, bind_constants=True, entry_functions=["main"])(mod)


def _wanted(check: Callable[[Any], bool], name: str, numerics: str, context: Any) -> bool:
    if not check(context):
        return False
    composite = name.partition(".")[2]
    parsed = composite_layer(composite, context.matched_expr, dict(context.matched_bindings.items()))
    if parsed is None:
        return False
    if numerics != "tflite" and isinstance(parsed[0], Softmax):
        return _is_integer_softmax(parsed[0])
    if numerics == "float" and isinstance(parsed[0], Add):  # its floats are the result, and need no other rounding
        return False
    return has_kernel(in_numerics(parsed[0], numerics))


def _is_integer_softmax(layer: Softmax) -> bool:
    """Whether `softmax_int8` computes a layer: its bits are those of TVM's float operators on the Relay path."""
    ifm, ofm = layer.ifm.quantization, layer.ofm.quantization
    assert ifm is not None, "a softmax states its scales"
    assert ofm is not None, "a softmax states its scales"
    least, limit = _SOFTMAX_SCALES
    types = (layer.ifm.dtype, layer.ofm.dtype) == ("int8", "int8")
    return types and (ofm.scale, ofm.zero_point) == ((1 / 256,), (-128,)) and least <= ifm.scale[0] < limit


def _host_layer(composite: Any, numerics: str, kernel: Kernels) -> HostLayer:
    """What a composite computes."""
    inner = dict(steps_of(composite))
    parsed = composite_layer(composite_name(composite), inner[composite.body.body], inner)
    assert parsed is not None, "the table has matched it"
    layer, match = in_numerics(parsed[0], numerics), parsed[1]
    places = {parameter: place for place, parameter in enumerate(composite.params)}
    inputs = tuple(array_of(one) if isinstance(one, Literal) else places[one] for one in match.inputs)
    integer_softmax = numerics != "tflite" and isinstance(layer, Softmax)
    return HostLayer(layer, None if integer_softmax else kernel(layer), inputs)


def _by_symbol(value: Any, symbols: Mapping[Any, str]) -> Any:
    """A call of an external function as a call of its symbol, which TVM's passes leave alone."""
    if not isinstance(value, relax.Call) or value.op not in symbols:
        return value
    of = type_of(value)
    types = list(of.fields) if isinstance(of, relax.TupleType) else of
    call = relax.call_dps_packed(symbols[value.op], relax.Tuple(list(value.args)), types)
    relax.expr._update_type(call, of)
    return call


# ---------------------------------------------------------------- what is left


def tvm_marks(mod: tvm.IRModule) -> dict[str, tuple[str, ...]]:
    """Of numerics "tflite": the operators of the model on the host that follow TVM's arithmetic, and which of their
    Relax operators do. Moved bytes and compared integers have one result only."""
    fused = _with_host_composites(mod, "tflite")
    found: dict[str, dict[str, None]] = {}
    for variable, value in steps_of(fused["main"]):
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
            continue
        name = name_of(value)
        whole = not dtype_of(variable).startswith("float")
        if name not in _MOVES and not (whole and name in _COMPARES):
            for source in names_in(value.span):
                found.setdefault(source, {})[name] = None
    return {source: tuple(operators) for source, operators in found.items()}
