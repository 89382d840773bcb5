"""The C of a PE beside its model: the buffers of two frames, and what each port moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_hw.emit import c
from byoc_hw.errors import PlanError
from byoc_hw.integers import round_up
from byoc_hw.mesh.flow import OUTPUT_BUFFERS
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.patches import PatchNeed, contains, form_of
from byoc_hw.mesh.plan import Channel, Patch
from byoc_hw.mesh.stage_program import StageProgram
from byoc_hw.tensor import Tensor

LINK_FOLDER = "link"
"""The folder of a PE's project with the main loop and the link layer."""

MOST_PORTS = 64
"""`HWLIB_PE_PORTS`: the most receives, and the most sends, of a PE."""

_LINK = Path(__file__).parent / LINK_FOLDER


@dataclass(frozen=True)
class PortBlock:
    """Rows of bytes in a buffer, `stride` bytes from row to row."""

    offset: int
    nbytes: int
    rows: int
    stride: int


def port_block(tensor: Tensor, held: Patch, moved: Patch) -> PortBlock:
    """Where a patch lies in a buffer that holds another one around it."""
    form, each = form_of(tensor), tensor.bytes_of(1)
    width = (held.channels[1] - held.channels[0]) * each
    first = (moved.rows[0] - held.rows[0]) * form.pixels * width + (moved.channels[0] - held.channels[0]) * each
    pixels = (moved.rows[1] - moved.rows[0]) * form.pixels
    if moved.channels == held.channels:
        return PortBlock(first, pixels * width, 1, pixels * width)
    return PortBlock(first, (moved.channels[1] - moved.channels[0]) * each, pixels, width)


def ports_of(number: int, channels: Sequence[Channel]) -> tuple[list[Channel], list[Channel]]:
    """The channels of a stage's receives and of its sends, in the order of their ports."""
    return [one for one in channels if one.target == number], [one for one in channels if one.source == number]


def channel_buffer_bytes(stage: StageProgram, number: int, channels: Sequence[Channel]) -> int:
    """Bytes of the buffers for the channels of stage `number`: of two frames, or one of an input whose channels have
    one credit; and of the frames that the link layer holds of channels with more credits."""
    receives, _ = ports_of(number, channels)
    lanes = [(holder_of(stage.inputs, one), one.nbytes, one.credits) for one in receives]
    received = received_buffer_bytes([buffer.nbytes for buffer in stage.program.inputs], lanes)
    return received + sent_buffer_bytes(stage)


def sent_buffer_bytes(stage: StageProgram) -> int:
    """Bytes of the buffers for what a stage sends."""
    return OUTPUT_BUFFERS * sum(buffer_room(buffer.nbytes) for buffer in stage.program.outputs)


def received_buffer_bytes(inputs: Sequence[int], lanes: Sequence[tuple[int, int, int]]) -> int:
    """Bytes of the buffers for inputs of so many bytes, and of the frames that the link layer holds beside them.
    `lanes` has for each channel the number of its input, its bytes and its credits."""
    copies = _copies(len(inputs), [(holder, credits) for holder, _, credits in lanes])
    held = sum(count * buffer_room(nbytes) for count, nbytes in zip(copies, inputs, strict=True))
    return held + max(0, sum(nbytes * (credits - copies[holder]) for holder, nbytes, credits in lanes))


def holder_of(held: Sequence[PatchNeed], channel: Channel) -> int:
    """The number of the patch that a channel's patch lies in."""
    return next(
        at for at, need in enumerate(held) if need.tensor == channel.tensor and contains(need.patch, channel.patch)
    )


def _copies(inputs: int, lanes: Sequence[tuple[int, int]]) -> list[int]:
    """How often each input is there: twice, or once where a channel of it has one credit only. `lanes` has for each
    channel the number of its input and its credits."""
    found = [2] * inputs
    for holder, credits in lanes:
        found[holder] = min(found[holder], max(1, credits))
    return found


def pe_files(
    network: MeshNetwork, stage: StageProgram, number: int, channels: Sequence[Channel], simulated: bool
) -> dict[str, str]:
    """The files of a PE in `link/` of its project. `simulated` says whether there is a HAL, so also its simulator.

    Raises `PlanError` for a stage with more than `MOST_PORTS` channels in one direction.
    """
    receives, sends = ports_of(number, channels)
    for count, what in ((len(receives), "receives from"), (len(sends), "sends to")):
        if count > MOST_PORTS:
            raise PlanError(f"stage {number} {what} at most {MOST_PORTS} channels: got {count}")
    name = stage.program.name
    text = "\n".join(_source(network, stage, receives, sends, simulated))
    fixed = {f"{LINK_FOLDER}/{path.name}": path.read_text(encoding="utf-8") for path in sorted(_LINK.glob("*.[ch]"))}
    return {**fixed, f"{LINK_FOLDER}/{name}_pe.c": text}


_ALIGNMENT = 64


def _source(
    network: MeshNetwork,
    stage: StageProgram,
    receives: Sequence[Channel],
    sends: Sequence[Channel],
    simulated: bool,
) -> Iterator[str]:
    program = stage.program
    name = program.name
    yield c.comment([f"{name}: the buffers of two frames, and the ports of the PE."])
    yield f'#include "{name}.h"\n#include "hwlib_pe.h"\n'
    if simulated:
        yield '#ifdef HWLIB_SIM\n#include "hwlib_sim.h"\n#endif\n'
    lanes = [(holder_of(stage.inputs, one), one.credits) for one in receives]
    copies = _copies(len(stage.inputs), lanes), [OUTPUT_BUFFERS] * len(program.outputs)
    for label, buffers, counts in zip(("input", "output"), (program.inputs, program.outputs), copies, strict=True):
        for index, (buffer, count) in enumerate(zip(buffers, counts, strict=True)):
            yield c.comment([buffer.name]).rstrip()
            extents = f"[{count}][{buffer_room(buffer.nbytes)}]"
            yield f"static uint8_t {label}{index}{extents} __attribute__((aligned({_ALIGNMENT})));\n"
    yield from _run(name, *copies, simulated)
    yield from _ports(network, "receives", "input", stage.inputs, receives, copies[0])
    yield from _ports(network, "sends", "output", stage.outputs, sends, copies[1])
    tables = ", ".join(label if there else "0" for label, there in (("receives", receives), ("sends", sends)))
    yield "extern const hwlib_pe_t hwlib_pe;"
    yield f"const hwlib_pe_t hwlib_pe = {{{tables}, {len(receives)}, {len(sends)}, run}};\n"


def buffer_room(nbytes: int) -> int:
    """The bytes that an input or an output of so many bytes takes once."""
    return round_up(nbytes, _ALIGNMENT)


def _run(name: str, inputs: Sequence[int], outputs: Sequence[int], simulated: bool) -> Iterator[str]:
    """The function that computes a frame. `inputs` and `outputs` have how often each buffer is there."""
    yield "static int32_t run(uint32_t set)\n{"
    if 2 not in (*inputs, *outputs):
        yield "  (void)set;"
    for label, counts in (("input", inputs), ("output", outputs)):
        places = [f"(void *){label}{index}[{'set' if count == 2 else 0}]" for index, count in enumerate(counts)]
        yield f"  const struct {name}_{label}s {label}s = {{{', '.join(places) or '0'}}};"
    if simulated:
        yield "#ifdef HWLIB_SIM\n  hwlib_sim_reset();\n#endif"
    yield f"  return {name}_run(&inputs, &outputs);\n}}\n"


def _ports(
    network: MeshNetwork,
    table: str,
    label: str,
    held: Sequence[PatchNeed],
    channels: Sequence[Channel],
    copies: Sequence[int],
) -> Iterator[str]:
    if not channels:
        return
    yield f"static const hwlib_pe_port_t {table}[] = {{"
    for channel in channels:
        tensor = network.tensors[channel.tensor]
        index = holder_of(held, channel)
        block, single = port_block(tensor, held[index].patch, channel.patch), copies[index] == 1
        sets = ", ".join(
            f"{{{label}{index}[{one}] + {block.offset}, {block.nbytes}, {block.rows}, {block.stride}}}"
            for one in ((0, 0) if single else (0, 1))
        )
        yield f"  {{{{{sets}}}, {str(single).lower()}}},"
    yield "};\n"
