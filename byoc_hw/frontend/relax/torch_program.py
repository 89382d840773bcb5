"""Imports programs of `torch.export` as Relax modules: those that were quantized, and others. Needs the package torch.

A program has the operators of torch's library `quantized_decomposed` where values are quantized and made real again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators that programs have
import tvm
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relax.bindings import with_names
from byoc_hw.frontend.relax.owners import owned
from byoc_hw.frontend.relax.torch_operators import OPERATORS, RECURRENT, last_states
from byoc_hw.frontend.tflite_stops import importer_said
from byoc_hw.tensor import Array

_KINDS = ("per_tensor.default", "per_tensor.tensor", "per_channel.default")


def load_torch(path: str | Path) -> tvm.IRModule:
    """Read a .pt2 file, which `torch.export.save` wrote: a Relax module, its weights inside.

    Raises `InvalidInput` for a file that cannot be read, for shapes that are not static, and for operators that cannot
    be imported.
    """
    try:
        program = torch.export.load(str(path))
    except Exception as error:  # torch has no error of its own for a file that is none
        raise InvalidInput(f"{path}: is no program that torch.export.save wrote: {importer_said(error)}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that torch will drop
            return _imported(_in_known_operators(program))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error.__cause__


def _imported(program: Any) -> tvm.IRModule:
    unknown = _unknown(program)
    if unknown:
        raise InvalidInput(f"operators are those that TVM's importer knows: got {', '.join(map(str, unknown))}")
    importer = _Importer(program)
    try:
        mod = importer.from_exported_program(program, False, False, True, None)
    except InvalidInput:
        raise
    except Exception as error:  # the importer has no errors of its own: it raises whatever its code runs into
        raise InvalidInput(f"cannot be imported: {importer_said(error)}") from error
    main = with_names(mod["main"], importer.owners.get)
    return tvm.IRModule({"main": main})


def _in_known_operators(program: Any) -> Any:
    """The program with others in place of operators that cannot be imported, where torch has them."""
    done: set[Any] = set()
    while missing := set(_unknown(program)) - done:
        table = torch.export.default_decompositions()  # all of torch's, which takes time to make
        program = program.run_decompositions({one: table[one] for one in missing if one in table})
        done |= missing
    return program


def _unknown(program: Any) -> list[Any]:
    """The operators of a program that cannot be imported."""
    known = _Importer(program).convert_map
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    return sorted({target for target in called if target.__name__ not in known}, key=str)


class _Importer(ExportedProgramImporter):  # type: ignore[misc]
    """TVM's importer, with operators that quantize, and in `owners` the node that each call is of."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.owners: dict[Any, str] = {}
        self._constants = _constants_of(program)
        for kind in _KINDS:
            self.convert_map[f"quantize_{kind}"] = self._quantized
            self.convert_map[f"dequantize_{kind}"] = self._dequantized
        self._result_by_tvm = self.convert_map["getitem"]
        self.convert_map["getitem"] = self._result
        for name, convert in {**dict.fromkeys(OPERATORS), **self.convert_map}.items():
            self.convert_map[name] = partial(self._converted, convert)

    def _converted(self, convert: Callable[[Any], Any] | None, node: Any) -> Any:
        name = node.target.__name__
        made = OPERATORS[name](self.block_builder, self._arguments(node)) if name in OPERATORS else None
        if made is None and convert is not None:
            made = convert(node)
        if name in RECURRENT:
            made = (made, last_states(self.block_builder, made, self._arguments(node)))
        return owned(self.block_builder, self.owners, made, _name_of(node))

    def _arguments(self, node: Any) -> dict[str, Any]:
        """The arguments of a node by the name that its operator gives them."""
        schema = node.target._schema.arguments
        given = {one.name: one.default_value for one in schema if one.has_default_value()}
        given |= dict(zip([one.name for one in schema], node.args, strict=False)) | node.kwargs
        return {
            name: self._operand(value) if isinstance(value, torch.fx.Node) else value for name, value in given.items()
        }

    def _operand(self, node: Any) -> Any:
        return relax.const(self._constants[node.name]) if node.name in self._constants else self.env[node]

    def _result(self, node: Any) -> Any:
        """One of the results of an operator that has several."""
        of, index = node.args
        results = self.env[of]
        if not isinstance(results, tuple):
            return self._result_by_tvm(node)
        if len(results) <= index or results[index] is None:
            if node.users:
                raise InvalidInput(f"{of.name}: result {index} of {of.target} cannot be imported, and it is read")
            return None
        return results[index]

    def _quantized(self, node: Any) -> Any:
        scale, zero_point, axis, least, most, dtype = self._grid(node)
        real = self._constants.get(node.args[0].name)
        if real is not None:  # rounded as torch does it
            shape = [-1 if one == axis else 1 for one in range(real.ndim)]
            each = [values.reshape(shape) if values.ndim else values for values in (1 / scale, zero_point)]
            stored = np.clip(np.rint(real * each[0]) + each[1], least, most)
            self._constants[node.name] = stored.astype(dtype)
            return relax.const(self._constants[node.name])
        made = relax.op.quantize(
            self.env[node.args[0]], relax.const(scale), relax.const(zero_point), axis=axis, out_dtype=dtype
        )
        limits = np.iinfo(dtype)
        if (least, most) == (limits.min, limits.max):
            return made
        return relax.op.clip(self.block_builder.emit(made), least, most)

    def _dequantized(self, node: Any) -> Any:
        scale, zero_point, axis, *_ = self._grid(node)
        stored = self.env[node.args[0]]
        return relax.op.dequantize(stored, relax.const(scale), relax.const(zero_point), axis=axis)

    def _grid(self, node: Any) -> tuple[Array, Array, int, int, int, str]:
        """The scale, zero point, axis, least and largest stored value of a node, and its type."""
        by_channel = "per_channel" in node.target.__name__
        names = ["input", "scales", "zero_points", "axis"] if by_channel else ["input", "scale", "zero_point"]
        given = dict(zip([*names, "quant_min", "quant_max", "dtype"], node.args, strict=False)) | node.kwargs
        scale, zero_point = np.broadcast_arrays(*(self._value(node, given[name]) for name in names[1:3]))
        dtype = str(given["dtype"]).removeprefix("torch.")
        least, most = int(given["quant_min"]), int(given["quant_max"])
        return scale.astype(np.float32), zero_point.astype(np.int32), int(given.get("axis", -1)), least, most, dtype

    def _value(self, node: Any, given: Any) -> Array:
        """A number of a node, or the values of a constant."""
        if not isinstance(given, torch.fx.Node):
            return np.asarray(0 if given is None else given)
        if given.name not in self._constants:
            raise InvalidInput(f"{node.name}: scales and zero points are constants: got the result of {given.name}")
        values = self._constants[given.name]
        return values if "per_channel" in node.target.__name__ else values.reshape(())


def _name_of(node: Any) -> str:
    """A node's name behind the path of the module that it was written in, where the program has that."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    return f"{path}/{node.name}" if path else str(node.name)


def _constants_of(program: Any) -> dict[str, Array]:
    """The values of what a program holds, by the name of its node."""
    held = {**program.state_dict, **program.constants}
    return {
        spec.arg.name: held[spec.target].detach().cpu().numpy()
        for spec in program.graph_signature.input_specs
        if isinstance(held.get(spec.target), torch.Tensor)
    }
