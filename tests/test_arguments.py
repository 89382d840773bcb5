"""Arguments of wrong types and values: `InvalidInput` with the name, the rule and the value, whatever the function."""

from dataclasses import replace

import numpy as np
import pytest
from relay_samples import Dense

import byoc_hw
from byoc_hw import build, check_operator, explain, partition_for_hwlib, pattern_table, tune, validate
from byoc_hw.accelerator import REFERENCE, HalInstructions, TuningSpace
from byoc_hw.compiler import region_graphs
from byoc_hw.errors import InvalidInput
from byoc_hw.limits import Limits
from byoc_hw.mesh.machine import Link, Mesh
from byoc_hw.soc import Soc

INPUT = np.zeros((1, 24), np.int8)


@pytest.fixture(scope="module")
def mod():
    return Dense().module()


@pytest.fixture(scope="module")
def partitioned(mod):
    return partition_for_hwlib(mod)


@pytest.fixture(scope="module")
def project(partitioned):
    return build(partitioned)


@pytest.mark.parametrize("function", [partition_for_hwlib, build, explain, region_graphs, tune])
@pytest.mark.parametrize("mod", [None, 5, {}], ids=str)
def test_refuses_what_is_no_module(function, mod):
    with pytest.raises(InvalidInput, match=f"mod is a tvm.IRModule: got {type(mod).__name__}"):
        function(mod)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deny": "qnn_dense"}, "deny is a list of names: got 'qnn_dense'"),
        ({"deny": 5}, "deny is a list of names: got 5"),
        ({"deny": [5]}, "deny names operators of the model or composites .*: got 5"),
        ({"accelerator": "REFERENCE"}, "accelerator is an Accelerator or a Soc: got str"),
        ({"numerics": 3}, "numerics is one of relay, tflite, float: got 3"),
        ({"numerics": []}, r"numerics is one of relay, tflite, float: got \[\]"),
        ({"mod_name": 5}, "mod_name is a string: got 5"),
    ],
)
def test_partitioning_refuses(mod, options, message):
    with pytest.raises(InvalidInput, match=message):
        partition_for_hwlib(mod, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tuning": 42}, "tuning is a Tuning, or the path of its file: got 42"),
        ({"output_dir": 5}, "output_dir is a path: got 5"),
        ({"io_in_arena": "yes"}, "io_in_arena is True or False: got 'yes'"),
        ({"mod_name": 5}, "mod_name is a string: got 5"),
    ],
)
def test_building_refuses(partitioned, options, message):
    with pytest.raises(InvalidInput, match=message):
        build(partitioned, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 1.5}, "budget is a whole number: got 1.5"),
        ({"budget": "x"}, "budget is a whole number: got 'x'"),
        ({"budget": float("inf")}, "budget is a whole number: got inf"),
        ({"budget": True}, "budget is a whole number: got True"),
        ({"seed": "x"}, "seed is a whole number: got 'x'"),
        ({"seed": -1}, "seed is at least 0: got -1"),
        ({"executor": 4}, "executor has the interface of concurrent.futures.Executor: got 4"),
        ({"progress": "yes"}, "progress is True or False: got 'yes'"),
        ({"accelerator": "SMALL"}, "accelerator is an Accelerator or a Soc: got 'SMALL'"),
    ],
)
def test_tuning_refuses(partitioned, options, message):
    with pytest.raises(InvalidInput, match=message):
        tune(partitioned, **options)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (None, {}, "inputs are an array, a list of arrays, or arrays by name: got None"),
        ([None], {}, "input x is an array: got None"),
        ({"y": INPUT}, {}, "input is one of x: got 'y'"),
        ([INPUT, INPUT], {}, "the model takes 1 inputs: got 2"),
        (INPUT.astype("int32"), {}, "input x: dtype is int8: got int32"),
        (INPUT[0], {}, r"input x: shape is \(1, 24\): got \(24,\)"),
        (INPUT, {"on": 3}, "on is one of host, riscv32: got 3"),
        (INPUT, {"timeout": "x"}, "timeout is a finite number above 0: got 'x'"),
        (INPUT, {"timeout": float("nan")}, "timeout is a finite number above 0: got nan"),
        (INPUT, {"trace": 1}, "trace is True or False: got 1"),
        (INPUT, {"toolchain": "gcc"}, "toolchain is a Toolchain: got 'gcc'"),
    ],
)
def test_running_refuses(project, inputs, options, message):
    with pytest.raises(InvalidInput, match=message):
        project.run(inputs, **options)


def test_running_a_batch_refuses_what_is_no_list(project):
    with pytest.raises(InvalidInput, match="inferences is a list, each as the inputs of one run: got None"):
        project.run_batch(None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"project": None}, "project is a Project: got None"),
        ({"inputs": None}, "inputs is the inputs of one inference, or a list of those: got None"),
        ({"inputs": []}, "inputs are of at least one inference: got none"),
        ({"reference": 5}, "mod is a tvm.IRModule: got int"),
        ({"tolerance": -1}, "tolerance is a finite number of at least 0: got -1"),
        ({"tolerance": 10**400}, "tolerance is a finite number of at least 0: got a"),
        ({"toolchain": None}, "toolchain is a Toolchain: got None"),
    ],
)
def test_validating_refuses(project, partitioned, change, message):
    with pytest.raises(InvalidInput, match=message):
        validate(**({"project": project, "inputs": INPUT, "reference": partitioned} | change))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count is at least 1: got 0"),
        ({"inputs": 5}, "inputs is a list of inferences: got 5"),
        ({"tolerance": "x"}, "tolerance is a finite number of at least 0: got 'x'"),
    ],
)
def test_checking_an_operator_refuses(mod, options, message):
    with pytest.raises(InvalidInput, match=message):
        check_operator(mod, **options)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (pattern_table, "compiler is one of hwlib.*: got 5"),
        (byoc_hw.Project, "directory is a path: got 5"),
        (byoc_hw.load_tflite, "path is a path: got 5"),
    ],
)
def test_refuses_a_number_for_a_name(function, message):
    with pytest.raises(InvalidInput, match=message):
        function(5)


def test_numbers_of_numpy_are_as_those_of_python(mod, tmp_path):
    """As they come out of an arange over sizes of an accelerator."""
    eight, yes = np.int64(8), np.bool_(True)
    dense = Limits(batches=(np.int64(1),), weight_bits=(eight, np.int64(4)), accumulator_bits=np.int64(32))
    accelerator = replace(
        REFERENCE,
        array_rows=eight,
        packed_rows=yes,
        limits={"dense": dense},
        host_cycles_per_instruction=np.float32(2),
        hal_instructions=HalInstructions(copy=eight),
        tuning=TuningSpace(longest_group=eight, stripes=(np.int64(1), eight)),
    )
    partitioned = partition_for_hwlib(mod, accelerator=accelerator)
    tune(partitioned, budget=eight, seed=np.int64(0), progress=False).save(tmp_path / "found.json")
    build(partitioned, io_in_arena=yes, poll=yes, tuning=tmp_path / "found.json")
    chip = Soc((replace(accelerator, name="one"),), ram=np.int64(2**20), events=eight)
    build(partition_for_hwlib(mod, accelerator=chip))
    mesh = Mesh(
        accelerator, np.int64(4), 4, memory=np.int64(2**20), link=Link(bytes_per_cycle=eight), chips=(np.int64(2), 1)
    )
    numbers = (mesh.width, mesh.link.bytes_per_cycle, mesh.chips[0], accelerator.limits["dense"].accumulator_bits)
    assert {type(number) for number in numbers} == {int}
