"""Relay models to bare-metal C projects for a neural accelerator: a TVM BYOC extension."""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

from byoc_hw.accelerator import (
    DIANA_DIGITAL,
    REFERENCE,
    SMALL,
    Accelerator,
    Library,
    LibraryCall,
    Limits,
    Operands,
    TuningSpace,
)
from byoc_hw.errors import (
    ByocHwError,
    GraphError,
    InvalidInput,
    PatternError,
    PlanError,
    RunError,
    ToolchainMissing,
    Unsupported,
)
from byoc_hw.pattern import Check, Form, limit, register_pattern
from byoc_hw.plan.tune import TunedRegion
from byoc_hw.project import Memory, Project
from byoc_hw.report.explain import Report
from byoc_hw.run.result import Cycles, LayerCycles, Result
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.tuning import Tuning
from byoc_hw.validation import Difference, TfliteReference, Validation, validate
from byoc_hw.version import __version__

if TYPE_CHECKING:
    from byoc_hw.build import build, explain
    from byoc_hw.check import OperatorCheck, check_operator
    from byoc_hw.frontend.relay.partition import partition_for_hwlib
    from byoc_hw.frontend.relay.table import pattern_table
    from byoc_hw.frontend.relay.tflite import load_tflite
    from byoc_hw.tune import TuningProgress, tune

__all__ = [
    "DIANA_DIGITAL",
    "REFERENCE",
    "SMALL",
    "Accelerator",
    "ByocHwError",
    "Check",
    "Cycles",
    "Difference",
    "Form",
    "GraphError",
    "InvalidInput",
    "LayerCycles",
    "Library",
    "LibraryCall",
    "Limits",
    "Memory",
    "Operands",
    "OperatorCheck",
    "PatternError",
    "PlanError",
    "Project",
    "Report",
    "Result",
    "RunError",
    "TfliteReference",
    "Toolchain",
    "ToolchainMissing",
    "TunedRegion",
    "Tuning",
    "TuningProgress",
    "TuningSpace",
    "Unsupported",
    "Validation",
    "__version__",
    "build",
    "check_operator",
    "explain",
    "limit",
    "load_tflite",
    "partition_for_hwlib",
    "pattern_table",
    "register_pattern",
    "tune",
    "validate",
]

_NEEDS_TVM = {
    "OperatorCheck": "byoc_hw.check",
    "TuningProgress": "byoc_hw.tune",
    "build": "byoc_hw.build",
    "check_operator": "byoc_hw.check",
    "explain": "byoc_hw.build",
    "load_tflite": "byoc_hw.frontend.relay.tflite",
    "partition_for_hwlib": "byoc_hw.frontend.relay.partition",
    "pattern_table": "byoc_hw.frontend.relay.table",
    "tune": "byoc_hw.tune",
}


def _load() -> None:
    """Import what needs TVM; TVM knows the compiler `hwlib` from then on.

    All at once: the function `build` is to stand where the import of its module leaves the module.
    """
    loaded = {name: getattr(importlib.import_module(module), name) for name, module in _NEEDS_TVM.items()}
    globals().update(loaded)


def __getattr__(name: str) -> object:
    if name not in _NEEDS_TVM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _load()
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Importing the package registers it with TVM, as code that asks TVM for its pattern table expects.
# Two cases do without TVM until a name asks for it: a machine that has none, where projects still
# run, and `python -m byoc_hw`, which Python is about to start while this is imported.
if sys.argv[:1] != ["-m"] and importlib.util.find_spec("tvm") is not None:
    _load()
