"""The constant tables of a region on a single accelerator, as C: its steps, and the rows that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from byoc_hw.emit import c, calls
from byoc_hw.emit.call_titles import call_titles
from byoc_hw.emit.region_tables import (
    COPY_COLUMNS,
    TILE_COLUMNS,
    aligned_rows,
    called_layers,
    constant_table,
    copy_row,
    descriptor_name,
    flags_of,
    hwlib_function,
    tile_row,
)
from byoc_hw.errors import PlanError
from byoc_hw.plan.compact import CompactPlan, CompactStep, CopyStep, EndStep, JobStep, LayerStep, TileForm, WaitStep
from byoc_hw.plan.steps import WEIGHTS, RegionPlan

_FORM_COLUMNS = (
    "ifm_row, ofm_row, ifm_pixel, ofm_pixel, ifm_h, ifm_w, ifm_c, ofm_h, ofm_w, ofm_c, "
    "pad_top, pad_left, pad_bottom, pad_right, kernel_h, kernel_w, flags"
)
_COPY_STEP, _ADDRESSES = "slot, after, at, space, offset, bytes", "ifm, ofm, weights, params"
_ROWS_STEP = f"{_COPY_STEP}, rows, target_stride, source_stride"
_STEP_COLUMNS = {
    **dict.fromkeys(("COPY_IN", "COPY_WEIGHTS", "COPY_OUT"), _COPY_STEP),
    **dict.fromkeys(("ROWS_IN", "ROWS_WEIGHTS", "ROWS_OUT"), _ROWS_STEP),
    "COPY_OTHER": "slot, after, index",
    "JOB": f"slot, after, place, {_ADDRESSES}",
    "JOB_FORM": f"slot, after, place, form, {_ADDRESSES}",
    "JOB_FORM_2": f"slot, after, place, form, ifm2, psum, {_ADDRESSES}",
    "JOB_TILE": "slot, after, index",
    "JOB_2": f"slot, after, place, ifm2, psum, {_ADDRESSES}",
}


_DESCRIPTOR_BYTES = {
    "hwlib_conv2d_t": 44,
    "hwlib_add_t": 48,
    "hwlib_mul_t": 32,
    "hwlib_matmul_t": 56,
    "hwlib_pool2d_t": 56,
    "hwlib_softmax_t": 28,
    "hwlib_lookup_t": 32,
    "hwlib_layer_t": 4,
}
"""On a core of 32 or 64 bits, the larger."""

_MOST_DESCRIPTORS = 65528
"""Bytes of descriptors that a step can reach."""


def compact_tables(region: RegionPlan, plan: CompactPlan, first_layer: int) -> str:
    """The tables of a region and the `hwlib_plan_t` over them. C has no empty arrays: NULL."""
    prefix = region.graph.name
    begins = first_layer + (region.calls[0].index if region.calls else 0)
    tiles = aligned_rows(map(tile_row, plan.tiles))
    parts = {
        "layers": _layers(region, first_layer),
        "forms": constant_table("hwlib_form_t", f"{prefix}_forms", _FORM_COLUMNS, _forms(plan.forms)),
        "copies": constant_table(
            "hwlib_copy_t", f"{prefix}_copies", COPY_COLUMNS, aligned_rows(map(copy_row, plan.copies))
        ),
        "tiles": constant_table("hwlib_tile_t", f"{prefix}_tiles", TILE_COLUMNS, tiles),
        "steps": _steps(region, plan, first_layer),
    }
    names = {name: f"{'&' if name == 'layers' else ''}{prefix}_{name}" if text else "0" for name, text in parts.items()}
    fields: Mapping[str, str] = {
        **names,
        **({"start_copy": hwlib_function("start_copy", region)} if plan.copies else {}),
        "layer": str(begins),
        "local_unit": str(plan.local_unit),
        "main_unit": str(plan.main_unit),
    }
    text = "\n".join([f"static const hwlib_plan_t {prefix}_plan = {{", *c.fields(fields), "};\n"])
    return "\n".join([*filter(None, parts.values()), text])


def _layers(region: RegionPlan, first_layer: int) -> str:
    """The descriptors of the layers that begin, in one struct: a step has the offset in it."""
    before, types, values, nbytes = [], [], [], 0
    for index, layer, title in called_layers(region):
        name = descriptor_name(region, index)
        tables, c_type, fields = calls.descriptor_fields(name, layer, first_layer + index)
        before += [tables] if tables else []
        types.append(f"  {c_type} {_member(region, index)};")
        values += [_indented(title), f"  .{_member(region, index)} = {{", *map(_indented, fields), "  },"]
        nbytes += _DESCRIPTOR_BYTES[c_type]
    if nbytes > _MOST_DESCRIPTORS:
        raise PlanError(
            f"{region.graph.name}: the descriptors of a region have at most {_MOST_DESCRIPTORS} bytes: got {nbytes}"
        )
    if not types:
        return ""
    name = f"{region.graph.name}_layers"
    struct = [f"static const struct {name} {{", *types, f"}} {name} = {{", *values, "};\n"]
    return "\n".join([*before, *struct])


def _member(region: RegionPlan, index: int) -> str:
    return f"{region.graph.layers[index].kind}_{index}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _forms(forms: Iterable[TileForm]) -> list[str]:
    rows = [
        (*form.strides, *form.ifm_shape, *form.ofm_shape, *form.padding, *form.kernel, flags_of(form.first, form.last))
        for form in forms
    ]
    return [row.replace("{", "{{", 1).replace("},", ", 0}},") for row in aligned_rows(rows)]


def _steps(region: RegionPlan, plan: CompactPlan, first_layer: int) -> str:
    titles = call_titles(region.graph, [call.index for call in region.calls], first_layer)
    lines: list[str] = []
    for step in plan.steps:
        if isinstance(step, LayerStep):
            lines += ["", next(titles)] if lines else [next(titles)]
        lines.append(f"  {_step(step, region, plan)},")
    used = {line.split("(")[0].strip().removeprefix("HWLIB_") for line in lines}
    explained = [f"{name}({columns})" for name, columns in _STEP_COLUMNS.items() if name in used]
    if plan.local_unit:
        explained.append(f"at, ifm2, psum, ifm and ofm count {1 << plan.local_unit} bytes.")
    if plan.main_unit:
        explained.append(f"offset counts {1 << plan.main_unit} bytes.")
    head = [c.comment(explained)] if explained else []
    name = f"{region.graph.name}_steps"
    return "\n".join([*head, f"static const uint16_t {name}[] = {{", *lines, "};\n"])


def _step(step: CompactStep, region: RegionPlan, plan: CompactPlan) -> str:
    if isinstance(step, LayerStep):
        return f"HWLIB_LAYER(struct {region.graph.name}_layers, {_member(region, step.index)})"
    if isinstance(step, EndStep):
        return "HWLIB_END"
    if isinstance(step, WaitStep):
        return f"HWLIB_{'JOB' if step.job else 'COPY'}_WAIT({step.slot})"
    if isinstance(step, CopyStep):
        return _copy(step, plan)
    return _job(step, plan.local_unit)


def _copy(step: CopyStep, plan: CompactPlan) -> str:
    copy = step.copy
    if step.row is not None:
        return _call("COPY_OTHER", copy.slot, step.after, step.row)
    rows = (copy.rows, copy.target_stride, copy.source_stride) if copy.rows > 1 else ()
    way = "OUT" if not copy.inward else "WEIGHTS" if copy.local.space == WEIGHTS else "IN"
    at, offset = copy.local.offset >> plan.local_unit, copy.main.offset >> plan.main_unit
    name = f"{'ROWS' if rows else 'COPY'}_{way}"
    return _call(name, copy.slot, step.after, at, calls.space(copy.main.space), offset, copy.nbytes, *rows)


def _job(step: JobStep, unit: int) -> str:
    job = step.job
    if step.row is not None:
        return _call("JOB_TILE", job.slot, step.after, step.row)
    more = (job.ifm2 >> unit, job.psum >> unit)
    places = (job.ifm >> unit, job.ofm >> unit, job.weights, job.params)
    form = () if step.form is None else (step.form,)
    name = f"JOB{'_FORM' if form else ''}{'_2' if step.more else ''}"
    return _call(name, job.slot, step.after, step.place, *form, *(more if step.more else ()), *places)


def _call(name: str, *values: object) -> str:
    return f"HWLIB_{name}({', '.join(map(str, values))})"


def made_tiles(plan: CompactPlan, name: str) -> Iterator[str]:
    """The declaration of the places in RAM where tiles are made; nothing without any."""
    if plan.places:
        yield f"hwlib_made_tile_t {name}[{plan.places}];"
