"""Several plans of the search for parts get addresses, and their copies and jobs are cut: the fastest is taken."""

from dataclasses import replace

from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.plan.lanes import planner, search
from byoc_hw.plan.lanes.finishing import Finishing
from byoc_hw.plan.region import plan_region
from byoc_hw.soc import Soc

SLOW = replace(REFERENCE, dma_width=1, dma_setup=10, array_rows=8, packed_rows=False)
TWINS = Soc(tuple(replace(SLOW, name=name) for name in ("one", "two")))


def branches():
    samples = Samples(2)
    image = samples.tensor((1, 8, 8, 16))
    first = samples.conv2d(image, 16, (1, 1))
    second = samples.depthwise(first.ofm, (3, 3), padding=(1, 1, 1, 1))
    last = samples.add(first.ofm, second.ofm)
    return graph_of([image], [first, second, last], [last.ofm])


def finished_plans(monkeypatch):
    """The cost and the cycles of each plan that gets addresses, by search."""
    monkeypatch.setattr(planner, "_FAR", 100)  # choices of parts stay
    monkeypatch.setattr(search._Search, "_whole", [])
    found, finished = {}, Finishing.finished

    def noted(self, plans, least):
        made = finished(self, plans, least)
        found[self] = [(one.cost, one.ordered.order.cycles) for one in made]
        return made

    monkeypatch.setattr(Finishing, "finished", noted)
    return found


def test_the_fastest_of_the_plans_that_get_addresses_is_taken(monkeypatch):
    found = finished_plans(monkeypatch)
    plan = plan_region(branches(), TWINS)
    assert any(len(set(plans)) > 1 for plans in found.values())
    assert plan.cycles == min(min(plans)[1] for plans in found.values())


def test_of_large_plans_the_best_one_alone_gets_addresses(monkeypatch):
    monkeypatch.setattr(search, "_FINISHED", 1)
    found = finished_plans(monkeypatch)
    plan_region(branches(), TWINS)
    assert {len(plans) for plans in found.values()} == {1}
