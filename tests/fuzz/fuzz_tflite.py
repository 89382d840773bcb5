"""TFLite files that were damaged, or are odd: read, partitioned and built, or refused."""

from __future__ import annotations

import random
import struct
from functools import cache
from pathlib import Path

import numpy as np
import tvm
from fuzz_case import QUICK, Case, Finding
from tflite_samples import NONE, RELU, OperatorSample, TensorSample, model_bytes

import byoc_hw
from byoc_hw.demo import model_path
from byoc_hw.frontend.dead_channels import is_dead
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.frontend.relay.sources import calls_in_order, operator_name

WORDS = [0, 1, 2, 3, 4, 8, 127, 128, 255, 256, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 1e-12, 1e12, 3e38, float("inf"), float("-inf"), float("nan")]


def run(case: Case) -> None:
    path = case.directory / "model.tflite"
    data = odd(case.rng) if case.chance(0.4) else case.rng.choice(seeds())
    for _ in range(case.rng.choice([0, 1, 1, 2, 3]) if case.chance(0.9) else 30):
        data = mutated(data, case.rng)
    path.write_bytes(data)
    compile_file(case, path, compared=case.chance(0.5))


def compile_file(case: Case, path: Path, *, compared: bool) -> None:
    mod, params = byoc_hw.load_tflite(path)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params))
    inputs = [
        random_array(case, tuple(map(int, p.checked_type.shape)), p.checked_type.dtype)
        for p in tvm.relay.transform.InferType()(mod)["main"].params
        if p.name_hint not in params
    ]
    if not compared or sum(array.size for array in inputs) > 100_000 or shift_is_undefined(mod):
        case.tally["built"] += 1
        return
    with case.outside("TVM"):
        wanted = Reference(mod, params).run(inputs)
    found = project.run(inputs, toolchain=QUICK).outputs
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            raise Finding("wrong bits", f"output {number}", f"{mod}\nproject {one}\nTVM {other}")
    case.tally["exact"] += 1


def shift_is_undefined(mod: tvm.IRModule) -> bool:
    """Whether TVM multiplies by a ratio of scales so small that its own shift is undefined."""
    products = [call for call in calls_in_order(mod["main"]) if operator_name(call) == "qnn.mul"]
    scales = ([float(call.args[at].data.numpy()) for at in (2, 4, 6)] for call in products)
    return any(is_dead(one * other, ofm) for one, other, ofm in scales)


def random_array(case: Case, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype.startswith("float"):
        return case.arrays.uniform(-4, 4, shape).astype(dtype)
    if dtype == "bool":
        return case.arrays.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return case.arrays.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


# ---------------------------------------------------------------- files


@cache
def seeds() -> tuple[bytes, ...]:
    """The shipped file, and small files of one operator, in which a mutation rarely hits a weight."""
    rng = random.Random(0)
    return (
        Path(model_path()).read_bytes(),
        *(operator_file(rng, operator, hostile=0) for operator in OPERATORS for _ in range(2)),
    )


def odd(rng: random.Random) -> bytes:
    """A whole file of one operator with values that no converter writes."""
    while True:
        try:
            return operator_file(rng, rng.choice(list(OPERATORS)), hostile=rng.choice([0.02, 0.1, 0.3]))
        except (OverflowError, struct.error, TypeError, ValueError):  # flatbuffers cannot store it
            continue


OPERATORS = ("ADD", "MUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "SOFTMAX")


def operator_file(rng: random.Random, operator: str, hostile: float) -> bytes:
    def some(usual: object, unusual: list) -> object:
        return rng.choice(unusual) if rng.random() < hostile else usual

    def extent(usual: int) -> int:
        return some(usual, [0, -1, 1, 2, 7, 4096, 20000, 2**31 - 1])

    def tensor(shape: tuple[int, ...], data: bool = False, dtype: str = "int8") -> TensorSample:
        values = np.random.default_rng(rng.randrange(99)).integers(-100, 100, shape).astype(dtype) if data else None
        shape = tuple(extent(size) for size in shape)
        if rng.random() < hostile / 4:
            shape = rng.choice([(), shape[1:], (1, *shape)])
        scale = some(rng.choice([0.02, 0.1, 0.5]), [*FLOATS, (0.1, 0.2), (), (0.1,) * 4])
        return TensorSample(
            shape,
            scale,
            some(rng.choice([0, 3, -128]), [128, -129, 2**31, -(2**40), 255]),
            values,
            axis=some(0, [1, 3, -1, 9]),
            name=some("", ["a", "x", "a b", "\n", "*/", "é"]),
        )

    height, width, channels, filters = rng.randint(1, 8), rng.randint(1, 8), rng.randint(1, 5), rng.randint(1, 5)
    x = tensor((1, height, width, channels))
    strides = {"StrideH": some(1, [0, 2, 3, -1, 2**20]), "StrideW": some(1, [0, 2, 3, -1])}
    window = {
        "Padding": some(0, [1, 2, 100]),
        **strides,
        "FusedActivationFunction": some(rng.choice([NONE, RELU]), [3, 4, 5, 99]),
    }
    dilation = {"DilationHFactor": some(1, [0, 2, -1]), "DilationWFactor": some(1, [0, 2])}
    if operator in ("ADD", "MUL"):
        inputs, output, options = [x, tensor((1, height, width, channels))], (1, height, width, channels), {}
    elif operator == "CONV_2D":
        inputs = [x, tensor((filters, 3, 3, channels), data=True), tensor((filters,), data=True, dtype="int32")]
        output, options = (1, height, width, filters), {**window, **dilation}
    elif operator == "DEPTHWISE_CONV_2D":
        inputs = [x, tensor((1, 3, 3, channels), data=True), tensor((channels,), data=True, dtype="int32")]
        output, options = (1, height, width, channels), {**window, **dilation, "DepthMultiplier": some(1, [0, 2, -1])}
    elif operator == "FULLY_CONNECTED":
        inputs = [
            tensor((1, channels)),
            tensor((filters, channels), data=True),
            tensor((filters,), data=True, dtype="int32"),
        ]
        output, options = (1, filters), {}
    elif operator == "AVERAGE_POOL_2D":
        inputs, output = [x], (1, height, width, channels)
        options = {**window, "FilterHeight": some(2, [0, 1, 100, -1]), "FilterWidth": some(2, [0, 1, 33])}
    else:
        inputs, output, options = [tensor((1, channels))], (1, channels), {"Beta": some(1.0, FLOATS)}
    return model_bytes(OperatorSample(operator, inputs, tensor(output), options))


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One change of the bytes: of a field, an offset, a scale, a type, or of the length."""
    changed = bytearray(data)
    if len(changed) < 8:
        return bytes(changed) + b"\0" * 8
    # The tables are behind the constants, which are the most bytes of a file.
    at = (
        rng.randrange(len(changed)) if rng.random() < 0.3 else max(len(changed) - 1 - int(rng.expovariate(1 / 1500)), 0)
    )
    word = at & ~3
    kind = rng.randrange(7)
    if kind == 0:
        changed[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        changed[at] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
    elif kind == 2 and word + 4 <= len(changed):
        struct.pack_into("<I", changed, word, rng.choice(WORDS))
    elif kind == 3 and word + 4 <= len(changed):
        struct.pack_into("<f", changed, word, rng.choice(FLOATS))
    elif kind == 4 and word + 4 <= len(changed):
        value = struct.unpack_from("<I", changed, word)[0] + rng.choice([-4, -1, 1, 4, 16])
        struct.pack_into("<I", changed, word, value % 2**32)
    elif kind == 5:
        return (
            bytes(changed[: rng.randrange(len(changed))])
            if rng.random() < 0.3
            else bytes(changed[:at] + changed[at + 4 :])
        )
    elif kind == 6:
        other = rng.randrange(len(changed) // 4) * 4
        changed[word : word + 4], changed[other : other + 4] = changed[other : other + 4], changed[word : word + 4]
    return bytes(changed)
