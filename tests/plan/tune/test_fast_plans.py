"""Plans whose copies and jobs are worth cutting are the fastest of those that were tried."""

from plan_samples import Samples, graph_of

from byoc_hw.mesh.machine import MESH_7296
from byoc_hw.plan.bound.prices import known_bound
from byoc_hw.plan.tune.fast_plans import by_estimates, fastest_of, worth_cutting
from byoc_hw.plan.tune.own_plan import own_layout

PE = MESH_7296.pe


def two_ends():
    """A pointwise convolution to two tensors, one of which a depthwise convolution reads."""
    samples = Samples(3)
    image = samples.tensor((1, 25, 5, 64))
    first, second = samples.conv2d(image, 16, (1, 1)), samples.conv2d(image, 4, (1, 1))
    third = samples.depthwise(first.ofm, (3, 3), padding=(1, 1, 1, 1))
    return graph_of([image], [first, second, third], [second.ofm, third.ofm])


def test_plans_that_were_tried_twice_leave_no_other_plan_uncut():
    graph = two_ends()
    tried = by_estimates(graph, PE, known_bound(graph, PE))
    found = fastest_of(tried)
    once, twice = (worth_cutting(found, some) for some in (tried, [*tried, *tried]))
    assert len(once) > 1
    assert [plan.choices for plan in twice] == [plan.choices for plan in once]


def test_a_plan_with_little_to_do_is_the_fastest_one_once_it_is_cut():
    graph = two_ends()
    assert own_layout(graph, PE).cycles <= 1.01 * known_bound(graph, PE)
