"""RAM and flash of whole projects: one arena, constants in flash, nothing hidden between two runs."""

import re
import subprocess
from dataclasses import replace
from shutil import which

import numpy as np
import pytest
import sanitizers
from bit_exact import assert_bit_exact, assert_equals_tvm, input_arrays
from networks import mobilenet_v2
from relay_samples import Add, Conv, Dense, Pool, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import KIB, REFERENCE, SMALL, TuningSpace
from byoc_hw.demo import heldout, model_path
from byoc_hw.errors import PlanError

QUICK = byoc_hw.Toolchain(cflags="-O1")
RISCV = ["-march=rv32imc", "-mabi=ilp32", "-ffreestanding", "-Os", "-std=c11"]
FLAGS = [*sanitizers.FLAGS, "-fno-sanitize=shift"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The shipped network, offloaded and on the host alone, by name."""
    mod, params = byoc_hw.load_tflite(model_path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="one")
    directory = tmp_path_factory.mktemp("digits")
    return {
        "one": byoc_hw.build(partitioned, output_dir=directory / "one"),
        "two": byoc_hw.build(mod, params, mod_name="two", output_dir=directory / "two"),
    }


def mixed():
    """Convolutions, a softmax on the host, a sum with what was before it, pooling: regions around the host."""
    x = variable((1, 12, 12, 8))
    first = Conv(channels=8).expr(x)
    y = Conv(channels=8, seed=1).expr(first)
    host = relay.qnn.op.dequantize(y, const(0.1, "float32"), const(0, "int32"))
    host = relay.nn.softmax(host)
    host = relay.qnn.op.quantize(host, const(0.1, "float32"), const(0, "int32"), out_dtype="int8")
    return module(Pool("nn.max_pool2d").expr(Add().expr(Conv(channels=8, seed=2).expr(host), first)), x)


LAYERWISE = replace(REFERENCE, label="LAYERWISE", tuning=TuningSpace(longest_group=1, hold=False))
"""Every layer from main memory to main memory: what is between layers lies in the arena."""


# ---------------------------------------------------------------- the arena


@pytest.mark.parametrize("mlperf_model", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant"], indirect=True)
def test_mlperf_tiny_arenas_are_at_their_lower_bound(mlperf_model):
    mod, params = byoc_hw.load_tflite(mlperf_model)
    memory = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params)).memory
    assert memory.arena <= 1.02 * memory.lower_bound + 16  # what alignment costs
    assert memory.gap == 0
    assert memory.arena <= memory.tvm


@pytest.mark.slow
def test_a_region_between_host_operators_shares_the_arena_with_them():
    project = assert_bit_exact(mixed(), accelerator=LAYERWISE)
    memory = project.memory
    assert memory.gap == 0
    assert memory.arena < memory.tvm
    assert sum(memory.owners.values()) == memory.lower_bound
    assert f"arena (lower bound {memory.lower_bound}, gap at most 0, TVM's planner {memory.tvm})" in str(memory)
    assert memory.peak


def test_blocks_of_the_memory_map_lie_in_the_arena():
    memory = byoc_hw.build(byoc_hw.partition_for_hwlib(mixed(), accelerator=LAYERWISE)).memory
    assert max(offset + nbytes for _, offset, nbytes in memory.blocks.values()) == memory.arena
    assert {owner for owner, _, _ in memory.blocks.values()} >= {"tensor", "region scratch"}


def convolutions():
    x = variable((1, 12, 12, 8))
    return module(Conv(channels=8, seed=1).expr(Conv(channels=8).expr(Conv(channels=8, seed=2).expr(x))), x)


@pytest.mark.parametrize(
    ("sample", "limits", "message"),
    [
        (
            mixed,
            {"ram": 600},
            r"alive at once in tvmgen_default_fused_\w+ would have to shrink:\n +4608  host workspace: ",
        ),
        (convolutions, {"ram": 600}, r"alive at once in tvmgen_default_hwlib_main_0: .+:\n +1152  region scratch: "),
        (mixed, {"flash": 100}, r"flash is 100 bytes: \d+ bytes needed by .+ the largest:\n +\d+  tvmgen_default_h"),
    ],
)
def test_what_does_not_fit_is_named_by_layer(sample, limits, message):
    mod = byoc_hw.partition_for_hwlib(sample(), accelerator=replace(LAYERWISE, **limits))
    with pytest.raises(PlanError, match=message):
        byoc_hw.build(mod)


WIDE = replace(REFERENCE, label="WIDE", activation_memory=2048)
"""Little local memory: what is between layers goes to main memory, where that is the fastest."""


def wide(size=16):
    """A wide middle, which needs no main memory where layers take turns; and an operator on the host."""
    x, out, before = variable((1, size, size, 4)), None, 4
    for seed, filters in enumerate((24, 24, 4)):
        conv = Conv(height=size, width=size, channels=before, filters=filters, seed=seed)
        out = conv.expr(x if out is None else out)
        before = filters
    return module(relay.abs(relay.cast(out, "int32")), x)


@pytest.mark.slow
def test_ram_is_a_limit_of_the_search():
    fast = assert_bit_exact(wide(), accelerator=WIDE, count=1)
    assert "planned" not in str(fast.report)
    fitted = assert_bit_exact(wide(), accelerator=replace(WIDE, ram=fast.memory.arena - 1), count=1)
    assert fitted.memory.arena < fast.memory.arena
    assert fitted.schedule.cycles >= fast.schedule.cycles
    assert "(1 of 1 regions planned to fit RAM and flash)" in str(fitted.report)

    small = byoc_hw.build(byoc_hw.partition_for_hwlib(wide(), accelerator=WIDE), optimize="size")
    assert small.memory.arena <= fitted.memory.arena
    assert (small.memory.optimize, fitted.memory.optimize) == ("size", "speed")
    assert str(small.memory).endswith("planned for size")
    assert "(planned for size)" in str(small.report)

    # What is short is said of RAM and flash at once, with the sizes that have a plan.
    impossible = replace(WIDE, ram=small.memory.arena - 1, flash=100)
    with pytest.raises(PlanError) as error:
        byoc_hw.build(byoc_hw.partition_for_hwlib(wide(), accelerator=impossible))
    assert f"RAM is {impossible.ram} bytes: {small.memory.arena} bytes needed by the smallest plan" in str(error.value)
    assert "\nflash is 100 bytes: " in str(error.value)


@pytest.mark.slow
def test_ram_is_a_limit_on_a_chip():
    """On several accelerators, what is between layers is in main memory; on one it need not be."""
    chip = byoc_hw.Soc(tuple(replace(WIDE, name=name) for name in ("one", "two")))
    network = wide(8)
    fast = byoc_hw.build(byoc_hw.partition_for_hwlib(network, accelerator=chip))
    fitted = assert_bit_exact(network, accelerator=replace(chip, ram=fast.memory.arena - 1), count=1)
    assert fitted.memory.arena < fast.memory.arena
    assert fitted.schedule.cycles >= fast.schedule.cycles
    assert "(1 of 1 regions planned to fit RAM and flash)" in str(fitted.report)
    small = byoc_hw.build(byoc_hw.partition_for_hwlib(network, accelerator=chip), optimize="size")
    alone = byoc_hw.build(byoc_hw.partition_for_hwlib(network, accelerator=WIDE), optimize="size")
    assert small.memory.arena == alone.memory.arena
    impossible = replace(chip, ram=small.memory.arena - 1)
    with pytest.raises(PlanError, match=f"{small.memory.arena} bytes needed by the smallest plan"):
        byoc_hw.build(byoc_hw.partition_for_hwlib(network, accelerator=impossible))


@pytest.mark.slow
def test_flash_is_a_limit_of_the_search():
    """Plans with fewer copies and jobs have smaller tables."""
    fast = byoc_hw.build(byoc_hw.partition_for_hwlib(wide(), accelerator=WIDE))
    flash = fast.memory.flash_bytes
    fitted = assert_bit_exact(wide(), accelerator=replace(WIDE, flash=flash - 1), count=1)
    assert fitted.memory.flash_bytes < flash
    assert fitted.schedule.cycles >= fast.schedule.cycles


@pytest.mark.slow
def test_repr_is_one_line(digits):
    project = digits["one"]
    assert repr(project) == f"Project('{project.directory}')"
    flash = sum(project.memory.flash.values())
    assert repr(project.memory) == f"<Memory: arena 56 bytes (lower bound 50), flash {flash:,} bytes>"
    large = replace(project.memory, arena=10**9, lower_bound=10**9, flash={"host": 10**9})
    assert len(repr(large)) <= 100


# ---------------------------------------------------------------- inputs and outputs in the arena


def compile_and_run(tmp_path, projects, main, *options):
    """What a program around generated projects prints, under the sanitizers."""
    (tmp_path / "main.c").write_text(main)
    sources, includes = [tmp_path / "main.c"], []
    for project in projects:
        sources += sorted((project.directory / "src").glob("*.c"))
        includes.append(f"-I{project.directory / 'include'}")
    hwlib = next(project.directory / "hwlib" for project in projects if (project.directory / "hwlib").exists())
    sources += [*sorted((hwlib / "src").glob("*.c")), *sorted((hwlib / "sim").glob("*.c"))]
    includes += [f"-I{hwlib / 'include'}", f"-I{hwlib / 'sim'}"]
    program = tmp_path / "program"
    subprocess.run(
        ["gcc", *FLAGS, "-fno-strict-aliasing", *options, *includes, *sources, "-lm", "-o", program], check=True
    )
    return subprocess.run([program], check=True, capture_output=True).stdout


def c_bytes(array):
    return "{" + ", ".join(str(value) for value in array.ravel()) + "}"


def test_an_input_in_the_arena_keeps_the_model_files_name():
    mod, params = byoc_hw.load_tflite(model_path())
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params), io_in_arena=True)
    assert "input serving_default_image:0" in project.memory.blocks
    digits = heldout()
    assert project.run(digits.images[:1]).outputs[0].argmax() == digits.labels[0]


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", [REFERENCE, SMALL], ids=lambda preset: preset.label)
def test_inputs_and_outputs_may_lie_in_the_arena(tmp_path, accelerator):
    mod = byoc_hw.partition_for_hwlib(mixed(), mod_name="net", accelerator=accelerator)
    outside = byoc_hw.build(mod)
    inside = byoc_hw.build(mod, io_in_arena=True, output_dir=tmp_path / "net")
    (arrays, *_) = list(input_arrays(mixed(), 1))[2:]
    expected = outside.run(arrays, toolchain=QUICK).outputs[0]
    assert inside.memory.arena < outside.memory.arena + arrays[0].nbytes + expected.nbytes
    np.testing.assert_array_equal(inside.run(arrays, toolchain=QUICK).outputs[0], expected)
    header = (inside.directory / "include/net.h").read_text()
    first, output = (
        re.search(r"net_input_\w+(?=\(void\))", header)[0],
        re.search(r"net_output_\w+(?=\(void\))", header)[0],
    )
    main = f"""#include <stdio.h>
#include <string.h>
#include "net.h"
static const int8_t data[] = {c_bytes(arrays[0])};
int main(void) {{
  for (int run = 0; run < 2; ++run) {{
    struct net_inputs in = {{{first}()}};
    struct net_outputs out = {{{output}()}};
    memcpy({first}(), data, sizeof data);
    if (net_run(&in, &out) != 0) return 1;
    fwrite({output}(), {expected.nbytes}, 1, stdout);
  }}
  return 0;
}}
"""
    printed = compile_and_run(tmp_path, [inside], main)
    np.testing.assert_array_equal(np.frombuffer(printed, np.int8), np.tile(expected.ravel(), 2))


def test_ends_inside_a_word_of_the_dma_may_lie_in_the_arena():
    """A copy writes whole words: nothing beside the output may be behind its end."""
    x = variable((1, 3, 3, 5))
    mod = module(Dense(45, 1).expr(relay.reshape(x, (1, 45))), x)
    partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=replace(REFERENCE, dma_alignment=8))
    project = byoc_hw.build(partitioned, io_in_arena=True)
    assert_equals_tvm(project, partitioned, mod, list(input_arrays(mod, 1)), sanitizers.SANITIZED)


# ---------------------------------------------------------------- nothing hidden


@pytest.mark.slow
def test_a_run_after_one_that_failed_anywhere_gives_the_same_result(tmp_path, digits):
    image = heldout().images[3]
    expected = digits["one"].run(image[None], toolchain=QUICK).outputs[0]
    main = f"""#include <stdio.h>
#include "one.h"
#include "hwlib_hal.h"
static const int8_t image[] = {c_bytes(image)};
static int8_t result[10];
static unsigned long calls, fails_at;
hwlib_status_t __real_hwlib_hal_copy_wait(hwlib_token_t token);
hwlib_status_t __wrap_hwlib_hal_copy_wait(hwlib_token_t token);
hwlib_status_t __wrap_hwlib_hal_copy_wait(hwlib_token_t token) {{
  hwlib_status_t status = __real_hwlib_hal_copy_wait(token);
  return ++calls == fails_at ? 77 : status;
}}
static int run(unsigned long at) {{
  const struct one_inputs in = {{image}};
  const struct one_outputs out = {{result}};
  for (int i = 0; i < 10; ++i) result[i] = 0;
  calls = 0;
  fails_at = at;
  return (int)one_run(&in, &out);
}}
int main(void) {{
  if (run(0) != 0) return 1;
  unsigned long all = calls;
  for (unsigned long at = 1; at <= all; at += 2) {{
    if (ONE_RESULT_STATUS(run(at)) != 77) return 2;
    if (run(0) != 0) return 3;
    fwrite(result, sizeof result, 1, stdout);
  }}
  return 0;
}}
"""
    printed = compile_and_run(tmp_path, [digits["one"]], main, "-Wl,--wrap=hwlib_hal_copy_wait")
    results = np.frombuffer(printed, np.int8).reshape(-1, 10)
    assert len(results) > 3
    np.testing.assert_array_equal(results, np.tile(expected, (len(results), 1)))


@pytest.mark.slow
def test_two_models_share_one_arena(tmp_path, digits):
    image = heldout().images[5]
    expected = [project.run(image[None], toolchain=QUICK).outputs[0] for project in digits.values()]
    calls = "".join(
        f"""
  const struct {name}_inputs in_{name} = {{image}};
  const struct {name}_outputs out_{name} = {{result}};
  for (int run = 0; run < 2; ++run) {{
    if ({name}_run(&in_{name}, &out_{name}) != 0) return 1;
    fwrite(result, sizeof result, 1, stdout);
    for (unsigned i = 0; i < sizeof shared; ++i) shared[i] = 0xa5;
  }}
"""
        for name in digits
    )
    main = f"""#include <stdio.h>
#include "one.h"
#include "two.h"
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
uint8_t shared[LARGER(ONE_ARENA_SIZE, TWO_ARENA_SIZE)] __attribute__((aligned(16)));
static const int8_t image[] = {c_bytes(image)};
static int8_t result[10];
int main(void) {{
  {calls}
  return 0;
}}
"""
    printed = compile_and_run(tmp_path, digits.values(), main, "-DONE_ARENA=shared", "-DTWO_ARENA=shared")
    found = np.frombuffer(printed, expected[0].dtype)
    np.testing.assert_array_equal(found, np.concatenate([np.tile(one.ravel(), 2) for one in expected]))


# ---------------------------------------------------------------- flash


@pytest.mark.slow
def test_host_weights_are_not_widened_in_flash(digits):
    _, params = byoc_hw.load_tflite(model_path())
    weights = sum(array.numpy().size for array in params.values() if array.dtype == "int8")
    channels = sum(array.numpy().size for array in params.values() if array.dtype == "int32")
    assert digits["two"].memory.flash["host"] <= weights + 16 * channels
    source = (digits["two"].directory / "src/two_host.c").read_text()
    assert all(int(extent) <= 64 for extent in re.findall(r"static const int(?:16|32)_t [^[]*\[(\d+)\]", source))


# The cross compiler may come without a C library: to compile, what the sources use of these is enough.
STUBS = {
    "math.h": """
float expf(float), roundf(float), floorf(float), rintf(float);
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define isnan __builtin_isnan
#define isinf __builtin_isinf
""",
    "string.h": """
#include <stddef.h>
void *memset(void *, int, size_t);
void *memcpy(void *, const void *, size_t);
""",
}


def sections(directory, sources, includes):
    """Bytes of constants, of initialized and of other data in the objects for a 32-bit RISC-V."""
    stubs = directory / "stubs"
    stubs.mkdir()
    for name, text in STUBS.items():
        (stubs / name).write_text(text)
    totals = {"rodata": 0, "data": 0, "bss": 0}
    for index, source in enumerate(sources):
        target = directory / f"{index}.o"
        folders = [f"-I{folder}" for folder in (*includes, stubs)]
        command = ["riscv64-unknown-elf-gcc", *RISCV, "-fno-strict-aliasing", *folders, "-c", source, "-o", target]
        subprocess.run(command, check=True)
        command = ["riscv64-unknown-elf-size", "-A", target]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for kind, size in re.findall(r"^\.s?(rodata|data|bss)\S*\s+(\d+)", listed, re.M):
            totals[kind] += int(size)
    return totals


def assert_constants_in_flash(project, directory):
    root = project.directory
    sources = [*sorted((root / "src").glob("*.c")), *sorted((root / "hwlib/src").glob("*.c"))]
    totals = sections(directory, sources, [root / "include", root / "src", root / "hwlib/include"])
    assert totals["data"] == 0
    taken = "uint8_t hwlib_taken __attribute__((weak));"  # a byte: whether an inference in steps has the accelerator
    assert totals["bss"] == project.memory.arena + sum(taken in source.read_text("utf-8") for source in sources)
    assert totals["rodata"] >= project.memory.flash_bytes


@pytest.mark.skipif(which("riscv64-unknown-elf-gcc") is None, reason="install gcc-riscv64-unknown-elf")
@pytest.mark.parametrize("name", ["one", "two"])
def test_constants_lie_in_flash_and_ram_holds_the_arena_alone(tmp_path, digits, name):
    assert_constants_in_flash(digits[name], tmp_path)


@pytest.mark.skipif(which("riscv64-unknown-elf-gcc") is None, reason="install gcc-riscv64-unknown-elf")
@pytest.mark.parametrize("mlperf_model", ["pretrainedResnet_quant"], indirect=True)
def test_constants_of_a_larger_model_lie_in_flash(tmp_path, mlperf_model):
    mod, params = byoc_hw.load_tflite(mlperf_model)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, mod_name="net"))
    assert_constants_in_flash(project, tmp_path)


@pytest.mark.slow
def test_mobilenet_v2_at_224_fits_32_kib_and_is_exact():
    """Of 1.2 MiB between the layers of its first blocks what stripes share is in main memory."""
    project = assert_bit_exact(mobilenet_v2(), accelerator=replace(REFERENCE, flash=1 << 22, ram=32 * KIB), count=1)
    assert project.memory.arena <= 32 * KIB
