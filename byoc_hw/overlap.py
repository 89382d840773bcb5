"""The host's functions beside the accelerator: which regions return early, and where main waits for them."""

from __future__ import annotations

from dataclasses import replace

from byoc_hw.program import Buffer, Call, CopyCall, HostCall, Program, RegionCall, WaitCall


def overlapped(program: Program) -> Program:
    """The program with regions that run while the host works on something else.

    A region starts before the host's functions in front of it that it has nothing to do with, unless
    they run beside another region already. It is waited for before the first call that needs what it
    writes or writes what it touches, before the next region, or at the end. Without a host function in
    between it stays as it is. The order of host functions among themselves, and of regions among
    themselves, does not change.
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
    """The end of the calls that run beside the last region so far."""
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
    """The calls right after a region that can run before it has ended."""
    count = next((at for at, call in enumerate(following) if not _independent(call, region)), len(following))
    return following[:count]


def _independent(call: Call, region: RegionCall) -> bool:
    """Whether neither writes what the other touches; of two regions, one waits for the other."""
    if isinstance(call, (RegionCall, WaitCall)):
        return False
    touched, written = _effects(call)
    outputs = set(region.arguments[len(region.graph.inputs) :])
    return not written & set(region.arguments) and not touched & outputs


def _effects(call: HostCall | CopyCall) -> tuple[set[Buffer], set[Buffer]]:
    """What a call touches, and what of that it writes."""
    if isinstance(call, CopyCall):
        return {call.source, call.target}, {call.target}
    return set(call.arguments), set(call.written)
