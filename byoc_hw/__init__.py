"""Relay models to bare-metal C projects for a neural accelerator: a TVM BYOC extension."""

from byoc_hw.accelerator import DIANA_DIGITAL, DSP, REFERENCE, SMALL, Accelerator, TuningSpace
from byoc_hw.accelerator_file import load_accelerator, save_accelerator
from byoc_hw.compiler import (
    build,
    explain,
    explain_tflite,
    load,
    load_tflite,
    partition_for_hwlib,
    pattern_table,
    register_with_tvm_when_imported,
    to_integers,
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
from byoc_hw.exploration import what_if
from byoc_hw.library_calls import Library, LibraryCall, Operands
from byoc_hw.limits import Limits
from byoc_hw.mesh.built_mesh import MeshProject, MeshResult
from byoc_hw.mesh.events import Simulation, simulate
from byoc_hw.mesh.machine import MESH_7296, Link, Mesh
from byoc_hw.mesh.plan import MeshPlan
from byoc_hw.mesh.stage_check import StageDifference, StageValidation
from byoc_hw.mesh_builder import build_mesh, mesh_network
from byoc_hw.mesh_pipeline import pipeline
from byoc_hw.objective import Energy
from byoc_hw.operator_check import OperatorCheck, check_operator
from byoc_hw.pattern import Check, Form, limit, register_pattern
from byoc_hw.plan.tune.rounds import TunedRegion
from byoc_hw.project import Memory, Project
from byoc_hw.quantizer import Quantized, quantize
from byoc_hw.report.explain import Report
from byoc_hw.report.summary import LayerFigures, Summary
from byoc_hw.report.variations import Exploration, Variation
from byoc_hw.run.real_values import Interface
from byoc_hw.run.result import Cycles, LayerCycles, Result
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.soc import Soc
from byoc_hw.tuner import TuningInterrupted, TuningProgress, tune
from byoc_hw.tuning import Tuning
from byoc_hw.validation import Comparison, Difference, TfliteReference, Validation, validate
from byoc_hw.version import __version__

__all__ = [
    "DIANA_DIGITAL",
    "DSP",
    "MESH_7296",
    "REFERENCE",
    "SMALL",
    "Accelerator",
    "ByocHwError",
    "Check",
    "Comparison",
    "Cycles",
    "Difference",
    "Energy",
    "Exploration",
    "Form",
    "GraphError",
    "Interface",
    "InvalidInput",
    "LayerCycles",
    "LayerFigures",
    "Library",
    "LibraryCall",
    "Limits",
    "Link",
    "Memory",
    "Mesh",
    "MeshPlan",
    "MeshProject",
    "MeshResult",
    "Operands",
    "OperatorCheck",
    "PatternError",
    "PlanError",
    "Project",
    "Quantized",
    "Report",
    "Result",
    "RunError",
    "Simulation",
    "Soc",
    "StageDifference",
    "StageValidation",
    "Summary",
    "TfliteReference",
    "Toolchain",
    "ToolchainMissing",
    "TunedRegion",
    "Tuning",
    "TuningInterrupted",
    "TuningProgress",
    "TuningSpace",
    "Unsupported",
    "Validation",
    "Variation",
    "__version__",
    "build",
    "build_mesh",
    "check_operator",
    "explain",
    "explain_tflite",
    "limit",
    "load",
    "load_accelerator",
    "load_tflite",
    "mesh_network",
    "partition_for_hwlib",
    "pattern_table",
    "pipeline",
    "quantize",
    "register_pattern",
    "save_accelerator",
    "simulate",
    "to_integers",
    "tune",
    "validate",
    "what_if",
]

# Who has imported this package and TVM, in any order, may ask TVM for the pattern table of the compiler `hwlib`.
register_with_tvm_when_imported()
