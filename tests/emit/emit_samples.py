"""Small programs made by hand: no TVM, no front end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.emit.parts import Parts
from byoc_hw.graph import Add, Conv2d, Dense, Graph, Pool2d, Reshape
from byoc_hw.plan.place.arena import ModelMemory, place_model
from byoc_hw.plan.planned import PlannedRegion
from byoc_hw.plan.region import plan_region
from byoc_hw.program import Buffer, CopyCall, HostCall, Program, RegionCall
from byoc_hw.tensor import Quantization, Tensor

SCALE = Quantization((0.5,), (3,))
WEIGHT_SCALE = Quantization((0.25,), (0,))


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, shape, quantization=SCALE)


def weights(name: str, *shape: int) -> Tensor:
    values = np.random.default_rng(1).integers(-8, 8, shape)
    return Tensor(name, shape, quantization=WEIGHT_SCALE, data=values.astype(np.int8))


def sample_graph(name: str = "tvmgen_demo_hwlib_main_0") -> Graph:
    """conv2d -> add to itself -> average pooling -> reshape -> dense."""
    x, y, z = tensor("x", 1, 6, 6, 4), tensor("conv/Relu;conv/BiasAdd", 1, 6, 6, 8), tensor("add", 1, 6, 6, 8)
    pooled, flat, out = tensor("pool", 1, 1, 1, 8), tensor("flat", 1, 8), tensor("out", 1, 5)
    sums = Quantization((0.125,), (0,))
    bias = Tensor("bias", (8,), "int32", 32, data=np.arange(8, dtype=np.int32) * 7)
    return Graph(
        name,
        (x,),
        (out,),
        (
            Conv2d("conv/Relu;conv/BiasAdd", ("conv/Relu", "conv/BiasAdd"), x, y, weights("w", 8, 3, 3, 4), bias, sums,
                   -100, 100, padding=(1, 1, 1, 1)),
            Add("add", ("add",), y, z, y),
            Pool2d("pool", ("pool",), z, pooled, kernel=(6, 6)),
            Reshape("flat", ("flat",), pooled, flat),
            Dense("fc", ("fc",), flat, out, weights("v", 5, 8), None, sums, -128, 127),
        ),
    )  # fmt: skip


def graph_without_pooling(name: str = "tvmgen_demo_hwlib_main_0") -> Graph:
    """conv2d -> add a constant -> reshape -> dense: what the vendor's library can do."""
    conv = sample_graph().layers[0]
    assert isinstance(conv, Conv2d)
    values = np.random.default_rng(3).integers(-50, 50, (1, 6, 6, 8)).astype(np.int8)
    constant = Tensor("constant", (1, 6, 6, 8), quantization=SCALE, data=values)
    added, flat, out = tensor("same name", 1, 6, 6, 8), tensor("same name", 1, 288), tensor("out", 1, 5)
    weights = Tensor(
        "v",
        (5, 288),
        quantization=Quantization((0.01,), (0,)),
        data=np.random.default_rng(2).integers(-9, 9, (5, 288)).astype(np.int8),
    )
    return Graph(
        name,
        (conv.ifm,),
        (out,),
        (
            conv,
            Add("add", ("add",), conv.ofm, added, constant),
            Reshape("flat", ("flat",), added, flat),
            Dense("fc", ("fc",), flat, out, weights, None, Quantization((0.005,), (0,)), -128, 127),
        ),
    )


def sample_program(mod_name: str = "demo", graph: Graph | None = None) -> Program:
    """Halve the input on the host, run a region, turn its output into floats on the host, copy the input out."""
    graph = graph or sample_graph(f"tvmgen_{mod_name}_hwlib_main_0")
    x = Buffer("serving default:x", 144, "input", (1, 6, 6, 4), quantization=SCALE)
    halved, scores = Buffer("sid_1", 144, shape=(1, 6, 6, 4)), Buffer("sid_2", 5, shape=(1, 5))
    floats = Buffer("StatefulPartitionedCall:0", 20, "output", (1, 5), "float32")
    same = Buffer("x", 144, "output", (1, 6, 6, 4))
    return Program(
        mod_name,
        (x,),
        (floats, same),
        (
            HostCall(f"tvmgen_{mod_name}_fused_halve", (x, halved), ("halve",)),
            RegionCall(graph, (halved, scores)),
            HostCall(f"tvmgen_{mod_name}_fused_dequantize", (scores, floats), ("dequantize",)),
            CopyCall(x, same),
        ),
    )


def host_source(mod_name: str = "demo") -> str:
    return f"""\
#include <stdint.h>
int32_t tvmgen_{mod_name}_fused_halve(int8_t* p0, int8_t* T, uint8_t* arena_0_var);
int32_t tvmgen_{mod_name}_fused_halve(int8_t* p0, int8_t* T, uint8_t* arena_0_var) {{
  for (int32_t i = 0; i < 144; ++i) {{
    T[i] = (int8_t)(p0[i] / 2);
  }}
  return p0[0] == 99 ? -1 : 0;
}}
int32_t tvmgen_{mod_name}_fused_dequantize(int8_t* p0, float* T, uint8_t* arena_1_var) {{
  for (int32_t i = 0; i < 5; ++i) {{
    T[i] = ((float)(p0[i] - 3)) * 5.000000e-01f;
  }}
  return 0;
}}
"""


def place_all(program: Program, regions: dict[str, PlannedRegion]) -> tuple[ModelMemory, dict[str, PlannedRegion]]:
    """The arena of a program without workspaces, and its regions where they lie in it."""
    memory = place_model(program, (), {name: region.memory for name, region in regions.items()}, 16)
    return memory, {name: region.placed(memory.scratch[name][1]) for name, region in regions.items()}


def sample_parts(mod_name: str = "demo", accelerator: Accelerator = REFERENCE, program: Program | None = None) -> Parts:
    program = program or sample_program(mod_name)
    memory, regions = place_all(program, {graph.name: plan_region(graph, accelerator) for graph in program.regions})
    return Parts(program, accelerator, regions, memory, host_source=host_source(mod_name), report={"offloaded": 5})


def host_only_parts(mod_name: str = "plain") -> Parts:
    """The host's halving alone: what a CPU-only build looks like."""
    program = sample_program(mod_name)
    first = program.calls[0]
    assert isinstance(first, HostCall)
    y = Buffer("y", 144, "output", (1, 6, 6, 4))
    program = replace(program, outputs=(y,), calls=(replace(first, arguments=(first.arguments[0], y)),))
    memory, _ = place_all(program, {})
    return Parts(program, REFERENCE, {}, memory, host_source=host_source(mod_name))
