"""The constant tables of a tiled region, as C: its layers' descriptors, and the copies, tiles and steps of its plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from byoc_hw.emit import c, calls
from byoc_hw.errors import PlanError
from byoc_hw.graph import Conv2d, DepthwiseConv2d, Tiled, Whole
from byoc_hw.hwlib.names_header import interpreter_name
from byoc_hw.plan.compact import MOST_ROWS
from byoc_hw.plan.steps import (
    Await,
    Copy,
    CopyWait,
    EngineAwait,
    EngineSignal,
    Job,
    JobWait,
    RegionPlan,
    Signal,
    Step,
    Turn,
    WholeLayer,
)
from byoc_hw.tensor import Pair


def hwlib_function(name: str, region: RegionPlan) -> str:
    """The C name of a function of HWlib's interpreter: of the one that is compiled for the region's accelerator."""
    return f"hwlib_{name}" if region.on is None else interpreter_name(f"hwlib_{name}", region.on.name)


def flash_name(symbol: str) -> str:
    """The C array that holds a tiled region's packed weights, parameters and constant activations."""
    return f"{symbol}_flash"


def descriptors(region: RegionPlan, ids: Sequence[int]) -> Iterator[str]:
    """The descriptor of each layer with tiles that is called, with the layer's number."""
    for index, layer, title in called_layers(region):
        yield title
        yield calls.descriptor(descriptor_name(region, index), layer, ids[index])


def called_layers(region: RegionPlan) -> Iterator[tuple[int, Tiled, str]]:
    """Each layer with tiles that is called: its index, itself as it is mapped, and a comment. Along an axis of which
    every job has a single element of the kernel its dilation is 1."""
    kernels: dict[int, list[Pair]] = {call.index: [] for call in region.calls}  # a reshape without copies has no call
    for call in region.calls:
        kernels[call.index] += [step.kernel for step in call.steps if isinstance(step, Job)]
    for index, layer in enumerate(region.layers):
        if index not in kernels or isinstance(layer, Whole):
            continue
        swapped = (
            [] if layer is region.graph.layers[index] else ["Height and width are swapped, here and in local memory."]
        )
        if isinstance(layer, Conv2d | DepthwiseConv2d) and layer.dilation != (1, 1):
            sizes = map(max, zip(*kernels[index], strict=True))
            down, along = (step if size > 1 else 1 for step, size in zip(layer.dilation, sizes, strict=True))
            layer = replace(layer, dilation=(down, along))
        yield index, layer, c.comment([layer.name, *swapped])


def descriptor_name(region: RegionPlan, index: int) -> str:
    """The C name of a layer's descriptor."""
    return f"{region.graph.name}_{region.graph.layers[index].kind}_{index}"


@dataclass
class _Indexed:
    """The rows of a table, without duplicates."""

    rows: dict[tuple[object, ...], int] = field(default_factory=dict)

    def index(self, row: tuple[object, ...]) -> int:
        if len(self.rows) == MOST_ROWS:
            raise PlanError(f"a region has at most {MOST_ROWS} different copies, and as many tiles")
        return self.rows.setdefault(row, len(self.rows))


@dataclass
class RegionTables:
    """The tables that HWlib reads: steps by call, and the copies and tiles that they index.

    On a chip `lanes` are the accelerators of the region's lanes, in order.
    """

    copies: _Indexed
    tiles: _Indexed
    steps: list[tuple[str, list[tuple[str, int, int]]]]  # owner, (kind, slot, index)
    lanes: Sequence[int] = ()

    @classmethod
    def of(cls, region: RegionPlan, lanes: Sequence[int] = ()) -> RegionTables:
        """The tables of a plan."""
        tables = cls(_Indexed(), _Indexed(), [], lanes)
        for call in region.calls:
            tables.steps.append((region.layers[call.index].name, [tables._row(step) for step in call.steps]))
        tables.steps.append(("the end of the region", [tables._row(step) for step in region.tail]))
        return tables

    def _row(self, step: Step) -> tuple[str, int, int]:
        if isinstance(step, Copy):
            return "HWLIB_STEP_COPY", step.slot, self.copies.index(copy_row(step))
        if isinstance(step, Job):
            return "HWLIB_STEP_JOB", step.slot, self.tiles.index(tile_row(step))
        if isinstance(step, WholeLayer):
            return "HWLIB_STEP_LAYER", step.slot, 0
        if isinstance(step, CopyWait):
            return "HWLIB_STEP_COPY_WAIT", step.slot, 0
        if isinstance(step, Signal):
            return f"HWLIB_STEP_SIGNAL{'_JOB' if step.job else ''}", step.slot, step.event
        if isinstance(step, Await):
            return "HWLIB_STEP_AWAIT", self.lanes.index(step.lane), step.event
        if isinstance(step, EngineSignal):
            return f"HWLIB_STEP_{'JOB' if step.job else 'COPY'}_SIGNAL", 0, step.event
        if isinstance(step, EngineAwait):
            return f"HWLIB_STEP_{'JOB' if step.job else 'COPY'}_AWAIT", step.event, step.value
        if isinstance(step, Turn):
            return "HWLIB_STEP_TURN", 0, 0
        assert isinstance(step, JobWait)
        return "HWLIB_STEP_JOB_WAIT", step.slot, 0

    def ranges(self) -> list[tuple[int, int]]:
        """First step and number of steps of each call, then of the tail."""
        found, first = [], 0
        for _, steps in self.steps:
            found.append((first, len(steps)))
            first += len(steps)
        return found

    def text(self, prefix: str, layer: int) -> str:
        """The three tables and the `hwlib_part_plan_t` over them; `layer` is the first. C has no empty arrays: NULL."""
        steps = list(_step_lines(self.steps))
        parts = [
            constant_table("hwlib_copy_t", f"{prefix}_copies", COPY_COLUMNS, aligned_rows(self.copies.rows)),
            constant_table("hwlib_tile_t", f"{prefix}_tiles", TILE_COLUMNS, aligned_rows(self.tiles.rows)),
            constant_table("hwlib_step_t", f"{prefix}_steps", "kind, slot, index", steps),
        ]
        names = {
            "steps": f"{prefix}_steps" if steps else "0",
            "copies": f"{prefix}_copies" if self.copies.rows else "0",
            "tiles": f"{prefix}_tiles" if self.tiles.rows else "0",
            "layer": str(layer),
        }
        plan = "\n".join([f"static const hwlib_part_plan_t {prefix}_plan = {{", *c.fields(names), "};\n"])
        return "\n".join([*filter(None, parts), plan])


COPY_COLUMNS = "target, source, bytes, rows, target_stride, source_stride"
TILE_COLUMNS = (
    "ifm, ifm2, ofm, psum, weights, params, ifm_row, ofm_row, ifm_pixel, ofm_pixel, "
    "ifm_h, ifm_w, ifm_c, ofm_h, ofm_w, ofm_c, pad_top, pad_left, pad_bottom, pad_right, kernel_h, kernel_w, flags"
)


def copy_row(step: Copy) -> tuple[object, ...]:
    """The fields of a `hwlib_copy_t`."""
    target, source = calls.address(step.target), calls.address(step.source)
    strides = (step.target_stride, step.source_stride) if step.rows > 1 else (0, 0)
    return target, source, step.nbytes, step.rows, *strides


def flags_of(first: bool, last: bool) -> str:
    """The flags of a tile."""
    return " | ".join(name for name, on in (("HWLIB_TILE_FIRST", first), ("HWLIB_TILE_LAST", last)) if on) or "0"


def tile_row(job: Job) -> tuple[object, ...]:
    """The fields of a `hwlib_tile_t`."""
    local = (job.ifm, job.ifm2, job.ofm, job.psum, job.weights, job.params)
    strides = (job.ifm_row, job.ofm_row, job.ifm_pixel, job.ofm_pixel)
    return (*local, *strides, *job.ifm_shape, *job.ofm_shape, *job.padding, *job.kernel, flags_of(job.first, job.last))


def aligned_rows(rows: Iterable[tuple[object, ...]]) -> list[str]:
    """Initialisers with their columns aligned."""
    spelt = [[str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*spelt, strict=True)]
    return [
        "  {" + ", ".join(value.rjust(width) for value, width in zip(row, widths, strict=True)) + "}," for row in spelt
    ]


def _step_lines(steps: Iterable[tuple[str, Iterable[tuple[str, int, int]]]]) -> Iterator[str]:
    for owner, rows in steps:
        lines = [f"  {{{kind}, {slot}, {index}}}," for kind, slot, index in rows]
        if lines:
            yield c.comment([owner], indent=2)
            yield from lines


def constant_table(row_type: str, name: str, columns: str, rows: Sequence[str]) -> str:
    """A `static const` table with its columns named above it; nothing without rows."""
    if not rows:
        return ""
    return "\n".join([c.comment([columns]), f"static const {row_type} {name}[] = {{", *rows, "};\n"])
