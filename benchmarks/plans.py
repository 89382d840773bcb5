"""Compiles a model through the public API, and records its plans and the time of each part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any
from unittest.mock import patch

import tvm

import byoc_hw
from byoc_hw import build_arena, compiler
from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph, Layer, Reshape, Weighted
from byoc_hw.objective import Objective
from byoc_hw.params.pack import PARAMS_BYTES, packed_channel_bytes
from byoc_hw.plan.choices import Choices
from byoc_hw.plan.place.arena import place_model
from byoc_hw.plan.region import plan_tiles
from byoc_hw.plan.steps import Copy, RegionPlan
from byoc_hw.plan.tune.best_order import in_best_order


@dataclass(frozen=True)
class Compiled:
    """A project and the plans of its regions. Times in seconds; `partition` and `build` include `planning`.

    RAM in bytes, with the model's inputs and outputs: `ram` is that of the project, `ram_around` the same
    if regions had no scratch.
    """

    project: byoc_hw.Project
    plans: tuple[RegionPlan, ...]
    partition: float
    build: float
    planning: float
    ram: int
    ram_around: int

    @property
    def seconds(self) -> float:
        return self.partition + self.build

    @property
    def layers(self) -> list[Layer]:
        return [layer for plan in self.plans for layer in plan.graph.layers]


def compiled(
    mod: tvm.IRModule,
    params: Mapping[str, Any],
    accelerator: Accelerator,
    clock: Callable[[], float] = time.perf_counter,
) -> Compiled:
    """Partition and build, once."""
    with _watched(clock) as partitioning:
        start = clock()
        partitioned = byoc_hw.partition_for_hwlib(mod, params, accelerator=accelerator)
        partition = clock() - start
    with _watched(clock) as building:
        start = clock()
        project = byoc_hw.build(partitioned)
        build = clock() - start
    planning = partitioning.seconds + building.seconds
    rams = (building.ram(scratch) for scratch in (True, False))
    return Compiled(project, tuple(building.plans), partition, build, planning, *rams)


def alone(layer: Layer, accelerator: Accelerator) -> RegionPlan | None:
    """The plan of a layer by itself, from main memory to main memory; None for a reshape, which needs none."""
    if isinstance(layer, Reshape):
        return None
    return plan_tiles(Graph.of_layer(layer), accelerator)


def dma_bytes(plan: RegionPlan) -> int:
    """The bytes that the copies of a plan move."""
    return sum(step.nbytes * step.rows for step in plan.steps if isinstance(step, Copy))


def flash_bytes(layer: Layer) -> int:
    """Bytes of the weights and parameters of a layer."""
    if not isinstance(layer, Weighted):
        return 0
    channels, *filter_shape = layer.weights.shape
    return channels * (PARAMS_BYTES + packed_channel_bytes(prod(filter_shape), layer.weights.bits))


def least_bytes(graph: Graph) -> int:
    """The bytes that any plan moves: weights, inputs and outputs once."""
    read = {
        tensor for layer in graph.layers for tensor in layer.inputs if tensor in graph.inputs or tensor.data is not None
    }
    return sum(map(flash_bytes, graph.layers)) + sum(tensor.nbytes for tensor in (*read, *graph.outputs))


# ---------------------------------------------------------------- watching a build


@dataclass
class _Watch:
    """Records the planner's results during a build."""

    clock: Callable[[], float]
    plans: list[RegionPlan] = field(default_factory=list)
    seconds: float = 0.0
    placed: tuple[Any, ...] = ()

    def plan_region(
        self,
        graph: Graph,
        accelerator: Accelerator,
        choices: Choices | None = None,
        place: Mapping[str, str] | None = None,
        objective: Objective | None = None,
    ) -> RegionPlan:
        assert not place, "the benchmarks plan for one accelerator"
        assert objective is None, "the benchmarks plan for the fewest cycles"
        with self._timed():
            plan = plan_tiles(graph, accelerator, choices)
        self.plans.append(plan)
        return plan

    def in_best_order(self, graph: Graph, accelerator: Accelerator) -> Graph:
        with self._timed():
            return in_best_order(graph, accelerator)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = self.clock()
        try:
            yield
        finally:
            self.seconds += self.clock() - start

    def place_model(self, *given: Any) -> Any:
        self.placed = given
        return place_model(*given)

    def ram(self, scratch: bool) -> int:
        program, workspaces, regions, alignment, _ = self.placed
        if not scratch:
            regions = {symbol: replace(memory, scratch=()) for symbol, memory in regions.items()}
        return place_model(program, workspaces, regions, alignment, interface=True).arena.nbytes


@contextmanager
def _watched(clock: Callable[[], float]) -> Iterator[_Watch]:
    watch = _Watch(clock)
    with (
        patch.object(compiler, "plan_region", watch.plan_region),
        patch.object(compiler, "in_best_order", watch.in_best_order),
        patch.object(build_arena, "place_model", watch.place_model),
    ):
        yield watch
