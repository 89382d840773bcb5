"""Overlap of host functions and regions: which regions return early, and where main waits for them."""

from __future__ import annotations

from dataclasses import replace

from byoc_hw.program import Buffer, Call, CopyCall, HostCall, Program, RegionCall, WaitCall


def overlapped(program: Program) -> Program:
    """The program with regions and independent host functions in parallel.

    A region moves before the host functions in front of it that it does not depend on, unless they run
    in parallel with another region already. Main waits for it before the first dependent call, before
    the next region, or at the end. A region with no host function in between is not changed. Host
    functions keep their order, and so do regions.
    """
    calls: list[Call] = []
    for call in program.calls:
        place = len(calls)
        if isinstance(call, RegionCall):
            while place > _busy(calls) and _independent(calls[place - 1], call):
                place -= 1
        calls.insert(place, call)
    return replace(program, calls=tuple(_with_waits(calls)))


def _busy(calls: list[Call]) -> int:
    """The index after the calls that run in parallel with the last region so far."""
    regions = [(index, call) for index, call in enumerate(calls) if isinstance(call, RegionCall)]
    if not regions:
        return 0
    index, last = regions[-1]
    return index + 1 + len(_beside(last, calls[index + 1 :]))


def _with_waits(calls: list[Call]) -> list[Call]:
    waiting: list[Call] = []
    for index, call in enumerate(calls):
        waiting.append(call)
        if isinstance(call, RegionCall):
            beside = _beside(call, calls[index + 1 :])
            if any(isinstance(other, HostCall) for other in beside):
                end = index + 1 + len(beside)
                return [*waiting, *beside, WaitCall(call.graph, call.arguments), *_with_waits(calls[end:])]
    return waiting


def _beside(region: RegionCall, following: list[Call]) -> list[Call]:
    """The calls directly after a region that can run in parallel with it."""
    count = next((at for at, call in enumerate(following) if not _independent(call, region)), len(following))
    return following[:count]


def _independent(call: Call, region: RegionCall) -> bool:
    """Whether neither writes a buffer that the other uses. Two regions are never independent."""
    if isinstance(call, (RegionCall, WaitCall)):
        return False
    touched, written = _effects(call)
    outputs = set(region.arguments[len(region.graph.inputs) :])
    return not written & set(region.arguments) and not touched & outputs


def _effects(call: HostCall | CopyCall) -> tuple[set[Buffer], set[Buffer]]:
    """The buffers that a call uses, and those that it writes."""
    if isinstance(call, CopyCall):
        return {call.source, call.target}, {call.target}
    return set(call.arguments), set(call.written)
