"""TFLite's arithmetic on the host: with numerics="tflite", what the accelerator leaves is matched once more.

The same pattern table, without limits of hardware, finds the layers that C functions of ours compute (see
`params/host_kernels.py`). What then is left follows TVM: its results are TFLite's only where there is no other way to
compute them (`_is_exact`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import tvm
from tvm import relay

from byoc_hw.accelerator import ROUNDINGS, Accelerator, Limits
from byoc_hw.frontend.relay.accelerators import Session
from byoc_hw.frontend.relay.compose import applied, called_with, rebuild_calls
from byoc_hw.frontend.relay.host_operators import kernel_operator
from byoc_hw.frontend.relay.interface import with_main
from byoc_hw.frontend.relay.match import Match
from byoc_hw.frontend.relay.read import constant
from byoc_hw.frontend.relay.sources import calls_outside_composites, operator_name, source_names
from byoc_hw.frontend.relay.table import entries, parse_composite
from byoc_hw.graph import Layer, Pool2d
from byoc_hw.program import KernelCall

Kernel = Callable[[Layer], KernelCall]
"""How a function of ours computes a layer."""

_ANY = Limits(dilations=None, batches=None, accumulator_bits=32)
_WEIGHTED = replace(_ANY, weight_bits=(8, 4, 2))
_HOST = Accelerator(
    "host",
    "host",
    {
        **dict.fromkeys(("conv2d", "depthwise_conv2d", "dense"), _WEIGHTED),
        **dict.fromkeys(("add", "mul", "pool2d"), _ANY),
        "softmax": Limits(batches=None),
    },
    roundings=("tflite",),
)
"""The functions as an accelerator: the layer kinds that they compute, with sums of 32 bits."""

# ---------------------------------------------------------------- the layers


def with_kernels(mod: tvm.IRModule, kernel: Kernel) -> tvm.IRModule:
    """A type-checked module in which functions of ours compute all that they can of `main`."""

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        if not isinstance(call.op, relay.Function):
            return called_with(call, arguments)
        layer, match = _layer(call.op)
        made = kernel(layer)
        values = dict(zip(call.op.params, arguments, strict=True))
        operands = [*(values.get(read, read) for read in match.inputs)]
        operands += [relay.const(array, str(array.dtype)) for array in made.constants]
        attributes = tvm.ir.make_node("DictAttrs", shape=list(call.checked_type.shape))
        operator = kernel_operator(made.function, len(operands))
        return relay.Call(operator, operands, attributes, span=call.op.body.span)

    return with_main(mod, rebuild_calls(_composed(mod), rebuild))


def _composed(mod: tvm.IRModule) -> relay.Function:
    """`main` of a type-checked module with a composite for each layer that a function of ours computes."""
    session = Session(
        _HOST, lambda layer, accelerator: None, numerics="tflite", no_nchw="the host's functions are for NHWC"
    )
    passes = [relay.transform.MergeComposite(entries(session, mod["main"])), relay.transform.InferType()]

    def rebuild(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        if isinstance(call.op, relay.Function) and not _has_kernel(_layer(call.op)[0]):
            return applied(call.op, arguments)
        return called_with(call, arguments)

    main = tvm.transform.Sequential(passes)(mod)["main"]
    return with_main(mod, rebuild_calls(main, rebuild))["main"]


def _layer(composite: relay.Function) -> tuple[Layer, Match]:
    parsed = parse_composite(str(composite.attrs["Composite"]).partition(".")[2], composite.body)
    assert parsed is not None, "the table has matched it"
    layer, match = parsed
    return replace(layer, rounding=ROUNDINGS["tflite"]), match


def _has_kernel(layer: Layer) -> bool:
    """Not for layers that TVM's functions compute as exactly: a reshape, a maximum."""
    return layer.kind in _HOST.limits and not (isinstance(layer, Pool2d) and layer.mode == "max")


# ---------------------------------------------------------------- what is left

_MOVES = """
batch_flatten broadcast_to concatenate copy depth_to_space expand_dims gather layout_transform mirror_pad pad repeat
reshape reverse slice_like space_to_depth split squeeze stack strided_slice take tile transpose
"""
_COMPARES = """
argmax argmin bitwise_and bitwise_not bitwise_or bitwise_xor cast clip equal greater greater_equal less less_equal max
max_pool2d maximum min minimum not_equal relu where
"""
_MOVING, _COMPARING = frozenset(_MOVES.split()), frozenset(_COMPARES.split())


def tvm_arithmetic(mod: tvm.IRModule) -> dict[str, tuple[str, ...]]:
    """The operators of the model on the host that follow TVM's arithmetic, and which of their Relay operators do."""
    left: dict[str, list[relay.Call]] = {}
    for call in calls_outside_composites(_composed(mod)):
        if isinstance(call.op, tvm.ir.Op):
            for name in source_names(call.span):
                left.setdefault(name, []).append(call)
    found = {name: tuple(dict.fromkeys(map(operator_name, _inexact(calls)))) for name, calls in left.items()}
    return {name: operators for name, operators in found.items() if operators}


def _inexact(calls: list[relay.Call]) -> list[relay.Call]:
    """Of the Relay operators of one operator of the model, those whose result TFLite computes in another way."""
    borders = [call for call in calls if operator_name(call) in ("qnn.dequantize", "qnn.quantize")]
    if len({operator_name(call) for call in borders}) == 1:  # an end of the model: one rounding, the same in both
        calls = [call for call in calls if call not in borders]
    return [call for call in calls if not _is_exact(call)]


def _is_exact(call: relay.Call) -> bool:
    """Whether there is one way only to compute a call: it moves bytes, or compares integers."""
    name = operator_name(call)
    if name == "qnn.requantize":  # with one scale it adds the difference of the zero points
        return _equal(call.args[1], call.args[3])
    if name == "qnn.concatenate":
        _, scales, zero_points, scale, zero_point = call.args
        return all(_equal(own, scale) for own in scales.fields) and all(
            _equal(own, zero_point) for own in zero_points.fields
        )
    if name.startswith("qnn."):
        return False
    short = name.rpartition(".")[2]
    return short in _MOVING or (short in _COMPARING and _of_integers(call))


def _equal(one: relay.Expr, other: relay.Expr) -> bool:
    both = isinstance(one, relay.Constant) and isinstance(other, relay.Constant)
    return both and bool((constant(one) == constant(other)).all())


def _of_integers(call: relay.Call) -> bool:
    types = [operand.checked_type for operand in (*call.args, call)]
    return all(isinstance(of, relay.TensorType) and "float" not in str(of.dtype) for of in types)
