"""What a planned region takes of flash, by owner."""

import pytest
from hypothesis import HealthCheck, given, settings
from plan_check import check
from plan_graphs import regions
from plan_samples import Samples, accelerator, graph_of

from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.planned import TABLES, constants_by_layer, flash_bytes, flash_owners, table_bytes
from byoc_hw.plan.region import plan_region


def test_weights_that_each_stripe_loads_again_are_in_flash_once():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 12, 6, 8)), 16, padding=(1, 1, 1, 1))
    second = samples.conv2d(first.ofm, 8, padding=(1, 1, 1, 1))
    graph = graph_of([first.ifm], [first, second], [second.ofm])
    plan = check(graph, accelerator(), choices=Choices((False,), (Group(2, 4, resident=False),), (None, None)))
    weights = constants_by_layer(plan)
    assert weights == {first.name: 16 * (9 * 8 + 12), second.name: 8 * (9 * 16 + 12)}
    assert flash_owners(plan) == weights | {"shared constants": 0, TABLES: table_bytes(plan)}


@pytest.mark.slow
@given(regions())
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_owners_have_all_flash_of_a_region_and_no_more(region):
    hardware, graph = region
    plan = plan_region(graph, hardware)
    owners = flash_owners(plan)
    assert sum(owners.values()) == flash_bytes(plan) + table_bytes(plan)
    assert min(owners.values()) >= 0
