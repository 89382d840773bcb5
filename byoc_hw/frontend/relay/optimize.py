"""The hook `relay.ext.<name>.optimize`: converts NCHW regions to NHWC.

TVM calls it for each region, as a module with one function `main`, before the region has its symbol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import tvm
from tvm import relay

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.accelerators import by_name
from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.compose import applied, called_with, each_call, rebuild_calls, with_main, without_composite
from byoc_hw.frontend.relay.constant_folding import fold_constants
from byoc_hw.frontend.relay.lower import lower_region, region_layout
from byoc_hw.frontend.relay.opaque import merge_composites, show_bodies
from byoc_hw.frontend.relay.session import Session, session
from byoc_hw.frontend.relay.sources import operator_name, source_names, span_of_all, with_span
from byoc_hw.frontend.relay.table import Planner, entries, parse_composite
from byoc_hw.graph import Convolution, Transpose
from byoc_hw.pattern import Recorder
from byoc_hw.tensor import Padding

_ELEMENTWISE = ("qnn.requantize", "clip")

DESIRED_LAYOUTS = {
    "qnn.conv2d": ["NHWC", "default"],
    "nn.max_pool2d": ["NHWC", "default"],
    "nn.avg_pool2d": ["NHWC", "default"],
    "nn.global_avg_pool2d": ["NHWC", "default"],
    "nn.global_max_pool2d": ["NHWC", "default"],
    "image.resize2d": ["NHWC"],
}


class NoNHWC(Unsupported):
    """An NCHW region has an operator that cannot be converted to NHWC."""


def optimize(mod: tvm.IRModule, compiler: str, why_no_plan: Planner) -> tvm.IRModule:
    """The module with its region in NHWC and its constants folded.

    Layout changes inside the region cancel out. Those at its inputs and outputs and before a flatten
    remain as `layout_transform` calls, which `lower_region` reads. Raises `NoNHWC`, with operator and
    reason, where any other layout change remains.
    """
    current = session.get()
    if current is None or current.accelerator.name != compiler:
        current = Session(by_name(compiler), why_no_plan)
    shown = current.bodies.shown(mod["main"])
    if region_layout(shown) == "NHWC":
        return mod
    mod = with_main(mod, shown)
    spans: dict[tuple[str, ...], tvm.ir.Span] = {}
    with tvm.transform.PassContext(opt_level=3):  # ConvertLayout does nothing below 3
        mod = tvm.transform.Sequential(
            [
                each_call(_inlined, "InlineComposites"),  # also folds pads: ConvertLayout would leave them in NCHW
                each_call(_remembering(spans), "RememberBiases"),
                relay.transform.ConvertLayout(DESIRED_LAYOUTS),
                each_call(_tidied, "TidyLayouts"),
                each_call(_restoring(spans), "RestoreBiases"),
                fold_constants(),
                merge_composites(entries(replace(current, recorder=Recorder())), current.bodies),
                show_bodies(current.bodies),
            ]
        )(mod)
    try:
        graph = lower_region(mod["main"], "region", current.numerics)
        graph.verify()
    except Unsupported as error:
        raise NoNHWC(str(error)) from error
    for layer in graph.layers:  # the other layers were planned when they were matched
        problem = why_no_plan(layer, current.accelerator) if isinstance(layer, Transpose) else None
        if problem is not None:
            raise NoNHWC(problem)
    return mod


# ---------------------------------------------------------------- inlining composites


def _inlined(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    """The operators of a composite, with those replaced that layout conversion cannot convert."""
    if not isinstance(call.op, relay.Function):
        return without_composite(call, arguments)
    parsed = parse_composite(str(call.op.attrs["Composite"]).partition(".")[2], call.op.body)
    if parsed is None:
        return without_composite(call, arguments)
    layer, match = parsed
    if match.get("nn.pad") is None or not isinstance(layer, Convolution):
        return without_composite(call, arguments)
    padding = layer.padding
    return applied(rebuild_calls(call.op, lambda inner, args: _padded(inner, args, padding)), arguments)


def _padded(call: relay.Call, arguments: list[relay.Expr], padding: Padding) -> relay.Expr:
    """The matched convolution, with the pad folded into its own padding."""
    if operator_name(call) != "qnn.conv2d":
        return called_with(call, arguments)
    conv = _convolution(call, [arguments[0].args[0], *arguments[1:]], padding=padding)  # the input of the pad
    both = span_of_all((arguments[0].span, call.span))
    return with_span(conv, both)


def _convolution(call: relay.Call, arguments: list[relay.Expr], **changed: object) -> relay.Call:
    """A convolution of these arguments, with some of the call's attributes changed."""
    return relay.qnn.op.conv2d(*arguments, **{name: call.attrs[name] for name in _OF_A_CONVOLUTION} | changed)


_OF_A_CONVOLUTION = (
    *("kernel_size", "channels", "strides", "padding", "dilation", "groups"),
    *("data_layout", "kernel_layout", "out_layout", "out_dtype"),
)


# ---------------------------------------------------------------- after the conversion


_LAYOUTS: dict[tuple[int, ...], tuple[str, str]] = {
    (0, 2, 3, 1): ("NCHW", "NHWC"),
    (0, 3, 1, 2): ("NHWC", "NCHW"),
}
"""The layouts that a model's own transpositions change."""


def _tidied(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    """Moves layout_transforms out of composites, and cancels inverse pairs."""
    name = operator_name(call)
    if name == "qnn.conv2d" and call.attrs.groups == 1 and str(call.attrs.kernel_layout) == "HWOI":
        # Of one channel and one filter: the same weights, and TVM has no such convolution in HWOI.
        return with_span(_convolution(call, arguments, kernel_layout="HWIO"), call.span)
    if name == "transpose" and (layouts := _LAYOUTS.get(read.transposed_axes(call))) is not None:
        call = with_span(relay.layout_transform(arguments[0], *layouts), call.span)
        name = "layout_transform"
    if name == "layout_transform":
        return _tidied_transform(call, arguments[0])
    if name == "mean" and read.layout_of(call) == "NCHW":
        return _mean_over_nhwc(call, arguments[0])
    if name in read.PAIRWISE and read.layout_of(call) == "NCHW":
        return _pair_over_nhwc(call, arguments)
    if name in _ELEMENTWISE and _operator_of(arguments[0]) == "layout_transform" and _per_tensor(call):
        inner = arguments[0]  # the layout_transform moves behind the composite that this operator ends
        return called_with(inner, [called_with(call, [inner.args[0], *arguments[1:]])])
    return called_with(call, arguments)


def _tidied_transform(call: relay.Call, inner: relay.Expr) -> relay.Expr:
    source, target = str(call.attrs.src_layout), str(call.attrs.dst_layout)
    if _operator_of(inner) == "layout_transform" and str(inner.attrs.src_layout) == target:
        return inner.args[0]
    operand = _operand_in_composite(inner)
    if operand is None:
        return called_with(call, [inner])
    arguments = list(inner.args)
    moved = relay.layout_transform(arguments[operand], source, target)
    arguments[operand] = _tidied_transform(moved, arguments[operand])
    return called_with(inner, arguments)


def _operand_in_composite(expr: relay.Expr) -> int | None:
    """The operand of an operator that begins a composite, in front of which a layout_transform belongs."""
    name = _operator_of(expr)
    if name == "cast" and str(expr.attrs.dtype) in ("int32", "int64"):  # of an average, or of a table's index
        return 0
    if name == "add" and _operator_of(expr.args[0]) == "cast" and _is_one_number(expr.args[1]):
        return 0
    return 1 if name == "take" and expr.attrs.axis is None else None


def _is_one_number(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Constant) and read.constant(expr).size == 1


def _mean_over_nhwc(call: relay.Call, ifm: relay.Expr) -> relay.Expr:
    """The same mean over NHWC, for a mean over height and width whose input stayed in NCHW."""
    to_nhwc = _tidied_transform(relay.layout_transform(ifm, "NCHW", "NHWC"), ifm)
    mean = relay.mean(to_nhwc, axis=(1, 2), keepdims=call.attrs.keepdims)
    mean = with_span(mean, call.span)
    return relay.layout_transform(mean, "NHWC", "NCHW") if call.attrs.keepdims else mean


def _pair_over_nhwc(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
    """The same element-wise operator over NHWC, for one by channel whose inputs stayed in NCHW."""
    operands = []
    for operand, argument in zip(call.args[:2], arguments, strict=False):
        if len(read.shape_of(operand)) == 3:
            argument = relay.reshape(argument, (1, *read.shape_of(operand)))
        operands.append(_tidied_transform(relay.layout_transform(argument, "NCHW", "NHWC"), argument))
    return relay.layout_transform(called_with(call, [*operands, *arguments[2:]]), "NHWC", "NCHW")


def _operator_of(expr: relay.Expr) -> str:
    return operator_name(expr) if isinstance(expr, relay.Call) else ""


def _per_tensor(call: relay.Call) -> bool:
    """Whether an element-wise operator has per-tensor quantization."""
    return operator_name(call) != "qnn.requantize" or read.constant(call.args[1]).size == 1


def _remembering(
    spans: dict[tuple[str, ...], tvm.ir.Span],
) -> Callable[[relay.Call, list[relay.Expr]], relay.Expr]:
    """Records the span of each bias_add, by the operator that it follows."""

    def note(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        if operator_name(call) in ("nn.bias_add", "add") and isinstance(call.args[0], relay.Call):
            spans[source_names(call.args[0].span)] = call.span
        return called_with(call, arguments)

    return note


def _restoring(
    spans: dict[tuple[str, ...], tvm.ir.Span],
) -> Callable[[relay.Call, list[relay.Expr]], relay.Expr]:
    """Restores the span of each bias_add, which layout conversion turns into an `add` without one."""

    def restore(call: relay.Call, arguments: list[relay.Expr]) -> relay.Expr:
        if operator_name(call) == "add" and not source_names(call.span) and isinstance(arguments[0], relay.Call):
            span = spans.get(source_names(arguments[0].span))
            return relay.Call(call.op, arguments, call.attrs, call.type_args, span)
        return called_with(call, arguments)

    return restore
