"""Padded copies of the model's inputs and outputs that are no whole words of the accelerator's DMA.

A region reads and writes whole words. Buffers in the arena have room behind their end; inputs and outputs are the
caller's, and end where they end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from byoc_hw.program import Buffer, Call, CopyCall, Program, RegionCall
from byoc_hw.soc import Hardware


def padded(program: Program, accelerator: Hardware) -> Program:
    """The program with such inputs copied into the arena before a region, and such outputs out of it behind it."""
    word = 1 if accelerator.library is not None else accelerator.dma_alignment
    calls: list[Call] = []
    for number, call in enumerate(program.calls):
        if not isinstance(call, RegionCall):
            calls.append(call)
            continue
        own = {buffer: _in_arena(buffer, number) for buffer in _ending_inside(call.arguments, word)}
        inputs, outputs = (
            dict.fromkeys(buffer for buffer in arguments if buffer in own)
            for arguments in (call.arguments[: len(call.graph.inputs)], call.arguments[len(call.graph.inputs) :])
        )
        calls += [CopyCall(buffer, own[buffer]) for buffer in inputs]
        calls.append(replace(call, arguments=tuple(own.get(buffer, buffer) for buffer in call.arguments)))
        calls += [CopyCall(own[buffer], buffer) for buffer in outputs]
    return replace(program, calls=tuple(calls))


def _ending_inside(buffers: Iterable[Buffer], word: int) -> list[Buffer]:
    """The caller's buffers that end inside a word."""
    return [buffer for buffer in dict.fromkeys(buffers) if buffer.role != "intermediate" and buffer.nbytes % word]


def _in_arena(buffer: Buffer, number: int) -> Buffer:
    return replace(buffer, name=f"padded_{buffer.role}_{buffer.name}_{number}", role="intermediate")
