"""Random regions on random accelerators and chips: what the steps of plans compute, beside the layers by themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fuzz_case import Case, Finding
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy, data

TESTS = Path(__file__).resolve().parents[1] / "plan"
sys.path[:0] = [str(TESTS), str(TESTS / "lanes")]

from plan_check import check  # noqa: E402 - where it is, the line above says
from plan_choices import layer_by_layer  # noqa: E402
from plan_graphs import choices, joined_regions, regions, regions_of_any_rank  # noqa: E402
from test_chip_plans import check_on_chip, chip_regions, ordered_regions  # noqa: E402
from test_chip_rounds import check_choices_on_the_way  # noqa: E402
from test_events import check_with_events, with_events  # noqa: E402
from test_shared_memory import shared_chips  # noqa: E402

from byoc_hw.accelerator import Accelerator  # noqa: E402
from byoc_hw.errors import PlanError  # noqa: E402
from byoc_hw.graph import Graph  # noqa: E402
from byoc_hw.soc import Soc  # noqa: E402


def run(case: Case) -> None:
    kind = case.rng.choice(list(KINDS))
    regions_of, compare, count = KINDS[kind]
    tried: list[Any] = []

    @seeded(case.seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(data())
    def each(more: Any) -> None:
        tried[:] = more.draw(regions_of())
        compare(*tried, more)
        case.tally["exact"] += 1

    try:
        each()
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        detail = "\n".join(map(str, tried))
        raise Finding("wrong plan", f"{kind}: {type(error).__name__} {said}", detail) from error


def alone(hardware: Accelerator, graph: Graph, _: Any) -> None:
    check(graph, hardware)


def one_by_one(hardware: Accelerator, graph: Graph, _: Any) -> None:
    check(graph, hardware, choices=layer_by_layer(graph, hardware))


def of_any_choices(hardware: Accelerator, graph: Graph, more: Any) -> None:
    """They are refused, or give an exact plan."""
    chosen = more.draw(choices(graph, hardware))
    with suppress(PlanError):
        check(graph, hardware, choices=chosen)


def on_a_chip(chip: Soc, graph: Graph, _: Any) -> None:
    check_on_chip(chip, graph)


def as_tuned(chip: Soc, graph: Graph, more: Any) -> None:
    check_choices_on_the_way(chip, graph, more.draw(st.integers(0, 99)))


def by_events(chip: Soc, graph: Graph, _: Any) -> None:
    check_with_events(chip, graph)


KINDS: dict[str, tuple[Callable[[], SearchStrategy[Any]], Callable[[Any, Any, Any], None], int]] = {
    "an accelerator": (regions, alone, 25),
    "layers one by one": (regions, one_by_one, 25),
    "any choices": (lambda: regions(most=6), of_any_choices, 25),
    "tensors inside one another": (joined_regions, alone, 25),
    "tensors of any rank": (regions_of_any_rank, alone, 25),
    "a chip": (chip_regions, on_a_chip, 3),
    "a chip that orders": (ordered_regions, on_a_chip, 3),
    "a shared memory": (shared_chips, on_a_chip, 3),
    "a tuned chip": (lambda: st.one_of(chip_regions(), shared_chips()), as_tuned, 3),
    "events": (lambda: with_events(chip_regions(most=6)), by_events, 3),
}
"""Regions, what compares them, and how many a case has."""
