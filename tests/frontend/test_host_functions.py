"""Mathematical functions on the host: each has the bits of TVM's llvm build."""

import numpy as np
import pytest
from relay_samples import const, module, variable
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference

UNARY = {
    "tanh": (-12, 12), "tan": (-10, 10), "sinh": (-100, 100), "cosh": (-100, 100), "exp": (-110, 95),
    "sigmoid": (-100, 100), "sqrt": (0, 1e9), "rsqrt": (1e-9, 1e9), "log": (1e-9, 1e9), "log2": (1e-9, 1e9),
    "log10": (1e-9, 1e9), "sin": (-99, 99), "cos": (-99, 99), "asin": (-1, 1), "acos": (-1, 1), "atan": (-99, 99),
    "asinh": (-99, 99), "acosh": (1, 99), "atanh": (-1, 1), "erf": (-4, 4),
    "floor": (-9, 9), "ceil": (-9, 9), "round": (-9, 9), "trunc": (-9, 9), "abs": (-9, 9), "sign": (-9, 9),
    "negative": (-9, 9), "isnan": (-9, 9), "isfinite": (-9, 9), "isinf": (-9, 9),
}  # fmt: skip
BINARY = ("power", "divide", "mod", "floor_mod", "floor_divide", "maximum", "minimum")
EXPONENTS = (2, 0.5, -0.5, -1, 3, 1 / 3, 1, 0)
BASES = (2, 10, 0.5, 1)
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e-40)


def operator(name):
    return getattr(relay, name, None) or getattr(relay.op.tensor, name)


def assert_has_tvms_bits(mod, inputs, **toolchain):
    project = byoc_hw.build(mod)
    found = project.run(inputs, toolchain=byoc_hw.Toolchain(**toolchain)).outputs
    with np.errstate(all="ignore"):
        expected = Reference(mod).run(inputs)
    for index, (got, want) in enumerate(zip(found, expected, strict=True)):
        nan = (got != got) & (want != want)  # which one is not said
        different = np.flatnonzero((got.view(f"u{got.itemsize}") != want.view(f"u{want.itemsize}")) & ~nan)
        assert different.size == 0, f"output {index}: {got.flat[different[0]]!r} for {want.flat[different[0]]!r}"
    return project


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_one_float_have_tvms_bits(dtype):
    rng = np.random.default_rng(0)
    inputs = [
        np.concatenate([rng.uniform(low, high, 3000), rng.uniform(low, high, 1000) / 2**10, SPECIAL]).astype(dtype)
        for low, high in UNARY.values()
    ]
    variables = [variable(values.shape, dtype, f"x{index}") for index, values in enumerate(inputs)]
    outputs = [operator(name)(x) for name, x in zip(UNARY, variables, strict=True)]
    assert_has_tvms_bits(module(relay.Tuple(outputs), *variables), inputs)


def test_functions_of_two_floats_have_tvms_bits():
    rng = np.random.default_rng(1)
    first, second = (rng.uniform(0.01, 9, 4000).astype("float32") for _ in range(2))
    x, y = variable((4000,), "float32"), variable((4000,), "float32", "y")
    outputs = [operator(name)(x, y) for name in BINARY]
    outputs += [relay.power(x, const(exponent, "float32")) for exponent in EXPONENTS]
    outputs += [relay.power(const(base, "float32"), x) for base in BASES]
    assert_has_tvms_bits(module(relay.Tuple(outputs), x, y), [first, second])


def test_tanh_and_its_kin_call_no_function_that_differs_between_c_libraries():
    x = variable((8,), "float32")
    project = byoc_hw.build(module(relay.Tuple([relay.tanh(x), relay.sinh(x), relay.cosh(x)]), x))
    source = (project.directory / "src" / "default_host.c").read_text(encoding="utf-8")
    assert source.count("expf(") >= 6
    assert not [name for name in ("tanhf", "sinhf", "coshf") if name in source]


@pytest.mark.slow
def test_a_requantize_with_rounding_and_arithmetic_of_its_own_has_tvms_bits():
    x = variable((4096,), "int32")
    outputs = [
        relay.qnn.op.requantize(
            x, const(0.3, "float32"), const(3, "int32"), const(0.7, "float32"), const(-5, "int32"),
            rounding=rounding, compute_dtype=compute_dtype, out_dtype="int8",
        )
        for rounding in ("UPWARD", "TONEAREST") for compute_dtype in ("int64", "float32", "float64")
    ]  # fmt: skip
    values = np.concatenate([np.arange(-2000, 2000), np.linspace(-(2**31), 2**31 - 1, 96)]).astype("int32")
    assert_has_tvms_bits(module(relay.Tuple(outputs), x), [values], cflags=SANITIZED)


def test_sums_and_complements_of_bool_have_one_bit():
    rng = np.random.default_rng(3)
    inputs = [rng.integers(0, 2, (4, 40)).astype(bool) for _ in range(2)]
    x, y = variable((4, 40), "bool"), variable((4, 40), "bool", "y")
    outputs = [
        relay.add(x, y),
        relay.subtract(x, y),
        relay.multiply(x, y),
        relay.cumsum(x, axis=1),
        relay.sum(x, axis=1),
        relay.bitwise_not(x),
        relay.add(x, x),
    ]
    assert_has_tvms_bits(module(relay.Tuple(outputs), x, y), inputs)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_sums_of_narrow_integers_have_the_bits_of_their_type_where_more_is_computed_of_them(dtype):
    rng = np.random.default_rng(4)
    limits = np.iinfo(dtype)
    inputs = [rng.integers(limits.min, limits.max + 1, (4, 40)).astype(dtype) for _ in range(2)]
    inputs[1][inputs[1] == 0] = 1
    x, y = variable((4, 40), dtype), variable((4, 40), dtype, "y")
    repeated = relay.repeat(x, 2, 1)  # a product that TVM computes where it is read
    outputs = [
        relay.sum(relay.cast(relay.multiply(repeated, repeated), "int32"), axis=1),
        relay.multiply(repeated, repeated),
        relay.less(relay.add(x, y), x),
        relay.cast(relay.negative(x), "int32"),
        relay.cast(relay.bitwise_not(x), "float32"),
        relay.floor_divide(relay.subtract(x, y), y),
        relay.maximum(relay.add(relay.add(x, y), y), y),
    ]
    if dtype != "uint16":  # whose shifts TVM has not
        outputs.append(relay.right_shift(relay.left_shift(x, const(3, dtype)), const(2, dtype)))
    assert_has_tvms_bits(module(relay.Tuple(outputs), x, y), inputs, cflags=SANITIZED + " -fno-sanitize=shift")


def test_a_sum_of_narrow_integers_that_is_stored_is_computed_as_it_is():
    x = variable((4,), "int8")
    project = byoc_hw.build(module(relay.add(x, relay.reverse(x, 0)), x))
    source = (project.directory / "src" / "default_host.c").read_text(encoding="utf-8")
    assert "(int8_t)" not in source
