"""After a failure of any call, `<mod_name>_run` leaves nothing in flight, names the layer, and can run again."""

import subprocess
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from bit_exact import input_arrays
from relay_samples import Add, Conv, Dense, Pool, module
from test_overlap import two_branches
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.demo import heldout, model_path
from byoc_hw.run.files import read_model

DRIVER = Path(__file__).parent / "failing_calls.c"
WRAPPED = ("init", "copy_1d", "copy_2d", "copy_wait", "job_start", "job_wait", "mark")
QUESTIONS = ("copy_done", "job_done")  # without the driver's own, the HAL has none
HARDWARE, HOST = "8", "77"
WAYS = 4
"""An init ends what is in flight or gives it up; and one call fails, or all from it on."""
ALIGNMENT = 64


def starts(interfaces):
    """Where each array starts, and the bytes of all."""
    ends = list(accumulate(-(-one.nbytes // ALIGNMENT) * ALIGNMENT for one in interfaces))
    return [0, *ends[:-1]], ends[-1]


def prepare(project):
    """The sources with a global arena, and functions of the host that return what the driver says.

    All else stays as it was compiled for `Project.run`.
    """
    main = project.directory / "src" / "default_main.c"
    declaration = "static uint8_t default_arena["
    assert declaration in main.read_text()
    main.write_text(main.read_text().replace(declaration, declaration.removeprefix("static ")))
    if any(layer["kind"] == "host" for layer in project.layers):
        host = project.directory / "src" / "default_host.c"
        assert "return 0;" in host.read_text()
        declared = "#include <stdint.h>\nint32_t host_status(void);\n"
        host.write_text(declared + host.read_text().replace("return 0;", "return host_status();"))


def driver(project, directory, flags=()):
    """The program that lets every call fail."""
    subprocess.run(["make", "-s", "-C", project.directory, "CC=gcc", "CFLAGS=-O2", "lib"], check=True)
    model = read_model(project.directory)
    flags = [*flags, *(f"-I{project.directory / folder}" for folder in ("include", "hwlib/include", "hwlib/sim"))]
    for name, interfaces in (("INPUT", model.inputs), ("OUTPUT", model.outputs)):
        first, nbytes = starts(interfaces)
        flags += [f"-D{name}_STARTS={','.join(map(str, first))}", f"-D{name}_BYTES={nbytes}"]
    wraps = [f"-Wl,--wrap=hwlib_hal_{name}" for name in (*WRAPPED, *QUESTIONS)]
    objects = [project.directory / "build" / "libdefault.a", "-lm", "-o", directory / "failures"]
    strict = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wconversion"]
    subprocess.run(["gcc", *strict, *flags, DRIVER, *wraps, *objects], check=True)
    return directory / "failures"


def check(project, arrays, directory, stride=1, flags=()):
    """Let every `stride`-th call fail, in all `WAYS`: the number of failures of the HAL and of the host."""
    model, expected = read_model(project.directory), project.run(arrays).outputs
    prepare(project)
    program = driver(project, directory, flags)
    first, nbytes = starts(model.inputs)
    block = bytearray(nbytes)
    for at, array in zip(first, arrays, strict=True):
        block[at : at + array.nbytes] = array.tobytes()
    (directory / "in.bin").write_bytes(block)
    command = [program, directory / "in.bin", directory / "out.bin", str(stride)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    written = (directory / "out.bin").read_bytes()
    for at, output in zip(starts(model.outputs)[0], expected, strict=True):
        assert written[at : at + output.nbytes] == output.tobytes()  # however late copies and jobs are
    kinds = {str(layer["id"]): layer["kind"] for layer in project.layers}
    count = Counter()
    for line in done.stdout.splitlines():
        _, status, reported, running = line.split()
        count[status] += 1
        assert kinds[reported] == "host" if status == HOST else reported == running, line
    return count[HARDWARE], count[HOST]


def residual():
    """Two regions, in stripes on a small accelerator, with an operator of the host between them and one at the end."""
    one = Conv(12, 10, 8, 16)
    x = one.variables()[0]
    first = one.expr(x)
    second = Conv(12, 10, 16, 16, seed=3).expr(first)
    joined = relay.reverse(Add().expr(first, second), axis=3)
    pooled = Pool("nn.max_pool2d", kernel=(2, 2), strides=(2, 2)).expr(joined)
    last = Dense(6 * 5 * 16, 10).expr(relay.reshape(pooled, (1, -1)))
    return module(relay.Tuple([relay.reverse(last, axis=1), first]), x)


def test_every_call_of_digits(tmp_path):
    mod, params = byoc_hw.load_tflite(model_path())
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params))
    of_the_hal, of_the_host = check(project, [heldout().images[0][np.newaxis]], tmp_path)
    assert of_the_hal > 50
    assert of_the_host == WAYS


@pytest.mark.slow
def test_every_call_of_two_regions_with_the_host_between_them(tmp_path):
    mod = residual()
    small = replace(REFERENCE, activation_memory=3072, weight_memory=2048)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=small))
    assert len({layer["region"] for layer in project.layers if layer["region"]}) == 2
    of_the_hal, of_the_host = check(project, list(input_arrays(mod))[-1], tmp_path)
    assert of_the_hal > 500
    assert of_the_host == 2 * WAYS


@pytest.mark.slow
def test_every_call_of_a_region_beside_the_host(tmp_path):
    """A function of the host that fails while the region runs ends the region, too."""
    mod = two_branches()
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod))
    assert "_wait();" in (project.directory / "src" / "default_main.c").read_text()
    of_the_hal, of_the_host = check(project, list(input_arrays(mod))[-1], tmp_path)
    assert of_the_hal > 50
    assert of_the_host == 4 * WAYS


POLLED = {
    "run": ("-DASKED",),
    "polls, then a wait": ("-DASKED", "-DPOLLS=5"),
    "polls": ("-DASKED", "-DPOLLS=100000"),
    "polls of a HAL that cannot be asked": ("-DPOLLS=100000",),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", POLLED)
def test_every_call_of_a_polled_region_beside_the_host(tmp_path, how):
    mod = two_branches()
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod), poll=True)
    of_the_hal, of_the_host = check(project, list(input_arrays(mod))[-1], tmp_path, flags=POLLED[how])
    assert of_the_hal > 50
    assert of_the_host == 4 * WAYS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mlperf_model", "stride"),
    [("kws_ref_model", 4), ("pretrainedResnet_quant", 9), ("vww_96_int8", 9), ("ad01_int8", 9)],
    indirect=["mlperf_model"],
)
def test_calls_of_mlperf_tiny(mlperf_model, stride, tmp_path):
    """Every ninth call, for time's sake, or more of few."""
    mod, params = byoc_hw.load_tflite(mlperf_model)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params))
    (image,) = read_model(project.directory).inputs
    values = np.random.default_rng(0).integers(-128, 128, image.shape).astype(image.dtype)
    of_the_hal, _ = check(project, [values], tmp_path, stride=stride)
    assert of_the_hal > 5 * WAYS
