"""Python's garbage collector runs seldom while a model is compiled, and then as before."""

import gc

import pytest

import byoc_hw
from byoc_hw.errors import InvalidInput
from byoc_hw.garbage import seldom_collected


@pytest.mark.parametrize("usual", [(700, 10, 10), (0, 10, 10), (10**7, 10, 10)])
def test_the_thresholds_are_back_after_the_last_of_several(usual):
    before = gc.get_threshold()
    gc.set_threshold(*usual)
    try:
        with seldom_collected():
            with seldom_collected():
                inside = gc.get_threshold()
            assert gc.get_threshold() == inside
        assert gc.get_threshold() == usual
    finally:
        gc.set_threshold(*before)
    assert inside[0] == max(usual[0], 1_000_000) if usual[0] else inside == usual


def test_they_are_back_after_an_error():
    before = gc.get_threshold()
    with pytest.raises(InvalidInput):
        byoc_hw.build(None)
    assert gc.get_threshold() == before
