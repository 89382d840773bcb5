"""Asks what models would take on other hardware: plans for variations of an accelerator, and compares them."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.arguments import check_flag, check_type, shown
from byoc_hw.compiler import BACKEND, front_end
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.garbage import seldom_collected
from byoc_hw.graph import Graph, Layer
from byoc_hw.plan.lanes.known_plan import known_plan
from byoc_hw.plan.region import lay_out_region, why_no_plan
from byoc_hw.plan.tune.best_order import in_best_order
from byoc_hw.report.variations import METRICS, Exploration, Variation
from byoc_hw.soc import Hardware, Soc, accelerators_of

if TYPE_CHECKING:
    import tvm

Variations = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
"""Values by field, for all their combinations; or a list of changes."""

ARRAY = "array"
"""Stands for `array_rows` and `array_columns`, a pair of them. Where `depthwise_rows` are the rows, they stay so."""

OBJECTIVE = ("cycles", "memory", "array")

_LIMITS = {"name", "label", "limits", "library", "whole_cycles", "roundings", "shift_only"}
"""The fields of an `Accelerator` that decide what is offloaded, beside whether each layer by itself has a plan."""


def what_if(
    mod: tvm.IRModule | Mapping[str, tuple[tvm.IRModule, Mapping[str, Any] | None]],
    params: Mapping[str, Any] | None = None,
    accelerator: Hardware = REFERENCE,
    variations: Variations = (),
    objective: Sequence[str] = OBJECTIVE,
    *,
    numerics: str = "relay",
    deny: Iterable[str] = (),
    executor: Executor | None = None,
    progress: bool | Callable[[Variation], None] = True,
) -> Exploration:
    """What a model, or several, would take on variations of an accelerator.

    `mod` and `params` are those of `partition_for_hwlib`; several models are given by name, each as such a pair.
    `variations` has values by field of the accelerator, for all their combinations,
    {"activation_memory": (16384, 32768), "array": ((8, 8), (16, 16))}, or is a list of changes,
    [{"dma_width": 4}, {"dma_width": 8, "queue": 4}]. "array" are rows and columns at once. On a chip of several
    accelerators a field is that of one of them, "dsp.dma_width", or the chip's. Each variation is partitioned and
    planned as `build` does, and no C is written. Plans are limited by local memory, not by RAM and flash. The cycles
    are those of the plans, and an estimate for the operators on the host.

    `objective` names what is as little as possible on the front, of "cycles", "memory" (bytes of local memory), "array"
    (multipliers), "dma" (bytes a cycle), "ram" and "flash". Plans are made in this process, or by an `executor` with
    the interface of `concurrent.futures`; the outcome is the same. `progress` prints a line to stderr for each
    variation, or is a function that gets the `Variation`.

    Raises `InvalidInput` before any plan for a field or a value that hardware cannot have, for an objective that is
    none, and for accelerators that are driven by a library; and what `partition_for_hwlib` raises.
    """
    models = dict(mod) if isinstance(mod, Mapping) else {"": (mod, params)}
    check_type("accelerator", accelerator, Hardware, "an Accelerator or a Soc")
    if not models:
        raise InvalidInput("mod is a module, or several by name: got none")
    for name, pair in models.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidInput(f"mod has a module and its params for each name: got {shown(pair)} for {name}")
    if accelerator.library is not None:
        raise InvalidInput(f"variations are of accelerators with plans: {accelerator.name} is driven by a library")
    if isinstance(objective, str) or not objective or any(name not in METRICS for name in objective):
        raise InvalidInput(f"objective is some of {', '.join(METRICS)}: got {shown(objective)}")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise InvalidInput(f"executor has the interface of concurrent.futures.Executor: got {shown(executor)}")
    if not callable(progress):
        check_flag("progress", progress)
    tried = [({}, accelerator), *((changes, changed(accelerator, changes)) for changes in _combinations(variations))]
    explorer = _Explorer(models, accelerator, numerics, tuple(deny), executor or _InProcess())
    found = []
    with seldom_collected():
        for one in explorer.explored(tried):
            found.append(one)
            if callable(progress):
                progress(one)
            elif progress:
                print(f"{len(found)} of {len(tried)}: {_line(one)}", file=sys.stderr, flush=True)
    return Exploration(accelerator.label, tuple(objective), tuple(found))


def _line(one: Variation) -> str:
    total = one.total
    cycles = ", ".join(f"{name + ' ' if name else ''}{total[name]:,}" for name in total)
    return f"{one.name}: {cycles} cycles"


def _combinations(variations: Variations) -> Iterator[Mapping[str, Any]]:
    if isinstance(variations, Mapping):
        for name, values in variations.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise InvalidInput(f"variations of {name} are a list of at least one value: got {shown(values)}")
        for values in product(*variations.values()) if variations else ():
            yield dict(zip(variations, values, strict=True))
        return
    check_type("variations", variations, Sequence, "values by field, or a list of changes")
    for changes in variations:
        check_type("each of variations", changes, Mapping, "values by field")
        yield changes


def changed(hardware: Hardware, changes: Mapping[str, Any]) -> Hardware:
    """The hardware with other values of some fields. `InvalidInput` for a field that it has not, or a bad value."""
    for name, value in changes.items():
        owner, _, field = str(name).rpartition(".")
        if owner:
            hardware = _changed_lane(hardware, owner, field, value)
            continue
        known = [one.name for one in fields(hardware)]
        if field == ARRAY and isinstance(hardware, Accelerator):
            if not isinstance(value, tuple) or len(value) != 2:
                raise InvalidInput(f"{ARRAY} is rows and columns: got {shown(value)}")
            together = {"depthwise_rows": value[0]} if hardware.depthwise_rows == hardware.array_rows else {}
            hardware = replace(hardware, array_rows=value[0], array_columns=value[1], **together)
        elif field not in known:
            raise InvalidInput(
                _no_field(hardware, [ARRAY, *known] if isinstance(hardware, Accelerator) else known, name)
            )
        else:
            hardware = replace(hardware, **{field: value})
    if hardware.library is not None:
        raise InvalidInput(f"variations are of accelerators with plans: {hardware.name} is driven by a library")
    return hardware


def _no_field(hardware: Hardware, known: Sequence[str], name: str) -> str:
    near = get_close_matches(str(name), known, 1)
    if near:
        return f"variations are of fields of {hardware!r}: got {shown(name)}: it is {near[0]}, perhaps"
    return f"variations are of fields of {hardware!r}, {', '.join(known)}: got {shown(name)}"


def _changed_lane(hardware: Hardware, owner: str, field: str, value: Any) -> Hardware:
    names = [one.name for one in accelerators_of(hardware)] if isinstance(hardware, Soc) else []
    if not isinstance(hardware, Soc) or owner not in names:
        place = f"one of {', '.join(names)}" if names else "for a chip of several accelerators"
        raise InvalidInput(f"the accelerator in {owner}.{field} is {place}: got {owner!r}")
    lanes = (changed(one, {field: value}) if one.name == owner else one for one in hardware.accelerators)
    return replace(hardware, accelerators=tuple(lanes))  # type: ignore[arg-type]


class _InProcess:
    """Does what is submitted at once."""

    def submit(self, function: Callable[..., int], *arguments: Any) -> Future[int]:
        future: Future[int] = Future()
        try:
            future.set_result(function(*arguments))
        except PlanError as error:
            future.set_exception(error)
        return future


class _Verdicts:
    """Which layers have a plan by themselves: all of the hardware's numbers that partitioning asks for."""

    def __init__(self) -> None:
        self._planned: list[tuple[Layer, bool]] = []

    def __call__(self, layer: Layer, hardware: Hardware) -> str | None:
        problem = why_no_plan(layer, hardware)
        self._planned.append((layer, problem is None))
        return problem

    def hold(self, hardware: Hardware) -> bool:
        """Whether other hardware has a plan for the same layers."""
        return all((why_no_plan(layer, hardware) is None) == planned for layer, planned in self._planned)


@dataclass(frozen=True)
class _Split:
    """One model on one accelerator: its regions, each pickled, instructions of the host, and numbers of operators."""

    graphs: Sequence[bytes]
    instructions: int
    offloaded: int
    operators: int
    unknown: int
    verdicts: _Verdicts


class _Explorer:
    """Partitions here, where TVM is, and has the plans made by the executor meanwhile."""

    def __init__(
        self, models: Mapping[str, tuple[Any, ...]], base: Hardware, numerics: str, deny: tuple[str, ...], executor: Any
    ) -> None:
        self.models, self.base, self.numerics, self.deny, self.executor = models, base, numerics, deny, executor
        self._splits: dict[str, list[tuple[Hardware, _Split]]] = {name: [] for name in models}

    def explored(self, tried: Sequence[tuple[Mapping[str, Any], Hardware]]) -> Iterator[Variation]:
        """Each variation, in order, as soon as it and all before it are planned."""
        waiting: list[tuple[Mapping[str, Any], Hardware, dict[str, _Planned]]] = []
        try:
            for changes, hardware in tried:
                waiting.append((changes, hardware, {name: self._submitted(name, hardware) for name in self.models}))
                while waiting and all(one.done for one in waiting[0][2].values()):
                    yield _variation(*waiting.pop(0))
            while waiting:
                yield _variation(*waiting[0])
                waiting.pop(0)
        finally:
            front_end().register(self.base.name, BACKEND)
            for future in (future for *_, planned in waiting for one in planned.values() for future in one.cycles):
                future.cancel()

    def _submitted(self, name: str, hardware: Hardware) -> _Planned:
        split = self._split(name, hardware)
        cycles = [self.executor.submit(planned_cycles, graph, hardware) for graph in split.graphs]
        return _Planned(split, cycles)

    def _split(self, name: str, hardware: Hardware) -> _Split:
        """The model partitioned, at best as for an earlier variation that differs in numbers which do not matter."""
        key = _with_numbers(hardware, self.base)
        for other, split in self._splits[name]:
            if other == key and split.verdicts.hold(hardware):
                return split
        split = self._partitioned(name, hardware)
        self._splits[name].append((key, split))
        return split

    def _partitioned(self, name: str, hardware: Hardware) -> _Split:
        verdicts, (mod, params) = _Verdicts(), self.models[name]
        backend = replace(BACKEND, why_no_plan=verdicts)
        options: dict[str, Any] = {"accelerator": hardware, "numerics": self.numerics, "deny": self.deny}
        found = front_end().partitioned(front_end().partition(mod, params, "default", backend=backend, **options))
        assert found is not None, "the module is partitioned"
        operators = [outcome for outcome in found.outcomes if outcome.placement != "folded"]
        on_host = [outcome for outcome in operators if outcome.placement != "accelerator"]
        return _Split(
            tuple(map(pickle.dumps, found.graphs.values())),
            sum(outcome.host_instructions for outcome in on_host),
            len(operators) - len(on_host),
            len(operators),
            sum(not outcome.host_instructions for outcome in on_host),
            verdicts,
        )


@dataclass(frozen=True)
class _Planned:
    """A model whose regions are being planned."""

    split: _Split
    cycles: Sequence[Future[int]]

    @property
    def done(self) -> bool:
        return all(one.done() for one in self.cycles)


def _variation(changes: Mapping[str, Any], hardware: Hardware, planned: Mapping[str, _Planned]) -> Variation:
    rate, splits = hardware.host_cycles_per_instruction, [one.split for one in planned.values()]
    return Variation(
        dict(changes),
        hardware,
        {name: sum(future.result() for future in one.cycles) for name, one in planned.items()},
        {name: round(one.split.instructions * rate) for name, one in planned.items()},
        sum(one.offloaded for one in splits),
        sum(one.operators for one in splits),
        sum(one.unknown for one in splits),
    )


def _with_numbers(hardware: Hardware, base: Hardware) -> Hardware:
    """The hardware with the numbers of another one: what is left of it are limits."""
    if isinstance(hardware, Soc):
        lanes = zip(hardware.accelerators, accelerators_of(base), strict=True)
        same = {"accelerators": tuple(_with_numbers(one, other) for one, other in lanes)}
        return replace(hardware, ram=base.ram, flash=base.flash, **same)  # type: ignore[arg-type]
    numbers = [one.name for one in fields(hardware) if one.name not in _LIMITS]
    return replace(hardware, **{name: getattr(base, name) for name in numbers})


def planned_cycles(pickled: bytes, hardware: Hardware) -> int:
    """The accelerator cycles of a region as `build` plans it. Raises `PlanError` where it has no plan."""
    graph = _region(pickled)
    if isinstance(hardware, Soc):
        return known_plan(graph, hardware).cycles
    return lay_out_region(in_best_order(graph, hardware), hardware).cycles


@lru_cache(maxsize=32)
def _region(pickled: bytes) -> Graph:
    """A region, the same object for all its variations in a process: what does not depend on them is found once."""
    graph = pickle.loads(pickled)
    assert isinstance(graph, Graph), "regions are pickled"
    return graph
