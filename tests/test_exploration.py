"""Variations of hardware: their cycles are those of a build, the front is what nothing beats, errors come first."""

import json
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from chip_samples import CHIP
from mpi_futures import run_with_mpi
from relay_samples import Conv, Dense, Pool

import byoc_hw
from byoc_hw import exploration
from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.demo import model_path
from byoc_hw.errors import InvalidInput
from byoc_hw.exploration import changed, what_if
from byoc_hw.library_calls import Library
from byoc_hw.report.variations import METRICS, Exploration, Variation

GRID = {"activation_memory": (1024, 32768), "dma_width": (2, 8), "array": ((4, 4), (16, 16))}


def quiet(mod, accelerator=SMALL, variations=(), **options):
    return what_if(mod, None, accelerator, variations, progress=False, **options)


@pytest.fixture(scope="module")
def models():
    return {"conv": (Conv(filters=24).module(), None), "dense": (Dense(inputs=64, outputs=32).module(), None)}


@pytest.fixture(scope="module")
def explored(models):
    return quiet(models, variations=GRID)


@pytest.mark.slow
def test_the_first_is_as_given_and_the_others_are_all_combinations(explored):
    first, *others = explored.variations
    assert (first.changes, first.hardware) == ({}, SMALL)
    assert [tuple(one.changes.values()) for one in others] == [
        (memory, width, array) for memory in (1024, 32768) for width in (2, 8) for array in ((4, 4), (16, 16))
    ]


@pytest.mark.slow
def test_cycles_are_those_of_a_build(models, explored):
    for one in (explored.variations[0], explored.variations[2], explored.variations[-1]):
        for name, (mod, _) in models.items():
            project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=one.hardware))
            page = project.summary()
            assert (one.cycles[name], one.host_cycles[name]) == (page.cycles, page.host_cycles)


def test_partitions_again_where_memory_decides_what_is_offloaded():
    """A window over all rows and channels needs more than 1 KiB; a larger memory takes it."""
    pool = Pool("nn.max_pool2d", shape=(1, 32, 32, 8), kernel=(32, 32), strides=(1, 1)).module()
    found = quiet(pool, variations={"activation_memory": (512, 65536), "dma_width": (4, 8)}).variations
    assert [one.offloaded for one in found] == [1, 0, 0, 1, 1]
    assert found[1].cycles == {"": 0}
    assert found[1].host_cycles[""] > found[3].cycles[""] > 0


def test_the_host_is_slower_with_more_cycles_for_an_instruction():
    found = quiet(Conv(strides=(3, 3)).module(), variations={"host_cycles_per_instruction": (2.0,)}).variations
    assert found[1].host_cycles[""] == 2 * found[0].host_cycles[""] > 0


def test_a_list_of_changes():
    changes = [{"dma_width": 2}, {"queue": 1, "tuning": replace(SMALL.tuning, swap=False)}]
    found = quiet(Dense().module(), variations=changes).variations
    assert [one.changes for one in found] == [{}, *changes]
    assert found[2].hardware.queue == 1


@pytest.mark.slow
def test_a_chip_varies_by_accelerator(models):
    found = quiet(models["conv"][0], CHIP, {"npu.array": ((4, 4),), "dsp.dma_width": (4, 8), "ram": (65536,)})
    assert [one.hardware.accelerators[1].dma_width for one in found.variations[1:]] == [4, 8]
    assert found.variations[1].hardware.accelerators[0].array_rows == 4
    assert all(one.cycles[""] for one in found.variations)


def test_rows_of_depthwise_jobs_stay_those_of_the_array():
    assert changed(SMALL, {"array": (4, 8)}).depthwise_rows == 4
    assert changed(byoc_hw.DIANA_DIGITAL, {"array": (4, 8)}).depthwise_rows == 1


# ---------------------------------------------------------------- executors


class Reversed(Executor):
    """Does the last thing first, when its result is asked for."""

    def __init__(self):
        self.waiting = []

    def submit(self, function, /, *arguments):
        future = Lazy(self)
        self.waiting.append((future, function, arguments))
        return future


class Lazy(Future):
    def __init__(self, executor):
        super().__init__()
        self.executor = executor

    def result(self, timeout=None):
        while not self.done():
            future, function, arguments = self.executor.waiting.pop()
            future.set_result(function(*arguments))
        return super().result()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ProcessPoolExecutor, Reversed])
def test_the_executor_changes_nothing(kind, models, explored):
    executor = kind() if kind is Reversed else kind(2)
    with executor:
        assert quiet(models, variations=GRID, executor=executor) == explored


@pytest.mark.slow
def test_dask_plans(models, explored):
    distributed = pytest.importorskip("distributed", reason="pip install distributed")
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        assert quiet(models, variations=GRID, executor=client.get_executor()) == explored


MPI = """
import byoc_hw
from byoc_hw.demo import model_path
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        mod, params = byoc_hw.load(model_path())
        found = byoc_hw.what_if(mod, params, byoc_hw.SMALL, {"dma_width": (2, 8)}, executor=pool, progress=False)
        print([one.cycles[""] for one in found.variations])
"""


@pytest.mark.slow
def test_mpi_plans(tmp_path):
    found = quiet({"": byoc_hw.load(model_path())}, variations={"dma_width": (2, 8)})
    assert json.loads(run_with_mpi(MPI, tmp_path)) == [one.cycles[""] for one in found.variations]


def test_progress_is_told_in_order(models, capsys):
    told = []
    found = what_if(models, None, SMALL, {"dma_width": (2, 8)}, progress=told.append)
    assert tuple(told) == found.variations
    what_if(models["conv"][0], None, SMALL, {"dma_width": (2,)})
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == f"2 of 2: dma_width 2: {found.variations[1].total['conv']:,} cycles"


@pytest.mark.slow
def test_what_is_waiting_is_given_up_when_it_is_interrupted(models):
    executor = Reversed()

    def stop(state):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        what_if(models, None, SMALL, GRID, executor=executor, progress=stop)
    assert all(future.cancelled() or future.done() for future, *_ in executor.waiting)


@pytest.mark.slow
def test_a_model_is_partitioned_once_where_numbers_decide_nothing(models, monkeypatch):
    front, count = exploration.front_end(), []
    partition = front.partition
    monkeypatch.setattr(front, "partition", lambda *given, **more: count.append(1) or partition(*given, **more))
    quiet(models, variations={"dma_width": (2, 4, 8), "array": ((4, 4), (8, 8)), "activation_memory": (4096, 8192)})
    assert len(count) == len(models)


# ---------------------------------------------------------------- the front


def variation(cycles, memory, rows=16):
    hardware = replace(SMALL, activation_memory=memory, weight_memory=1, array_rows=rows)
    return Variation({"memory": memory, "rows": rows, "c": cycles}, hardware, {"": cycles}, {"": 0}, 1, 1)


def test_the_front_has_what_nothing_beats():
    given, worse, small, fast, same = (
        variation(100, 1000),
        variation(110, 1000),
        variation(200, 500),
        variation(50, 4000),
        variation(50, 5000),
    )
    found = Exploration("X", ("cycles", "memory"), (given, worse, small, fast, same))
    assert found.front == (fast, given, small)
    assert replace(found, objective=("cycles",)).front == (fast, same)
    assert replace(found, objective=("memory",)).front == (small,)
    assert found.times_given(small) == pytest.approx(2)


def test_cycles_of_several_models_are_their_geometric_mean():
    one = replace(variation(1, 1), cycles={"a": 10, "b": 1000}, host_cycles={"a": 0, "b": 0})
    assert METRICS["cycles"](one) == pytest.approx(100)


def test_text_table_and_json(explored):
    lines = str(explored).splitlines()
    assert len(lines) == 2 + len(explored.variations)
    assert lines[0].startswith("9 variations of SMALL, ")
    assert sum(line.startswith("  *") for line in lines) == len(explored.front)
    assert "1K" in lines[3].split()
    assert "4x4" in lines[3].split()
    plain = json.loads(explored.to_json())
    assert [entry["cycles"] for entry in plain["variations"]] == [dict(one.cycles) for one in explored.variations]
    assert explored._repr_html_().count("<tr>") == 1 + len(explored.variations)
    assert len(repr(explored)) <= 100


def test_the_picture_has_a_line_for_each_array(explored):
    pytest.importorskip("matplotlib", reason="pip install byoc-hw[notebooks]")
    (axes,) = explored.picture().axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["array of 16", "array of 256", "as given"]


# ---------------------------------------------------------------- errors, before any plan

VENDOR = replace(REFERENCE, library=Library(Path("v.h"), (), {}), limits={})
REFUSED = {
    "unknown field": (SMALL, {"dma": (1,)}, {}, "variations are of fields of <Accelerator .*, dma_width.*: got 'dma'"),
    "bad value": (SMALL, {"dma_width": (4, 0)}, {}, "accelerator hwlib: dma_width is at least 1: got 0"),
    "no list": (SMALL, {"dma_width": 4}, {}, "variations of dma_width are a list of at least one value: got 4"),
    "no values": (SMALL, {"dma_width": ()}, {}, "variations of dma_width are a list of at least one value"),
    "no changes": (SMALL, [4], {}, "each of variations is values by field: got 4"),
    "no array": (SMALL, {"array": (16,)}, {}, "array is rows and columns: got 16"),
    "a chip's field": (SMALL, {"dsp.ram": (1,)}, {}, "the accelerator in dsp.ram is for a chip of several"),
    "another chip": (
        CHIP,
        {"gpu.dma_width": (1,)},
        {},
        "the accelerator in gpu.dma_width is one of npu, dsp: got 'gpu'",
    ),
    "no field of a chip": (CHIP, {"dma_width": (1,)}, {}, "variations are of fields of <Soc twin"),
    "library": (VENDOR, {"queue": (1,)}, {}, "variations are of accelerators with plans: hwlib is driven by a library"),
    "objective": (SMALL, {}, {"objective": ("speed",)}, "objective is some of cycles, memory, array, dma, ram, flash"),
    "objective text": (SMALL, {}, {"objective": "cycles"}, "objective is some of .*: got 'cycles'"),
    "executor": (SMALL, {}, {"executor": 3}, "executor has the interface of concurrent.futures.Executor: got 3"),
}


@pytest.mark.parametrize(("accelerator", "variations", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses_before_any_plan(accelerator, variations, options, message, monkeypatch):
    monkeypatch.setattr(exploration, "planned_cycles", lambda *arguments: pytest.fail("planned"))
    with pytest.raises(InvalidInput, match=message):
        quiet(Dense().module(), accelerator, variations, **options)


def test_refuses_no_model_at_all():
    with pytest.raises(InvalidInput, match="mod is a module, or several by name: got none"):
        quiet({})
    with pytest.raises(InvalidInput, match="mod has a module and its params for each name: got 3 for net"):
        quiet({"net": 3})
