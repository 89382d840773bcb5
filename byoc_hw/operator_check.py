"""Compiles and runs one operator and compares it with TVM: a first test of a new chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.arguments import check_number, check_type, check_whole
from byoc_hw.compiler import build, explain, front_end, partition_for_hwlib
from byoc_hw.errors import Unsupported
from byoc_hw.project import Project
from byoc_hw.report.explain import Report
from byoc_hw.run.files import Inputs, read_model
from byoc_hw.run.real_values import Interface
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.tensor import Array
from byoc_hw.validation import Validation, validate

if TYPE_CHECKING:
    import tvm
    from tvm import relay

TFLITE_TOLERANCE = 1
"""Largest difference, in output steps, between TFLite's and TVM's arithmetic for one layer."""


@dataclass(frozen=True)
class OperatorCheck:
    """The result of a check; true if the operator equals TVM.

    `report` says what was offloaded, `validation` has the comparison, `project` is the generated C project.
    """

    project: Project
    report: Report
    validation: Validation

    @property
    def ok(self) -> bool:
        """Whether every layer and output equals TVM's."""
        return self.validation.ok

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return f"<OperatorCheck {self.validation.headline()}>"

    def __str__(self) -> str:
        return f"{self.validation}\n{self.report}"


def check_operator(
    operator: relay.Expr | tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    *,
    accelerator: Accelerator = REFERENCE,
    numerics: str = "relay",
    inputs: Sequence[Inputs] | None = None,
    count: int = 8,
    on: str = "host",
    tolerance: float | None = None,
    timeout: float = 120.0,
    toolchain: Toolchain = Toolchain(),
) -> OperatorCheck:
    """Partition, build and run one operator, or a small function, and compare it with TVM.

    `operator` is a Relay expression (its free variables are the inputs), a function or a module;
    `params` are weights by name. `inputs` is a list of inferences; by default the limits of each input
    type and then random values, `count` in all. `on`, `timeout` (seconds) and `toolchain` are those of
    `Project.run_batch`.

    With numerics "tflite" TVM's results are not exact: differences up to `tolerance` (by default 1,
    with other numerics 0) are ignored. Compare a TFLite file with `validate`.

    Raises `Unsupported`, with the reasons, where nothing is offloaded, and what partitioning, building
    and running raise.
    """
    check_whole("count", count, 1)
    if tolerance is not None:
        check_number("tolerance", tolerance, positive=False)
    if inputs is not None:
        check_type("inputs", inputs, Sequence, "a list of inferences")
    mod = front_end().operator_module(operator)
    partitioned = partition_for_hwlib(mod, params, accelerator=accelerator, numerics=numerics)
    report = explain(partitioned)
    if not any(outcome.regions for outcome in report.outcomes):
        raise Unsupported(f"nothing of the operator is offloaded:\n{report}")
    project = build(partitioned)
    inferences = list(_inputs(read_model(project.directory).inputs, count)) if inputs is None else list(inputs)
    if tolerance is None:
        tolerance = TFLITE_TOLERANCE if numerics == "tflite" else 0
    validation = validate(
        project, inferences, partitioned, on=on, tolerance=tolerance, timeout=timeout, toolchain=toolchain
    )
    return OperatorCheck(project, report, validation)


def _inputs(interfaces: Sequence[Interface], count: int) -> Iterator[list[Array]]:
    """Inputs in model order: all at the lower limit, all at the upper, then random ones from a fixed seed."""
    random = np.random.default_rng(0)
    types = [(interface.shape, np.dtype(interface.dtype)) for interface in interfaces]
    rails: list[list[Array]] = [
        [np.full(shape, _limits(dtype)[end], dtype) for shape, dtype in types] for end in (0, 1)
    ]
    yield from rails[:count]
    for _ in range(count - len(rails)):
        yield [_random(random, shape, dtype) for shape, dtype in types]


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "f":
        return -4.0, 4.0
    if dtype.kind == "b":
        return 0, 1
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def _random(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    low, high = _limits(dtype)
    if dtype.kind == "f":
        return random.uniform(low, high, shape).astype(dtype)
    return random.integers(int(low), int(high), shape, np.int64, endpoint=True).astype(dtype)
