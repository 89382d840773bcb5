"""Whole networks on a RISC-V core without an operating system: what the host gives, layer by layer, and counts."""

import re
import subprocess
from functools import lru_cache

import numpy as np
import pytest
import tvm
from riscv32_tools import needs_riscv32
from tvm import relay

import byoc_hw
import byoc_hw.__main__
from byoc_hw.accelerator import REFERENCE, SMALL
from byoc_hw.demo import heldout, model_path
from byoc_hw.plan.planned import TABLES

pytestmark = needs_riscv32

MLPERF_TINY = [
    "ad01_int8",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
    ),
]

PRESETS = {"REFERENCE": REFERENCE, "SMALL": SMALL}

# What a model needs of a C library, and what the compiler calls for arithmetic that rv32imc lacks.
LIBC = {"memcpy", "memset", "roundf"}
COMPILER = re.compile(r"__[a-z]+(?:[sd]f|[sdt]i)[a-z0-9]*")


@lru_cache
def both(path, accelerator=REFERENCE):
    """The model's projects: offloaded, and on the host core alone. And the shape of its input."""
    mod, params = byoc_hw.load_tflite(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="net", accelerator=accelerator)
    shape = tuple(int(extent) for extent in mod["main"].params[0].type_annotation.shape)
    return byoc_hw.build(partitioned), byoc_hw.build(mod, params, mod_name="net"), shape


@lru_cache
def digits(label):
    return both(model_path(), PRESETS[label])[:2]


def check(project, inputs, startup="picolibc"):
    """Outputs, layers and accelerator cycles are those of the run on the host, which test_networks has equal TVM's."""
    found = project.run_batch(inputs, on="riscv32", trace=True, toolchain=byoc_hw.Toolchain(startup=startup))
    wanted = project.run_batch(inputs, trace=True)
    for one, other in zip(found, wanted, strict=True):
        for output, expected in zip(one.outputs, other.outputs, strict=True):
            np.testing.assert_array_equal(output, expected)
        assert one.trace.keys() == other.trace.keys()
        differing = [project.layers[layer]["name"] for layer in one.trace if one.trace[layer] != other.trace[layer]]
        assert not differing
        assert one.cycles == other.cycles
        assert one.end_to_end.total >= max(one.host_instructions.total, one.cycles.total if one.cycles else 0)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mlperf_model", MLPERF_TINY, indirect=True)
def test_mlperf_tiny_equals_the_host(mlperf_model):
    offloaded, alone, shape = both(mlperf_model)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(2)]
    fast, slow = (check(project, inputs)[0] for project in (offloaded, alone))
    assert fast.host_instructions.total * 20 < slow.host_instructions.total
    assert slow.end_to_end.total == slow.host_instructions.total


@pytest.mark.slow
@pytest.mark.parametrize("mlperf_model", MLPERF_TINY, indirect=True)
def test_regions_and_hwlib_are_small(mlperf_model):
    """All but weights: code, descriptors, tiles, copies and steps."""
    project, _, _ = both(mlperf_model)
    command = ["make", "-s", "-C", project.directory, "TARGET=riscv32", "COUNT=", "CFLAGS=-Os", "BUILD=small", "lib"]
    subprocess.run(command, check=True)
    built = project.directory / "small"
    objects = [built / "src/net_hwlib.o", *sorted((built / "hwlib/src").glob("*.o"))]
    listed = subprocess.run(["riscv64-unknown-elf-size", *objects], capture_output=True, text=True, check=True).stdout
    text = sum(int(line.split()[0]) for line in listed.splitlines()[1:])
    weights = sum(nbytes for name, nbytes in project.memory.flash.items() if name not in ("host", TABLES))
    assert text - weights <= 16 * 1024


@pytest.mark.slow
@pytest.mark.parametrize(("label", "startup"), [("REFERENCE", "picolibc"), ("REFERENCE", "plain"), ("SMALL", "plain")])
def test_digits_equal_the_host(label, startup):
    inputs = [[image] for image in heldout().images[:10, None]]
    for project in digits(label):
        check(project, inputs, startup)


@pytest.mark.slow
def test_a_model_needs_little_of_a_c_library():
    for project in digits("REFERENCE"):
        command = ["make", "-s", "-C", project.directory, "TARGET=riscv32", "COUNT=", "BUILD=symbols", "lib"]
        subprocess.run(command, check=True)
        objects = [
            path
            for folder in ("src", "hwlib/src")
            for path in sorted((project.directory / "symbols" / folder).glob("*.o"))
        ]
        listed = subprocess.run(
            ["riscv64-unknown-elf-nm", "-g", *objects], capture_output=True, text=True, check=True
        ).stdout  # fmt: skip
        symbols = [line.split()[-2:] for line in listed.splitlines() if re.search(r" [A-TV-Z] | U ", line)]
        defined = {name for kind, name in symbols if kind != "U"}
        needed = {name for kind, name in symbols if kind == "U"} - defined
        needed = {name for name in needed if not COMPILER.fullmatch(name) and not name.startswith("hwlib_hal_")}
        assert needed <= LIBC


def test_the_exponential_is_the_same_on_both():
    """Softmax is the one float operator of these models; C libraries differ in its last bit."""
    x = relay.var("x", shape=(1, 500), dtype="float32")
    project = byoc_hw.build(tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(x))))
    rng = np.random.default_rng(0)
    inputs = [(rng.standard_normal((1, 500)) * scale).astype(np.float32) for scale in (0.01, 1, 8, 40)]
    for one, other in zip(project.run_batch(inputs), project.run_batch(inputs, on="riscv32"), strict=True):
        assert one.outputs[0].tobytes() == other.outputs[0].tobytes()


@pytest.mark.slow
def test_the_command_line_shows_what_the_core_executed(capsys):
    project, _ = digits("REFERENCE")
    arguments = ["run", str(project.directory), "--random", "0", "--on", "riscv32", "--profile"]
    assert byoc_hw.__main__.main(arguments) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^  layer +instructions +end to end$", printed, re.M)
    counted = project.run(np.zeros((1, 8, 8, 1), np.int8), on="riscv32").host_instructions.by_layer
    for layer in counted[:3]:
        assert re.search(rf"^  {re.escape(layer.name.split(';')[0])} +{layer.count} ", printed, re.M)


@pytest.mark.slow
def test_validate_and_check_operator_run_on_the_core_too():
    mod, params = byoc_hw.load_tflite(model_path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params)
    inputs = [image[None] for image in heldout().images[:2]]
    found = byoc_hw.validate(byoc_hw.build(partitioned), inputs, partitioned, on="riscv32")
    assert found.ok
    assert not found.unseen
    x = relay.var("x", shape=(1, 4, 6, 3), dtype="int8")
    assert byoc_hw.check_operator(relay.nn.max_pool2d(x, (2, 2), layout="NHWC"), count=2, on="riscv32")
