"""Text tables of one inference: accelerator cycles and instructions by layer."""

from __future__ import annotations

from byoc_hw.run.result import Cycles, LayerCycles, Result

_NAME_WIDTH = 36
_CORE_ROW = "  {:<36}  {:>16}  {:>12}"
_ROW = "  {:<36}  {:<16}  {:>9}  {:>10}  {:>9}"


def cycle_table(cycles: Cycles) -> str:
    """A row for each layer: accelerator cycles, the share of them in which the array computes, DMA bytes."""
    rows = [_ROW.format("layer", "kind", "cycles", "array busy", "DMA bytes")]
    rows += [_row(layer) for layer in cycles.by_layer]
    array = sum(layer.array_cycles for layer in cycles.by_layer)
    copied = sum(layer.dma_bytes for layer in cycles.by_layer)
    rows.append(_ROW.format("total", "", cycles.total, _share(array, cycles.total), copied))
    return "\n".join(rows)


def profile(result: Result) -> str:
    """The tables of a run: accelerator cycles, the core's instructions if they were counted, and of polls a line."""
    parts = [cycle_table(result.cycles)] if result.cycles else []
    if result.host_instructions is not None:
        parts.append(core_table(result))
    if result.polls is not None:
        parts.append(str(result.polls))
    return "\n\n".join(parts) or "no cycles: nothing ran on a simulated accelerator"


def core_table(result: Result) -> str:
    """A row for each layer: instructions of the host core, and its share of the time end to end."""
    host, time = result.host_instructions, result.end_to_end
    assert host is not None
    rows = [_CORE_ROW.format("layer", "instructions", "end to end")]
    for index, layer in enumerate(host.by_layer):
        rows.append(_CORE_ROW.format(short_name(layer.name), layer.count, time.by_layer[index].count if time else "-"))
    rows.append(_CORE_ROW.format("main", host.main, time.main if time else "-"))
    rows.append(_CORE_ROW.format("total", host.total, time.total if time else "-"))
    return "\n".join(rows)


def short_name(name: str) -> str:
    """A layer's name for a table: that of the first operator fused into it; if it is long, its end."""
    first = name.split(";")[0]
    return first if len(first) <= _NAME_WIDTH else f"...{first[3 - _NAME_WIDTH :]}"


def _row(layer: LayerCycles) -> str:
    if layer.kind == "host":
        return _ROW.format(short_name(layer.name), layer.kind, "-", "-", "-")
    busy = _share(layer.array_cycles, layer.cycles)
    return _ROW.format(short_name(layer.name), layer.kind, layer.cycles, busy, layer.dma_bytes)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"
