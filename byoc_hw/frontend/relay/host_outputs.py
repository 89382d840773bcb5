"""Outputs of a model that are constants: TVM's AoT executor has none, so that functions of the host write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relay

from byoc_hw.frontend.relay.compose import with_main
from byoc_hw.frontend.relay.host_source import HOST_INCLUDES
from byoc_hw.frontend.relay.interface import OUTPUT_NAMES, output_values, stated_names
from byoc_hw.names import distinct
from byoc_hw.program import Buffer, HostCall, Program
from byoc_hw.tensor import Array

_BYTES = {"int8": "int8_t", "uint8": "uint8_t", "bool": "bool", "float32": "float", "float64": "double"}


@dataclass(frozen=True)
class ConstantOutput:
    """An output that is a constant, by its place among all outputs of the model."""

    place: int
    name: str
    values: Array

    def call(self, mod_name: str) -> HostCall:
        """The call that writes it."""
        symbol = f"tvmgen_{mod_name}_constant_output_{self.place}"
        target = Buffer(self.name, self.values.nbytes, "output", self.values.shape, str(self.values.dtype))
        return HostCall(symbol, (target,))

    def source(self, mod_name: str) -> str:
        """The C function that writes it. Its values are spelt as bits, which have every float."""
        dtype = str(self.values.dtype)
        bits = self.values.ravel().view(f"u{self.values.dtype.itemsize}")
        stored, suffix = f"uint{8 * bits.dtype.itemsize}_t", {4: "u", 8: "ULL"}.get(bits.dtype.itemsize, "")
        words = [f"{value}{suffix}" for value in bits.tolist()]
        rows = "".join(f"    {', '.join(words[start : start + 8])},\n" for start in range(0, len(words), 8))
        return (
            f"int32_t {self.call(mod_name).symbol}({_BYTES.get(dtype, f'{dtype}_t')} *output, uint8_t *arena) {{\n"
            f"  static const {stored} values[{len(words)}] = {{\n{rows}  }};\n"
            "  (void)arena;\n  memcpy(output, values, sizeof values);\n  return 0;\n}\n"
        )


def without_constant_outputs(mod: tvm.IRModule) -> tuple[tvm.IRModule, tuple[ConstantOutput, ...]]:
    """A type-checked module with those outputs alone that are computed, and the others.

    The module returns an empty tuple if all are constants.
    """
    main = mod["main"]
    values = output_values(main.body)
    known = [_value(mod, value) for value in values]
    if all(value is None for value in known):
        return mod, ()
    given = stated_names(main)
    names = [f"constant_{place}" for place in range(len(values))] if given is None else given
    constants = [ConstantOutput(place, names[place], one) for place, one in enumerate(known) if one is not None]
    kept = [place for place, value in enumerate(known) if value is None]
    body = relay.Tuple([values[place] for place in kept], main.body.span)
    cut = relay.Function(main.params, body, None, main.type_params, main.attrs, main.span)
    if given is not None:
        cut = cut.with_attr(OUTPUT_NAMES, [names[place] for place in kept])
    return with_main(mod, cut), tuple(constants)


def _value(mod: tvm.IRModule, expr: relay.Expr) -> Array | None:
    """The value of an expression without inputs that TVM can compute; None for others."""
    if relay.analysis.free_vars(expr):
        return None
    folded = relay.transform.FoldConstantExpr(expr, mod)
    return np.asarray(folded.data.numpy()) if isinstance(folded, relay.Constant) else None


def with_functions(source: str, nbytes: int, mod_name: str, constants: Sequence[ConstantOutput]) -> tuple[str, int]:
    """The host's C source, and the bytes of its constants, with the functions that write these outputs."""
    if not constants:
        return source, nbytes
    functions = "\n".join(constant.source(mod_name) for constant in constants)
    return f"{source or HOST_INCLUDES}\n{functions}", nbytes + sum(one.values.nbytes for one in constants)


def with_constant_outputs(program: Program, constants: Sequence[ConstantOutput]) -> Program:
    """The program with calls that write the constants, in their places among its outputs."""
    names = distinct([one.name for one in constants], taken=[buffer.name for buffer in program.outputs])
    calls = [replace(one, name=name).call(program.name) for name, one in zip(names, constants, strict=True)]
    outputs = list(program.outputs)
    for one, call in zip(constants, calls, strict=True):  # in the order of their places
        outputs.insert(one.place, call.arguments[0])
    return replace(program, outputs=tuple(outputs), calls=(*program.calls, *calls))
