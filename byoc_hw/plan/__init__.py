"""Graph in, plan out: what a region copies, computes and waits for, and where every byte lies.

`steps` is the plan as data, `region` the planner's stages in order, `memory` places bytes by
lifetime, `cost` counts cycles.
"""

from byoc_hw.plan.region import plan_region
from byoc_hw.plan.search import layer_by_layer
from byoc_hw.plan.steps import (
    ACTIVATIONS,
    ARGUMENT,
    FLASH,
    SCRATCH,
    SLOTS,
    WEIGHTS,
    Address,
    Copy,
    CopyWait,
    Image,
    Job,
    JobWait,
    LayerCall,
    LocalBuffer,
    RegionPlan,
    Step,
)

__all__ = [
    "ACTIVATIONS",
    "ARGUMENT",
    "FLASH",
    "SCRATCH",
    "SLOTS",
    "WEIGHTS",
    "Address",
    "Copy",
    "CopyWait",
    "Image",
    "Job",
    "JobWait",
    "LayerCall",
    "LocalBuffer",
    "RegionPlan",
    "Step",
    "layer_by_layer",
    "plan_region",
]
