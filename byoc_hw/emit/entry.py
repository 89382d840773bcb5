"""Template values for the header, main.c and the example program: interface, arena, calls in order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import prod

import numpy as np

from byoc_hw.emit import c
from byoc_hw.emit.main_body import (
    Members,
    calls_and_waits,
    pointer_type,
    run_body,
    stages_body,
    step_body,
    uses_arena,
)
from byoc_hw.emit.numbering import NumberedLayer, number_layers
from byoc_hw.emit.region import alignment_of
from byoc_hw.plan.place.arena import ModelMemory, block_name
from byoc_hw.program import Buffer, CopyCall, HostCall, Program
from byoc_hw.soc import Hardware


def entry_context(
    program: Program,
    memory: ModelMemory,
    accelerator: Hardware,
    io_in_arena: bool = False,
    polled: bool = False,
    ahead: Collection[str] = (),
) -> dict[str, object]:
    """The template values of model.h.j2, model_main.c.j2 and app_main.c.j2. The regions in `ahead` end with copies for
    the next one in flight."""
    layers = number_layers(program)
    members = Members(program)
    alignment = alignment_of(accelerator)
    ends = _app_ends(program, members, io_in_arena)
    return {
        "mod_name": program.name,
        "macro": program.name.upper(),
        "alignment": alignment,
        "argument_alignment": max(4, accelerator.dma_alignment),
        "dma_alignment": accelerator.dma_alignment,
        "layers": layers,
        "sizes": "\n".join(_macros(_sizes(program, members, memory))),
        "quantization": "\n".join(_macros(_quantization(program, members))),
        "functions": [*_functions(program, members)],
        "camera": next((one for one in _functions(program, members) if one["to"] == "stored"), None),
        "input_members": "\n".join(_struct_members(program.inputs, members.inputs, "const ")),
        "output_members": "\n".join(_struct_members(program.outputs, members.outputs, "")),
        "run_prototype": _prototype(program, "run"),
        "stages": [*_stages(program, members, memory, ahead)],
        "start_prototype": _prototype(program, "start"),
        "polled": polled,
        "has_regions": bool(program.regions),
        "step_count": len(calls_and_waits(program)),
        "uses_arena": io_in_arena or any(uses_arena(call) for call in program.calls),
        "io_prototypes": "\n".join(f"{line};" for line, _ in _io(program, members, memory)) if io_in_arena else "",
        "io_functions": "\n".join(_io_functions(program, members, memory)) if io_in_arena else "",
        "traced": any(isinstance(call, HostCall) for call in program.calls),
        "counted": any(not isinstance(call, CopyCall) for call in program.calls),
        "host_prototypes": "\n".join(_host_prototypes(program)),
        "layer_names": "\n".join(_layer_names(layers)),
        "body": "\n".join(_body(program, members, memory, polled, ahead)),
        "inputs": program.inputs,
        "buffers": "" if io_in_arena else "\n".join(_app_buffers(program, alignment)),
        "input_table": "\n".join(f"    {{{place}, {size}}}," for place, size in ends["input"]),
        "output_writes": "\n".join(f"  app_write(file, {place}, {size});" for place, size in ends["output"]),
        "interface": "\n".join(_app_interface(program, members, ends)),
    }


def _body(
    program: Program, members: Members, memory: ModelMemory, polled: bool, ahead: Collection[str]
) -> Iterator[str]:
    if program.stages:
        return stages_body(program)
    return step_body(program, members, memory) if polled else run_body(program, members, memory, ahead)


def _stages(
    program: Program, members: Members, memory: ModelMemory, ahead: Collection[str]
) -> Iterator[dict[str, str]]:
    """The function of each stage."""
    first = 0
    for stage, part in program.parts:
        body = "\n".join(run_body(part, members, memory, ahead, first))
        yield {"prototype": _prototype(program, f"{stage.name}_run"), "body": body}
        first += len(number_layers(part))


def _prototype(program: Program, what: str) -> str:
    structs = [f"const struct {program.name}_{role}s *{role}s" for role in ("input", "output")]
    return c.wrapped(f"int32_t {program.name}_{what}", structs)


# ---------------------------------------------------------------- the header


def _ends(program: Program, members: Members) -> Iterator[tuple[str, str, Buffer]]:
    """Role, struct member and buffer of each input and output."""
    for role, names, buffers in (
        ("input", members.inputs, program.inputs),
        ("output", members.outputs, program.outputs),
    ):
        for name, buffer in zip(names, buffers, strict=True):
            yield role, name, buffer


def _macro(program: Program, role: str, name: str) -> str:
    return f"{program.name}_{role}_{name}".upper()


def _sizes(program: Program, members: Members, memory: ModelMemory) -> Iterator[tuple[str, str]]:
    for role, name, buffer in _ends(program, members):
        yield f"{_macro(program, role, name)}_SIZE", f"{buffer.nbytes}u"
    yield f"{program.name.upper()}_ARENA_SIZE", f"{max(1, memory.arena.nbytes)}u"  # C has no empty arrays


def _quantization(program: Program, members: Members) -> Iterator[tuple[str, str]]:
    """Shapes, and scales and zero points where they are known."""
    for role, name, buffer in _ends(program, members):
        macro = _macro(program, role, name)
        yield f"{macro}_ELEMENTS", f"{prod(buffer.shape)}u"
        yield f"{macro}_RANK", f"{len(buffer.shape)}u"
        if buffer.shape:  # C has no empty initialisers
            yield f"{macro}_SHAPE", f"{{{', '.join(map(str, buffer.shape))}}}"
        if buffer.quantization is not None:
            yield f"{macro}_SCALE", c.exact_number(buffer.quantization.scale[0], "float32")
            yield f"{macro}_ZERO_POINT", f"({buffer.quantization.zero_point[0]})"


def _functions(program: Program, members: Members) -> Iterator[dict[str, str]]:
    """The functions between stored and real values: to stored ones for inputs, to real ones for outputs."""
    for role, name, buffer in _ends(program, members):
        if buffer.quantization is None:
            continue
        limits = np.iinfo(buffer.dtype)
        yield {
            "to": "stored" if role == "input" else "real",
            "name": f"{program.name}_{'quantize' if role == 'input' else 'dequantize'}_{name}",
            "type": c.c_type(buffer.dtype),
            "macro": _macro(program, role, name),
            "low": str(limits.min),
            "high": str(limits.max),
        }


def _macros(values: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Definitions, the values in one column."""
    listed = list(values)
    longest = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        yield f"#define {name:<{longest}} {value}"


def _struct_members(buffers: Sequence[Buffer], names: Sequence[str], const: str) -> Iterator[str]:
    for name, buffer in zip(names, buffers, strict=True):
        shape = " x ".join(map(str, buffer.shape)) or "a scalar"
        lines = [f"{buffer.name}: {buffer.dtype}, {shape}"]
        if buffer.state:
            zero = "" if buffer.quantization is None else f" (stored: {buffer.quantization.zero_point[0]})"
            lines.append(f"A state: zeros{zero} at first, then the output {buffer.state} of the inference before.")
        yield c.comment(lines, indent=2)
        yield f"  {const}{c.c_type(buffer.dtype)} *{name};"


def _io(program: Program, members: Members, memory: ModelMemory) -> Iterator[tuple[str, str]]:
    """Declarator and return value of the address function of each input and output in the arena."""
    for role, name, buffer in _ends(program, members):
        element = c.c_type(buffer.dtype)
        address = f"{program.name.upper()}_ARENA + {memory.arena.offsets[block_name(buffer)]}"
        yield f"{element} *{program.name}_{role}_{name}(void)", f"({element} *)({address})"


def _io_functions(program: Program, members: Members, memory: ModelMemory) -> Iterator[str]:
    for first_line, result in _io(program, members, memory):
        yield f"{first_line}\n{{\n  return {result};\n}}\n"


# ---------------------------------------------------------------- main


def _host_prototypes(program: Program) -> Iterator[str]:
    seen: set[str] = set()
    for call in program.calls:
        if isinstance(call, HostCall) and call.symbol not in seen:
            seen.add(call.symbol)
            yield c.wrapped(
                f"int32_t {call.symbol}", [*(pointer_type(b) for b in call.arguments), "uint8_t *arena"], ";"
            )


def _layer_names(layers: Sequence[NumberedLayer]) -> Iterator[str]:
    for layer in layers:
        spelt = c.string(layer.name)
        yield "\n".join(f"  {piece}" for piece in spelt) + ","
    yield "  0,"


# ---------------------------------------------------------------- the example program


def _app_buffers(program: Program, alignment: int) -> Iterator[str]:
    for role, buffers in (("input", program.inputs), ("output", program.outputs)):
        for index, buffer in enumerate(buffers):
            yield c.comment([buffer.name])
            element = c.c_type(buffer.dtype)
            array = f"{role}_{index}[{buffer.nbytes} / sizeof({element})]"
            yield f"static {element} {array} __attribute__((aligned({alignment})));"


def _app_ends(program: Program, members: Members, io_in_arena: bool) -> dict[str, list[tuple[str, str]]]:
    """Address and size in C of each input and output, by role: in the arena, or an array of the example program."""
    ends: dict[str, list[tuple[str, str]]] = {"input": [], "output": []}
    for role, name, _ in _ends(program, members):
        array = f"{role}_{len(ends[role])}"
        arena = f"{program.name}_{role}_{name}()", f"{_macro(program, role, name)}_SIZE"
        ends[role].append(arena if io_in_arena else (array, f"sizeof {array}"))
    return ends


def _app_interface(program: Program, members: Members, ends: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    for role, names in (("input", members.inputs), ("output", members.outputs)):
        values = ", ".join(f".{name} = {place}" for name, (place, _) in zip(names, ends[role], strict=True))
        yield f"  const struct {program.name}_{role}s {role}s = {{{values}}};"
