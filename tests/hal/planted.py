"""Faults that are planted in a copy of the template HAL, each as one or a few changes of its text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HAL, JOBS = "chip_hal.c", "chip_jobs.c"

_COPY = """\
  for (uint32_t row = 0; row < rows; ++row) {
    memcpy(bytes_at(target) + (size_t)row * target_stride, bytes_at(source) + (size_t)row * source_stride, bytes);
  }
"""
_INIT = "hwlib_status_t hwlib_hal_init(void) { return HWLIB_OK; }"
COPY_WAIT = "hwlib_status_t hwlib_hal_copy_wait(hwlib_token_t token)\n{\n"
_JOB_WAIT = "hwlib_status_t hwlib_hal_job_wait(hwlib_token_t token)\n{\n"

# A DMA engine and an array that end what was started only when `end_copy` or `end_job` is called.
_LATE = """\
static struct {
  hwlib_place_t target, source;
  uint32_t target_stride, source_stride, bytes, rows;
} late;
static hwlib_job_t late_job;

static void end_copy(void)
{
  for (uint32_t row = 0; row < late.rows; ++row) {
    memcpy(bytes_at(late.target) + (size_t)row * late.target_stride,
           bytes_at(late.source) + (size_t)row * late.source_stride, late.bytes);
  }
  late.rows = 0;
}

static void end_job(void)
{
  if (late_job.layer != NULL) {
    chip_run(&late_job);
  }
  late_job.layer = NULL;
}

hwlib_status_t hwlib_hal_init(void)
{
  end_copy();
  end_job();
  return HWLIB_OK;
}
"""
_NOW_LATER = """\
  end_copy();
  late.target = target;
  late.source = source;
  late.target_stride = target_stride;
  late.source_stride = source_stride;
  late.bytes = bytes;
  late.rows = rows;
"""
_LATE_COPIES = ((HAL, _INIT, _LATE), (HAL, _COPY, _NOW_LATER))
_LATE_JOBS = ((HAL, _INIT, _LATE), (HAL, "  chip_run(job);\n", "  end_job();\n  late_job = *job;\n"))


@dataclass(frozen=True)
class Fault:
    """What is changed, and what the kit says: the function, and the check or how its line goes on."""

    changes: tuple[tuple[str, str, str], ...]
    function: str
    what: str

    def plant(self, hal: Path) -> None:
        """Change the files of the HAL."""
        for file, before, after in self.changes:
            text = (hal / file).read_text()
            assert text.count(before) == 1, f"{before!r} is once in {file}"
            (hal / file).write_text(text.replace(before, after))


def _one(file: str, before: str, after: str, function: str, what: str) -> Fault:
    return Fault(((file, before, after),), f"hwlib_hal_{function}", what)


def _job(before: str, after: str, what: str) -> Fault:
    return _one(JOBS, before, after, "job_start", what)


WAITS = {
    "an init that lets a copy go on": Fault(
        (
            (HAL, _INIT, _LATE.replace("  end_copy();\n  end_job();\n  return", "  end_job();\n  return")),
            (HAL, _COPY, _NOW_LATER),
            (HAL, COPY_WAIT, f"{COPY_WAIT}  end_copy();\n"),
        ),
        "hwlib_hal_init",
        "with copies in flight: none of them writes afterwards",
    ),
    "an init that lets a job go on": Fault(
        (
            (HAL, _INIT, _LATE.replace("  end_copy();\n  end_job();\n  return", "  end_copy();\n  return")),
            (HAL, "  chip_run(job);\n", "  end_job();\n  late_job = *job;\n"),
            (HAL, _JOB_WAIT, f"{_JOB_WAIT}  end_job();\n"),
        ),
        "hwlib_hal_init",
        "with a job in flight: it does not write afterwards",
    ),
    "a wait for copies that does not wait": Fault(
        _LATE_COPIES, "hwlib_hal_copy_wait", "in the order of the starts: too early, copy 7"
    ),
    "a wait for copies that waits for those outwards only": Fault(
        (*_LATE_COPIES, (HAL, COPY_WAIT, f"{COPY_WAIT}  if (late.target.memory == HWLIB_MAIN) {{ end_copy(); }}\n")),
        "hwlib_hal_copy_wait",
        "after the wait, the source in main memory may change",
    ),
    "a wait for jobs that does not wait": Fault(_LATE_JOBS, "hwlib_hal_job_wait", ""),
    "a counter of cycles that goes backwards": _one(HAL, "++cycles", "--cycles", "cycles", "never goes backwards"),
}

_LATE_LAYER = """\
static const hwlib_whole_layer_t *late_layer;

hwlib_status_t hwlib_hal_init(void)
{
  if (late_layer != NULL) {
    (void)hwlib_whole_layer(late_layer);
  }
  late_layer = NULL;
  return HWLIB_OK;
}
"""
_RUN_WHOLE = "  return hwlib_whole_layer(layer);\n"


def _whole(instead: str, what: str) -> Fault:
    return _one(HAL, _RUN_WHOLE, f"{instead}  return HWLIB_OK;\n", "job_start", what)


WHOLE = {
    "no whole layer": _whole("  (void)layer;\n", "order of int8, the first of each row, rising: byte"),
    "all are gathers": _whole(
        "  hwlib_whole_layer_t own = *layer;\n  own.layer.kind = HWLIB_GATHER;\n"
        "  if (layer->layer.kind != HWLIB_ORDER) {\n    return hwlib_whole_layer(&own);\n  }\n"
        "  (void)hwlib_whole_layer(layer);\n",
        "suppression, any number is kept: byte",
    ),
    "writes behind its output": _whole(
        "  (void)hwlib_whole_layer(layer);\n"
        "  ((uint8_t *)hwlib_operand_address(layer->operands))[layer->operands->bytes] = 0;\n",
        "order of int8, the first of each row, rising: byte",
    ),
    "no descending order": _whole(
        "  int32_t numbers[16];\n  hwlib_whole_layer_t own = *layer;\n"
        "  memcpy(numbers, layer->numbers, (layer->layer.kind == HWLIB_ORDER ? 5 : 11) * sizeof numbers[0]);\n"
        "  numbers[5] = layer->layer.kind == HWLIB_ORDER ? 0 : numbers[5];\n  own.numbers = numbers;\n"
        "  (void)hwlib_whole_layer(&own);\n",
        "order of int8, the first of each row, falling: byte",
    ),
    "a wait for whole layers that does not wait": Fault(
        ((HAL, _INIT, _LATE_LAYER), (HAL, _RUN_WHOLE, "  late_layer = layer;\n  return HWLIB_OK;\n")),
        "hwlib_hal_job_wait",
        "order of int8, the first of each row, rising: too early, byte",
    ),
}
"""Of layers without tiles."""

_MARK = "void hwlib_hal_mark(uint16_t layer) { (void)layer; }\n"
_QUESTIONS = """\

hwlib_status_t hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done)
{
  *done = asked_copy == token;
  asked_copy = token;
  if (*done) {
    end_copy();
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_job_done(hwlib_token_t token, uint8_t *done)
{
  *done = asked_job == token;
  asked_job = token;
  if (*done) {
    end_job();
  }
  return HWLIB_OK;
}

void hwlib_hal_idle(void) {}
"""

LATE_AND_ASKED = (
    (HAL, _INIT, f"static hwlib_token_t asked_copy, asked_job;\n{_LATE}"),
    (HAL, _COPY, _NOW_LATER),
    (HAL, COPY_WAIT, f"{COPY_WAIT}  end_copy();\n"),
    (HAL, "  chip_run(job);\n", "  end_job();\n  late_job = *job;\n"),
    (HAL, _JOB_WAIT, f"{_JOB_WAIT}  end_job();\n"),
    (HAL, _MARK, _MARK + _QUESTIONS),
)
"""A HAL whose copies and jobs end when they are asked for the second time."""


def _asked(before: str, after: str, function: str, what: str) -> Fault:
    return Fault((*LATE_AND_ASKED, (HAL, before, after)), f"hwlib_hal_{function}", what)


NEVER_IDLE = _asked("hwlib_hal_idle(void) {", "hwlib_hal_idle(void) { for (volatile int on = 1; on;) { }", "idle", "")
QUESTIONS = {
    "a copy that is not done": _asked(
        "*done = asked_copy == token;",
        "*done = 1;\n  return 0;",
        "copy_done",
        "in the order of the starts: too early, copy 7",
    ),
    "an answer that is neither yes nor no": _asked(
        "*done = asked_copy == token;", "*done = asked_copy == token ? 4 : 0;", "copy_done", "*done: expected 1 got 4"
    ),
    "no answer": _asked("*done = asked_copy == token;", "if (token == 0)", "copy_done", "*done: expected 1 got 165"),
    "a copy that is never done": _asked("*done = asked_copy == token;", "*done = 0;", "copy_done", "never done"),
    "a copy that fails when it was asked for": _asked(
        f"{COPY_WAIT}  end_copy();\n  (void)token;",
        f"{COPY_WAIT}  end_copy();\n  if (token == asked_copy) {{ return HWLIB_ERROR_TOKEN; }}",
        "copy_done",
        "a copy that was not done can be waited for: status: expected 0 got 6",
    ),
    "copies that take room until they are waited for": Fault(
        (
            *LATE_AND_ASKED,
            (HAL, f"{COPY_WAIT}  end_copy();", f"{COPY_WAIT}  end_copy();\n  taken = 0;"),
            (HAL, "asked_copy, asked_job;", "asked_copy, asked_job, taken;"),
            (HAL, "  end_copy();\n  end_job();\n  return", "  end_copy();\n  end_job();\n  taken = 0;\n  return"),
            (HAL, "  end_copy();\n  late.target", "  if (++taken > 1000) { return 8; }\n  end_copy();\n  late.target"),
        ),
        "hwlib_hal_copy_done",
        "thousands of copies that were done and never waited for: status: expected 0 got 8",
    ),
    "a job that is not done": _asked("*done = asked_job == token;", "*done = 1;\n  return 0;", "job_done", ""),
    "a job that is never done": _asked("*done = asked_job == token;", "*done = 0;", "job_done", "never done"),
    "an idle core that gives up a copy": _asked(
        "hwlib_hal_idle(void) {", "hwlib_hal_idle(void) { late.rows = 0;", "idle", "does not disturb them"
    ),
}

COPIES = {
    "one byte too many of each row": _one(
        HAL, "source_stride, bytes);", "source_stride, bytes + (rows > 1));", "copy_2d", ": main memory to local"
    ),
    "half of local activations": _one(
        HAL,
        "chip_activations + place.address",
        "chip_activations + place.address % (CHIP_ACTIVATION_MEMORY / 2)",
        "copy_1d",
        "local activations, every byte in, then every byte out",
    ),
    "rows of the source taken as dense": _one(
        HAL, "(size_t)row * source_stride", "(size_t)row * bytes", "copy_2d", "rows that lie apart in local memory"
    ),
    "a source stride of 12 bits": _one(
        HAL,
        "(size_t)row * source_stride",
        "(size_t)row * (source_stride & 0xfff)",
        "copy_2d",
        "rows that lie far apart",
    ),
    "a target stride of 16 bits": _one(
        HAL,
        "(size_t)row * target_stride",
        "(size_t)row * (uint16_t)target_stride",
        "copy_2d",
        "rows that lie far apart",
    ),
    "a counter of rows of 8 bits": _one(HAL, "row < rows", "row < (rows & 0xff)", "copy_2d", "many rows"),
    "a counter of rows of 16 bits": _one(HAL, "row < rows", "row < (rows & 0xffff)", "copy_2d", "many rows"),
    "a length of 16 bits": _one(
        HAL, "source, 0, bytes, 1, token", "source, 0, bytes & 0xffff, 1, token", "copy_1d", "many bytes"
    ),
    "a token of 0": _one(HAL, "*token = tokens;", "*token = 0;", "copy_1d", "thousands of tokens"),
    "a token that is 0 after 256": _one(
        HAL, "*token = tokens;", "*token = tokens & 0xff;", "copy_1d", "thousands of tokens"
    ),
    "a token of 16 bits": _one(HAL, "*token = tokens;", "*token = tokens & 0xffff;", "copy_1d", "thousands of tokens"),
    "two copies of one token": _one(HAL, "*token = tokens;", "*token = tokens | 1;", "copy_1d", "thousands of tokens"),
}

_SUMS = "  int8_t *psum = chip_activations + tile->psum;"
JOBS_OF_REFERENCE = {
    "rows that never overlap": _job(
        "+ row * tile->ifm_row +",
        "+ row * (tile->ifm_row < tile->ifm_w * tile->ifm_pixel ? tile->ifm_w * tile->ifm_pixel : tile->ifm_row) +",
        "conv2d, upward, rows that overlap",
    ),
    "padding that reads as 0": _job(
        "ifm == NULL ? layer->ifm_zero_point", "ifm == NULL ? 0", "conv2d, upward, the most padding"
    ),
    "halves rounded down": _job("(product + half) >>", "(product + half - 1) >>", "add, upward, rounding of halves"),
    "no act_min": _job("value < low ? low", "value < low ? INT8_MIN", "dense, tflite, act_min"),
    "sums that are lost": _job(
        "memcpy(&sum, psum, sizeof sum);", "sum = 0;", "dense, upward, slices of channels: first, middle, last"
    ),
    "a job over the layer's kernel": _job(
        "fx < tile->kernel_w", "fx < layer->kernel_w", "conv2d, upward, parts of a kernel: first, middle, last"
    ),
    "depthwise sums that start anew": _job(
        "if (first) {", "if (first || depthwise) {", "depthwise_conv2d, tflite, parts of a kernel: first, middle, last"
    ),
    "nibbles swapped": _job(
        "place = index % in_byte;",
        "place = bits == 4 ? 1 - index % 2 : index % in_byte;",
        "conv2d, upward, weights of 4 bits",
    ),
    "narrow weights of later slices, channel upon channel": _job(
        "layer->weight_bits + 7) / 8",
        "layer->weight_bits + (first ? 7u : 0u)) / 8",
        "conv2d, upward, slices of channels, weights of 4 bits: first, middle, last",
    ),
    "narrow weights of later parts, channel upon channel": _job(
        "layer->weight_bits + 7) / 8",
        "layer->weight_bits + (first ? 7u : 0u)) / 8",
        "depthwise_conv2d, upward, parts of a kernel, weights of 2 bits: first, middle, last",
    ),
    "no weight zero point": _job(" - layer->weight_zero_point", "", "conv2d, upward, zero points at the lower rail"),
    "depthwise with the parameters of channel 0": _job(
        "tile->params + k *",
        "tile->params + (depthwise ? 0 : k) *",
        "depthwise_conv2d, upward, 1 x 1 over many channels",
    ),
    "one stride for both ways": _job(
        "x * layer->stride_w + fx * layer->dilation_w);",
        "x * layer->stride_h + fx * layer->dilation_w);",
        "conv2d, upward, every stride across",
    ),
    "one dilation for both ways": _job(
        "fx * layer->dilation_w", "fx * layer->dilation_h", "conv2d, upward, every dilation across"
    ),
    "only the first vector of a dense layer": _job(
        "x * layer->stride_w + fx * layer->dilation_w);",
        "(layer->layer.kind == HWLIB_DENSE ? 0 : x * layer->stride_w) + fx * layer->dilation_w);",
        "dense, upward, 1 x 1 over many channels",
    ),
    "an average of padding only is no 0": _job(
        ": count == 0 ? 1 : count;",
        ": count == 0 ? (sum = 9) : count;",
        "pool2d, average, upward, padding wider than the kernel",
    ),
    "half of local weights, for weights": _job(
        "chip_weights + tile->weights",
        "chip_weights + tile->weights % (CHIP_WEIGHT_MEMORY / 2)",
        "conv2d, upward, every address bit of weights",
    ),
    "half of local weights, for parameters": _job(
        "chip_weights + tile->params",
        "chip_weights + tile->params % (CHIP_WEIGHT_MEMORY / 2)",
        "conv2d, upward, every address bit of params",
    ),
    "half of local activations, for inputs": _job(
        "chip_activations + tile->ifm + row * tile->ifm_row",
        "chip_activations + (tile->ifm & 0x1ffff) + row * tile->ifm_row",
        "pool2d, upward, every address bit of ifm",
    ),
    "half of local activations, for second inputs": _job(
        "chip_activations[tile->ifm2 + (broadcast",
        "chip_activations[(tile->ifm2 & 0x1ffff) + (broadcast",
        "add, tflite, every address bit of ifm2",
    ),
    "the first input is not subtracted": _job(
        "(layer->subtract == 2 ? -sum : sum)", "sum", "add, upward, the first input subtracted"
    ),
    "half of local activations, for sums": _job(
        _SUMS, _SUMS.replace("tile->psum", "(tile->psum & 0x1ffff)"), "dense, upward, every address bit of psum"
    ),
    "addresses of sums without carry": _job(
        "psum += sizeof(int32_t)",
        "psum = chip_activations + ((psum - chip_activations + 4) & 0xffff)",
        "conv2d, upward, every address bit of psum",
    ),
    "a counter of input channels of 8 bits": _job(
        "c < channels", "c < (channels & 0xff)", "dense, upward, many input channels"
    ),
    "a counter of input channels of 16 bits": _job(
        "c < channels", "c < (channels & 0xffff)", "dense, upward, many input channels"
    ),
    "a counter of output channels of 12 bits": _job(
        "k < tile->ofm_c; ++k, psum", "k < (tile->ofm_c & 0xfff); ++k, psum", "depthwise_conv2d, upward, many channels"
    ),
    "pooling that aborts": Fault(
        (
            (JOBS, "#include <stddef.h>", "#include <stddef.h>\n#include <stdlib.h>"),
            (JOBS, "    run_pool2d(", "    abort();\n    run_pool2d("),
        ),
        "hwlib_hal_job_start",
        "pool2d, maximum, upward, one pixel, one channel: signal 6",
    ),
}

JOBS_OF_MUL = {
    "no zero point of the second input": _job(
        "int32_t other = second(tile, i, layer->broadcast) - layer->ifm2_zero_point;",
        "int32_t other = second(tile, i, layer->broadcast);",
        "mul, upward, one element",
    ),
    "halves rounded down": _job("(product + half) >>", "(product + half - 1) >>", "mul, upward, rounding of halves"),
    "no act_min": _job("value < low ? low", "value < low ? INT8_MIN", "mul, tflite, act_min"),
    "a second input of one element only": _job(
        "(broadcast ? i % tile->ifm_c : i)",
        "(broadcast ? 0 : i)",
        "mul, upward, a second input of a few channels",
    ),
    "channels of a second input counted in 8 bits": _job(
        "(broadcast ? i % tile->ifm_c : i)",
        "(broadcast ? i % tile->ifm_c & 0xff : i)",
        "mul, tflite, a second input of many channels",
    ),
}


_SIGNAL = "  (void)engine, (void)event;\n  return HWLIB_OK;\n"
_AWAIT = "  (void)engine, (void)event, (void)value;\n  return HWLIB_OK;\n"
_COUNTED = "static uint32_t counts[64];\n\nhwlib_status_t hwlib_hal_signal("
_OF_DMA, _OF_ARRAY = "(engine == HWLIB_ENGINE_DMA) { end_copy(); }", "(engine == HWLIB_ENGINE_ARRAY) { end_job(); }"
_END = "  end_copy();\n  end_job();\n"
_WAITED = ((HAL, COPY_WAIT, COPY_WAIT + _END), (HAL, _JOB_WAIT, _JOB_WAIT + _END))


def _event(before: str, after: str, function: str, what: str, *others: tuple[str, str, str]) -> Fault:
    return Fault(((HAL, before, after), *others), f"hwlib_hal_{function}", what)


EVENTS = {
    "a signal that comes before the job has ended": _event(
        _SIGNAL, f"  if {_OF_DMA}\n{_SIGNAL}", "signal", "", *_LATE_JOBS, *_LATE_COPIES[1:], *_WAITED
    ),
    "a signal that comes before the copy has ended": _event(
        _SIGNAL, f"  if {_OF_ARRAY}\n{_SIGNAL}", "signal", "", *_LATE_COPIES, *_LATE_JOBS[1:], *_WAITED
    ),
    "one event only": _event(
        _SIGNAL, f"  if (event != 0) {{ return HWLIB_ERROR_HARDWARE; }}\n{_SIGNAL}", "signal", "by every event"
    ),
    "a counter of 8 bits": _event(
        _AWAIT,
        f"  if (value > 255) {{ return HWLIB_ERROR_HARDWARE; }}\n{_AWAIT}",
        "await",
        "more values than 8 bits count",
    ),
    "an event that is taken by the first who awaits it": Fault(
        (
            (HAL, "hwlib_status_t hwlib_hal_signal(", _COUNTED),
            (HAL, _SIGNAL, f"  ++counts[event];\n{_SIGNAL}"),
            (HAL, _AWAIT, f"  if (counts[event]-- == 0) {{ return HWLIB_ERROR_HARDWARE; }}\n{_AWAIT}"),
        ),
        "hwlib_hal_await",
        "an event that has come before, and more often",
    ),
    "no await": _event("hwlib_hal_await(uint8_t", "chip_await(uint8_t", "await", "is there, as the chip has events"),
}
