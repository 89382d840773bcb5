"""Planted faults: what the hardware could not do is refused, with a status and a text that say what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hwlib_simulator import (
    ACTIVATIONS,
    ADDRESS,
    ALIGNMENT,
    AVG,
    CONV2D,
    DENSE,
    DEPTHWISE,
    FIRST,
    IDENTITY,
    LAST,
    LIMIT,
    MAIN,
    MAX,
    RACE,
    TFLITE,
    TOKEN,
    UNWRITTEN,
    UPWARD,
    WEIGHTS,
    RefusedError,
    Scale,
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

ACTIVATION_BYTES, WEIGHT_BYTES = REFERENCE.activation_memory, REFERENCE.weight_memory
OFM, PARAMS = 4096, 1024


def refusal(call, *arguments) -> tuple[int, str]:
    with pytest.raises(RefusedError) as refused:
        call(*arguments)
    return refused.value.status, str(refused.value)


@pytest.fixture
def loaded(simulator: Simulator) -> Simulator:
    """A kilobyte of activations, weights and parameters, all zero but the scales."""
    simulator.load(ACTIVATIONS, 0, bytes(1024))
    simulator.load(WEIGHTS, 0, bytes(1024))
    simulator.load(WEIGHTS, PARAMS, params([0] * 16, [IDENTITY] * 16))
    return simulator


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize(
    ("memory", "size", "name"), [(ACTIVATIONS, ACTIVATION_BYTES, "activations"), (WEIGHTS, WEIGHT_BYTES, "weights")]
)
def test_refuses_copy_beyond_a_local_memory(simulator: Simulator, memory: int, size: int, name: str):
    simulator.copy((memory, size - 16), (MAIN, 0), 16)
    text = f"copy: 16 bytes at {size - 4} reach beyond the {size} bytes of local {name}"
    assert refusal(simulator.copy, (memory, size - 4), (MAIN, 0), 16) == (ADDRESS, text)


def test_refuses_address_far_outside(simulator: Simulator):
    """Neither a wrapped sum nor a pointer in place of an offset gets through."""
    for address in (2**32 - 8, 2**64 - 8):
        assert refusal(simulator.copy, (ACTIVATIONS, address), (MAIN, 0), 16)[0] == ADDRESS


def test_refuses_rows_beyond_a_local_memory(simulator: Simulator):
    inside = (ACTIVATIONS, ACTIVATION_BYTES - 100 - 8)
    simulator.copy_rows(inside, (MAIN, 0), 8, 2, 100, 8)
    status, text = refusal(simulator.copy_rows, inside, (MAIN, 0), 9, 2, 100, 8)
    assert (status, text.split(" at ")[0]) == (ADDRESS, "copy: 109 bytes")


@pytest.mark.parametrize(("target", "source"), [(ACTIVATIONS, WEIGHTS), (MAIN, MAIN), (3, MAIN)])
def test_refuses_copy_that_is_not_between_local_and_main(simulator: Simulator, target: int, source: int):
    text = f"copy: from memory {source} to memory {target}: one side is local, the other main memory"
    assert refusal(simulator.copy, (target, 0), (source, 0), 4) == (ADDRESS, text)


def test_refuses_copy_of_nothing(simulator: Simulator):
    assert refusal(simulator.copy, (ACTIVATIONS, 0), (MAIN, 0), 0) == (
        ADDRESS,
        "copy: 1 rows of 0 bytes are nothing to copy",
    )
    assert refusal(simulator.copy_rows, (ACTIVATIONS, 0), (MAIN, 0), 4, 0, 4, 4)[0] == ADDRESS


def test_refuses_copy_of_bytes_that_nothing_wrote(simulator: Simulator):
    simulator.load(ACTIVATIONS, 0, bytes(15))
    text = "copy: reads bytes of the 16 at 0 that nothing has written"
    assert refusal(simulator.copy, (MAIN, 0), (ACTIVATIONS, 0), 16) == (UNWRITTEN, text)


def test_reset_forgets_what_was_written(simulator: Simulator):
    simulator.load(ACTIVATIONS, 0, bytes(16))
    simulator.reset()
    assert simulator.fault() == ""
    assert refusal(simulator.copy, (MAIN, 0), (ACTIVATIONS, 0), 16)[0] == UNWRITTEN


@pytest.mark.parametrize(
    ("local", "main", "nbytes", "local_stride", "main_stride"),
    [(2, 0, 8, 8, 8), (0, 1, 8, 8, 8), (0, 0, 6, 8, 8), (0, 0, 8, 10, 8), (0, 0, 8, 8, 9)],
    ids=["local address", "main address", "length", "local stride", "main stride"],
)
def test_refuses_what_is_unaligned_for_the_dma(simulator_of, local, main, nbytes, local_stride, main_stride):
    simulator = simulator_of(replace(REFERENCE, dma_alignment=4))
    simulator.copy_rows((ACTIVATIONS, 0), (MAIN, 0), 8, 2, 8, 8)
    status, text = refusal(
        simulator.copy_rows, (ACTIVATIONS, local), (MAIN, main), nbytes, 2, local_stride, main_stride
    )
    assert status == ALIGNMENT
    assert text.endswith("are not all multiples of 4")


def test_strides_of_a_single_row_need_no_alignment(simulator_of):
    simulator_of(replace(REFERENCE, dma_alignment=4)).copy_rows((ACTIVATIONS, 0), (MAIN, 0), 8, 1, 3, 5)


# ---------------------------------------------------------------- limits of jobs

ONE_BY_ONE = tile((1, 1, 1), (1, 1, 1), ofm=OFM, params=PARAMS)


def sized(ifm: int, ofm: int, **fields):
    return tile((ifm, ifm, 1), (ofm, ofm, 1), **{"ofm": OFM, "params": PARAMS, **fields})


@pytest.mark.parametrize(
    ("layer", "job", "text"),
    [
        (conv2d(CONV2D, (12, 11)), sized(12, 1), "job: kernel 12 x 11 is not within 11 x 11"),
        (conv2d(DEPTHWISE, (1, 12)), sized(12, 1), "job: kernel 1 x 12 is not within 11 x 11"),
        (pool2d(AVG, (33, 1)), sized(33, 1), "job: kernel 33 x 1 is not within 32 x 32"),
        (conv2d(CONV2D, (0, 1)), sized(1, 1), "job: kernel 0 x 1 is not within 11 x 11"),
        (conv2d(DENSE, (1, 2)), sized(2, 1), "job: kernel 1 x 2 is not within 1 x 1"),
        (conv2d(CONV2D, (1, 1), (3, 3)), sized(4, 2), "job: the array has no stride 3 x 3"),
        (conv2d(DEPTHWISE, (1, 1), (1, 0)), sized(1, 1), "job: the array has no stride 1 x 0"),
        (pool2d(MAX, (2, 2), (2, 64)), sized(2, 1), "job: the array has no stride 2 x 64"),
        (conv2d(DENSE, (1, 1), (2, 2)), sized(1, 1), "job: the array has no stride 2 x 2"),
        (conv2d(CONV2D, weight_bits=16), ONE_BY_ONE, "job: the array has no weights of 16 bits"),
        (conv2d(DEPTHWISE, weight_bits=3), ONE_BY_ONE, "job: the array has no weights of 3 bits"),
        (conv2d(DENSE, weight_bits=64), ONE_BY_ONE, "job: the array has no weights of 64 bits"),
        (pool2d(3, (1, 1)), ONE_BY_ONE, "job: the array has no pooling mode 3"),
        (conv2d(5), ONE_BY_ONE, "job: the array has no layer kind 5"),
        (conv2d(200), ONE_BY_ONE, "job: the array has no layer kind 200"),
        (conv2d(act_min=3, act_max=2), ONE_BY_ONE, "job: act_min is above act_max"),
        (
            conv2d(CONV2D, (3, 3)),
            sized(4, 3),
            "tile height: 4 inputs padded by 0 and 0 under a kernel of 3 and stride 1 do not make 3 outputs",
        ),
        (
            pool2d(MAX, (2, 2), (2, 2)),
            tile((4, 5, 1), (2, 3, 1)),
            "tile width: 5 inputs padded by 0 and 0 under a kernel of 2 and stride 2 do not make 3 outputs",
        ),
        (
            conv2d(CONV2D, (3, 3)),
            sized(1, 1),
            "tile height: 1 inputs padded by 0 and 0 under a kernel of 3 and stride 1 do not make 1 outputs",
        ),
        (
            conv2d(CONV2D, (3, 3)),
            sized(3, 3, pad_top=3),
            "tile height: 3 inputs padded by 3 and 0 under a kernel of 3 and stride 1 do not make 3 outputs",
        ),
        (conv2d(), tile((1, 1, 0), (1, 1, 1)), "tile channels: 0 in and 1 out are nothing to compute"),
        (conv2d(DEPTHWISE), tile((1, 1, 2), (1, 1, 1)), "tile channels: 2 in are not 1 out"),
        (pool2d(MAX, (1, 1)), tile((1, 1, 2), (1, 1, 3)), "tile channels: 2 in are not 3 out"),
        (conv2d(DENSE), sized(2, 2), "dense: 2 x 2 outputs are not one row of at most 4294967295"),
        (add(IDENTITY, IDENTITY), tile((2, 1, 1), (2, 1, 1)), "add: 2 x 1 x 1 inputs are not one run of elements"),
        (add(IDENTITY, IDENTITY, subtract=3), tile((1, 1, 1), (1, 1, 1), ofm=OFM), "add: subtract is at most 2: 3"),
        (mul(IDENTITY, broadcast=2), tile((1, 1, 1), (1, 1, 1), ofm=OFM), "mul: broadcast is at most 1: 2"),
        (
            add(IDENTITY, IDENTITY, broadcast=1, ifm_channels=4),
            tile((1, 2, 3), (1, 2, 3), ofm=OFM),
            "add: 1 x 2 x 3 inputs are not one run of pixels of 4 channels, or of 1",
        ),
        (
            conv2d(DEPTHWISE, (1, 2)),
            tile((2, 2, 1), (1, 1, 1), kernel_h=2, kernel_w=2),
            "job: a tile's kernel 2 x 2 in a layer's 1 x 2",
        ),
        (
            add((5, 0, 1), IDENTITY),
            tile((1, 1, 1), (1, 1, 1), ofm=OFM),
            "ifm_scale: multiplier is neither 0 nor 2^30 or more",
        ),
        (
            add(IDENTITY, (2**30, 32, 1)),
            tile((1, 1, 1), (1, 1, 1), ofm=OFM),
            "ifm2_scale: shifts 32 left and 1 right are not within 0..31 and 1..62",
        ),
        (
            add(IDENTITY, IDENTITY, rounding=TFLITE, sum_scale=Scale(2**30, 0, 30)),
            tile((1, 1, 1), (1, 1, 1), ofm=OFM),
            "sum_scale: shifts 0 left and 30 right are not within 0..31 and 31..62",
        ),
        (softmax(IDENTITY, 0, UPWARD), ONE_BY_ONE, "softmax: there is none with rounding 0"),
        (
            softmax(IDENTITY, 0),
            tile((1, 1, 4096), (1, 1, 4096), ofm=OFM),
            "softmax: 1 x 1 x 4096 inputs are not rows of 1 to 4095 values",
        ),
        (
            pool2d(AVG, (1, 1), scale=Scale(2**30, 0, 63)),
            ONE_BY_ONE,
            "scale: shifts 0 left and 63 right are not within 0..31 and 1..62",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_job_beyond_the_limits(loaded: Simulator, layer, job, text: str):
    assert refusal(loaded.job, layer, job) == (LIMIT, text)


@pytest.mark.parametrize(
    ("layer", "job", "text"),
    [
        (
            conv2d(DEPTHWISE),
            tile((1, 1, 1), (1, 1, 1), flags=FIRST),
            "depthwise: a channel has no slices: a tile is FIRST and LAST",
        ),
        (
            conv2d(CONV2D, (2, 1)),
            tile((1, 1, 1), (1, 1, 1), kernel_h=1, kernel_w=1, flags=FIRST),
            "job: a tile's kernel 1 x 1 in a layer's 2 x 1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_parts_of_kernels_that_the_array_lacks(simulator_of, layer, job, text: str):
    assert refusal(simulator_of(DIANA_DIGITAL).job, layer, job) == (LIMIT, text)


def test_takes_rows_that_overlap_where_they_may(simulator_of):
    layer, job = conv2d(CONV2D, (2, 1)), tile((2, 6, 1), (1, 6, 1), ofm=OFM, params=PARAMS, ifm_row=3)
    for accelerator in (REFERENCE, DIANA_DIGITAL):
        simulator = simulator_of(accelerator)
        simulator.load(ACTIVATIONS, 0, bytes(64))
        simulator.load(WEIGHTS, 0, bytes(64))
        simulator.load(WEIGHTS, PARAMS, params([0], [IDENTITY]))
        if accelerator.packed_rows:
            simulator.job(layer, job)
        else:
            assert refusal(simulator.job, layer, job) == (LIMIT, "ifm: rows of 6 bytes that are 3 apart overlap")
        job.ifm_row = 6
        simulator.job(layer, job)
        job.ifm_row = 3


def test_refuses_scale_of_any_channel_outside_its_range(loaded: Simulator):
    loaded.load(WEIGHTS, PARAMS, params([0, 0], [IDENTITY, (2**30, 0, 0)]))
    status, text = refusal(loaded.job, conv2d(), tile((1, 1, 1), (1, 1, 2), ofm=OFM, params=PARAMS))
    assert (status, text) == (LIMIT, "params: shifts 0 left and 0 right are not within 0..31 and 1..62")


def test_refuses_unknown_rounding(loaded: Simulator):
    layer = conv2d()
    layer.layer.rounding = 7
    assert refusal(loaded.job, layer, ONE_BY_ONE) == (LIMIT, "job: the array has no rounding 7")


def test_refuses_kind_that_the_accelerator_lacks(simulator_of):
    limits = {kind: limit for kind, limit in REFERENCE.limits.items() if kind != "pool2d"}
    simulator = simulator_of(replace(REFERENCE, limits=limits))
    assert refusal(simulator.job, pool2d(MAX, (1, 1)), ONE_BY_ONE) == (LIMIT, "job: the array has no layer kind 4")


@pytest.mark.parametrize(
    ("layer", "job", "text"),
    [
        (mul(IDENTITY), tile((1, 2, 3), (1, 2, 3)), "mul: 1 x 2 x 3 inputs are not one run of elements"),
        (mul(IDENTITY), tile((1, 0, 1), (1, 0, 1)), "mul: 1 x 0 x 1 inputs are not one run of elements"),
        (mul(IDENTITY, act_min=1, act_max=0), ONE_BY_ONE, "job: act_min is above act_max"),
        (mul(IDENTITY, 7), ONE_BY_ONE, "job: the array has no rounding 7"),
        (mul((5, 0, 31)), ONE_BY_ONE, "scale: multiplier is neither 0 nor 2^30 or more"),
        (mul((2**30, 0, 63)), ONE_BY_ONE, "scale: shifts 0 left and 63 right are not within 0..31 and 1..62"),
        (mul((2**30, 0, 30), TFLITE), ONE_BY_ONE, "scale: shifts 0 left and 30 right are not within 0..31 and 31..62"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_multiplication_beyond_the_limits(simulator: Simulator, layer, job, text: str):
    simulator.load(ACTIVATIONS, 0, bytes(16))
    assert refusal(simulator.job, layer, job) == (LIMIT, text)


@pytest.mark.parametrize(
    ("layer", "job", "text"),
    [
        (lookup(64), tile((1, 2, 3), (1, 2, 3)), "lookup: 1 x 2 x 3 inputs are not one run of pixels of 1 channels"),
        (lookup(64, 3), tile((1, 2, 2), (1, 2, 2)), "lookup: 1 x 2 x 2 inputs are not one run of pixels of 3 channels"),
        (lookup(64), tile((1, 0, 1), (1, 0, 1)), "lookup: 1 x 0 x 1 inputs are not one run of pixels of 1 channels"),
    ],
)
def test_refuses_lookup_of_other_runs(simulator: Simulator, layer, job, text: str):
    simulator.load(ACTIVATIONS, 0, bytes(16))
    assert refusal(simulator.job, layer, job) == (LIMIT, text)


# ---------------------------------------------------------------- bytes of jobs


@pytest.mark.parametrize("field", ["ifm", "ofm", "psum"])
def test_refuses_job_beyond_local_activations(loaded: Simulator, field: str):
    job = sized(1, 1, flags=LAST) if field == "psum" else sized(1, 1)
    setattr(job, field, ACTIVATION_BYTES)
    status, text = refusal(loaded.job, conv2d(), job)
    assert status == ADDRESS
    assert text.startswith(f"{field}: ")
    assert text.endswith(f"reach beyond the {ACTIVATION_BYTES} bytes of local activations")


@pytest.mark.parametrize("field", ["weights", "params"])
def test_refuses_job_beyond_local_weights(loaded: Simulator, field: str):
    job = sized(1, 1)
    setattr(job, field, WEIGHT_BYTES)
    status, text = refusal(loaded.job, conv2d(), job)
    assert status == ADDRESS
    assert text.startswith(f"{field}: ")


def test_refuses_second_input_beyond_local_activations(loaded: Simulator):
    job = tile((1, 8, 1), (1, 8, 1), ifm2=ACTIVATION_BYTES - 7, ofm=OFM)
    assert refusal(loaded.job, add(IDENTITY, IDENTITY), job)[1].startswith("ifm2: 8 bytes at 262137")


@pytest.mark.parametrize(("field", "nbytes"), [("ifm", 8), ("ifm2", 4), ("ofm", 8)])
def test_refuses_broadcast_beyond_local_activations(simulator: Simulator, field: str, nbytes: int):
    """A second input of 4 channels, for 2 pixels."""
    simulator.load(ACTIVATIONS, 0, bytes(16))
    layer = mul(IDENTITY, broadcast=1, ifm_channels=4)
    job = tile((1, 2, 4), (1, 2, 4), **{"ofm": OFM, field: ACTIVATION_BYTES - nbytes + 1})
    status, text = refusal(simulator.job, layer, job)
    assert (status, text.split(" reach ")[0]) == (
        ADDRESS,
        f"{field}: {nbytes} bytes at {ACTIVATION_BYTES - nbytes + 1}",
    )


def test_refuses_broadcast_on_an_accelerator_without(simulator_of):
    simulator = simulator_of(DIANA_DIGITAL)
    simulator.load(ACTIVATIONS, 0, bytes(16))
    for layer in (add(IDENTITY, IDENTITY, broadcast=1, ifm_channels=4), mul(IDENTITY, broadcast=1, ifm_channels=4)):
        status, text = refusal(simulator.job, layer, tile((1, 2, 4), (1, 2, 4), ofm=OFM))
        assert (status, text.partition(": ")[2]) == (LIMIT, "broadcast is at most 0: 1")


@pytest.mark.parametrize("field", ["ifm", "ifm2", "ofm"])
def test_refuses_multiplication_beyond_local_activations(simulator: Simulator, field: str):
    simulator.load(ACTIVATIONS, 0, bytes(16))
    job = tile((1, 8, 1), (1, 8, 1), **{"ofm": OFM, field: ACTIVATION_BYTES - 7})
    status, text = refusal(simulator.job, mul(IDENTITY), job)
    assert (status, text.split(" reach ")[0]) == (ADDRESS, f"{field}: 8 bytes at {ACTIVATION_BYTES - 7}")


def test_refuses_multiplication_by_what_nothing_wrote_or_a_copy_still_writes(simulator: Simulator):
    simulator.load(ACTIVATIONS, 0, bytes(16))
    job = tile((1, 8, 1), (1, 8, 1), ifm2=16, ofm=OFM)
    text = "ifm2: reads bytes of the 8 at 16 that nothing has written"
    assert refusal(simulator.job, mul(IDENTITY), job) == (UNWRITTEN, text)
    simulator.copy((ACTIVATIONS, 16), (MAIN, 0), 8)
    assert refusal(simulator.job, mul(IDENTITY), job)[0] == RACE


def test_refuses_strided_tile_beyond_local_activations(loaded: Simulator):
    job = tile((2, 2, 1), (2, 2, 1), ofm=OFM, ofm_row=ACTIVATION_BYTES - OFM - 1)
    assert refusal(loaded.job, pool2d(MAX, (1, 1)), job)[0] == ADDRESS


def test_refuses_extents_whose_product_would_wrap(loaded: Simulator):
    """4 * 2^31 * 2^31 bytes of sums are 0 in 64 bits; strides of 0 keep the other areas small."""
    strides = {"ifm_row": 0, "ifm_pixel": 0, "ofm_row": 0, "ofm_pixel": 0}
    huge = tile((2**31, 2**31, 1), (2**31, 2**31, 1), flags=LAST, ofm=OFM, params=PARAMS, **strides)
    text = f"tile: an extent of {2**31} is beyond the {ACTIVATION_BYTES} bytes of local activations"
    assert refusal(loaded.job, conv2d(), huge) == (ADDRESS, text)


@pytest.mark.parametrize("field", ["psum", "params"])
def test_refuses_unaligned_words(loaded: Simulator, field: str):
    job = sized(1, 1, flags=FIRST)
    setattr(job, field, 2050)
    assert refusal(loaded.job, conv2d(), job) == (ALIGNMENT, f"{field}: address 2050 is not a multiple of 4")


@pytest.mark.parametrize(
    ("field", "address"), [("ifm", 2048), ("weights", 2048), ("params", 2048), ("psum", 2048)], ids=str
)
def test_refuses_job_on_bytes_that_nothing_wrote(loaded: Simulator, field: str, address: int):
    job = sized(1, 1, flags=LAST)
    setattr(job, "psum" if field != "psum" else "ifm", 0)
    setattr(job, field, address)
    status, text = refusal(loaded.job, conv2d(), job)
    assert status == UNWRITTEN
    assert text.startswith(f"{field}: reads bytes")


def test_a_middle_slice_reads_no_parameters(loaded: Simulator):
    loaded.run(conv2d(), sized(1, 1, flags=0, params=2048))


def test_a_refused_job_changes_nothing(loaded: Simulator):
    before = loaded.cycles
    refusal(loaded.job, conv2d(CONV2D, (3, 3)), sized(4, 3))
    assert (loaded.cycles, loaded.in_flight) == (before, 0)
    assert refusal(loaded.copy, (MAIN, 0), (ACTIVATIONS, OFM), 1)[0] == UNWRITTEN


# ---------------------------------------------------------------- races


def test_refuses_job_that_reads_what_a_copy_in_flight_writes(loaded: Simulator):
    loaded.copy((ACTIVATIONS, 8), (MAIN, 0), 8)
    job = tile((1, 1, 16), (1, 1, 16), ofm=OFM)
    text = "ifm: touches, at 0, bytes of a copy in flight at 8"
    assert refusal(loaded.job, pool2d(MAX, (1, 1)), job) == (RACE, text)


def test_refuses_job_whose_weights_are_still_on_their_way(loaded: Simulator):
    loaded.copy((WEIGHTS, 0), (MAIN, 0), 8)
    assert refusal(loaded.job, conv2d(), ONE_BY_ONE)[0] == RACE


def test_refuses_copy_of_what_a_job_in_flight_writes(loaded: Simulator):
    loaded.job(pool2d(MAX, (1, 1)), tile((1, 1, 16), (1, 1, 16), ofm=OFM))
    text = f"copy: touches, at {OFM}, bytes of a job in flight at {OFM}"
    assert refusal(loaded.copy, (MAIN, 0), (ACTIVATIONS, OFM), 16) == (RACE, text)


def test_refuses_copy_onto_what_a_job_in_flight_reads(loaded: Simulator):
    loaded.job(pool2d(MAX, (1, 1)), tile((1, 1, 16), (1, 1, 16), ofm=OFM))
    assert refusal(loaded.copy, (ACTIVATIONS, 15), (MAIN, 0), 16)[0] == RACE


def test_refuses_copy_onto_partial_sums_of_a_job_in_flight(loaded: Simulator):
    loaded.job(conv2d(), sized(1, 1, psum=2048, flags=FIRST))
    assert refusal(loaded.copy, (ACTIVATIONS, 2051), (MAIN, 0), 1)[0] == RACE


def test_two_readers_do_not_race(loaded: Simulator):
    loaded.job(pool2d(MAX, (1, 1)), tile((1, 1, 16), (1, 1, 16), ofm=OFM))
    loaded.copy((MAIN, 0), (ACTIVATIONS, 0), 16)


def test_disjoint_channel_slices_do_not_race(loaded: Simulator):
    """A job writes channels 0..3 of each pixel of 8 while the DMA fills channels 4..7."""
    loaded.job(pool2d(MAX, (1, 1)), tile((4, 4, 4), (4, 4, 4), ofm=OFM, ofm_pixel=8, ofm_row=32))
    loaded.copy_rows((ACTIVATIONS, OFM + 4), (MAIN, 0), 4, 16, 8, 4)
    assert refusal(loaded.copy_rows, (ACTIVATIONS, OFM + 3), (MAIN, 0), 4, 16, 8, 4)[0] == RACE


def test_a_comparison_leaves_nothing_behind_for_the_next(loaded: Simulator):
    """As above, then with the halves exchanged: areas that were compared before are compared afresh."""
    layer, halves = pool2d(MAX, (1, 1)), (OFM, OFM + 4)
    for written, filled in (halves, halves[::-1]):
        job = loaded.job(layer, tile((4, 4, 4), (4, 4, 4), ofm=written, ofm_pixel=8, ofm_row=32))
        copy = loaded.copy_rows((ACTIVATIONS, filled), (MAIN, 0), 4, 16, 8, 4)
        loaded.job_wait(job)
        loaded.copy_wait(copy)


def test_the_same_addresses_of_two_memories_do_not_race(loaded: Simulator):
    loaded.job(pool2d(MAX, (1, 1)), tile((1, 1, 16), (1, 1, 16), ofm=OFM))
    loaded.copy((WEIGHTS, OFM), (MAIN, 0), 16)


def test_operations_of_one_engine_do_not_race(loaded: Simulator):
    loaded.copy((ACTIVATIONS, 0), (MAIN, 0), 64)
    loaded.copy((MAIN, 0), (ACTIVATIONS, 0), 64)


def test_a_wait_ends_the_race_with_all_that_was_started_before(loaded: Simulator):
    """The engine works in order: when the second copy has ended, so has the first."""
    loaded.copy((ACTIVATIONS, 0), (MAIN, 0), 8)
    second = loaded.copy((ACTIVATIONS, 64), (MAIN, 0), 8)
    third = loaded.copy((ACTIVATIONS, 128), (MAIN, 0), 8)
    loaded.copy_wait(second)
    loaded.job(pool2d(MAX, (1, 1)), tile((1, 1, 16), (1, 1, 16), ofm=OFM))
    assert refusal(loaded.job, pool2d(MAX, (1, 1)), tile((1, 1, 16), (1, 1, 16), ifm=120, ofm=OFM))[0] == RACE
    loaded.copy_wait(third)


# ---------------------------------------------------------------- tokens


def test_refuses_wait_for_what_was_never_started(simulator: Simulator):
    assert refusal(simulator.copy_wait, 0) == (TOKEN, "copy: token 0 was not given since the last init")
    assert refusal(simulator.job_wait, 1001)[0] == TOKEN


def test_refuses_second_wait(simulator: Simulator):
    token = simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 4)
    simulator.copy_wait(token)
    assert refusal(simulator.copy_wait, token) == (TOKEN, f"copy: token {token} was waited for before")


def test_refuses_wait_for_a_copy_as_a_job(simulator: Simulator):
    token = simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 4)
    assert refusal(simulator.job_wait, token)[0] == TOKEN


def test_init_ends_all_tokens(simulator: Simulator):
    token = simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 16)
    assert simulator.in_flight == 1
    simulator.init()
    assert (simulator.in_flight, simulator.host_cycles) == (0, 71)
    assert refusal(simulator.copy_wait, token)[0] == TOKEN


def test_waits_may_come_in_any_order(simulator: Simulator):
    first, second = (simulator.copy((ACTIVATIONS, 0), (MAIN, 0), 16) for _ in range(2))
    simulator.copy_wait(second)
    simulator.copy_wait(first)
    assert simulator.in_flight == 0
