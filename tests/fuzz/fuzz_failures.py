"""HAL calls that fail, in random networks: the status arrives, nothing is in flight, the next inference is right."""

from __future__ import annotations

import subprocess

import numpy as np
from bit_exact import input_arrays
from fuzz_case import Case, Finding
from fuzz_networks import accelerator, networks

import byoc_hw

CALLS = 60
"""Calls of a model that fail, one after another; the first, the last and others between them."""

_WRAPPED = {
    "init": ("void", ""),
    "copy_1d": ("hwlib_place_t a, hwlib_place_t b, uint32_t c, hwlib_token_t *d", "a, b, c, d"),
    "copy_2d": (
        "hwlib_place_t a, uint32_t b, hwlib_place_t c, uint32_t d, uint32_t e, uint32_t f, hwlib_token_t *g",
        "a, b, c, d, e, f, g",
    ),
    "copy_wait": ("hwlib_token_t a", "a"),
    "job_start": ("const hwlib_job_t *a, hwlib_token_t *b", "a, b"),
    "job_wait": ("hwlib_token_t a", "a"),
}

_DRIVER = """\
#include "default.h"
#include "hwlib_sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long calls, failing;
static hwlib_status_t status;

/* Each call of the HAL is counted, and the one whose turn it is fails before it does anything. */
#define WRAP(name, parameters, arguments) \\
  hwlib_status_t __real_hwlib_hal_##name parameters; \\
  hwlib_status_t __wrap_hwlib_hal_##name parameters \\
  { \\
    return ++calls == failing ? status : __real_hwlib_hal_##name arguments; \\
  }
%(wraps)s

static const size_t input_bytes[] = {%(input_bytes)s 0}, output_bytes[] = {%(output_bytes)s 0};
enum { INPUTS = %(inputs)d, OUTPUTS = %(outputs)d };
static void *inputs[INPUTS], *outputs[OUTPUTS], *right[OUTPUTS];

static int32_t run(void)
{
  calls = 0;
  return default_run((const struct default_inputs *)(void *)inputs, (const struct default_outputs *)(void *)outputs);
}

static int differs(void)
{
  for (int at = 0; at < OUTPUTS; ++at) {
    if (memcmp(outputs[at], right[at], output_bytes[at]) != 0) {
      return 1;
    }
  }
  return 0;
}

int main(int count, char **arguments)
{
  FILE *file = fopen(arguments[1], "rb");
  for (int at = 0; at < INPUTS; ++at) {
    inputs[at] = aligned_alloc(64, (input_bytes[at] + 63) / 64 * 64);
    if (fread(inputs[at], 1, input_bytes[at], file) != input_bytes[at]) {
      return 2;
    }
  }
  for (int at = 0; at < OUTPUTS; ++at) {
    outputs[at] = aligned_alloc(64, (output_bytes[at] + 63) / 64 * 64);
    right[at] = malloc(output_bytes[at]);
  }
  if (run() != 0) {
    return 3;
  }
  for (int at = 0; at < OUTPUTS; ++at) {
    memcpy(right[at], outputs[at], output_bytes[at]);
    fwrite(right[at], 1, output_bytes[at], stdout);
  }
  long total = calls, wanted = atol(arguments[2]);
  long step = total / wanted + 1;
  for (long at = 1; at <= total; at += step) {
    failing = at;
    status = (hwlib_status_t)(1 + at %% 8);
    int32_t result = run();
    unsigned in_flight = hwlib_sim_in_flight();
    failing = 0;
    for (int output = 0; output < OUTPUTS; ++output) {
      memset(outputs[output], 0x55, output_bytes[output]);
    }
    int32_t again = run();
    if (DEFAULT_RESULT_STATUS(result) != status || in_flight != 0 || again != 0 || differs()) {
      fprintf(stderr, "call %%ld of %%ld: status %%d for %%d, %%u in flight; then %%d, %%s\\n", at, total,
              (int)DEFAULT_RESULT_STATUS(result), (int)status, in_flight, (int)again, differs() ? "wrong" : "right");
      return DEFAULT_RESULT_STATUS(result) != status ? 10 : in_flight != 0 ? 11 : 12;
    }
  }
  fprintf(stderr, "%%ld\\n", (total + step - 1) / step);
  return count > 3;
}
"""
_WRONG = {10: "another status", 11: "work in flight after the return", 12: "the next inference is wrong"}


def run(case: Case) -> None:
    hardware = accelerator(case.rng)
    made = networks(case.rng, case.rng.randint(1, 2), ["NHWC"])
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(made.mod, accelerator=hardware))
    if not (project.directory / "hwlib").exists():  # all of it on the host
        case.tally["refused"] += 1
        return
    (arrays,) = list(input_arrays(made.mod, 1, seed=case.seed))[2:]
    inputs = case.directory / "inputs"
    inputs.write_bytes(b"".join(array.tobytes() for array in arrays))
    wanted = made.expected(arrays)
    program = _program(case, project, arrays, wanted)
    done = subprocess.run([program, inputs, str(CALLS)], capture_output=True, timeout=60, check=False)
    said = done.stderr.decode()
    if done.returncode in _WRONG:
        raise Finding("failing HAL", _WRONG[done.returncode], f"{said}\n{hardware!r}\n{made.mod}")
    if done.returncode != 0:
        raise Finding("failing HAL", f"the program ended with {done.returncode}", f"{said}\n{hardware!r}\n{made.mod}")
    if done.stdout != b"".join(np.ascontiguousarray(array).tobytes() for array in wanted):
        raise Finding("wrong bits", "a network", f"{hardware!r}\n{made.mod}")
    case.tally["exact"] += int(said)


def _program(case: Case, project: byoc_hw.Project, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    driver = case.directory / "driver.c"
    driver.write_text(
        _DRIVER
        % {
            "wraps": "\n".join(f"WRAP({name}, ({own}), ({passed}))" for name, (own, passed) in _WRAPPED.items()),
            "input_bytes": "".join(f"{array.nbytes}, " for array in inputs),
            "output_bytes": "".join(f"{array.nbytes}, " for array in outputs),
            "inputs": len(inputs),
            "outputs": len(outputs),
        }
    )
    root = project.directory
    sources = [driver, *(file for folder in ("src", "hwlib/src", "hwlib/sim") for file in (root / folder).glob("*.c"))]
    program = str(case.directory / "program")
    flags = ["-std=c11", "-O0", "-w", "-fno-strict-aliasing", "-ffp-contract=off", "-DHWLIB_SIM"]
    folders = [f"-I{root / folder}" for folder in ("include", "src", "hwlib/include", "hwlib/sim")]
    wraps = [f"-Wl,--wrap=hwlib_hal_{name}" for name in _WRAPPED]
    subprocess.run(["gcc", *flags, *folders, *sources, *wraps, "-lm", "-o", program], check=True, capture_output=True)
    return program
