"""What the test of a pattern checks: the form is taken, others are declined and why, the C reads as it did, and it
computes what TVM does, bit for bit.

Each function raises `AssertionError` with what it found. Operators are Relay expressions; their free variables are the
inputs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relay

from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.compiler import build, explain, partition_for_hwlib
from byoc_hw.frontend.relay.front_end import operator_module
from byoc_hw.frontend.relay.lower import lower_region
from byoc_hw.frontend.relay.record import numerics_of, regions
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.graph import Layer, Reshape, Transpose
from byoc_hw.project import Project
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.tensor import Array
from byoc_hw.version import __version__

UPDATE_GOLDEN = "BYOC_HW_UPDATE_GOLDEN"
"""With this variable of the environment `check_golden` writes the file in place of comparing with it."""

QUICK = Toolchain(cflags="-O1")
"""The compiler takes longer than the programs run."""


# ---------------------------------------------------------------- operators


def const(value: object, dtype: str) -> relay.Constant:
    """A constant of one type."""
    return relay.const(np.asarray(value, dtype), dtype=dtype)


def variable(shape: tuple[int, ...], dtype: str = "int8", name: str = "x") -> relay.Var:
    """An input."""
    return relay.var(name, shape=shape, dtype=dtype)


# ---------------------------------------------------------------- what goes where


def check_accepted(operator: relay.Expr, composite: str, accelerator: Accelerator = REFERENCE) -> Layer:
    """The one layer that the operator becomes, as this composite."""
    mod = partition_for_hwlib(operator_module(operator), accelerator=accelerator)
    layers = _layers_by_composite(mod)
    if [name for name, _ in layers] != [composite]:
        raise AssertionError(f"the operator is one layer of {composite}: got\n{explain(mod)}")
    return layers[0][1]


def check_declined(operator: relay.Expr, composite: str, reason: str, accelerator: Accelerator = REFERENCE) -> None:
    """The composite does not take the operator, and the report says why: `reason` is part of its text."""
    mod = partition_for_hwlib(operator_module(operator), accelerator=accelerator)
    if composite in (name for name, _ in _layers_by_composite(mod)):
        raise AssertionError(f"{composite} declines the operator: got\n{explain(mod)}")
    found = reasons(mod, composite)
    if not any(reason in text for text in found):
        raise AssertionError(f"{composite} declines the operator with {reason!r}: got {found}\n{explain(mod)}")


def reasons(mod: tvm.IRModule, composite: str) -> list[str]:
    """What a partitioned module's report says of one composite, each reason once."""
    rejections = [one for outcome in explain(mod).outcomes for one in outcome.rejections]
    return list(dict.fromkeys(str(one) for one in rejections if one.composite == composite))


def _layers_by_composite(mod: tvm.IRModule) -> list[tuple[str, Layer]]:
    """The layers of a partitioned module and their composites; changes of shape only where nothing else is."""
    of_source = {outcome.name: outcome.composites for outcome in explain(mod).outcomes}
    found = []
    for variable_of_region, function in regions(mod).items():
        graph = lower_region(function, variable_of_region.name_hint, numerics_of(function))
        graph.verify()
        named = [layer for layer in graph.layers if layer.source]
        computing = [layer for layer in named if not isinstance(layer, Reshape | Transpose)]
        for layer in computing or named:
            found += [(composite, layer) for composite in of_source[layer.source[-1]]]
    return found


# ---------------------------------------------------------------- golden C


def check_golden(operator: relay.Expr, composite: str, golden: Path, accelerator: Accelerator = REFERENCE) -> None:
    """The C of the operator's region is that of the file `golden`, and computes what TVM does.

    Where it is to be another one, `BYOC_HW_UPDATE_GOLDEN=1` writes the file anew.
    """
    mod = operator_module(operator)
    project = build(partition_for_hwlib(mod, mod_name=composite, accelerator=accelerator))
    source = golden_text(project, accelerator)
    if os.environ.get(UPDATE_GOLDEN):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(source, encoding="utf-8")
    again = f"run the test with {UPDATE_GOLDEN}=1 to write it anew"
    if not golden.exists():
        raise AssertionError(f"{golden.name} is there: {again}")
    if source != golden.read_text(encoding="utf-8"):
        raise AssertionError(f"the C of {composite} is that of {golden.name}: {again}, and read the difference")
    compare(mod, project)


def golden_text(project: Project, accelerator: Accelerator) -> str:
    """The C of a project's regions, without the version that wrote it."""
    source = project.directory / "src" / f"{project.mod_name}_{accelerator.name}.c"
    return source.read_text(encoding="utf-8").replace(__version__, "VERSION")


# ---------------------------------------------------------------- bit for bit


def check_bit_exact(
    operators: Sequence[relay.Expr], composite: str, accelerator: Accelerator = REFERENCE, seed: int = 0
) -> None:
    """Each operator is a layer of the composite and gives TVM's own results, element by element."""
    mod = together(operators)
    after = partition_for_hwlib(mod, accelerator=accelerator)
    taken = [name for name, _ in _layers_by_composite(after)]
    if taken.count(composite) != len(operators):
        raise AssertionError(f"{len(operators)} operators are layers of {composite}: got {taken}\n{explain(after)}")
    compare(mod, build(after), seed)


def together(operators: Sequence[relay.Expr]) -> tvm.IRModule:
    """One module of several operators, each with inputs of its own; its outputs in their order."""
    body = relay.Tuple(list(operators)) if len(operators) > 1 else operators[0]
    return operator_module(relay.Function(relay.analysis.free_vars(body), body))


def compare(mod: tvm.IRModule, project: Project, seed: int = 0) -> None:
    """The project gives what TVM gives for the module: for random inputs, and for the extremes that sums can reach."""
    reference, inferences = Reference(mod), inputs_of(mod, seed)
    for number, (inputs, result) in enumerate(
        zip(inferences, project.run_batch(inferences, toolchain=QUICK), strict=True)
    ):
        for index, (got, want) in enumerate(zip(result.outputs, reference.run(inputs), strict=True)):
            np.testing.assert_array_equal(got, want, err_msg=f"inference {number}, output {index}", strict=True)


def inputs_of(mod: tvm.IRModule, seed: int = 0) -> list[list[Array]]:
    """Inputs of several inferences: at random, at both ends of the type, at either, and zeros."""
    rng = np.random.default_rng(seed)
    types = [
        (tuple(map(int, parameter.checked_type.shape)), np.dtype(parameter.checked_type.dtype))
        for parameter in mod["main"].params
    ]
    return [[_filled(rng, kind, shape, dtype) for shape, dtype in types] for kind in range(6)]


def _filled(rng: np.random.Generator, kind: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "f":
        return rng.uniform(-4, 4, shape).astype(dtype)
    limits = np.iinfo(dtype)
    if kind < 2:
        return rng.integers(limits.min, limits.max, shape, np.int64, endpoint=True).astype(dtype)
    if kind == 4:
        return rng.choice(np.asarray((limits.min, limits.max), dtype), shape)
    return np.full(shape, {2: limits.min, 3: limits.max, 5: 0}[kind], dtype)
