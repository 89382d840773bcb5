"""The C of a PE beside its model: the buffers of two frames, and what each port moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_hw.emit import c
from byoc_hw.errors import PlanError
from byoc_hw.integers import round_up
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.patches import PatchNeed, contains, form_of
from byoc_hw.mesh.plan import Channel, Patch
from byoc_hw.mesh.stage_program import StageProgram
from byoc_hw.program import Buffer
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


def channel_buffer_bytes(stage: StageProgram) -> int:
    """Bytes of the buffers of two frames."""
    program = stage.program
    return 2 * sum(_room(buffer) for buffer in (*program.inputs, *program.outputs))


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
    for label, buffers in (("input", program.inputs), ("output", program.outputs)):
        for index, buffer in enumerate(buffers):
            yield c.comment([buffer.name]).rstrip()
            yield f"static uint8_t {label}{index}[2][{_room(buffer)}] __attribute__((aligned({_ALIGNMENT})));\n"
    yield from _run(name, program.inputs, program.outputs, simulated)
    yield from _ports(network, "receives", "input", stage.inputs, receives)
    yield from _ports(network, "sends", "output", stage.outputs, sends)
    tables = ", ".join(label if there else "0" for label, there in (("receives", receives), ("sends", sends)))
    yield "extern const hwlib_pe_t hwlib_pe;"
    yield f"const hwlib_pe_t hwlib_pe = {{{tables}, {len(receives)}, {len(sends)}, run}};\n"


def _room(buffer: Buffer) -> int:
    return round_up(buffer.nbytes, _ALIGNMENT)


def _run(name: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer], simulated: bool) -> Iterator[str]:
    yield "static int32_t run(uint32_t set)\n{"
    for label, buffers in (("input", inputs), ("output", outputs)):
        pointers = ", ".join(f"(void *){label}{index}[set]" for index in range(len(buffers))) or "0"
        yield f"  const struct {name}_{label}s {label}s = {{{pointers}}};"
    if simulated:
        yield "#ifdef HWLIB_SIM\n  hwlib_sim_reset();\n#endif"
    yield f"  return {name}_run(&inputs, &outputs);\n}}\n"


def _ports(
    network: MeshNetwork, table: str, label: str, held: Sequence[PatchNeed], channels: Sequence[Channel]
) -> Iterator[str]:
    if not channels:
        return
    yield f"static const hwlib_pe_port_t {table}[] = {{"
    for channel in channels:
        tensor = network.tensors[channel.tensor]
        index = next(
            at for at, need in enumerate(held) if need.tensor == channel.tensor and contains(need.patch, channel.patch)
        )
        block = port_block(tensor, held[index].patch, channel.patch)
        sets = ", ".join(
            f"{{{label}{index}[{one}] + {block.offset}, {block.nbytes}, {block.rows}, {block.stride}}}"
            for one in range(2)
        )
        yield f"  {{{{{sets}}}}},"
    yield "};\n"
