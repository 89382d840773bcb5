"""The C of a PE beside its model: the buffers of two frames, and what each port moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_hw.emit import c
from byoc_hw.emit.main_body import Members
from byoc_hw.errors import PlanError
from byoc_hw.integers import round_up
from byoc_hw.mesh.flow import OUTPUT_BUFFERS
from byoc_hw.mesh.network import MeshNetwork
from byoc_hw.mesh.patches import PatchNeed, contains, form_of
from byoc_hw.mesh.pe_stages import stage_label
from byoc_hw.mesh.plan import Channel, Patch
from byoc_hw.mesh.stage_program import StageProgram
from byoc_hw.program import Program
from byoc_hw.tensor import Tensor

LINK_FOLDER = "link"
"""The folder of a PE's project with the main loop and the link layer."""

MOST_PORTS = 64
"""The most receives, and the most sends, of a stage."""

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


def ports_of(stages: Sequence[int], channels: Sequence[Channel]) -> tuple[list[Channel], list[Channel]]:
    """The channels of the receives of some stages and of their sends, in the order of the ports: stage by stage."""
    return (
        [one for number in stages for one in channels if one.target == number],
        [one for number in stages for one in channels if one.source == number],
    )


def channel_buffer_bytes(stage: StageProgram, number: int, channels: Sequence[Channel]) -> int:
    """Bytes of the buffers for the channels of stage `number`: of two frames, or one of an input whose channels have
    one credit; and of the frames that the link layer holds of channels with more credits."""
    receives, _ = ports_of([number], channels)
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
    network: MeshNetwork,
    program: Program,
    stages: Mapping[int, StageProgram],
    channels: Sequence[Channel],
    simulated: bool,
) -> dict[str, str]:
    """The files of a PE in `link/` of its project. `program` is that of its stages, which are there by their numbers.
    `simulated` says whether there is a HAL, so also its simulator.

    Raises `PlanError` for a stage with more than `MOST_PORTS` channels in one direction.
    """
    for number in stages:
        receives, sends = ports_of([number], channels)
        for count, what in ((len(receives), "receives from"), (len(sends), "sends to")):
            if count > MOST_PORTS:
                raise PlanError(f"stage {number} {what} at most {MOST_PORTS} channels: got {count}")
    text = "\n".join(_Source(network, program, stages, channels).lines(simulated))
    fixed = {f"{LINK_FOLDER}/{path.name}": path.read_text(encoding="utf-8") for path in sorted(_LINK.glob("*.[ch]"))}
    return {**fixed, f"{LINK_FOLDER}/{program.name}_pe.c": text}


_ALIGNMENT = 64


class _Source:
    """The C of a PE: inputs and outputs of all stages are numbered as those of its program, ports stage by stage."""

    def __init__(
        self,
        network: MeshNetwork,
        program: Program,
        stages: Mapping[int, StageProgram],
        channels: Sequence[Channel],
    ) -> None:
        self._network, self._program, self._stages, self._channels = network, program, stages, channels
        self._members = Members(program)
        copies: list[int] = []
        for number, stage in stages.items():
            lanes = [(holder_of(stage.inputs, one), one.credits) for one in ports_of([number], channels)[0]]
            copies += _copies(len(stage.inputs), lanes)
        self._copies = {"input": copies, "output": [OUTPUT_BUFFERS] * len(program.outputs)}

    def lines(self, simulated: bool) -> Iterator[str]:
        """The file. `simulated` says whether there is a simulator to set to its start."""
        name = self._program.name
        yield c.comment([f"{name}: the buffers of two frames, and the ports of the PE."])
        yield f'#include "{name}.h"\n#include "hwlib_pe.h"\n'
        if simulated:
            yield '#ifdef HWLIB_SIM\n#include "hwlib_sim.h"\n#endif\n'
        yield from self._buffers()
        first = {"input": 0, "output": 0}
        for number, stage in self._stages.items():
            ends = {"input": len(stage.inputs), "output": len(stage.outputs)}
            spans = {label: range(first[label], first[label] + count) for label, count in ends.items()}
            yield from self._run(number, spans, simulated)
            first = {label: span.stop for label, span in spans.items()}
        yield from self._tables()

    def _buffers(self) -> Iterator[str]:
        for label, buffers in (("input", self._program.inputs), ("output", self._program.outputs)):
            for index, (buffer, count) in enumerate(zip(buffers, self._copies[label], strict=True)):
                yield c.comment([buffer.name]).rstrip()
                extents = f"[{count}][{buffer_room(buffer.nbytes)}]"
                yield f"static uint8_t {label}{index}{extents} __attribute__((aligned({_ALIGNMENT})));\n"

    def _run(self, number: int, spans: Mapping[str, range], simulated: bool) -> Iterator[str]:
        """The function that computes a frame of a stage. `spans` has the numbers of its inputs and outputs."""
        name = self._program.name
        yield f"static int32_t {stage_label(number)}(uint32_t set)\n{{"
        if not any(self._copies[label][index] == 2 for label, span in spans.items() for index in span):
            yield "  (void)set;"
        for label, members in (("input", self._members.inputs), ("output", self._members.outputs)):
            yield f"  const struct {name}_{label}s {label}s = {{"
            for index in spans[label]:
                which = "set" if self._copies[label][index] == 2 else 0
                yield f"    .{members[index]} = (void *){label}{index}[{which}],"
            yield "  };"
        if simulated:
            yield "#ifdef HWLIB_SIM\n  hwlib_sim_reset();\n#endif"
        stage = f"_{stage_label(number)}" if self._program.stages else ""
        yield f"  return {name}{stage}_run(&inputs, &outputs);\n}}\n"

    def _tables(self) -> Iterator[str]:
        """What the main loop reads, and its state."""
        stages, counts = [], [0, 0]
        ports: tuple[list[str], list[str]] = ([], [])
        first = [0, 0]
        for number, stage in self._stages.items():
            own = ports_of([number], self._channels)
            entry = ", ".join(f"{at}, {len(each)}" for at, each in zip(counts, own, strict=True))
            stages.append(f"  {{{entry}, {stage_label(number)}}},")
            for way, (label, held) in enumerate((("input", stage.inputs), ("output", stage.outputs))):
                ports[way].extend(self._port(label, first[way], held, channel) for channel in own[way])
                counts[way] += len(own[way])
                first[way] += len(held)
        for table, entries in zip(("receives", "sends"), ports, strict=True):
            if entries:
                yield "\n".join([f"static const hwlib_pe_port_t {table}[] = {{", *entries, "};\n"])
        yield "\n".join(["static const hwlib_pe_stage_t stages[] = {", *stages, "};\n"])
        yield f"static uint64_t computed[{len(stages)}];"
        for state, entries in zip(("received", "sent"), ports, strict=True):
            if entries:
                yield f"static hwlib_pe_moved_t {state}[{len(entries)}];"
        names = (("receives", ports[0]), ("sends", ports[1]), ("computed", stages), ("received", ports[0]))
        tables = ", ".join(name if there else "0" for name, there in (*names, ("sent", ports[1])))
        yield "\nextern const hwlib_pe_t hwlib_pe;"
        yield f"const hwlib_pe_t hwlib_pe = {{stages, {tables}, {len(stages)}, {counts[0]}, {counts[1]}}};\n"

    def _port(self, label: str, first: int, held: Sequence[PatchNeed], channel: Channel) -> str:
        """The entry of a port: `first` is the number of the first of the patches that its stage holds."""
        at = holder_of(held, channel)
        index = first + at
        block = port_block(self._network.tensors[channel.tensor], held[at].patch, channel.patch)
        single = self._copies[label][index] == 1
        sets = ", ".join(
            f"{{{label}{index}[{one}] + {block.offset}, {block.nbytes}, {block.rows}, {block.stride}}}"
            for one in ((0, 0) if single else (0, 1))
        )
        return f"  {{{{{sets}}}, {str(single).lower()}}},"


def buffer_room(nbytes: int) -> int:
    """The bytes that an input or an output of so many bytes takes once."""
    return round_up(nbytes, _ALIGNMENT)
