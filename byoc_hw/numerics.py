"""The arithmetic that a model can be compiled with, and how each of its layers rounds in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from byoc_hw.graph import Add, BaseLayer, Pool2d
from byoc_hw.tensor import Rounding

_Layer = TypeVar("_Layer", bound=BaseLayer)

NUMERICS: Mapping[str, tuple[Rounding, ...]] = {
    "relay": ("upward",),
    "tflite": ("tflite",),
    "float": ("upward", "tflite"),
}
"""The roundings of the hardware that each needs.

"relay" is TVM's own golden semantics; with "tflite" offloaded layers follow TFLite's reference integer kernels; with
"float" they are as near as they come to the float operators between the dequantize and quantize of a Relax module.
"""


def in_numerics(layer: _Layer, numerics: str) -> _Layer:
    """The layer with its rounding.

    "float" rounds sums alone: with "relay" an addition rounds each operand, and a mean of real values is truncated
    before it is scaled. A mean with padding, whose windows have several divisors, has no other form.
    """
    if numerics != "float":
        (rounding,) = NUMERICS[numerics]
        return replace(layer, rounding=rounding)
    if isinstance(layer, Pool2d) and layer.mode == "avg" and layer.rescaled and not any(layer.padding):
        layer = replace(layer, in_one=True)
    return replace(layer, rounding="tflite" if isinstance(layer, Add) else "upward")
