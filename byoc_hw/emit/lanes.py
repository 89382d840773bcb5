"""C for a region on a chip of several accelerators: the tables of its parts and lanes, and what its function does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from byoc_hw.accelerator import Accelerator
from byoc_hw.emit import c
from byoc_hw.emit.call_titles import call_titles
from byoc_hw.emit.library_lane import whole_descriptors
from byoc_hw.emit.region_tables import (
    RegionTables,
    aligned_rows,
    constant_table,
    descriptor_name,
    descriptors,
    flash_name,
)
from byoc_hw.errors import PlanError
from byoc_hw.graph import Moving
from byoc_hw.plan.chip_plan import ChipPlan, Part
from byoc_hw.plan.compact import MOST_ROWS
from byoc_hw.plan.steps import (
    ARGUMENT,
    SCRATCH,
    Address,
    CopyWait,
    EngineSignal,
    JobWait,
    Queued,
    RegionPlan,
    Started,
    Step,
    WholeLayer,
    engine_of,
)
from byoc_hw.soc import Soc

_ONE, _BLOCK = "hwlib", "scratch"


def one_lane(accelerator: Accelerator) -> Soc:
    """A single accelerator as a chip. Its HAL's functions are `hwlib_hal_...`, as the header has them."""
    return Soc((replace(accelerator, name=_ONE),), name="chip", label=accelerator.label)


def in_one_lane(plan: RegionPlan, accelerator: Accelerator) -> ChipPlan:
    """A plan for one accelerator in the form that can be polled: one lane with one part."""
    graph = plan.graph
    part = Part(
        lane=0,
        plan=replace(plan, graph=replace(graph, name=f"{graph.name}_part")),
        layers=tuple(range(len(plan.layers))),
        boxes=(None,) * len(plan.layers),
        arguments=tuple(Address(ARGUMENT + at) for at in range(len(graph.inputs) + len(graph.outputs))),
        scratch=_BLOCK if plan.scratch_bytes else None,
    )
    return ChipPlan(graph, one_lane(accelerator), (part,), 0, {_BLOCK: 0}, plan.scratch_bytes, 0)


def hal_table(accelerator: Accelerator) -> str:
    """The C name of the `hwlib_hal_t` of an accelerator of a chip."""
    return f"{accelerator.name}_hal"


def lanes_declarations(chip: Soc) -> str:
    """Declarations of the tables of all HALs."""
    explained = c.comment(["The functions that drive each accelerator."])
    return "\n".join([explained, *(f"extern const hwlib_hal_t {hal_table(one)};" for one in chip.accelerators), ""])


def lanes_tables_and_body(region: ChipPlan, first_layer: int) -> tuple[str, str]:
    """The tables of a region, and the body of its function, which returns at the end of the region."""
    name = region.graph.name
    lines = [
        *_filled_spaces(region),
        "  hwlib_lanes_t lanes;",
        f"  hwlib_lanes_start(&lanes, &{name}_plan);",
        "  return hwlib_lanes_wait(&lanes);",
        "",
    ]
    return _tables(region, first_layer), "\n".join(lines)


def lanes_early_return(region: ChipPlan, first_layer: int) -> tuple[str, str, str]:
    """The tables, the body of the function that starts the region, and the body of the one that waits for it."""
    name = region.graph.name
    running = f"{name}_running"
    state = f"/* The region between its start and its wait. */\nstatic hwlib_lanes_t {running};\n"
    lines = [
        *_filled_spaces(region),
        f"  hwlib_lanes_start(&{running}, &{name}_plan);",
        f"  (void)hwlib_lanes_poll(&{running});",
        f"  return {running}.result;",
        "",
    ]
    return f"{_tables(region, first_layer)}\n{state}", "\n".join(lines), f"  return hwlib_lanes_wait(&{running});\n"


def lanes_start(region: ChipPlan, first_layer: int) -> tuple[str, str]:
    """The tables of a region of a polled model, and the body of its function, which starts `*lanes`."""
    lines = [*_filled_spaces(region), f"  hwlib_lanes_start(lanes, &{region.graph.name}_plan);", ""]
    return _tables(region, first_layer, single=_fills_a_queue(region)), "\n".join(lines)


def _fills_a_queue(region: ChipPlan) -> bool:
    """Whether more operations may be in flight than an engine's queue holds: a start then waits."""
    return any(
        _most_in_flight([step for part in region.of_lane(lane) for step in part.plan.steps], engine, wait)
        > region.chip.accelerators[lane].queue
        for lane in _used(region)
        for engine, wait in (("dma", CopyWait), ("array", JobWait))
    )


def _most_in_flight(steps: Sequence[Step], engine: str, wait: type[CopyWait | JobWait]) -> int:
    """The most places of an engine's queue that the core has filled, and that may not be free again."""
    queued = free = most = last = 0
    of_slot: dict[int, int] = {}
    signals: dict[int, int] = {}  # the place of an operation, that of the signal behind it
    for step in steps:
        if isinstance(step, Queued) and engine_of(step) == engine:
            queued += 1
            most = max(most, queued - free)
            if isinstance(step, Started):
                of_slot[step.slot] = last = queued
            elif isinstance(step, EngineSignal):
                signals[last] = queued
        elif isinstance(step, wait):
            ended = of_slot[step.slot]
            free = max(free, signals.get(ended, ended))
    return most


# ---------------------------------------------------------------- tables


def _used(region: ChipPlan) -> list[int]:
    """The accelerators that get work: those of the lanes, in order."""
    return sorted({part.lane for part in region.parts})


def _ordered(region: ChipPlan) -> list[Part]:
    """The parts, lane by lane."""
    return [part for lane in _used(region) for part in region.of_lane(lane)]


def _tables(region: ChipPlan, first_layer: int, *, single: bool = False) -> str:
    if region.events > MOST_ROWS:
        raise PlanError(f"{region.graph.name}: a region has at most {MOST_ROWS} events: got {region.events}")
    return "\n".join(
        [
            *_early_spaces(region),
            *_all_parts(region, first_layer),
            *_lanes(region),
            _spaces(region),
            _chip_plan(region, single),
        ]
    )


def _early_spaces(region: ChipPlan) -> Iterator[str]:
    """A declaration of the spaces, where layers that run as a whole find their operands."""
    if any(isinstance(step, WholeLayer) for part in region.parts for step in part.plan.steps):
        count = sum(len(_part_spaces(part, region)) for part in region.parts)
        yield c.comment(["Where the operands of layers that run as a whole lie: its values are below."])
        yield f"static hwlib_place_t {region.graph.name}_spaces[{count}];\n"


def _all_parts(region: ChipPlan, first_layer: int) -> Iterator[str]:
    first = 0
    for part in _ordered(region):
        yield _part_tables(part, region, first_layer, first)
        first += len(_part_spaces(part, region))


def _part_tables(part: Part, region: ChipPlan, first_layer: int, first_space: int) -> str:
    plan, on = part.plan, region.chip.accelerators[part.lane]
    ids = tuple(first_layer + place for place in part.layers)
    tables = RegionTables.of(plan, _used(region))
    begins = ids[plan.calls[0].index if plan.calls else 0]
    title = c.comment([f"---- {plan.graph.name}, on {on.name}: {len(plan.layers)} layers"])
    calls = _calls(part, region, tables, first_layer)
    layers = [] if part.prepared else list(descriptors(plan, ids))
    layers += whole_descriptors(part, ids, f"{region.graph.name}_spaces", first_space)
    return "\n".join([f"{title}\n", *layers, tables.text(plan.graph.name, begins), calls])


def _calls(part: Part, region: ChipPlan, tables: RegionTables, first_layer: int) -> str:
    plan = part.plan
    titles = call_titles(region.graph, [part.layers[call.index] for call in plan.calls], first_layer)
    lines = []
    for title, call, steps in zip(titles, plan.calls, tables.ranges(), strict=False):
        head = "" if isinstance(plan.layers[call.index], Moving) and not part.prepared else ".layer"
        lines += [title, f"  {{&{descriptor_name(plan, call.index)}{head}, {{{steps[0]}, {steps[1]}}}}},"]
    first, count = tables.ranges()[-1]
    lines += [c.comment(["the end"], indent=2), f"  {{0, {{{first}, {count}}}}},"]
    return constant_table(
        "hwlib_call_t", f"{plan.graph.name}_calls", "layer, steps: the first one, their number", lines
    )


def _lanes(region: ChipPlan) -> Iterator[str]:
    """The parts of each lane, then the lanes."""
    name, rows, first = region.graph.name, [], 0
    for lane in _used(region):
        on, parts = region.chip.accelerators[lane], region.of_lane(lane)
        planned = []
        for part in parts:
            own = part.plan.graph.name
            planned.append((f"&{own}_plan", f"{own}_calls", len(part.plan.calls) + 1, first))
            first += len(_part_spaces(part, region))
        table = f"{name}_{on.name}_parts"
        yield constant_table(
            "hwlib_part_t", table, "plan, calls, their number, first of the spaces", aligned_rows(planned)
        )
        rows.append((f"&{hal_table(on)}", table, len(parts)))
    yield constant_table("hwlib_lane_t", f"{name}_lanes", "HAL, parts, their number", aligned_rows(rows))


def _spaces(region: ChipPlan) -> str:
    rows = []
    for part in _ordered(region):
        rows.append(c.comment([part.plan.graph.name], indent=2))
        rows += [f"  {place}," for place, _ in _part_spaces(part, region)]
    explained = c.comment(
        ["Where the spaces of each part start. Those that the caller says are filled in at the start."]
    )
    return "\n".join([explained, f"static hwlib_place_t {region.graph.name}_spaces[] = {{", *rows, "};\n"])


def _part_spaces(part: Part, region: ChipPlan) -> list[tuple[str, str]]:
    """The start of each space of a part: its initialiser, and what to fill in at run time, or ""."""
    flash = f"(uintptr_t){flash_name(part.plan.graph.name)}" if part.plan.flash else "0"
    scratch = [] if part.scratch is None else [Address(SCRATCH, 0, part.scratch)]
    filled = [_pointer(address, region) for address in scratch] or [""]
    filled += [_pointer(address, region) for address in part.arguments]
    local = [("{HWLIB_LOCAL_ACTIVATIONS, 0}", ""), ("{HWLIB_LOCAL_WEIGHTS, 0}", ""), (f"{{HWLIB_MAIN, {flash}}}", "")]
    return [*local, *(("{HWLIB_MAIN, 0}", pointer) for pointer in filled)]


def _pointer(address: Address, region: ChipPlan) -> str:
    """An address in the region's arguments or scratch, as a number in its function."""
    offset, argument, inputs = address.offset, address.space - ARGUMENT, len(region.graph.inputs)
    name = f"in{argument}" if argument < inputs else f"out{argument - inputs}"
    if address.block is not None:
        name, offset = "scratch", region.blocks[address.block] + offset
    return f"(uintptr_t){name} + {offset}" if offset else f"(uintptr_t){name}"


def _chip_plan(region: ChipPlan, single: bool) -> str:
    name, lanes = region.graph.name, len(_used(region))
    state = [c.comment(["While the region runs."]), f"static hwlib_lane_state_t {name}_states[{lanes}];"]
    state += [f"static hwlib_event_t {name}_events[{region.events}];"] if region.events else []
    counters = region.counters
    state += [f"static uint16_t {name}_counters[{counters}];"] if counters else []
    values: dict[str, str | dict[str, str]] = {
        "lanes": f"{name}_lanes",
        "spaces": f"{name}_spaces",
        "states": f"{name}_states",
        "events": f"{name}_events" if region.events else "0",
        "lane_count": str(lanes),
        "event_count": str(region.events),
        **({"single": "1"} if single else {}),
        **({"counter_count": str(counters), "counters": f"{name}_counters"} if counters else {}),
    }
    return "\n".join([*state, "", f"static const hwlib_chip_plan_t {name}_plan = {{", *c.fields(values), "};\n"])


def _filled_spaces(region: ChipPlan) -> Iterator[str]:
    """Lines that fill in the spaces that depend on the function's arguments."""
    spaces = [space for part in _ordered(region) for space in _part_spaces(part, region)]
    for index, (_, address) in enumerate(spaces):
        if address:
            yield f"  {region.graph.name}_spaces[{index}].address = {address};"
