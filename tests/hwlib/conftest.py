from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from hwlib_simulator import Simulator, build_program

from byoc_hw.accelerator import REFERENCE, Accelerator
from byoc_hw.hwlib.accelerator_header import accelerator_header
from byoc_hw.hwlib.sim_config import sim_config


@pytest.fixture(scope="session")
def simulator_of(tmp_path_factory) -> Iterator[Callable[[Accelerator], Simulator]]:
    """Starts the simulator of an accelerator, built once for each."""
    running: dict[str, Simulator] = {}
    number = count()

    def start(accelerator: Accelerator) -> Simulator:
        key = accelerator_header(accelerator) + sim_config(accelerator)
        if key not in running:
            program = build_program(tmp_path_factory.mktemp("sim") / str(next(number)), accelerator, "driver.c")
            running[key] = Simulator(program)
        running[key].reset()
        return running[key]

    yield start
    for simulator in running.values():
        simulator.close()


@pytest.fixture
def simulator(simulator_of) -> Simulator:
    """The reference accelerator, as after a reset."""
    return simulator_of(REFERENCE)
