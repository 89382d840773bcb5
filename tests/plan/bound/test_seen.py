"""What windows see of their inputs, against all outputs and inputs one by one."""

import pytest

from byoc_hw.plan.array.window import Axis
from byoc_hw.plan.bound.seen import fewest_seen, least_seen, own_inputs


def inputs_seen(axis):
    """The inputs that each output sees."""
    begins = (output * axis.stride - axis.before for output in range(axis.ofm))
    return [set(range(begin, begin + axis.reach)) & set(range(axis.ifm)) for begin in begins]


@pytest.mark.parametrize(
    "axis",
    [Axis(8, 8, 3, 1, 1), Axis(8, 4, 3, 2, 0), Axis(7, 3, 3, 2, 0), Axis(6, 3, 2, 2, 0), Axis(4, 1, 4, 1, 0)],
    ids=str,
)
def test_any_outputs_see_as_many_inputs_as_is_said(axis):
    """All sets of outputs, and all inputs, are tried."""
    seen = inputs_seen(axis)
    each = own_inputs(axis)
    for chosen in range(1, 1 << axis.ofm):
        some = [o for o in range(axis.ofm) if chosen >> o & 1]
        assert len(set().union(*(seen[o] for o in some))) >= each * len(some)
    assert least_seen(axis) == min(sum(place in one for one in seen) for place in range(axis.ifm))


@pytest.mark.parametrize(
    "axis",
    [Axis(6, 6, 3, 1, 1), Axis(6, 3, 3, 2, 0), Axis(8, 5, 2, 2, 1), Axis(5, 9, 3, 1, 3), Axis(9, 3, 1, 4, 0)],
    ids=str,
)
def test_outputs_in_a_row_need_no_fewer_inputs_than_is_said(axis):
    """With those that a stride leaves out; outputs that see padding alone need none."""
    seen = inputs_seen(axis)
    for many, fewest in enumerate(fewest_seen(axis)):
        rows = (set().union(*seen[first : first + many]) for first in range(axis.ofm - many + 1))
        assert fewest == min(max(row) - min(row) + 1 if row else 0 for row in rows)
