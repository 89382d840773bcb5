"""Template values for the header, main.c and the example program: interface, arena, calls in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from byoc_hw.emit import c
from byoc_hw.emit.numbering import NumberedLayer, number_calls, number_layers
from byoc_hw.emit.region import alignment_of
from byoc_hw.errors import GraphError
from byoc_hw.plan.place.arena import ModelMemory, block_name
from byoc_hw.program import Buffer, Call, CopyCall, HostCall, Program, RegionCall, WaitCall
from byoc_hw.soc import Hardware


def entry_context(
    program: Program, memory: ModelMemory, accelerator: Hardware, io_in_arena: bool = False
) -> dict[str, object]:
    """The template values of model.h.j2, model_main.c.j2 and app_main.c.j2."""
    layers = number_layers(program)
    members = _Members(program)
    alignment = alignment_of(accelerator)
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
        "run_prototype": c.wrapped(
            f"int32_t {program.name}_run",
            [f"const struct {program.name}_inputs *inputs", f"const struct {program.name}_outputs *outputs"],
        ),
        "uses_arena": io_in_arena or any(_uses_arena(call) for call in program.calls),
        "io_prototypes": "\n".join(f"{line};" for line, _ in _io(program, members, memory)) if io_in_arena else "",
        "io_functions": "\n".join(_io_functions(program, members, memory)) if io_in_arena else "",
        "traced": any(isinstance(call, HostCall) for call in program.calls),
        "counted": any(not isinstance(call, CopyCall) for call in program.calls),
        "host_prototypes": "\n".join(_host_prototypes(program)),
        "layer_names": "\n".join(_layer_names(layers)),
        "body": "\n".join(_body(program, members, memory)),
        "inputs": program.inputs,
        "buffers": "\n".join(_app_buffers(program, alignment)),
        "input_table": "\n".join(f"    {{input_{at}, sizeof input_{at}}}," for at in range(len(program.inputs))),
        "output_writes": "\n".join(
            f"  write_or_exit(file, output_{at}, sizeof output_{at});" for at in range(len(program.outputs))
        ),
        "interface": "\n".join(_app_interface(program, members)),
    }


class _Members:
    """The C struct members of the interface; an input and an output may share a name."""

    def __init__(self, program: Program) -> None:
        self.inputs = c.unique(buffer.name for buffer in program.inputs)
        self.outputs = c.unique(buffer.name for buffer in program.outputs)


# ---------------------------------------------------------------- the header


def _ends(program: Program, members: _Members) -> Iterator[tuple[str, str, Buffer]]:
    """Role, struct member and buffer of each input and output."""
    for role, names, buffers in (
        ("input", members.inputs, program.inputs),
        ("output", members.outputs, program.outputs),
    ):
        for name, buffer in zip(names, buffers, strict=True):
            yield role, name, buffer


def _macro(program: Program, role: str, name: str) -> str:
    return f"{program.name}_{role}_{name}".upper()


def _sizes(program: Program, members: _Members, memory: ModelMemory) -> Iterator[tuple[str, str]]:
    for role, name, buffer in _ends(program, members):
        yield f"{_macro(program, role, name)}_SIZE", f"{buffer.nbytes}u"
    yield f"{program.name.upper()}_ARENA_SIZE", f"{max(1, memory.arena.nbytes)}u"  # C has no empty arrays


def _quantization(program: Program, members: _Members) -> Iterator[tuple[str, str]]:
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


def _functions(program: Program, members: _Members) -> Iterator[dict[str, str]]:
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


def _io(program: Program, members: _Members, memory: ModelMemory) -> Iterator[tuple[str, str]]:
    """Declarator and return value of the address function of each input and output in the arena."""
    for role, name, buffer in _ends(program, members):
        element = c.c_type(buffer.dtype)
        address = f"{program.name.upper()}_ARENA + {memory.arena.offsets[block_name(buffer)]}"
        yield f"{element} *{program.name}_{role}_{name}(void)", f"({element} *)({address})"


def _io_functions(program: Program, members: _Members, memory: ModelMemory) -> Iterator[str]:
    for first_line, result in _io(program, members, memory):
        yield f"{first_line}\n{{\n  return {result};\n}}\n"


# ---------------------------------------------------------------- main


def _host_prototypes(program: Program) -> Iterator[str]:
    seen: set[str] = set()
    for call in program.calls:
        if isinstance(call, HostCall) and call.symbol not in seen:
            seen.add(call.symbol)
            yield c.wrapped(f"int32_t {call.symbol}", [*(_pointer(b) for b in call.arguments), "uint8_t *arena"], ";")


def _pointer(buffer: Buffer) -> str:
    return f"{c.c_type(buffer.dtype)} *"


def _layer_names(layers: Sequence[NumberedLayer]) -> Iterator[str]:
    for layer in layers:
        spelt = c.string(layer.name)
        yield "\n".join(f"  {piece}" for piece in spelt) + ","
    yield "  0,"


def _buffers(call: Call) -> tuple[Buffer, ...]:
    return (call.source, call.target) if isinstance(call, CopyCall) else call.arguments


def _body(program: Program, members: _Members, memory: ModelMemory) -> Iterator[str]:
    """The body of `<mod_name>_run`: pointers into the arena, then the calls."""
    calls = number_calls(program)
    named = _Expressions(program, members)
    if not any(buffer.role == "input" for call in program.calls for buffer in _buffers(call)):
        yield "  (void)inputs;"
    if any(_uses_arena(call) for call in program.calls):
        yield f"  uint8_t *const arena = {program.name.upper()}_ARENA;"
    for buffer, name in named.intermediates.items():
        pointer = c.c_type(buffer.dtype)
        yield f"  {pointer} *const {name} = ({pointer} *)(arena + {_offset(memory, buffer.name)});"
    if any(layers for _, layers in calls):
        yield "  int32_t status;"
    running: _Running | None = None
    for call, layers in calls:
        yield ""
        if isinstance(call, WaitCall):
            assert running is not None
            yield from _wait(running)
            running = None
        else:
            yield from _call(call, layers, named, memory, running)
        if isinstance(call, RegionCall) and call.graph.name in program.returning_early:
            running = _Running(call.graph.name, layers[-1].id)
    yield ""


def _uses_arena(call: Call) -> bool:
    return not isinstance(call, CopyCall) or any(buffer.role == "intermediate" for buffer in _buffers(call))


def _offset(memory: ModelMemory, name: str) -> int:
    if name not in memory.arena.offsets:
        raise GraphError(f"each buffer between two calls lies in the arena: {name} does not")
    return memory.arena.offsets[name]


class _Expressions:
    """The C expression of each buffer in main: a member of the interface, or a local name."""

    def __init__(self, program: Program, members: _Members) -> None:
        between = {
            buffer.name: buffer for call in program.calls for buffer in _buffers(call) if buffer.role == "intermediate"
        }
        symbols = [call.symbol for call in program.calls if isinstance(call, HostCall)]
        regions = [name for graph in program.regions for name in (graph.name, f"{graph.name}_wait")]
        taken = ["arena", "inputs", "outputs", "status", "memcpy", "host_failed", "trace", *symbols, *regions]
        local = c.unique(between, taken)
        self.intermediates = dict(zip(between.values(), local, strict=True))
        self._spelt = {
            **{("intermediate", name): spelt for name, spelt in zip(between, local, strict=True)},
            **{("input", b.name): f"inputs->{name}" for b, name in zip(program.inputs, members.inputs, strict=True)},
            **{
                ("output", b.name): f"outputs->{name}" for b, name in zip(program.outputs, members.outputs, strict=True)
            },
        }

    def of(self, buffer: Buffer) -> str:
        """A pointer to the buffer; `const` for an input of the model."""
        if (buffer.role, buffer.name) not in self._spelt:
            raise GraphError(f"{buffer.name} is an {buffer.role} of a call, but not of the model")
        return self._spelt[buffer.role, buffer.name]

    def plain(self, buffer: Buffer) -> str:
        """A pointer without `const`, for TVM's functions."""
        return f"({_pointer(buffer)}){self.of(buffer)}" if buffer.role == "input" else self.of(buffer)


@dataclass(frozen=True)
class _Running:
    """A region that is still running after its call has returned, and its last layer."""

    symbol: str
    layer: int


def _wait(running: _Running) -> Iterator[str]:
    yield c.comment([f"{running.symbol} has ended."], indent=2)
    yield f"  COUNT({running.layer});"
    yield f"  status = {running.symbol}_wait();"
    yield "  COUNT_MAIN();"
    yield from _RETURN_STATUS


_RETURN_STATUS = ("  if (status != 0) {", "    return status;", "  }")


def _call(
    call: HostCall | RegionCall | CopyCall,
    layers: Sequence[NumberedLayer],
    named: _Expressions,
    memory: ModelMemory,
    running: _Running | None,
) -> Iterator[str]:
    """One call. Where a region runs in parallel, a failure waits for it before returning."""
    if isinstance(call, CopyCall):
        yield f"  memcpy({named.of(call.target)}, {named.of(call.source)}, {call.target.nbytes});"
    elif isinstance(call, HostCall):
        (layer,) = layers
        yield c.comment(layer.title, indent=2)
        arguments = [*(named.plain(buffer) for buffer in call.arguments), "arena"]
        yield f"  COUNT({layer.id});"
        yield c.wrapped(f"status = {call.symbol}", arguments, ";", indent=2)
        yield "  COUNT_MAIN();"
        yield "  if (status != 0) {"
        if running is not None:
            yield f"    (void){running.symbol}_wait();"
        yield f"    return host_failed(status, {layer.id});"
        yield "  }"
        for output in call.written:
            yield f"  TRACE({layer.id}, {named.of(output)}, {output.nbytes});"
    else:
        yield c.comment([f"{call.graph.name}:", *(line for layer in layers for line in layer.title[:1])], indent=2)
        scratch = f"arena + {memory.scratch[call.graph.name][0]}"
        arguments = [*(named.of(buffer) for buffer in call.arguments), scratch]
        if layers:
            yield f"  COUNT({layers[0].id});"
        yield c.wrapped(f"status = {call.graph.name}", arguments, ";", indent=2)
        yield "  COUNT_MAIN();"
        yield from _RETURN_STATUS


# ---------------------------------------------------------------- the example program


def _app_buffers(program: Program, alignment: int) -> Iterator[str]:
    for role, buffers in (("input", program.inputs), ("output", program.outputs)):
        for index, buffer in enumerate(buffers):
            yield c.comment([buffer.name])
            element = c.c_type(buffer.dtype)
            array = f"{role}_{index}[{buffer.nbytes} / sizeof({element})]"
            yield f"static {element} {array} __attribute__((aligned({alignment})));"


def _app_interface(program: Program, members: _Members) -> Iterator[str]:
    for role, names in (("input", members.inputs), ("output", members.outputs)):
        values = ", ".join(f".{name} = {role}_{index}" for index, name in enumerate(names))
        yield f"  const struct {program.name}_{role}s {role}s = {{{values}}};"
