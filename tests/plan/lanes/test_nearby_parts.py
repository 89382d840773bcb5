"""Parts of a chip's plan have choices near those that the search gave them, where all parts together are faster so."""

import pytest
from test_chip_plans import check_on_chip
from test_finer_parts import TWINS, wide

from byoc_hw.plan.lanes import nearby_parts, planner
from byoc_hw.plan.lanes.joint import ordered_parts
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc


def choices_of(parts):
    return [part.layout.choices for part in parts]


def test_parts_take_fewer_cycles_and_give_the_same_bytes(monkeypatch):
    found = []

    def seen(parts, chip):
        found.append((ordered_parts(parts, chip), nearby_parts.parts_nearby(parts, chip)))
        return found[-1][1]

    monkeypatch.setattr(planner, "parts_nearby", seen)
    check_on_chip(TWINS, wide())
    ((before, after),) = found
    assert choices_of(after.parts) != choices_of(before.parts)
    more = len(after.work.ops) - len(before.work.ops)
    assert before.order.cycles - after.order.cycles > max(nearby_parts.CUT_SAVES * more, 0)
    monkeypatch.setattr(nearby_parts, "_MOST_WORK", 0)
    stays = nearby_parts.parts_nearby(before.parts, TWINS)
    assert choices_of(stays.parts) == choices_of(before.parts)


@pytest.mark.parametrize("chip", [Soc(TWINS.accelerators, shared=(("one", "two"),)), Soc(TWINS.accelerators[:1])])
def test_parts_in_a_shared_memory_or_on_one_accelerator_stay(monkeypatch, chip):
    def unexpected(*_):
        raise AssertionError("no choices are tried")

    monkeypatch.setattr(planner, "parts_nearby", unexpected)
    assert plan_region(wide(), chip).cycles > 0


def test_a_plan_near_its_bound_stays(monkeypatch):
    monkeypatch.setattr(planner, "_FAR", 100)
    monkeypatch.setattr(planner, "parts_nearby", lambda *_: 1 / 0)
    assert plan_region(wide(), TWINS).cycles > 0
