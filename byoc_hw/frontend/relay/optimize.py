"""The hook `relay.ext.<name>.optimize`: NCHW regions are brought to NHWC.

TVM hands over each region as a module with one function `main`, before it is given its symbol.
"""

from __future__ import annotations

import tvm
from tvm import relay

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.accelerators import Session, by_name, session
from byoc_hw.frontend.relay.compose import inline_composites
from byoc_hw.frontend.relay.lower import lower_region, region_layout
from byoc_hw.frontend.relay.table import entries

DESIRED_LAYOUTS = {
    "qnn.conv2d": ["NHWC", "default"],
    "nn.max_pool2d": ["NHWC", "default"],
    "nn.avg_pool2d": ["NHWC", "default"],
    "nn.global_avg_pool2d": ["NHWC", "default"],
}


def optimize(mod: tvm.IRModule, compiler: str) -> tvm.IRModule:
    """The module with its region in NHWC and its constants folded.

    Layout changes inside the region cancel out; what is left at its borders and before a flatten
    stays as `layout_transform` calls, which the lowering reads. `Unsupported`, with operator and
    reason, where something else is left over.
    """
    if region_layout(mod["main"]) == "NHWC":
        return mod
    current = session.get()
    if current is None or current.accelerator.name != compiler:
        current = Session(by_name(compiler))
    with tvm.transform.PassContext(opt_level=3):  # ConvertLayout does nothing below 3
        mod = tvm.transform.Sequential(
            [
                _InlineComposites(),
                relay.transform.InferType(),
                # Before the layout changes: ConvertLayout leaves an nn.pad behind in NCHW.
                relay.transform.FoldExplicitPadding(),
                relay.transform.ConvertLayout(DESIRED_LAYOUTS),
                relay.transform.FoldConstant(),
                relay.transform.InferType(),
                relay.transform.MergeComposite(entries(current.accelerator, current.deny)),
                relay.transform.InferType(),
            ]
        )(mod)
    if region_layout(mod["main"]) != "NHWC":
        raise Unsupported("a region in NCHW could not be brought to NHWC")
    lower_region(mod["main"], "region").verify()
    return mod


@relay.transform.function_pass(opt_level=0, name="byoc_hw.InlineComposites")
class _InlineComposites:
    def transform_function(
        self, function: relay.Function, mod: tvm.IRModule, context: tvm.transform.PassContext
    ) -> relay.Function:
        return inline_composites(function)
