"""Builds HWlib and its simulator under the sanitizers, and drives the simulator (driver.c)."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Sequence
from ctypes import c_int8, c_int32, c_uint8, c_uint16, c_uint32, c_uint64
from pathlib import Path

import numpy as np
import pytest
import sanitizers

import byoc_hw.hwlib
from byoc_hw.accelerator import Accelerator
from byoc_hw.hwlib.accelerator_header import accelerator_header
from byoc_hw.hwlib.sim_config import sim_config

HWLIB = Path(byoc_hw.hwlib.__file__).parent
HERE = Path(__file__).parent
OF_CHIPS = ("hwlib_lanes.c", "hwlib_table.c")
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wconversion"]


def run_gcc(*arguments: str | Path, cwd: Path | None = None) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("a C compiler is needed: install the package gcc")
    result = subprocess.run([gcc, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)
    assert result.returncode == 0, result.stderr


def build_program(directory: Path, accelerator: Accelerator, main: str, *flags: str, hwlib_only: bool = False) -> Path:
    """Compiles tests/hwlib/`main` with HWlib and, unless `hwlib_only`, the simulator of the accelerator."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "hwlib_accelerator.h").write_text(accelerator_header(accelerator))
    (directory / "hwlib_sim_config.h").write_text(sim_config(accelerator))
    of_one = [source for source in HWLIB.glob("src/*.c") if source.name not in OF_CHIPS]
    sources = sorted([*of_one, *([] if hwlib_only else HWLIB.glob("sim/*.c"))])
    return compiled(directory, Path(main).stem, [HERE / main, *sources], *STRICT, *flags)


def compiled(directory: Path, name: str, sources: Sequence[Path], *flags: str) -> Path:
    """The program of C sources under the sanitizers, each by itself and in the directory: equal ones are compiled once
    (compile_cache.py)."""
    includes = [f"-I{folder}" for folder in (HWLIB / "include", HWLIB / "sim", ".")]
    objects = [f"{source.stem}.o" for source in sources]
    for source, target in zip(sources, objects, strict=True):
        run_gcc(*sanitizers.FLAGS, *flags, *includes, "-c", source, "-o", target, cwd=directory)
    run_gcc(*sanitizers.FLAGS, *objects, "-o", name, cwd=directory)
    return directory / name


# ---------------------------------------------------------------- the structures of hwlib_hal.h

OK, ADDRESS, ALIGNMENT, LIMIT, RACE, UNWRITTEN, TOKEN, STEP, HARDWARE = range(9)
ACTIVATIONS, WEIGHTS, MAIN = range(3)
CONV2D, DEPTHWISE, DENSE, ADD, POOL2D, RESHAPE, TRANSPOSE, SOFTMAX, MUL, LOOKUP = range(10)
MATMUL = 10
AVG, MAX, SUM = range(3)
UPWARD, TFLITE = range(2)
FIRST, LAST = 1, 2


def _fields(names: str, of: type) -> list[tuple[str, type]]:
    return [(name, of) for name in names.split()]


class _Layer(ctypes.Structure):
    _fields_ = [("id", c_uint16), ("kind", c_uint8), ("rounding", c_uint8)]


class Scale(ctypes.Structure):
    _fields_ = [("multiplier", c_int32), ("left", c_uint8), ("right", c_uint8)]


_SHAPES = _fields("ifm_height ifm_width ifm_channels ofm_height ofm_width ofm_channels", c_uint32)
_WINDOW = _fields("kernel_h kernel_w stride_h stride_w pad_top pad_left pad_bottom pad_right", c_uint8)


class Conv2d(ctypes.Structure):
    _fields_ = [
        ("layer", _Layer),
        *_SHAPES,
        *_WINDOW[:4],
        *_fields("dilation_h dilation_w", c_uint8),
        *_WINDOW[4:],
        ("weight_bits", c_uint8),
        *_fields("ifm_zero_point weight_zero_point ofm_zero_point act_min act_max", c_int8),
    ]


class Add(ctypes.Structure):
    _fields_ = [
        ("layer", _Layer),
        *_SHAPES[:3],
        ("ifm_scale", Scale),
        ("ifm2_scale", Scale),
        ("sum_scale", Scale),
        *_fields("ifm_zero_point ifm2_zero_point ofm_zero_point act_min act_max", c_int8),
        *_fields("subtract broadcast", c_uint8),
    ]


class Mul(ctypes.Structure):
    _fields_ = [
        ("layer", _Layer),
        *_SHAPES[:3],
        ("scale", Scale),
        *_fields("ifm_zero_point ifm2_zero_point ofm_zero_point act_min act_max", c_int8),
        ("broadcast", c_uint8),
    ]


class Pool2d(ctypes.Structure):
    _fields_ = [
        ("layer", _Layer),
        *_SHAPES,
        *_WINDOW,
        *_fields("mode count_include_pad", c_uint8),
        *_fields("ifm_zero_point ofm_zero_point", c_int8),
        ("scale", Scale),
        *_fields("act_min act_max", c_int8),
        ("offset", c_int32),
    ]


class Softmax(ctypes.Structure):
    _fields_ = [("layer", _Layer), *_SHAPES[:3], ("scale", Scale), ("diff_min", c_int32)]


class MatMul(ctypes.Structure):
    _fields_ = [
        ("layer", _Layer),
        *_fields("ifm_height ifm_width ifm_channels ifm2_height ifm2_width ifm2_channels", c_uint32),
        *_fields("ofm_height ofm_width ofm_channels", c_uint32),
        ("scale", Scale),
        *_fields("ifm_zero_point ifm2_zero_point ofm_zero_point act_min act_max", c_int8),
    ]


class Lookup(ctypes.Structure):
    _fields_ = [("layer", _Layer), *_SHAPES[:3], ("tables", c_uint64), ("by_channel", c_uint8)]


class Tile(ctypes.Structure):
    _fields_ = [
        *_fields("ifm ifm2 ofm psum weights params ifm_row ofm_row ifm_pixel ofm_pixel", c_uint32),
        *_fields("ifm_h ifm_w ifm_c ofm_h ofm_w ofm_c", c_uint32),
        *_fields("pad_top pad_left pad_bottom pad_right kernel_h kernel_w flags", c_uint8),
    ]


class Counters(ctypes.Structure):
    _fields_ = [
        ("array_cycles", c_uint64),
        ("dma_cycles", c_uint64),
        ("dma_bytes", c_uint64),
        ("jobs", c_uint32),
        ("copies", c_uint32),
    ]


def conv2d(
    kind: int = CONV2D,
    kernel: tuple[int, int] = (1, 1),
    stride: tuple[int, int] = (1, 1),
    rounding: int = UPWARD,
    **fields,
) -> Conv2d:
    fields = {"weight_bits": 8, "act_min": -128, "act_max": 127, **fields}
    fields = {"dilation_h": 1, "dilation_w": 1, **fields}
    return Conv2d(_Layer(0, kind, rounding), **_window(kernel, stride), **fields)


def pool2d(
    mode: int, kernel: tuple[int, int], stride: tuple[int, int] = (1, 1), rounding: int = UPWARD, **fields
) -> Pool2d:
    fields = {"scale": Scale(*IDENTITY), "act_min": -128, "act_max": 127, **fields}
    return Pool2d(_Layer(0, POOL2D, rounding), **_window(kernel, stride), mode=mode, **fields)


def add(scale: tuple[int, int, int], scale2: tuple[int, int, int], rounding: int = UPWARD, **fields) -> Add:
    fields = {"act_min": -128, "act_max": 127, **fields}
    return Add(_Layer(0, ADD, rounding), ifm_scale=Scale(*scale), ifm2_scale=Scale(*scale2), **fields)


def mul(scale: tuple[int, int, int], rounding: int = UPWARD, **fields) -> Mul:
    fields = {"act_min": -128, "act_max": 127, **fields}
    return Mul(_Layer(0, MUL, rounding), scale=Scale(*scale), **fields)


def matmul(scale: tuple[int, int, int], rounding: int = UPWARD, **fields) -> MatMul:
    fields = {"act_min": -128, "act_max": 127, **fields}
    return MatMul(_Layer(0, MATMUL, rounding), scale=Scale(*scale), **fields)


def softmax(scale: tuple[int, int, int], diff_min: int, rounding: int = TFLITE) -> Softmax:
    return Softmax(_Layer(0, SOFTMAX, rounding), scale=Scale(*scale), diff_min=diff_min)


def lookup(tables: int = 0, channels: int = 0, rounding: int = UPWARD) -> Lookup:
    """Tables at an offset in MAIN: one, or one for each of some channels."""
    return Lookup(
        _Layer(0, LOOKUP, rounding), ifm_channels=max(channels, 1), tables=tables, by_channel=int(channels > 0)
    )


IDENTITY = (1 << 30, 1, 31)
"""A scale of exactly 1."""


def _window(kernel: tuple[int, int], stride: tuple[int, int]) -> dict[str, int]:
    return {"kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride[0], "stride_w": stride[1]}


def tile(ifm_shape: tuple[int, int, int], ofm_shape: tuple[int, int, int], **fields) -> Tile:
    """A tile with dense rows and pixels, both FIRST and LAST, unless `fields` say otherwise."""
    (ifm_h, ifm_w, ifm_c), (ofm_h, ofm_w, ofm_c) = ifm_shape, ofm_shape
    extents = {"ifm_h": ifm_h, "ifm_w": ifm_w, "ifm_c": ifm_c, "ofm_h": ofm_h, "ofm_w": ofm_w, "ofm_c": ofm_c}
    strides = {"ifm_row": ifm_w * ifm_c, "ifm_pixel": ifm_c, "ofm_row": ofm_w * ofm_c, "ofm_pixel": ofm_c}
    return Tile(**{**extents, **strides, "flags": FIRST | LAST, **fields})


def pads(padding: tuple[int, int, int, int]) -> dict[str, int]:
    return dict(zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), padding, strict=True))


def params(biases, scales) -> bytes:
    return b"".join(struct.pack("<iiBBH", bias, *scale, 0) for bias, scale in zip(biases, scales, strict=True))


# ---------------------------------------------------------------- the running simulator


class RefusedError(Exception):
    """The simulator returned a status other than OK."""

    def __init__(self, status: int, fault: str) -> None:
        super().__init__(fault)
        self.status = status


class Simulator:
    """One process of driver.c. Addresses in MAIN are offsets into a megabyte of its own."""

    _OPERATIONS = (
        *("reset", "write_main", "read_main", "copy_1d", "copy_2d", "job", "copy_wait", "job_wait", "init", "mark"),
        *("cycles", "layer_cycles", "counters", "host_cycles", "in_flight", "fault", "copy_done", "job_done", "idle"),
    )  # in driver.c's order

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait() == 0, "a sanitizer ended the simulator: see its report above"

    def _call(self, operation: str, *words: int, payload: bytes = b"") -> tuple[int, int]:
        request = (self._OPERATIONS.index(operation), *words)
        self._process.stdin.write(struct.pack("<10Q", *request, *[0] * (10 - len(request))) + payload)
        self._process.stdin.flush()
        answer = self._process.stdout.read(16)
        assert len(answer) == 16, "a sanitizer ended the simulator: see its report above"
        return struct.unpack("<2Q", answer)

    def _try(self, operation: str, *words: int, payload: bytes = b"") -> int:
        status, value = self._call(operation, *words, payload=payload)
        if status != OK:
            raise RefusedError(status, self.fault())
        return value

    def reset(self) -> None:
        self._call("reset")

    def write_main(self, offset: int, data: bytes) -> None:
        self._call("write_main", offset, len(data), payload=data)

    def read_main(self, offset: int, nbytes: int) -> bytes:
        self._call("read_main", offset, nbytes)
        return self._process.stdout.read(nbytes)

    def copy(self, target: tuple[int, int], source: tuple[int, int], nbytes: int) -> int:
        return self._try("copy_1d", *target, *source, nbytes)

    def copy_rows(self, target, source, nbytes: int, rows: int, target_stride: int, source_stride: int) -> int:
        return self._try("copy_2d", *target, *source, nbytes, target_stride, source_stride, rows)

    def job(self, layer: ctypes.Structure, tile: Tile) -> int:
        """Start a job; one of a convolution over all of its kernel where the tile names no part."""
        if isinstance(layer, Conv2d) and (tile.kernel_h, tile.kernel_w) == (0, 0):
            tile = Tile.from_buffer_copy(tile)
            tile.kernel_h, tile.kernel_w = layer.kernel_h, layer.kernel_w
        return self._try("job", ctypes.sizeof(layer), payload=bytes(layer) + bytes(tile))

    def copy_wait(self, token: int) -> None:
        self._try("copy_wait", token)

    def job_wait(self, token: int) -> None:
        self._try("job_wait", token)

    def copy_done(self, token: int) -> int:
        return self._try("copy_done", token)

    def job_done(self, token: int) -> int:
        return self._try("job_done", token)

    def idle(self) -> None:
        self._call("idle")

    def init(self) -> None:
        self._try("init")

    def mark(self, layer: int) -> None:
        self._call("mark", layer)

    @property
    def cycles(self) -> int:
        return self._call("cycles")[1]

    @property
    def host_cycles(self) -> int:
        return self._call("host_cycles")[1]

    @property
    def in_flight(self) -> int:
        return self._call("in_flight")[1]

    def layer_cycles(self, layer: int) -> int:
        return self._call("layer_cycles", layer)[1]

    def counters(self, layer: int) -> Counters:
        self._call("counters", layer)
        return Counters.from_buffer_copy(self._process.stdout.read(ctypes.sizeof(Counters)))

    def fault(self) -> str:
        _, length = self._call("fault")
        return self._process.stdout.read(length).decode()

    # What most tests want: bytes in, a job, bytes out, each waited for.

    def load(self, memory: int, address: int, data: bytes | np.ndarray) -> None:
        data = bytes(data) if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
        self.write_main(0, data)
        self.copy_wait(self.copy((memory, address), (MAIN, 0), len(data)))

    def run(self, layer: ctypes.Structure, tile: Tile) -> None:
        self.job_wait(self.job(layer, tile))

    def fetch(self, address: int, nbytes: int) -> np.ndarray:
        self.copy_wait(self.copy((MAIN, 0), (ACTIVATIONS, address), nbytes))
        return np.frombuffer(self.read_main(0, nbytes), np.int8)
