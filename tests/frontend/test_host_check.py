"""Host operators that C alone cannot compute are refused by name, before anything is written."""

import numpy as np
import pytest
from bit_exact import input_arrays
from relay_samples import Add, Mul, Quantized, const, module, variable
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.reference import Reference

X = variable((3, 40), "float32")
NO_RUNTIME = r"\({0}_1\) on the host: a C project has no TVM runtime: TVM (calls tvm\.contrib|uses TVMBackend)"
CALLERS = {
    "unique": lambda: relay.unique(relay.reshape(relay.cast(X, "int32"), (-1,)))[0],
    "searchsorted": lambda: relay.searchsorted(const([1, 2, 3], "float32"), X),
}


@pytest.mark.filterwarnings(r"ignore:visit_\w+ is deprecated")  # TVM's own, of unique
@pytest.mark.parametrize("name", CALLERS)
def test_an_operator_that_needs_tvms_runtime_is_named(tmp_path, name):
    mod = module(CALLERS[name](), X)
    with pytest.raises(Unsupported, match=f"^{name} {NO_RUNTIME.format(name)}"):
        byoc_hw.build(mod, output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def requantize(x, ratio, out_dtype="int8"):
    scales = const(ratio, "float32"), const(0, "int32"), const(1, "float32"), const(7, "int32")
    return relay.qnn.op.requantize(x, *scales, out_dtype=out_dtype)


@pytest.mark.parametrize("ratio", [2.0**32, 1.5 * 2.0**32, 1e30, np.inf, np.nan, -(2.0**32), 2.0**-32, 1e-30])
def test_a_scale_that_tvms_shifts_cannot_express_is_refused(ratio):
    x = variable((8,), "int32")
    with pytest.raises(
        Unsupported,
        match=rf"qnn\.requantize .*more than 2\^-32 and less than 2\^32, .*: got {ratio:g}".replace("+", r"\+"),
    ):
        byoc_hw.build(module(requantize(x, ratio), x))


@pytest.mark.parametrize(
    "sample",
    [
        Add(lhs=Quantized(2.0**40), out=Quantized(1.0)),
        Mul(lhs=Quantized(2.0**20), rhs=Quantized(2.0**20), out=Quantized(1.0)),
    ],
    ids=["add", "mul"],
)
def test_scales_of_other_operators_are_refused_too(sample):
    with pytest.raises(Unsupported, match=r"qnn\.\w+ .* input scale over output scale .*: got 1\.09951e\+12"):
        byoc_hw.build(byoc_hw.partition_for_hwlib(sample.module()))


@pytest.mark.parametrize("zero_point", [2**16 + 1, 2**31 - 1, -(2**31)])
def test_a_zero_point_that_overflows_tvms_sums_is_refused(zero_point):
    with pytest.raises(Unsupported, match=rf"\) on the host: zero points are from .*: got {zero_point}$"):
        byoc_hw.build(byoc_hw.partition_for_hwlib(Add(out=Quantized(0.4, zero_point)).module()))


def test_scales_at_the_limits_have_tvms_bits():
    ratios = (
        1.01 * 2.0**-32,
        1.9 * 2.0**-32,
        2.0**-31,
        2.0**-30 / 3,
        0.0,
        2.0**20,
        2.0**30 * 1.1,
        2.0**31,
        2.0**32 * 0.99,
    )
    x = variable((64,), "int32")
    mod = module(relay.Tuple([requantize(x, ratio, dtype) for ratio in ratios for dtype in ("int8", "int32")]), x)
    project, reference = byoc_hw.build(mod), Reference(mod)
    for inputs in [*input_arrays(mod), [np.arange(-32, 32, dtype=np.int32)]]:
        found = project.run(inputs, toolchain=byoc_hw.Toolchain(cflags=SANITIZED)).outputs
        for index, (got, want) in enumerate(zip(found, reference.run(inputs), strict=True)):
            np.testing.assert_array_equal(got, want, err_msg=f"ratio {ratios[index // 2]}")
