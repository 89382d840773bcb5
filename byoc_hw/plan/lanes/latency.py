"""The least cycles before the first job of a layer on a lane, and behind the end of any of its jobs.

Plans compute layers in stripes and slices: a layer can begin as soon as there is something of its input. So these are
the shortest ways through the layers, of one job each.

Before: a job needs something of each of its inputs in its local memory, which comes there by a job of the lane itself,
or by a copy from main memory, where it is from the start on, or after a job and a copy of another lane. Weights come by
a copy, too, and a lane's copies follow one another.

Behind: what a job makes is stored if it is an output of the region, and a layer that reads all elements of it has a
later job, on this lane, or on another one after a copy out and a copy in. (Jobs of which nothing is ever used are left
out: the others do all of the work.)

A copy takes its setup and a cycle at least, a job a group of outputs from one channel of the input. Accelerators that
share a local memory have what is there in common. A layer that runs as a whole reads and writes main memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Concat, Graph, Layer, Pad, Reshape, Transpose, Weighted, Whole
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.array.kinds import Product, Run, Window, geometry, parts_of_kernel
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


def latencies(graph: Graph, chip: Soc) -> Latencies:
    """The latencies of a region on a chip."""
    jobs = [
        {lane: _least_job(layer, one) for lane, one in enumerate(chip.accelerators) if one in chip.supporting(layer)}
        for layer in graph.layers
    ]
    there = _Arrivals(graph, chip)
    before = [there.put(layer, times) for layer, times in zip(graph.layers, jobs, strict=True)]
    behind = _behind(graph, jobs, chip)
    ends = (there.in_main(tensor) for tensor in graph.outputs)
    return Latencies(before, behind, max(ends, default=0.0))


def _copies(chip: Soc) -> list[int]:
    """The least cycles of a copy of each lane, 0 where a library's calls need none."""
    return [0 if one.library else one.dma_setup + 1 for one in chip.accelerators]


def _groups(chip: Soc) -> list[tuple[int, ...]]:
    """The lanes with which each lane has its local memory in common, itself among them."""
    names = [one.name for one in chip.accelerators]
    return [tuple(names.index(one) for one in chip.group_of(lane)) or (lane,) for lane in range(len(chip.accelerators))]


class _Arrivals:
    """When something of each tensor is in each lane's memory, and in main memory: 0 for what is there at the start."""

    def __init__(self, graph: Graph, chip: Soc) -> None:
        self._graph, self._copies = graph, _copies(chip)
        self._groups = _groups(chip)
        self._local: dict[Tensor, dict[int, float]] = {}
        self._main: dict[Tensor, float] = {}

    def in_main(self, tensor: Tensor) -> float:
        """When something of a tensor is in main memory."""
        if tensor in self._main or tensor not in self._local:
            return self._main.get(tensor, 0.0)
        return min((time + self._copies[lane] for lane, time in self._local[tensor].items()), default=0.0)

    def put(self, layer: Layer, jobs: Mapping[int, float]) -> dict[int, float]:
        """Add the output of a layer whose jobs take so long at least; the earliest starts of one."""
        reads = dict.fromkeys(tensor for tensor in layer.inputs if tensor.data is None)
        if isinstance(layer, Whole):
            starts = dict.fromkeys(jobs, max(map(self.in_main, reads), default=0.0))
            self._main[layer.ofm] = min((start + jobs[lane] for lane, start in starts.items()), default=0.0)
            return starts
        loads = sum(tensor not in self._local for tensor in reads) + isinstance(layer, Weighted)
        starts = {}
        for lane in jobs:
            group = self._groups[lane]
            copy = min(self._copies[one] for one in group)
            arrivals = [self._at(tensor, group, copy) for tensor in reads]
            if isinstance(layer, Pad):
                starts[lane] = float(copy)  # something of its output is none of its input
            elif _has_jobs(layer):
                copied = loads if len(group) == 1 else min(loads, 1)  # others of a group may load, too
                starts[lane] = max(copied * copy, *arrivals, 0.0)
            else:
                starts[lane] = min(arrivals, default=0.0)  # something of one input is something of the output
        self._local[layer.ofm] = {lane: start + jobs[lane] for lane, start in starts.items()}
        return starts

    def _at(self, tensor: Tensor, group: Sequence[int], copy: int) -> float:
        """When something of a tensor is in the local memory of a group of lanes."""
        there = self._local.get(tensor, {})
        return min(self.in_main(tensor) + copy, *(there.get(lane, _NEVER) for lane in group))


def _behind(graph: Graph, jobs: Sequence[Mapping[int, float]], chip: Soc) -> list[dict[int, float]]:
    """Cycles from the end of a job of each layer, on each lane, to the end of the region."""
    copies = _copies(chip)
    found: list[dict[int, float]] = [{} for _ in graph.layers]
    readers: dict[Tensor, list[int]] = {}
    for index, layer in enumerate(graph.layers):
        for tensor in dict.fromkeys(layer.inputs):
            readers.setdefault(tensor, []).append(index)

    groups = _groups(chip)

    def copied(layer: Layer, lane: int, reader: Layer, other: int) -> int:
        """Cycles of the copies from what a layer makes on a lane to a reader on another one."""
        whole = isinstance(layer, Whole), isinstance(reader, Whole)
        if not any(whole) and other in groups[lane]:
            return 0
        return (0 if whole[0] else copies[lane]) + (0 if whole[1] else copies[other])

    for index in reversed(range(len(graph.layers))):
        layer = graph.layers[index]
        for lane in jobs[index]:
            out = 0.0 if isinstance(layer, Whole) else float(copies[lane])
            ways = [out] if layer.ofm in graph.outputs else []
            for reader in readers.get(layer.ofm, ()):
                if _reads_all(graph.layers[reader]):
                    there = {
                        other: copied(layer, lane, graph.layers[reader], other) + cycles + found[reader][other]
                        for other, cycles in jobs[reader].items()
                    }
                    ways.append(min(there.values(), default=0.0))
            found[index][lane] = max(ways, default=0.0)
    return found


def _has_jobs(layer: Layer) -> bool:
    return isinstance(geometry(layer), Window | Run | Product)


def _reads_all(layer: Layer) -> bool:
    """Whether a layer reads every element of its inputs."""
    form = geometry(layer)
    if isinstance(form, Window):
        axes = form.rows, form.columns
        return all(
            axis.dilation == 1 and axis.stride <= axis.kernel and axis.before >= 0 and axis.after >= 0 for axis in axes
        )
    return isinstance(form, Run | Product) or isinstance(layer, Concat | Reshape | Transpose | Pad)


def _least_job(layer: Layer, accelerator: Accelerator) -> float:
    """Cycles of a job of a layer, or of a library's call: at least so many; 0 for what may be done without one."""
    if accelerator.library is not None or isinstance(layer, Whole):
        return best_cycles(layer, accelerator)
    form = geometry(layer)
    if isinstance(layer, Weighted) and isinstance(form, Window):
        least = min(
            part.height * part.width * layer.weights.bits / 8 + 2 * min(part.height, part.width)
            for part in parts_of_kernel(layer, accelerator)
        )
        return least + accelerator.job_overhead
    if isinstance(form, Product):
        return 3.0 + accelerator.job_overhead
    return 1.0 if isinstance(form, Run | Window) else 0.0
