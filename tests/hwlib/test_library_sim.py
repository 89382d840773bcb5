"""The HALs of a vendor's library on a chip, alone: what they refuse, and how the simulated one keeps time."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import sanitizers
from hwlib_simulator import HWLIB, STRICT, run_gcc

from byoc_hw.accelerator import REFERENCE
from byoc_hw.hwlib.library_header import library_header, library_sim_config
from byoc_hw.library_calls import Library

VENDOR = """
#include <stdint.h>
static uint32_t started, ended;
static int32_t answer;
static inline int32_t vendor_start(uint32_t *token) { return answer == 3 ? 3 : (*token = ++started, 0); }
static inline int32_t vendor_wait(uint32_t token) { ended = token; return answer; }
static inline int32_t vendor_done(uint32_t token, uint8_t *done) { *done = token <= ended; return 0; }
"""

DRIVER = """
#include "hwlib_library.h"
#include "hwlib_lanes.h"
#include {source}
#include <stdio.h>
static int8_t bytes[8];
static hwlib_place_t place = {{HWLIB_MAIN, 0}};
static const hwlib_operand_t operands[] = {{{{&place, 0, 8, 1}}}};
static const hwlib_whole_layer_t layer = {{{{.id = 3}}, vendor_start, operands, 1, 10, 0}};
static const hwlib_tile_t tile;
static hwlib_token_t token;
static uint8_t done;
#define SAY(...) printf(__VA_ARGS__)
#define START() hwlib_hal_job_start(&(const hwlib_job_t){{&layer.layer, 0}}, &token)
int main(void)
{{
  place.address = (uintptr_t)bytes;
  {body}
  return 0;
}}
"""


def said(tmp_path: Path, body: str, source: str = "sim/library/library_sim.c") -> list[str]:
    """What a program prints that drives one of the two."""
    library = Library(Path("vendor.h"), (), {}, wait="vendor_wait", done="vendor_done")
    (tmp_path / "vendor.h").write_text(VENDOR)
    (tmp_path / "hwlib_library.h").write_text(library_header(library))
    (tmp_path / "hwlib_sim_config.h").write_text(library_sim_config(replace(REFERENCE, queue=2)))
    (tmp_path / "main.c").write_text(DRIVER.format(source=f'"{HWLIB / source}"', body=body))
    folders = [f"-I{folder}" for folder in (tmp_path, HWLIB / "include", HWLIB / "sim")]
    sources = [tmp_path / "main.c", HWLIB / "sim" / "sim_clock.c", HWLIB / "sim" / "sim_fault.c"]
    quiet = ["-Wno-unused-variable", "-Wno-unused-function"]
    run_gcc(*STRICT, *sanitizers.FLAGS, *quiet, *folders, *sources, "-o", tmp_path / "main")
    return subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split("; ")


REFUSED = {
    "a token that was not given": ("hwlib_hal_job_wait(1)", "6 call: token 1 was not given since the last init"),
    "a token from before the last init": (
        "(START(), hwlib_hal_init(), hwlib_hal_copy_done(token, &done))",
        "6 call: token 1 was not given since the last init",
    ),
    "a token twice": (
        "(START(), hwlib_hal_copy_wait(token), hwlib_hal_job_wait(token))",
        "6 call: token 1 was waited for before",
    ),
    "a tile": (
        "hwlib_hal_job_start(&(const hwlib_job_t){&layer.layer, &tile}, &token)",
        "7 job: a library has whole layers, without tiles",
    ),
    "a copy": ("hwlib_hal_copy_1d(place, place, 8, &token)", "7 copy: a library has none"),
    "a start that fails": ("(answer = 3, START())", "8 call: the library returned 3"),
    "a wait that fails": ("(answer = 5, START())", "8 call: the library returned 5"),
}


@pytest.mark.parametrize(("call", "expected"), REFUSED.values(), ids=REFUSED)
def test_the_simulator_says_what_it_refuses(tmp_path: Path, call: str, expected: str):
    body = f'int status = {call}; SAY("%d %s", status, hwlib_sim_fault());'
    assert said(tmp_path, body) == [expected]


def test_calls_follow_each_other_and_a_full_queue_holds_the_core(tmp_path: Path):
    body = """
      hwlib_hal_mark(3);
      for (int i = 0; i < 3; ++i) {
        START();
        SAY("%u %u %u; ", (unsigned)sim_clock.host[0], (unsigned)hwlib_sim_cycles(), (unsigned)hwlib_sim_in_flight());
      }
      hwlib_hal_job_done(2, &done);
      SAY("%u; ", done);
      hwlib_hal_idle();
      hwlib_hal_job_done(2, &done);
      SAY("%u %u; ", done, (unsigned)hwlib_sim_in_flight());
      SAY("%u", (unsigned)hwlib_sim_layer_cycles(3));
    """
    assert said(tmp_path, body) == ["0 10 1", "0 20 2", "10 30 2", "0", "1 1", "30"]


def test_the_hal_waits_for_what_is_in_flight_before_a_new_start(tmp_path: Path):
    body = """
      START(); START();
      hwlib_hal_init();
      SAY("%u; ", (unsigned)ended);
      ended = 0;
      hwlib_hal_init();
      SAY("%u; ", (unsigned)ended);
      START();
      hwlib_hal_job_wait(token);
      ended = 0;
      hwlib_hal_init();
      SAY("%u", (unsigned)ended);
    """
    assert said(tmp_path, body, "library/library_hal.c") == ["2", "0", "0"]


def test_the_hal_refuses_copies_and_tiles_and_hands_failures_on(tmp_path: Path):
    calls = [
        "hwlib_hal_copy_1d(place, place, 8, &token)",
        "hwlib_hal_job_start(&(const hwlib_job_t){&layer.layer, &tile}, &token)",
        "(answer = 3, START())",
        "(answer = 0, START(), answer = 5, hwlib_hal_copy_wait(token))",
        "hwlib_hal_copy_wait(0)",
        "(done = 0, hwlib_hal_job_done(0, &done) * 10 + done)",
    ]
    body = "".join(f'SAY("%d{"; " if call is not calls[-1] else ""}", (int){call});' for call in calls)
    assert said(tmp_path, body, "library/library_hal.c") == ["7", "7", "8", "8", "0", "1"]
