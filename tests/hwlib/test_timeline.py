"""Cycle counts, against numbers worked out by hand from section 8 of the design."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hwlib_simulator import (
    ACTIVATIONS,
    AVG,
    CONV2D,
    DENSE,
    DEPTHWISE,
    IDENTITY,
    MAIN,
    MAX,
    WEIGHTS,
    RefusedError,
    Simulator,
    add,
    conv2d,
    lookup,
    mul,
    params,
    pool2d,
    softmax,
    tile,
)

from byoc_hw.accelerator import DIANA_DIGITAL, REFERENCE

OFM, PARAMS = 131072, 49152


@pytest.fixture
def filled(simulator: Simulator) -> Simulator:
    """Local memories full of zeros and scales of 1; the tests count from there."""
    return fill(simulator)


def fill(simulator: Simulator) -> Simulator:
    simulator.load(ACTIVATIONS, 0, bytes(OFM))
    simulator.load(WEIGHTS, 0, bytes(PARAMS))
    simulator.load(WEIGHTS, PARAMS, params([0] * 100, [IDENTITY] * 100))
    return simulator


def job_cycles(simulator: Simulator, layer, ifm, ofm, **fields) -> int:
    before = simulator.cycles
    simulator.run(layer, tile(ifm, ofm, ofm=OFM, params=PARAMS, **fields))
    return simulator.cycles - before


@pytest.mark.parametrize(
    ("layer", "ifm", "ofm", "cycles"),
    [
        # ofm_h * channel groups * column groups * (C*FY*FX*bits/8 + 2*C*FY + 23)
        (conv2d(CONV2D, (1, 1)), (1, 1, 1), (1, 1, 1), 1 + 2 + 23),
        (conv2d(CONV2D, (3, 3)), (10, 18, 8), (8, 16, 16), 8 * 1 * 1 * (72 + 48 + 23)),
        (conv2d(CONV2D, (3, 3)), (10, 19, 8), (8, 17, 17), 8 * 2 * 2 * (72 + 48 + 23)),
        (conv2d(CONV2D, (3, 3), weight_bits=4), (3, 3, 3), (1, 1, 1), 14 + 18 + 23),  # 27 / 2 rounds up
        (conv2d(CONV2D, (3, 3), weight_bits=2), (3, 3, 3), (1, 1, 1), 7 + 18 + 23),  # 27 / 4 rounds up
        (conv2d(CONV2D, (1, 3), (1, 2)), (2, 33, 4), (2, 16, 1), 2 * (12 + 8 + 23)),
        (conv2d(DENSE), (1, 1, 640), (1, 1, 33), 3 * (640 + 1280 + 23)),
        # the same with C = 1
        (conv2d(DEPTHWISE, (3, 3)), (10, 18, 16), (8, 16, 16), 8 * (9 + 6 + 23)),
        (conv2d(DEPTHWISE, (3, 3)), (3, 19, 17), (1, 17, 17), 2 * 2 * (9 + 6 + 23)),
        (conv2d(DEPTHWISE, (3, 3), weight_bits=4), (3, 3, 1), (1, 1, 1), 5 + 6 + 23),
        # elements read, 16 a cycle
        (add(IDENTITY, IDENTITY), (1, 8, 1), (1, 8, 1), 1),
        (add(IDENTITY, IDENTITY), (1, 9, 1), (1, 9, 1), 2),
        (pool2d(MAX, (2, 2), (2, 2)), (4, 4, 4), (2, 2, 4), 4),
        (pool2d(AVG, (3, 1)), (3, 1, 11), (1, 1, 11), 3),
        # three passes over each row
        (softmax(IDENTITY, 0), (1, 1, 16), (1, 1, 16), 3),
        (softmax(IDENTITY, 0), (1, 3, 9), (1, 3, 9), 6),
        # one pass
        (lookup(), (1, 33, 1), (1, 33, 1), 3),
        (lookup(0, 9), (1, 3, 9), (1, 3, 9), 2),
    ],
)
def test_job_costs_what_the_design_says(filled: Simulator, layer, ifm, ofm, cycles: int):
    assert job_cycles(filled, layer, ifm, ofm) == cycles


@pytest.mark.parametrize(("elements", "cycles"), [(1, 1), (8, 1), (9, 2), (64, 8)])
def test_multiplication_costs_what_an_addition_does(simulator: Simulator, elements: int, cycles: int):
    simulator.load(ACTIVATIONS, 0, bytes(128))
    assert job_cycles(simulator, mul(IDENTITY), (1, elements, 1), (1, elements, 1), ifm2=64) == cycles


def test_a_broadcast_input_costs_as_many_elements_as_the_first(simulator: Simulator):
    simulator.load(ACTIVATIONS, 0, bytes(128))
    for layer in (mul(IDENTITY, broadcast=1, ifm_channels=5), add(IDENTITY, IDENTITY, broadcast=1, ifm_channels=5)):
        assert job_cycles(simulator, layer, (1, 5, 5), (1, 5, 5), ifm2=64) == 4


def test_a_depthwise_channel_is_a_group_of_its_own_on_diana(simulator_of):
    simulator = fill(simulator_of(DIANA_DIGITAL))
    assert job_cycles(simulator, conv2d(DEPTHWISE, (3, 3)), (3, 3, 16), (1, 1, 16)) == 16 * (9 + 6 + 23)


def test_padding_counts_as_kernel_in_full(filled: Simulator):
    pads = {"pad_top": 1, "pad_left": 1, "pad_bottom": 1, "pad_right": 1}
    assert job_cycles(filled, conv2d(CONV2D, (3, 3)), (1, 1, 1), (1, 1, 1), **pads) == 9 + 6 + 23


def test_each_row_of_a_copy_rounds_up(simulator: Simulator):
    simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 33)
    assert simulator.cycles == 70 + 3
    simulator.copy_rows((ACTIVATIONS, 0), (MAIN, 0), 17, 5, 17, 17)
    assert simulator.cycles == 73 + 70 + 5 * 2


def test_rows_are_copied_between_strides(simulator: Simulator):
    simulator.load(ACTIVATIONS, 0, bytes(64))
    simulator.write_main(0, bytes(range(40)))
    simulator.copy_wait(simulator.copy_rows((ACTIVATIONS, 1), (MAIN, 2), 3, 4, 5, 10))
    rows = [bytes([0] * 1 + [2, 3, 4, 0]), bytes([0, 12, 13, 14, 0]), bytes([0, 22, 23, 24, 0]), bytes([0, 32, 33, 34])]
    assert simulator.fetch(0, 19).tobytes() == b"".join(rows)


def test_dma_and_array_overlap(filled: Simulator):
    """Two jobs of 8 * 143 cycles; a copy of 70 + 64 beside the first; the second waits for both."""
    start, job = filled.cycles, 8 * 143
    layer = conv2d(CONV2D, (3, 3))
    first = filled.job(layer, tile((10, 18, 8), (8, 16, 16), ofm=OFM, params=PARAMS))
    copy = filled.copy((ACTIVATIONS, 65536), (MAIN, 0), 1024)
    assert (filled.host_cycles, filled.cycles) == (start, start + job)

    filled.copy_wait(copy)
    assert filled.host_cycles == start + 134
    second = filled.job(layer, tile((10, 18, 8), (8, 16, 16), ifm=65536, ofm=OFM + 4096, params=PARAMS))
    out = filled.copy((ACTIVATIONS, 0x18000), (MAIN, 0), 16)  # starts when the host does, at 134
    filled.copy_wait(out)
    assert filled.host_cycles == start + 134 + 71
    filled.job_wait(first)
    assert filled.host_cycles == start + job
    filled.job_wait(second)
    assert filled.host_cycles == filled.cycles == start + 2 * job


def test_an_engine_idles_until_the_host_starts_it(filled: Simulator):
    start = filled.cycles
    filled.run(conv2d(), tile((1, 1, 1), (1, 1, 1), ofm=OFM, params=PARAMS))
    filled.copy((MAIN, 0), (ACTIVATIONS, OFM), 1)
    assert filled.cycles == start + 26 + 71


def test_cycles_go_to_the_layer_that_moves_the_end(simulator: Simulator):
    """Layer 1 pays for the copies that its job of 8 * 143 waits for, and hides the one that layer 2 starts."""
    simulator.mark(0)
    fill(simulator)
    total = simulator.cycles
    assert simulator.layer_cycles(0) == 0
    simulator.mark(1)
    simulator.job(conv2d(CONV2D, (3, 3)), tile((10, 18, 8), (8, 16, 16), ofm=OFM, params=PARAMS))
    simulator.mark(2)
    simulator.copy((ACTIVATIONS, 65536), (MAIN, 0), 1000)
    simulator.job(pool2d(MAX, (1, 1)), tile((1, 1, 16), (1, 1, 16), ofm=OFM + 8192))
    assert [simulator.layer_cycles(layer) for layer in range(4)] == [0, total + 8 * 143, 1, 0]
    assert simulator.cycles == total + 8 * 143 + 1

    counters = simulator.counters(2)
    assert (counters.jobs, counters.array_cycles) == (1, 1)
    assert (counters.copies, counters.dma_cycles, counters.dma_bytes) == (1, 70 + 63, 1000)


def test_layers_beyond_the_last_share_its_profile(simulator: Simulator):
    simulator.mark(5000)
    simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 16)
    simulator.copy((MAIN, 0), (ACTIVATIONS, 0), 16)
    assert simulator.layer_cycles(1023) == simulator.layer_cycles(65535) == 2 * 71


def test_a_full_queue_holds_the_host_back(simulator: Simulator):
    """The 65th copy waits for the first; tokens that left the queue are those of ended copies."""
    tokens = [simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 16) for _ in range(64)]
    assert simulator.host_cycles == 0
    tokens.append(simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 16))
    assert (simulator.host_cycles, simulator.in_flight) == (71, 64)
    simulator.copy_wait(tokens[0])
    simulator.copy_wait(tokens[-1])
    assert (simulator.host_cycles, simulator.in_flight) == (65 * 71, 0)


def test_a_question_is_the_wait_once_it_is_done(simulator: Simulator):
    """The host takes no time to ask: what has not ended when it is idle ends then, the first that it has asked for."""
    first, second, third = (simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 16) for _ in range(3))
    simulator.idle()
    assert simulator.host_cycles == 0
    assert (simulator.copy_done(third), simulator.copy_done(second)) == (0, 0)
    simulator.idle()
    assert (simulator.host_cycles, simulator.in_flight) == (2 * 71, 3)
    assert (simulator.copy_done(second), simulator.in_flight) == (1, 1)
    simulator.idle()
    assert simulator.host_cycles == 2 * 71
    with pytest.raises(RefusedError, match=f"copy: token {second} was waited for before"):
        simulator.copy_done(second)
    with pytest.raises(RefusedError, match=f"job: token {first} was not given since the last init"):
        simulator.job_done(first)
    simulator.copy_wait(third)
    assert simulator.copy_done(first) == 1


def test_reset_starts_a_new_timeline(simulator: Simulator):
    simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 16)
    simulator.reset()
    assert (simulator.cycles, simulator.host_cycles, simulator.in_flight, simulator.layer_cycles(0)) == (0, 0, 0, 0)
    assert simulator.counters(0).copies == 0


def test_other_figures_of_the_accelerator_reach_the_simulator(simulator_of):
    other = replace(
        REFERENCE, array_rows=4, array_columns=2, job_overhead=5, dma_setup=10, dma_width=4, elementwise_width=8
    )
    simulator = simulator_of(other)
    simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 33)
    assert simulator.cycles == 10 + 9
    fill(simulator)
    assert job_cycles(simulator, conv2d(CONV2D, (1, 1)), (1, 3, 1), (1, 3, 5)) == 2 * 2 * (1 + 2 + 5)
    assert job_cycles(simulator, pool2d(MAX, (1, 1)), (1, 1, 9), (1, 1, 9)) == 2


def test_what_it_costs_to_start_a_job_and_a_row_reaches_the_simulator(simulator_of):
    simulator = simulator_of(replace(REFERENCE, job_setup=150, dma_row_setup=7))
    simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 16)
    assert simulator.cycles == 70 + 1
    simulator.copy_rows((ACTIVATIONS, 0), (MAIN, 0), 5, rows=4, target_stride=5, source_stride=9)
    assert simulator.cycles == 71 + 70 + 3 * 7 + 4
    fill(simulator)
    assert job_cycles(simulator, conv2d(CONV2D, (1, 1)), (1, 3, 1), (1, 3, 5)) == 150 + 1 + 2 + 23
    assert job_cycles(simulator, pool2d(MAX, (1, 1)), (1, 1, 9), (1, 1, 9)) == 150 + 1
