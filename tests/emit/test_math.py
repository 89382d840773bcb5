"""The host's mathematics in whole numbers: each step has the bits of the float operation that it stands for."""

import ctypes
import subprocess

import numpy as np
import pytest
from relay_samples import const, module, variable
from tvm import relay

import byoc_hw

DRIVER = __file__.replace("test_math.py", "math_driver.c")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The math file of a model with both functions, strictly compiled."""
    x, y = variable((1, 4)), variable((1, 4), "float32", "y")
    real = relay.qnn.op.dequantize(x, const(0.1, "float32"), const(0, "int32"))
    softmax = relay.qnn.op.quantize(relay.nn.softmax(real), const(1 / 256, "float32"), const(-128, "int32"))
    project = byoc_hw.build(module(relay.Tuple([softmax, relay.exp(y)]), x, y))
    built = tmp_path_factory.mktemp("math") / "math.so"
    flags = "-std=c11 -O2 -Wall -Wextra -Werror -Wconversion -fPIC -shared"
    flags += " -fsanitize=undefined -fsanitize-undefined-trap-on-error"
    source = project.directory / "src" / "default_math.c"
    subprocess.run(["gcc", *flags.split(), f'-DMATH="{source}"', DRIVER, "-o", built], check=True)
    return ctypes.CDLL(str(built))


def call(function, *arrays, dtype):
    out = np.empty(arrays[0].shape, dtype)
    arrays = [np.ascontiguousarray(array) for array in arrays]
    function(*(array.ctypes.data_as(ctypes.c_void_p) for array in [*arrays, out]), ctypes.c_int32(out.size))
    return out


def floats(bits):
    return np.asarray(bits, np.uint32).view(np.float32)


def exponential_in_doubles(x):
    """As in glibc, without fused operations."""
    steps = 32
    scaled = float.fromhex("0x1.71547652b82fep+0") * steps * x.astype(np.float64)
    k = np.rint(scaled)
    r = scaled - k
    cubic, square, linear = map(float.fromhex, ("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1"))
    high = cubic / steps**3 * r + square / steps**2
    power = np.ldexp(np.exp2(k % steps / steps), (k // steps).astype(int))
    return ((high * (r * r) + (linear / steps * r + 1)) * power).astype(np.float32)


@pytest.mark.filterwarnings("ignore:overflow")
def test_the_exponential_has_the_bits_of_that_in_doubles(library):
    rng = np.random.default_rng(0)
    edges = [0, 1 << 23, 0x32FFFFFF, 0x33000000, 0x42AEAC50, 0x42B17217, 0x42B17218, 0x42CFF1B4, 0x42CFF1B5, 0x43000000]
    around = np.concatenate([np.arange(edge, edge + 2000) - 1000 * (edge > 0) for edge in edges])
    dense = np.concatenate([around, np.arange(0, 0x7F800000, 4001), rng.integers(0x33000000, 0x42D00000, 1_000_000)])
    x = floats(np.concatenate([dense, dense | 1 << 31]))
    finite = np.clip(x, -200, 200)  # beyond, the powers of doubles end
    np.testing.assert_array_equal(
        call(library.many_expf, x, dtype=np.float32).view(np.uint32), exponential_in_doubles(finite).view(np.uint32)
    )


def test_the_exponential_of_special_values(library):
    x = np.array([0, -0.0, np.inf, -np.inf, 3e38, -3e38, 1e-45, -1e-45, np.nan], np.float32)
    np.testing.assert_array_equal(
        call(library.many_expf, x, dtype=np.float32), [1, 1, np.inf, 0, np.inf, 0, 1, 1, np.nan]
    )


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ("0x1.e75bc4p-3", "0x1.44c778p+0"),  # nearest of all to the middle of two floats
        ("0x1.04845ep+5", "0x1.f93e38p+46"),  # these two only where multiply and add are fused
        ("-0x1.f8cbb2p+5", "0x1.f45326p-92"),
    ],
)
def test_the_exponential_is_that_of_glibc_to_the_last_bit(library, x, expected):
    found = call(library.many_expf, np.array([float.fromhex(x)], np.float32), dtype=np.float32)
    assert float(found[0]).hex() == float.fromhex(expected).hex()


def test_sums_are_those_of_floats(library):
    rng = np.random.default_rng(1)
    a = rng.integers(0, 0x48000000, 1_000_000)
    b = np.maximum(a - rng.integers(0, 28 << 23, a.size), 0)
    a[::3] &= ~0xFFFF  # ties
    b[::3] &= ~0x7FF
    a[::7], b[::7] = a[::7] % (3 << 23), b[::7] % (3 << 23)  # subnormals
    found = call(library.many_add, a.astype(np.uint32), b.astype(np.uint32), dtype=np.uint32)
    np.testing.assert_array_equal(found, (floats(a) + floats(b)).view(np.uint32))


def test_shares_round_as_quotients_of_floats_do(library):
    """Parts next to a half of 1/256, where the rounding of the quotient decides."""
    rng = np.random.default_rng(2)
    total = floats(rng.integers(0x3F800000, 0x47800000, 500_000))
    total[::3] = floats(total[::3].view(np.uint32) & 0xFFFFFF00)
    half = (rng.integers(0, 256, total.size) + 0.5) / 256 * total.astype(np.float64)
    near = half.astype(np.float32).view(np.uint32) + rng.integers(-3, 4, total.size)
    part = np.minimum(floats(near), total)
    scaled = part / total * np.float32(256)
    assert (scaled.astype(np.float64) > part.astype(np.float64) / total * 256).any()
    found = call(library.many_share, part.view(np.uint32), total.view(np.uint32), dtype=np.int32)
    np.testing.assert_array_equal(found, np.floor(scaled.astype(np.float64) + 0.5))


def test_dequantized_values_are_products_of_floats(library):
    rng = np.random.default_rng(3)
    difference = rng.integers(-255, 256, 1_000_000).astype(np.int32)
    mantissa = rng.integers(1 << 23, 1 << 24, difference.size).astype(np.uint32)
    found = call(library.many_dequantized, difference, mantissa, dtype=np.uint32)
    expected = (difference.astype(np.float32) * mantissa.astype(np.float32)).astype(np.int64)
    np.testing.assert_array_equal(found, expected.astype(np.uint32))
