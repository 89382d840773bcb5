"""TFLite's arithmetic on the host: with numerics="tflite", what the accelerator leaves is matched once more.

The same pattern table, without limits of hardware, finds the layers that C functions of ours compute (see
`params/host_kernels.py`). What then is left follows TVM: its results are TFLite's only where there is no other way to
compute them (`_is_exact`).
"""

from __future__ import annotations

import math

import tvm
from tvm import relay

from byoc_hw.frontend.host_layers import HOST_FUNCTIONS, has_kernel
from byoc_hw.frontend.relay.compose import applied, called_with, rebuild_calls, with_main
from byoc_hw.frontend.relay.host_bilinear import bilinear
from byoc_hw.frontend.relay.host_operators import Kernel, kernel_called
from byoc_hw.frontend.relay.match import Match
from byoc_hw.frontend.relay.opaque import merge_composites, show_bodies
from byoc_hw.frontend.relay.read import constant
from byoc_hw.frontend.relay.session import Session
from byoc_hw.frontend.relay.sources import calls_outside_composites, operator_name, source_names
from byoc_hw.frontend.relay.table import entries, parse_composite
from byoc_hw.graph import Layer
from byoc_hw.numerics import in_numerics
from byoc_hw.program import Quantize

# ---------------------------------------------------------------- the layers


def with_kernels(mod: tvm.IRModule, kernel: Kernel) -> tvm.IRModule:
    """A type-checked module in which functions of ours compute all that they can of `main`."""
    main = _composed(mod)
    borders = _borders(main)
    new: dict[relay.Expr, relay.Expr] = {}

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        new.update(zip(call.args, arguments, strict=True))
        resize = bilinear(call)
        if resize is not None:
            return kernel_called(kernel(resize[0]), [new[resize[1].source]], [call.checked_type], call.span)
        if isinstance(call.op, relay.Function):
            layer, match = _layer(call.op)
            values = dict(zip(call.op.params, arguments, strict=True))
            inputs = [values.get(read, read) for read in match.inputs]
            return kernel_called(kernel(layer), inputs, [call.checked_type], call.op.body.span)
        quantize = _quantize(call) if call in borders else None
        if quantize is not None:
            return kernel_called(kernel(quantize), arguments[:1], [call.checked_type], call.span)
        return called_with(call, arguments)

    return with_main(mod, rebuild_calls(main, rebuild))


def _composed(mod: tvm.IRModule) -> relay.Function:
    """`main` of a type-checked module with a composite for each layer that a function of ours computes."""
    session = Session(
        HOST_FUNCTIONS, lambda layer, accelerator: None, numerics="tflite", no_nchw="the host's functions are for NHWC"
    )
    passes = [merge_composites(entries(session, mod["main"]), session.bodies), show_bodies(session.bodies)]

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        if isinstance(call.op, relay.Function) and not has_kernel(_layer(call.op)[0]):
            return applied(call.op, arguments)
        return called_with(call, arguments)

    main = tvm.transform.Sequential(passes)(mod)["main"]
    return with_main(mod, rebuild_calls(main, rebuild))["main"]


def _layer(composite: relay.Function) -> tuple[Layer, Match]:
    parsed = parse_composite(str(composite.attrs["Composite"]).partition(".")[2], composite.body)
    assert parsed is not None, "the table has matched it"
    layer, match = parsed
    return in_numerics(layer, "tflite"), match


# ---------------------------------------------------------------- what is left

_MOVES = """
argsort batch_flatten broadcast_to concatenate copy depth_to_space expand_dims gather layout_transform mirror_pad pad
repeat reshape reverse slice_like sort space_to_depth split squeeze stack strided_slice take tile topk transpose
"""
_COMPARES = """
argmax argmin bitwise_and bitwise_not bitwise_or bitwise_xor cast clip equal greater greater_equal less less_equal max
max_pool2d maximum min minimum not_equal relu where
"""
_MOVING, _COMPARING = frozenset(_MOVES.split()), frozenset(_COMPARES.split())
_SUMMING = ("abs", "add", "bias_add", "left_shift", "multiply", "negative", "right_shift", "subtract", "sum")
_SUMS_OF_PRODUCTS = ("qnn.batch_matmul", "qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense")


def tvm_arithmetic(mod: tvm.IRModule) -> dict[str, tuple[str, ...]]:
    """The operators of the model on the host that follow TVM's arithmetic, and which of their Relay operators do."""
    main = _composed(mod)
    borders = _borders(main)
    resizes = [found[1] for found in map(bilinear, calls_outside_composites(main)) if found is not None]
    resized = {call for one in resizes for call in (one.real, one.function, one.quantize)}
    found: dict[str, dict[str, None]] = {}
    for name, calls in _left(main).items():
        for call in calls:
            if not (_is_exact(call) or call in resized or (call in borders and _same_at_borders(call))):
                found.setdefault(name, {})[operator_name(call)] = None
    return {name: tuple(operators) for name, operators in found.items()}


def _left(main: relay.Function) -> dict[str, list[relay.Call]]:
    """The calls that no function of ours computes as layers, by the operator of the model that they are of."""
    left: dict[str, list[relay.Call]] = {}
    for call in calls_outside_composites(main):
        if isinstance(call.op, tvm.ir.Op):
            for name in source_names(call.span):
                left.setdefault(name, []).append(call)
    return left


def _borders(main: relay.Function) -> set[relay.Call]:
    """The calls between float32 and int8 that are operators of the model.

    An operator that was imported as both computes in floating point where TFLite has another way.
    """
    ends = ("qnn.dequantize", "qnn.quantize")
    groups = [[call for call in calls if operator_name(call) in ends] for calls in _left(main).values()]
    inside = {call for calls in groups if len(set(map(operator_name, calls))) == len(ends) for call in calls}
    return {call for calls in groups for call in calls} - inside


def _same_at_borders(call: relay.Call) -> bool:
    """TVM dequantizes as TFLite does, and multiplies by the reciprocal of a scale where TFLite divides."""
    return operator_name(call) == "qnn.dequantize" or _quantize(call) is not None


def _quantize(call: relay.Call) -> Quantize | None:
    """What a function of ours computes of a call: float32 to int8, with one scale."""
    if operator_name(call) != "qnn.quantize":
        return None
    real, *constants = call.args
    if (str(real.checked_type.dtype), str(call.checked_type.dtype)) != ("float32", "int8"):
        return None
    if not all(isinstance(each, relay.Constant) and constant(each).size == 1 for each in constants):
        return None
    scale, zero_point = (constant(each).item() for each in constants)
    if not (math.isfinite(scale) and scale > 0 and -128 <= zero_point <= 127):
        return None
    return Quantize(math.prod(map(int, call.checked_type.shape)), scale, zero_point)


def _is_exact(call: relay.Call) -> bool:
    """Whether there is one way only to compute a call: it moves bytes, or compares or sums integers."""
    name = operator_name(call)
    if name == "qnn.requantize":  # with one scale it adds the difference of the zero points
        return _equal(call.args[1], call.args[3])
    if name.startswith("qnn."):
        return name in _SUMS_OF_PRODUCTS and str(call.checked_type.dtype) == "int32"
    short = name.rpartition(".")[2]
    return short in _MOVING or (short in (*_COMPARING, *_SUMMING) and _of_integers(call))


def _equal(one: relay.Expr, other: relay.Expr) -> bool:
    both = isinstance(one, relay.Constant) and isinstance(other, relay.Constant)
    return both and bool((constant(one) == constant(other)).all())


def _of_integers(call: relay.Call) -> bool:
    types = [operand.checked_type for operand in (*call.args, call)]
    return all(isinstance(of, relay.TensorType) and "float" not in str(of.dtype) for of in types)
