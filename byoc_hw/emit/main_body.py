"""C for the calls of a whole model in order: the body of `<mod_name>_run`, or of the function that makes one call."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from byoc_hw.emit import c
from byoc_hw.emit.numbering import NumberedLayer, number_calls
from byoc_hw.errors import GraphError
from byoc_hw.plan.place.arena import ModelMemory
from byoc_hw.program import Buffer, Call, CopyCall, HostCall, Program, RegionCall, WaitCall


class Members:
    """The C struct members of the interface; an input and an output may share a name."""

    def __init__(self, program: Program) -> None:
        self.inputs = c.unique(buffer.name for buffer in program.inputs)
        self.outputs = c.unique(buffer.name for buffer in program.outputs)


def pointer_type(buffer: Buffer) -> str:
    """The C type of a pointer to a buffer."""
    return f"{c.c_type(buffer.dtype)} *"


def _buffers(call: Call) -> tuple[Buffer, ...]:
    return (call.source, call.target) if isinstance(call, CopyCall) else call.arguments


def run_body(
    program: Program, members: Members, memory: ModelMemory, ahead: Collection[str] = (), first: int = 0
) -> Iterator[str]:
    """The body of `<mod_name>_run`: pointers into the arena, then the calls, whose layers are numbered from `first`.
    The regions in `ahead` end with copies for the next one in flight."""
    calls = number_calls(program, first)
    named = _Expressions(program, members)
    if not _touches(program, "input"):
        yield "  (void)inputs;"
    yield from _pointers(program, named, memory)
    if any(layers for _, layers in calls):
        yield "  int32_t status;"
    running: _Running | None = None
    last = ""
    for call, layers in calls:
        yield ""
        last = call.graph.name if isinstance(call, RegionCall) else last
        if isinstance(call, WaitCall):
            assert running is not None
            yield from _wait(running)
            running = None
        else:
            yield from _call(call, layers, named, memory, running, last if last in ahead else "")
        if isinstance(call, RegionCall) and call.graph.name in program.returning_early:
            running = _Running(call.graph.name, layers[-1].id)
    yield ""


def stages_body(program: Program) -> Iterator[str]:
    """The body of `<mod_name>_run` of a program of several stages: one after the other."""
    yield "  int32_t status;"
    for stage in program.stages:
        yield f"  status = {program.name}_{stage.name}_run(inputs, outputs);"
        yield from _RETURN_STATUS


_OF_STEPS = ("inference", "region", "found", "end", "progress_t", "goes_on", "later", "waits")


def calls_and_waits(program: Program) -> tuple[Call, ...]:
    """The calls of a polled model: main waits for the end of each region."""
    calls: list[Call] = []
    for call in program.calls:
        calls.append(call)
        if isinstance(call, RegionCall) and call.graph.name not in program.returning_early:
            calls.append(WaitCall(call.graph, call.arguments))
    return tuple(calls)


def step_body(program: Program, members: Members, memory: ModelMemory) -> Iterator[str]:
    """The body of the function of a polled model that makes the next of its calls."""
    program = replace(program, calls=calls_and_waits(program))
    named = _Expressions(program, members, _OF_STEPS)
    for role in ("input", "output"):
        if _touches(program, role):
            yield f"  const struct {program.name}_{role}s *const {role}s = &inference.{role}s;"
    yield from _pointers(program, named, memory)
    if any(isinstance(call, HostCall) for call in program.calls):
        yield "  int32_t status;"
    yield "  progress_t found = GOES_ON;"
    yield "  switch (inference.call) {"
    for number, (call, layers) in enumerate(number_calls(program)):
        yield f"  case {number}:"
        yield from _step(call, layers, named, memory)
        yield "    break;"
    yield "  default:"
    yield "    break;"
    yield "  }"


def _touches(program: Program, role: str) -> bool:
    return any(buffer.role == role for call in program.calls for buffer in _buffers(call))


def _pointers(program: Program, named: _Expressions, memory: ModelMemory) -> Iterator[str]:
    """Lines that declare the arena, and a pointer to each tensor in it."""
    if any(uses_arena(call) for call in program.calls):
        yield f"  uint8_t *const arena = {program.name.upper()}_ARENA;"
    for buffer, name in named.intermediates.items():
        pointer = c.c_type(buffer.dtype)
        yield f"  {pointer} *const {name} = ({pointer} *)(arena + {_offset(memory, buffer.name)});"


def uses_arena(call: Call) -> bool:
    """Whether a call takes anything that lies in the arena."""
    return not isinstance(call, CopyCall) or any(buffer.role == "intermediate" for buffer in _buffers(call))


def _offset(memory: ModelMemory, name: str) -> int:
    if name not in memory.arena.offsets:
        raise GraphError(f"each buffer between two calls lies in the arena: {name} does not")
    return memory.arena.offsets[name]


class _Expressions:
    """The C expression of each buffer in main: a member of the interface, or a local name."""

    def __init__(self, program: Program, members: Members, also_taken: Sequence[str] = ()) -> None:
        between = {
            buffer.name: buffer for call in program.calls for buffer in _buffers(call) if buffer.role == "intermediate"
        }
        symbols = [call.symbol for call in program.calls if isinstance(call, HostCall)]
        regions = [
            name for graph in program.regions for name in (graph.name, f"{graph.name}_wait", f"{graph.name}_give_up")
        ]
        taken = ["arena", "inputs", "outputs", "status", "memcpy", "host_failed", "trace", *symbols, *regions]
        local = c.unique(between, [*taken, *also_taken])
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
        return f"({pointer_type(buffer)}){self.of(buffer)}" if buffer.role == "input" else self.of(buffer)


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
    ahead: str,
) -> Iterator[str]:
    """One call. Where a region runs in parallel, a failure waits for it before returning, and it ends what the region
    `ahead` has started for the next one."""
    if isinstance(call, CopyCall):
        yield _copy(call, named)
    elif isinstance(call, HostCall):
        (layer,) = layers
        wait = () if running is None else (f"(void){running.symbol}_wait();",)
        over = (f"{ahead}_give_up();",) if ahead else ()
        yield from _host(call, layer, named, (*wait, *over, f"return host_failed(status, {layer.id});"), 2)
    else:
        yield from _region(call, layers, [*_region_arguments(call, named, memory)], "status = ", 2)
        yield from _RETURN_STATUS


def _step(call: Call, layers: Sequence[NumberedLayer], named: _Expressions, memory: ModelMemory) -> Iterator[str]:
    """A call of a polled model: what the core computes itself ends a poll, and a region is started or has ended."""
    if isinstance(call, WaitCall):
        yield c.comment([f"{call.graph.name} has ended."], indent=4)
        yield from ("    if (inference.in_region) {", "      return WAITS;", "    }")
    elif isinstance(call, RegionCall):
        arguments = [*_region_arguments(call, named, memory), "&region"]
        yield from _region(call, layers, arguments, "", 4)
        yield "    inference.in_region = true;"
    else:
        if isinstance(call, CopyCall):
            yield f"  {_copy(call, named)}"
        else:
            (layer,) = layers
            failed = (f"end(host_failed(status, {layer.id}));", "return LATER;")
            yield from _host(call, layer, named, failed, 4)
        yield "    found = LATER;"


def _copy(call: CopyCall, named: _Expressions) -> str:
    return f"  memcpy({named.of(call.target)}, {named.of(call.source)}, {call.target.nbytes});"


def _host(
    call: HostCall, layer: NumberedLayer, named: _Expressions, failed: Sequence[str], indent: int
) -> Iterator[str]:
    """Lines that call a function of the host, with what follows where it fails."""
    at = " " * indent
    yield c.comment(layer.title, indent=indent)
    arguments = [*(named.plain(buffer) for buffer in call.arguments), "arena"]
    yield f"{at}COUNT({layer.id});"
    yield c.wrapped(f"status = {call.symbol}", arguments, ";", indent=indent)
    yield f"{at}COUNT_MAIN();"
    yield f"{at}if (status != 0) {{"
    yield from (f"{at}  {line}" for line in failed)
    yield f"{at}}}"
    for output in call.written:
        yield f"{at}TRACE({layer.id}, {named.of(output)}, {output.nbytes});"


def _region_arguments(call: RegionCall, named: _Expressions, memory: ModelMemory) -> Iterator[str]:
    yield from map(named.of, call.arguments)
    yield f"arena + {memory.scratch[call.graph.name][0]}"


def _region(
    call: RegionCall, layers: Sequence[NumberedLayer], arguments: Sequence[str], assigned: str, indent: int
) -> Iterator[str]:
    at = " " * indent
    yield c.comment([f"{call.graph.name}:", *(line for layer in layers for line in layer.title[:1])], indent=indent)
    if layers:
        yield f"{at}COUNT({layers[0].id});"
    yield c.wrapped(f"{assigned}{call.graph.name}", arguments, ";", indent=indent)
    yield f"{at}COUNT_MAIN();"
