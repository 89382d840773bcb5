"""Results in a session: each value is one line, however many layers it has."""

import numpy as np
import pytest

from byoc_hw.run.hal_test import HalReport
from byoc_hw.run.result import Cycles, EndToEnd, HostInstructions, LayerCount, LayerCycles, Result

LARGE = 10**10
NAME = "model/block/Relu;" * 20
OUTPUT = np.zeros((1, 1000), np.int8)
CYCLES = Cycles(LARGE, tuple(LayerCycles(number, NAME, "conv2d", 1) for number in range(300)))
COUNTS = tuple(LayerCount(number, NAME, "conv2d", 1) for number in range(300))
INSTRUCTIONS = HostInstructions(LARGE, LARGE, LARGE, LARGE, COUNTS)
TIME = EndToEnd(LARGE, 7, COUNTS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Result([OUTPUT]), "<Result: 1 output>"),
        (
            Result([OUTPUT] * 2, CYCLES, dict.fromkeys(range(300), b""), INSTRUCTIONS, TIME),
            "<Result: 2 outputs, 10,000,000,000 accelerator cycles, 10,000,000,000 host instructions, traced>",
        ),
        (CYCLES, "<Cycles: 10,000,000,000 in 300 layers>"),
        (
            HostInstructions(4808, 2458, 2336, 14, COUNTS),
            "<HostInstructions: 4,808 (regions 2,458, host operators 2,336, main 14)>",
        ),
        (TIME, "<EndToEnd: 10,000,000,000 cycles in 300 layers and main>"),
        (HalReport(("ok hwlib_hal_init: twice",) * 300), "<HalReport: passed, 300 lines>"),
        (HalReport(("FAILED hwlib_hal_init: twice",) * 2), "<HalReport: failed in hwlib_hal_init, 2 lines>"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_repr_is_one_line(value: object, text: str) -> None:
    assert repr(value) == text
    assert len(text) <= 100
