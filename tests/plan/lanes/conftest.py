"""Each plan of a chip is searched: tests change what a search does."""

import pytest

from byoc_hw.plan.lanes import known_plan
from byoc_hw.remembered import Remembered


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr(known_plan, "_plans", Remembered(0))
