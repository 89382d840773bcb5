"""Operators that TVM's importer lacks: TFLite's results bit for bit over several inferences, with their states."""

from dataclasses import replace

import numpy as np
import pytest
from tflite_samples import NONE, RELU, OperatorSample, TensorSample, model_bytes

import byoc_hw
from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.reference import Reference


def svdf(rng, *, batch=1, inputs=10, units=4, rank=2, memory=5, dtype="int16", activation=RELU, asked=2):
    """Scales by which the state and the output are lively: not everything at its limits."""
    filters, limits = units * rank, np.iinfo(dtype)
    scales = rng.uniform(0.01, 0.1, 2)
    spread = 64 * 74 * np.sqrt(inputs) * scales[0] * scales[1]
    state_scale = float(spread / limits.max * 2)
    time_scale = float(rng.uniform(1e-5, 1e-3) * 32767 / limits.max)
    most = 127 if dtype == "int8" else 2047  # more would overflow 32 bits
    times = rng.integers(-most, most + 1, (filters, memory)).astype(dtype)
    output_scale = state_scale * time_scale * limits.max / 2 * most / 2 * np.sqrt(rank * memory) / 60
    feature = rng.integers(-127, 128, (filters, inputs)).astype(np.int8)
    sums = TensorSample(
        (units,), state_scale * time_scale, 0, rng.integers(-(2**20), 2**20, units).astype(np.int32), name="bias"
    )
    tensors = [
        TensorSample((batch, inputs), float(scales[0]), int(rng.integers(-128, 128)), name="x"),
        TensorSample((filters, inputs), float(scales[1]), 0, feature, name="features"),
        TensorSample((filters, memory), time_scale, 0, times, name="times"),
        sums,
        TensorSample((batch, filters * memory), state_scale, dtype=dtype.upper(), variable=True, name="state"),
    ]
    output = TensorSample((batch, units), float(output_scale), int(rng.integers(-128, 0)), name="y")
    return OperatorSample("SVDF", tensors, output, {"Rank": asked, "FusedActivationFunction": activation})


def written(path, sample):
    path.write_bytes(model_bytes(sample))
    return path


def built(path):
    return byoc_hw.build(byoc_hw.partition_for_hwlib(*byoc_hw.load_tflite(path)))


def steps(sample, rng, count=10):
    shape = sample.inputs[0].shape
    return [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(count)]


def in_numpy(sample, inputs):
    """TFLite's reference kernel, by its own steps: outputs and states. Checked against TFLite for a state of int16."""
    x, features, times, bias, state = sample.inputs
    rank, dtype, memory = sample.options["Rank"], state.dtype.lower(), times.shape[1]
    limits, values = np.iinfo(dtype), np.zeros((x.shape[0], features.shape[0], memory), np.int64)
    scales = [np.float32(one.scale) for one in (x, features, times, state, sample.output)]
    into_state, into_output = scales[0] * scales[1] / scales[3], scales[3] * scales[2] / scales[4]
    for one in inputs:
        sums = (one.astype(np.int64) - x.zero_point) @ features.data.astype(np.int64).T
        values = np.concatenate([values[:, :, 1:], fixed(sums, into_state)[:, :, None]], 2).clip(limits.min, limits.max)
        over = (values * times.data.astype(np.int64)).reshape(x.shape[0], -1, rank * memory).sum(2) + bias.data
        outputs = fixed(over, into_output) + sample.output.zero_point
        yield outputs.clip(-128, 127).astype(np.int8), values.reshape(state.shape).astype(dtype)


def fixed(values, ratio):
    """Rounded twice, to the nearest: halves up, then halves away from zero."""
    mantissa, shift = np.frexp(float(ratio))
    left = max(int(shift), 0)
    high = ((values << left) * int(np.floor(mantissa * 2**31 + 0.5)) + 2**30) // 2**31
    return (np.trunc(abs(high) * 2.0 ** (shift - left) + 0.5) * np.sign(high)).astype(np.int64)


FORMS = {
    "one of each": {"units": 1, "rank": 1, "memory": 2, "asked": 1},
    "a batch": {"batch": 2},
    "as in keyword models": {"inputs": 40, "units": 24, "rank": 2, "memory": 12},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_svdf_equals_tflite_step_by_step(form, tmp_path):
    """Also from any state, and the numpy kernel that other tests use."""
    pytest.importorskip("tflite_runtime", reason="the oracle: install the package tflite-runtime==2.14.0")
    rng = np.random.default_rng(len(form))
    sample = svdf(rng, **form)
    path = written(tmp_path / "svdf.tflite", sample)
    project, reference = built(path), byoc_hw.TfliteReference(path)
    ifm, state = project.inputs
    assert (state.name, state.dtype, state.state) == ("state", "int16", "state_next")
    assert "A state: zeros (stored: 0) at first" in (project.directory / "include" / "default.h").read_text()
    inputs, value = steps(sample, rng), np.zeros(state.shape, np.int16)
    lively = set()
    for x, *expected in zip(inputs, *zip(*in_numpy(sample, inputs), strict=True), strict=True):
        run = project.run({ifm.name: x, "state": value}).outputs
        for found, tflites, wanted in zip(run, reference.run([x, value]), expected, strict=True):
            np.testing.assert_array_equal(found, tflites)
            np.testing.assert_array_equal(wanted, tflites)
        value = run[1]
        lively.update(run[0].ravel().tolist())
    assert len(lively) > 5
    anywhere = [[x, rng.integers(-(2**15), 2**15, state.shape).astype(np.int16)] for x in inputs[:3]]
    assert byoc_hw.validate(project, anywhere, path)


def test_svdf_with_a_state_of_int8_follows_the_same_steps(tmp_path):
    """As in TFLite Micro; TFLite's interpreter takes int16 alone."""
    rng = np.random.default_rng(5)
    sample = svdf(rng, dtype="int8")
    project = built(written(tmp_path / "svdf.tflite", sample))
    value, inputs = np.zeros(project.inputs[1].shape, np.int8), steps(sample, rng)
    for x, (wanted, following) in zip(inputs, in_numpy(sample, inputs), strict=True):
        found, value = project.run([x, value]).outputs
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(value, following)


def changed(position, **values):
    sample = svdf(np.random.default_rng(0))
    sample.inputs[position] = replace(sample.inputs[position], **values)
    return sample


NOT_TAKEN = {
    "float": (changed(0, dtype="FLOAT32"), "operator reads inputs, constants and results of operators before it: got "),
    "activation": (svdf(np.random.default_rng(0), activation=NONE), "activation is RELU, as TFLite asks: got 0"),
    "rank": (svdf(np.random.default_rng(0), asked=3), "rank divides the filters: got 3 for 8"),
    "memory": (svdf(np.random.default_rng(0), memory=1), "memory is at least 2: got 1"),
    "zero point": (changed(4, zero_point=2), "zero point of state is 0: got 2"),
    "types": (
        changed(4, dtype="INT32"),
        "types are int8, with times and state of int16, or of int8: got int8, int8, i",
    ),
    "state": (changed(4, shape=(1, 80)), r"state has shape (1, 40): got (1, 80)"),
    "sums": (changed(4, scale=1e-9), "sums, shifted to the left, fit in 32 bits: got "),
}


@pytest.mark.parametrize(("sample", "message"), NOT_TAKEN.values(), ids=NOT_TAKEN)
def test_other_svdf_stop_the_import_and_the_report_says_why(sample, message, tmp_path):
    path = written(tmp_path / "svdf.tflite", sample)
    with pytest.raises(InvalidInput) as raised:
        byoc_hw.load_tflite(path)
    assert f"SVDF (y): {message}" in str(raised.value)
    (outcome,) = byoc_hw.explain_tflite(path).outcomes
    assert outcome.placement == "stops"


# ---------------------------------------------------------------- matrix products

PRODUCTS = {
    "two batches": ((2, 3, 5, 7), (2, 3, 7, 4), (2, 3, 5, 4), False, False),
    "turned": ((3, 7, 5), (3, 4, 7), (3, 5, 4), True, True),
    "repeated": ((2, 3, 5, 7), (3, 7, 4), (2, 3, 5, 4), False, False),
    "no batch": ((5, 7), (7, 4), (5, 4), False, False),
}


@pytest.mark.parametrize(("x", "y", "output", "adj_x", "adj_y"), PRODUCTS.values(), ids=PRODUCTS)
def test_a_matrix_product_has_its_scales(x, y, output, adj_x, adj_y, tmp_path):
    """TVM's own import has none. TVM rounds once where TFLite rounds twice: they differ by 1, seldom."""
    pytest.importorskip("tflite_runtime", reason="the oracle: install the package tflite-runtime==2.14.0")
    tensors = [TensorSample(x, 0.04, -11), TensorSample(y, 0.07, 20)]
    sample = OperatorSample("BATCH_MATMUL", tensors, TensorSample(output, 0.3, 5), {"AdjX": adj_x, "AdjY": adj_y})
    path = written(tmp_path / "matmul.tflite", sample)
    reference, tvms = byoc_hw.TfliteReference(path), Reference(*byoc_hw.load_tflite(path))
    rng = np.random.default_rng(0)
    for _ in range(5):
        inputs = [rng.integers(-128, 128, one.shape).astype(np.int8) for one in tensors]
        (found,), (expected,) = tvms.run(inputs), reference.run(inputs)
        apart = abs(found.astype(int) - expected)
        assert apart.max() <= 1
        assert np.count_nonzero(apart) <= 2
        assert len(np.unique(expected)) > 5


# ---------------------------------------------------------------- element by element

X = TensorSample((1, 4, 4, 8), 0.05, -3)
SLOPES = np.random.default_rng(1).integers(-127, 128, (1, 1, 8)).astype(np.int8)
SHAPE = np.array([1, 4, 4, 8], np.int32)


def numbers(*values):
    data = np.array(values, np.int32)
    return TensorSample(data.shape, None, data=data)


ELEMENTWISE = {
    "prelu": OperatorSample("PRELU", [X, TensorSample(SLOPES.shape, 0.01, 7, SLOPES)], replace(X, scale=0.06)),
    "gelu": OperatorSample("GELU", [X], replace(X, scale=0.04, zero_point=-100)),
    "gelu by tanh": OperatorSample("GELU", [X], replace(X, scale=0.04), {"Approximate": True}),
    "log softmax over the last of four": OperatorSample("LOG_SOFTMAX", [X], replace(X, scale=1 / 16, zero_point=127)),
    "padding before blocks": OperatorSample(
        "SPACE_TO_BATCH_ND", [X, numbers(2, 2), numbers([1, 1], [0, 2])], replace(X, shape=(4, 3, 3, 8))
    ),
    "broadcast": OperatorSample("BROADCAST_TO", [replace(X, shape=(4, 1, 8)), TensorSample((4,), None, data=SHAPE)], X),
}


@pytest.mark.parametrize("sample", ELEMENTWISE.values(), ids=ELEMENTWISE)
def test_element_by_element_operators_are_of_real_values(sample, tmp_path):
    """In floats, which differ from TFLite's fixed point by 1, seldom."""
    pytest.importorskip("tflite_runtime", reason="the oracle: install the package tflite-runtime==2.14.0")
    path = written(tmp_path / "one.tflite", sample)
    reference, tvms = byoc_hw.TfliteReference(path), Reference(*byoc_hw.load_tflite(path))
    rng, shape = np.random.default_rng(0), sample.inputs[0].shape
    apart = []
    for _ in range(8):
        x = [rng.integers(-128, 128, shape).astype(np.int8)]
        apart.append(abs(tvms.run(x)[0].astype(int) - reference.run(x)[0]))
    assert np.max(apart) <= 1
    assert np.count_nonzero(apart) <= np.size(apart) / 20


def test_comparisons_are_of_real_values(tmp_path):
    other = np.arange(-64, 64).reshape(X.shape).astype(np.int8)
    for scale in (X.scale, 0.03):
        tensors = [X, TensorSample(X.shape, scale, X.zero_point, other)]
        sample = OperatorSample("LESS", tensors, TensorSample(X.shape, None, dtype="BOOL"))
        reference = Reference(*byoc_hw.load_tflite(written(tmp_path / "less.tflite", sample)))
        x = np.random.default_rng(0).integers(-128, 128, X.shape).astype(np.int8)
        reals = [(one.astype(np.float64) - X.zero_point) * by for one, by in ((x, X.scale), (other, scale))]
        np.testing.assert_array_equal(reference.run([x])[0], reals[0] < reals[1])


REAL = {
    "ELU": (lambda x: np.where(x < 0, np.exp(x) - 1, x), None),
    "SQUARE": (lambda x: x * x, None),
    "SUM": (lambda x: x.sum(axis=(1, 2), keepdims=True), (1, 1, 1, 8)),
}


@pytest.mark.parametrize("operator", REAL)
def test_operators_that_tflites_kernels_lack_are_of_real_values(operator, tmp_path):
    """ELU and SQUARE of int8 have no reference kernel, and that of SUM gives no sums."""
    function, shape = REAL[operator]
    output = TensorSample(shape or X.shape, 0.31, -20)
    axes, options = ([numbers(1, 2)], {"KeepDims": True}) if operator == "SUM" else ([], {})
    path = written(tmp_path / "one.tflite", OperatorSample(operator, [X, *axes], output, options))
    x = np.random.default_rng(0).integers(-128, 128, X.shape).astype(np.int8)
    (found,) = Reference(*byoc_hw.load_tflite(path)).run([x])
    real = function((x.astype(np.float64) - X.zero_point) * X.scale)
    expected = np.clip(np.round(real / output.scale) + output.zero_point, -128, 127)
    assert abs(found - expected).max() <= 1
    assert np.count_nonzero(found - expected) <= found.size / 20
    assert len(np.unique(found)) > 5


@pytest.mark.parametrize(("operator", "inputs"), [("REDUCE_PROD", [X, numbers(3)]), ("DIV", [X, X])])
def test_products_and_quotients_of_stored_values_are_refused(operator, inputs, tmp_path):
    path = written(tmp_path / "one.tflite", OperatorSample(operator, inputs, X))
    with pytest.raises(InvalidInput, match=rf"{operator} .*: type is not quantized: got int8"):
        byoc_hw.load_tflite(path)


# ---------------------------------------------------------------- dense layers with a scale for each output


def dense(dtype="INT8", bias=True, keep=False):
    rng = np.random.default_rng(0)
    scales = tuple(float(scale) for scale in rng.uniform(0.001, 0.01, 6).astype(np.float32))
    weights = TensorSample((6, 16), scales, 0, rng.integers(-127, 128, (6, 16)).astype(np.int8))
    sums = tuple(np.float32(0.05) * np.array(scales, np.float32))
    inputs = [TensorSample((2, 3, 16) if keep else (6, 16), 0.05, 0 if dtype == "INT16" else 9, dtype=dtype), weights]
    if bias:
        inputs.append(TensorSample((6,), sums, 0, rng.integers(-9000, 9000, 6).astype(np.int32)))
    output = TensorSample((2, 3, 6) if keep else (6, 6), 0.03, 0 if dtype == "INT16" else -7, dtype=dtype)
    options = {"KeepNumDims": keep, "FusedActivationFunction": RELU}
    return OperatorSample("FULLY_CONNECTED", inputs, output, options)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_a_dense_layer_has_a_scale_for_each_output(bias, keep, tmp_path):
    """TVM rounds once where TFLite rounds twice: they differ by 1, seldom."""
    pytest.importorskip("tflite_runtime", reason="the oracle: install the package tflite-runtime==2.14.0")
    sample = dense(bias=bias, keep=keep)
    tvms = Reference(*byoc_hw.load_tflite(written(tmp_path / "dense.tflite", sample)))
    # TFLite's reference kernel reads outputs of three dimensions as ones of two.
    flat = dense(bias=bias)
    reference = byoc_hw.TfliteReference(written(tmp_path / "flat.tflite", flat))
    for values in steps(flat, np.random.default_rng(1)):
        (found,), (expected,) = tvms.run([values.reshape(sample.inputs[0].shape)]), reference.run([values])
        assert found.shape == sample.output.shape
        assert abs(found.reshape(expected.shape).astype(int) - expected).max() <= 1
