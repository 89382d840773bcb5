"""Chips of an accelerator for convolutions beside one for everything, on a HAL and on a library."""

from dataclasses import replace
from pathlib import Path

from byoc_hw.accelerator import DIANA_DIGITAL, DSP, REFERENCE
from byoc_hw.library_calls import Library, LibraryCall
from byoc_hw.soc import Soc

WORKSPACE = 24
"""Bytes of arena that a call of the library has."""

DLA = replace(DIANA_DIGITAL, name="dla", label="DLA")
PAIR = Soc((DLA, DSP))
TWINS = Soc(tuple(replace(REFERENCE, name=name) for name in ("one", "two")))


def with_library(accelerator, kinds, each=2):
    """The accelerator as a library that has calls for some kinds of layers, which take `each` cycles an element."""
    call = LibraryCall(
        "call",
        lambda layer, operands: [],
        workspace=lambda layer: WORKSPACE,
        cycles=lambda layer: each * elements(layer),
    )
    limits = {kind: accelerator.limits[kind] for kind in (*kinds, "reshape")}
    library = Library(Path("vendor.h"), (), dict.fromkeys(kinds, call), wait="ended")
    return replace(accelerator, limits=limits, library=library)


def elements(layer):
    return max(tensor.elements for tensor in (*layer.inputs, layer.ofm))


VECTOR = Soc((DLA, with_library(DSP, ["depthwise_conv2d"])))
