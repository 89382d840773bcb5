"""The least cycles before the first job of a layer on a lane, and behind the end of any of its jobs.

Plans compute layers in stripes and slices: a layer can begin as soon as there is something of its input. So these are
the shortest ways through the layers, of one job each.

Before: a job needs something of each of its inputs in its local memory, which comes there by a job of the lane itself,
or by a copy from main memory, where it is from the start on, or after a job and a copy of another lane. Weights come by
a copy, too, and a lane's copies follow one another.

Behind: what a job makes is stored if it is an output of the region, and a layer that reads all elements of it has a
later job, on this lane, or on another one after a copy out and a copy in. (Jobs of which nothing is ever used are left
out: the others do all of the work. Where several lanes compute the same, readers may use either; so of the layers that
read a tensor one counts, and the jobs that it uses.)

What more there is before a layer, as several lanes share the work that it needs, says `windows.py`.

A copy takes its setup and a cycle at least, a job a group of outputs, from one channel of the input where a sum may be
in slices. Accelerators that
share a local memory have what is there in common. A layer that runs as a whole reads and writes main memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Concat, Graph, Layer, Pad, Reshape, Resize, Slice, Transpose, Weighted, Whole
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry, parts_of_kernel
from byoc_hw.plan.bound.needs import whole_sums
from byoc_hw.plan.bound.ways import LayerWork, able, groups
from byoc_hw.plan.bound.windows import Windows
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

_NEVER = float("inf")


@dataclass(frozen=True)
class Latencies:
    """Cycles before the first job of each layer on each lane that can run it, and behind the end of any of its jobs;
    and the cycles that no plan goes below."""

    before: Sequence[Mapping[int, float]]
    behind: Sequence[Mapping[int, float]]
    least: float


def latencies(graph: Graph, chip: Soc, works: Sequence[LayerWork], counted: Sequence[bool]) -> Latencies:
    """The latencies of a region on a chip; `works` has the work of each layer, all of which is done of those that are
    `counted`."""
    jobs = [
        {lane: least_job(layer, one, chip) for lane, one in enumerate(chip.accelerators) if one in able(chip, layer)}
        for layer in graph.layers
    ]
    there, between = _Arrivals(graph, chip), _Between(graph, chip)
    windows = Windows(graph, chip, works, jobs, between.copied)
    for layer, times in zip(graph.layers, jobs, strict=True):
        there.put(layer, times, windows.raised(there.starts(layer, times)))
    behind = _behind(graph, jobs, between)
    least = max((there.in_main(tensor) for tensor in graph.outputs), default=0.0)
    return Latencies(windows.starts, behind, windows.end(behind, least, counted))


def copies_of(chip: Soc) -> list[int]:
    """The least cycles of a copy of each lane, 0 where a library's calls need none."""
    return [0 if one.library else one.dma_setup + 1 for one in chip.accelerators]


def _groups(chip: Soc) -> list[tuple[int, ...]]:
    """The lanes with which each lane has its local memory in common, itself among them."""
    names = [one.name for one in chip.accelerators]
    return [tuple(names.index(one) for one in chip.group_of(lane)) or (lane,) for lane in range(len(chip.accelerators))]


class _Arrivals:
    """When something of each tensor is in each lane's memory, and in main memory: 0 for what is there at the start."""

    def __init__(self, graph: Graph, chip: Soc) -> None:
        self._graph, self._copies = graph, copies_of(chip)
        self._groups = _groups(chip)
        self._local: dict[Tensor, dict[int, float]] = {}
        self._main: dict[Tensor, float] = {}

    def in_main(self, tensor: Tensor) -> float:
        """When something of a tensor is in main memory."""
        if tensor in self._main or tensor not in self._local:
            return self._main.get(tensor, 0.0)
        return min((time + self._copies[lane] for lane, time in self._local[tensor].items()), default=0.0)

    def put(self, layer: Layer, jobs: Mapping[int, float], starts: Mapping[int, float]) -> None:
        """Add the output of a layer whose jobs take so long at least, and start at these times at the earliest."""
        ends = {lane: start + jobs[lane] for lane, start in starts.items()}
        if isinstance(layer, Whole):
            self._main[layer.ofm] = min(ends.values(), default=0.0)
        else:
            self._local[layer.ofm] = ends

    def starts(self, layer: Layer, jobs: Mapping[int, float]) -> dict[int, float]:
        """The earliest starts of a job of a layer, by the lanes in `jobs`."""
        reads = dict.fromkeys(tensor for tensor in layer.inputs if tensor.data is None)
        if isinstance(layer, Whole):
            return dict.fromkeys(jobs, max(map(self.in_main, reads), default=0.0))
        loads = sum(tensor not in self._local for tensor in reads) + isinstance(layer, Weighted)
        starts: dict[int, float] = {}
        for lane in jobs:
            group = self._groups[lane]
            copy = min(self._copies[one] for one in group)
            arrivals = [self._at(tensor, group, copy) for tensor in reads]
            if isinstance(layer, Pad):
                starts[lane] = float(copy)  # something of its output is none of its input
            elif has_jobs(layer):
                copied = loads if len(group) == 1 else min(loads, 1)  # others of a group may load, too
                starts[lane] = max(copied * copy, *arrivals, 0.0)
            else:
                starts[lane] = min(arrivals, default=0.0)  # something of one input is something of the output
        return starts

    def _at(self, tensor: Tensor, group: Sequence[int], copy: int) -> float:
        """When something of a tensor is in the local memory of a group of lanes."""
        there = self._local.get(tensor, {})
        return min(self.in_main(tensor) + copy, *(there.get(lane, _NEVER) for lane in group))


class _Between:
    """Cycles of the copies from what a layer makes on a lane to a reader on another one."""

    def __init__(self, graph: Graph, chip: Soc) -> None:
        self._whole = [isinstance(layer, Whole) for layer in graph.layers]
        self.copies, self._groups = copies_of(chip), _groups(chip)

    def copied(self, layer: int, lane: int, reader: int, other: int) -> float:
        if not self._whole[layer] and not self._whole[reader] and other in self._groups[lane]:
            return 0.0
        return self.stored(layer, lane) + (0 if self._whole[reader] else self.copies[other])

    def stored(self, layer: int, lane: int) -> float:
        """Cycles of the copy of what a layer makes into main memory."""
        return 0.0 if self._whole[layer] else float(self.copies[lane])


def _behind(graph: Graph, jobs: Sequence[Mapping[int, float]], between: _Between) -> list[dict[int, float]]:
    """Cycles from the end of a job of each layer, on each lane, to the end of the region: by the way of one of those
    that read the layer, the longest one."""
    found: list[dict[int, float]] = [{} for _ in graph.layers]
    readers: dict[Tensor, list[int]] = {}
    for index, layer in enumerate(graph.layers):
        for tensor in dict.fromkeys(layer.inputs):
            readers.setdefault(tensor, []).append(index)
    for index in reversed(range(len(graph.layers))):
        layer = graph.layers[index]
        ways = [dict.fromkeys(jobs[index], 0.0)]
        if layer.ofm in graph.outputs:
            ways.append({lane: between.stored(index, lane) for lane in jobs[index]})
        for reader in readers.get(layer.ofm, ()):
            if reads_all(graph.layers[reader]):
                there = [(other, cycles + found[reader][other]) for other, cycles in jobs[reader].items()]
                ways.append(
                    {
                        lane: min(
                            (between.copied(index, lane, reader, other) + left for other, left in there), default=0.0
                        )
                        for lane in jobs[index]
                    }
                )
        found[index] = max(ways, key=lambda way: min(way.values(), default=0.0))
    return found


def made_in_full(graph: Graph) -> list[bool]:
    """For each layer whether every element of its output is needed for the region's outputs. Plans on a chip may leave
    out the others."""
    needed: dict[Tensor, npt.NDArray[np.bool_]] = {tensor: np.array(True) for tensor in graph.outputs}
    for layer in reversed(graph.layers):
        if layer.ofm not in needed or not needed[layer.ofm].all():
            continue
        for tensor in layer.inputs:
            if isinstance(layer, Slice):
                needed[tensor] = needed.get(tensor, np.array(False)) | np.zeros(tensor.shape, np.bool_)
                places = zip(layer.begin, layer.ofm.shape, layer.steps, strict=True)
                needed[tensor][tuple(slice(first, first + count * step, step) for first, count, step in places)] = True
            elif reads_all(layer) or isinstance(layer, Whole):
                needed[tensor] = np.array(True)
    return [layer.ofm in needed and bool(needed[layer.ofm].all()) for layer in graph.layers]


def has_jobs(layer: Layer) -> bool:
    """Whether a layer has jobs on an accelerator with tiles."""
    return isinstance(geometry(layer), Window | Run | Product)


def reads_all(layer: Layer) -> bool:
    """Whether a layer reads every element of its inputs."""
    form = geometry(layer)
    if isinstance(form, Window):
        axes = form.rows, form.columns
        return all(
            axis.dilation == 1 and axis.stride <= axis.kernel and axis.before >= 0 and axis.after >= 0 for axis in axes
        )
    if isinstance(layer, Resize):
        _, height, width, _ = layer.ifm.shape
        return len(set(layer.rows)) == height and len(set(layer.columns)) == width
    return isinstance(form, Run | Product) or isinstance(layer, Concat | Reshape | Transpose | Pad)


def least_job(layer: Layer, accelerator: Accelerator, chip: Soc) -> float:
    """Cycles of a job of a layer, or of a library's call: at least so many; 0 for what may be done without one."""
    if accelerator.library is not None or isinstance(layer, Whole):
        return best_cycles(layer, accelerator)
    form = geometry(layer)
    if isinstance(layer, Weighted) and whole_sums(layer, accelerator, chip):
        return accelerator.job_setup + min(groups(layer, accelerator, turned).cycles for turned in (False, True))
    if isinstance(layer, Weighted) and isinstance(form, Window):
        least = min(
            part.height * part.width * layer.weights.bits / 8 + 2 * min(part.height, part.width)
            for part in parts_of_kernel(layer, accelerator)
        )
        return least + accelerator.job_setup + accelerator.job_overhead
    if isinstance(form, Product):
        return 3.0 + accelerator.job_setup + accelerator.job_overhead
    return 1.0 + accelerator.job_setup if isinstance(form, Run | Window) else 0.0
