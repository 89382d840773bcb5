"""Constants of host functions: every number of every type, exactly."""

import numpy as np
import pytest
from bit_exact import assert_equals_tvm, input_arrays
from relay_samples import Conv, const, module, variable
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference


@pytest.mark.parametrize(
    ("scale", "literal"),
    [(0.14469250679, "1.44692510e-01f"), (0.1, "1.000000e-01f"), (0.5, "5.000000e-01f"), (1e-42, "1.000527e-42f")],
)
def test_a_dequantized_tensor_has_the_bits_of_tvm(scale, literal):
    x = variable((1, 256))
    mod = module(relay.qnn.op.dequantize(x, const(scale, "float32"), const(14, "int32")), x)
    project = byoc_hw.build(mod)
    assert literal in (project.directory / "src" / "default_host.c").read_text(encoding="utf-8")
    values = np.arange(-128, 128, dtype=np.int8)[None]
    assert project.run(values).outputs[0].tobytes() == Reference(mod).run([values])[0].tobytes()


LOWEST, HIGHEST = (
    {dtype: getattr(np.iinfo(dtype), end) for dtype in ("int8", "int16", "int32", "int64")} for end in ("min", "max")
)
FLOATS = (1e-40, 1e-45, -0.0, np.inf, -np.inf, np.nan, 3.4028235e38, 1.17549435e-38)


@pytest.mark.slow
def test_constants_at_the_ends_of_their_types_have_the_values_of_tvm():
    """In arrays and by themselves: C has no negative constants, no infinity, and TVM writes neither as C wants it."""
    inputs, outputs, values = [], [], []
    rng = np.random.default_rng(0)
    for dtype, lowest in LOWEST.items():
        x = variable((6,), dtype, f"x_{dtype}")
        for constant in (lowest, HIGHEST[dtype], [lowest, 0, lowest, 1, HIGHEST[dtype], -1]):
            outputs += [relay.maximum(x, const(constant, dtype)), relay.minimum(x, const(constant, dtype))]
        outputs += [relay.add(x, const([lowest] * 6, dtype)), relay.max(x, 0), relay.min(x, 0), relay.maximum(x, x)]
        inputs.append(x)
        values.append(rng.integers(lowest, HIGHEST[dtype], 6, dtype, endpoint=True))
    for dtype in ("float32", "float64"):
        x = variable((len(FLOATS),), dtype, f"x_{dtype}")
        outputs += [relay.multiply(x, const(constant, dtype)) for constant in (*FLOATS, FLOATS)]
        outputs += [relay.clip(x, -np.inf, 2), relay.maximum(x, x), relay.isinf(x)]
        inputs.append(x)
        values.append(rng.uniform(-4, 4, len(FLOATS)).astype(dtype))
    mod = module(relay.Tuple(outputs), *inputs)
    found = byoc_hw.build(mod).run(values).outputs
    for index, (got, want) in enumerate(zip(found, Reference(mod).run(values), strict=True)):
        np.testing.assert_array_equal(got, want, err_msg=f"output {index}")
        assert (np.signbit(got) == np.signbit(want)).all() or np.isnan(got).any()


def test_narrow_results_of_wide_sums_have_the_values_of_tvm():
    x, y = variable((1, 4, 4, 3)), variable((1, 16), name="y")
    weights = np.random.default_rng(1).integers(-128, 128, (3, 3, 3, 2))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    conv = relay.nn.conv2d(x, const(weights, "int8"), out_dtype="int16", **layouts)
    dense = relay.nn.dense(y, const(weights.reshape(-1)[:32].reshape(2, 16), "int8"), out_dtype="int16")
    mod = module(relay.Tuple([conv, dense]), x, y)
    values = [np.full((1, 4, 4, 3), 3, np.int8), np.arange(-8, 8, dtype=np.int8)[None]]
    for got, want in zip(byoc_hw.build(mod).run(values).outputs, Reference(mod).run(values), strict=True):
        np.testing.assert_array_equal(got, want, strict=True)


def test_a_bias_of_the_lowest_int32_runs_on_the_host_as_in_tvm():
    bias, weights = np.asarray([-(2**31), -5, -(2**31)], np.int32), np.full((3, 3, 3, 4), 100)
    mod = Conv(filters=3, bias_values=bias, weights=weights, ifm_zero_point=-128).module()  # sums from 0: none wraps
    partitioned = byoc_hw.partition_for_hwlib(mod)
    assert "sums, before and after they are scaled, fit in 32 bits" in str(byoc_hw.explain(partitioned))
    assert_equals_tvm(byoc_hw.build(partitioned), partitioned, mod, list(input_arrays(mod)), SANITIZED)


def test_constants_of_doubles_keep_their_digits_too():
    x = variable((1, 8), "float64")
    mod = module(relay.clip(x * const(1 / 3, "float64"), -0.7, 2 / 3), x)
    values = np.linspace(-3, 3, 8)[None]
    assert byoc_hw.build(mod).run(values).outputs[0].tobytes() == Reference(mod).run([values])[0].tobytes()
