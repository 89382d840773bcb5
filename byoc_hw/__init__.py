"""Relay models to bare-metal C projects for a neural accelerator: a TVM BYOC extension."""

from byoc_hw.accelerator import (
    DIANA_DIGITAL,
    REFERENCE,
    SMALL,
    Accelerator,
    Library,
    LibraryCall,
    Limits,
    Operands,
)
from byoc_hw.build import build, explain
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
from byoc_hw.frontend.relay.partition import partition_for_hwlib
from byoc_hw.frontend.relay.table import pattern_table
from byoc_hw.frontend.relay.tflite import load_tflite
from byoc_hw.pattern import Check, Form, limit, register_pattern
from byoc_hw.project import Memory, Project
from byoc_hw.report.explain import Report
from byoc_hw.run.result import Cycles, LayerCycles, Result
from byoc_hw.version import __version__

__all__ = [
    "DIANA_DIGITAL",
    "REFERENCE",
    "SMALL",
    "Accelerator",
    "ByocHwError",
    "Check",
    "Cycles",
    "Form",
    "GraphError",
    "InvalidInput",
    "LayerCycles",
    "Library",
    "LibraryCall",
    "Limits",
    "Memory",
    "Operands",
    "PatternError",
    "PlanError",
    "Project",
    "Report",
    "Result",
    "RunError",
    "ToolchainMissing",
    "Unsupported",
    "__version__",
    "build",
    "explain",
    "limit",
    "load_tflite",
    "partition_for_hwlib",
    "pattern_table",
    "register_pattern",
]
