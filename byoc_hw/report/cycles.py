"""Where the cycles of one inference go, as a text table."""

from __future__ import annotations

from byoc_hw.run.result import Cycles, LayerCycles

_NAME_WIDTH = 36
_ROW = "  {:<36}  {:<16}  {:>9}  {:>10}  {:>9}"


def cycle_table(cycles: Cycles) -> str:
    """A row for each layer: accelerator cycles, the share of them in which the array computes, DMA bytes."""
    rows = [_ROW.format("layer", "kind", "cycles", "array busy", "DMA bytes")]
    rows += [_row(layer) for layer in cycles.by_layer]
    array = sum(layer.array_cycles for layer in cycles.by_layer)
    copied = sum(layer.dma_bytes for layer in cycles.by_layer)
    rows.append(_ROW.format("total", "", cycles.total, _share(array, cycles.total), copied))
    return "\n".join(rows)


def short_name(name: str) -> str:
    """A layer's name on a line: the first of the operators that were fused into it, and its end if long."""
    first = name.split(";")[0]
    return first if len(first) <= _NAME_WIDTH else f"...{first[3 - _NAME_WIDTH :]}"


def _row(layer: LayerCycles) -> str:
    if layer.kind == "host":
        return _ROW.format(short_name(layer.name), layer.kind, "-", "-", "-")
    busy = _share(layer.array_cycles, layer.cycles)
    return _ROW.format(short_name(layer.name), layer.kind, layer.cycles, busy, layer.dma_bytes)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"
