"""UNIDIRECTIONAL_SEQUENCE_LSTM of int8: TFLite's results bit for bit over several inferences, with its states."""

import numpy as np
import pytest
import tflite
from tflite_samples import Node, TensorSample, network_bytes

import byoc_hw
from byoc_hw.errors import InvalidInput

TANH, RELU = tflite.ActivationFunctionType.TANH, tflite.ActivationFunctionType.RELU
GATES = ("input", "forget", "cell", "output")


def lstm(rng, path, *, steps=4, inputs=6, cells=5, batch=1, bits=4, clip=0.0, time_major=False, without=(), **changed):
    """A file of one LSTM, as the converter makes it. `bits` are the integer bits of the cell state."""
    tensors, places = [], [-1] * 24

    def put(place, shape, scale, zero_point=0, data=None, name=None, **more):
        tensors.append(TensorSample(shape, scale, zero_point, data, name=name or f"t{len(tensors)}", **more))
        if place is not None:
            places[place] = len(tensors) - 1
        return len(tensors) - 1

    shape = (steps, batch, inputs) if time_major else (batch, steps, inputs)
    scale, hidden = float(rng.uniform(0.01, 0.05)), float(rng.uniform(1 / 256, 1 / 128))
    zero_point = int(rng.integers(-9, 9))
    put(0, shape, scale, int(rng.integers(-128, 128)), name="x")
    for number, gate in enumerate(GATES):
        if gate in without:
            continue
        for place, depth in ((1 + number, inputs), (5 + number, cells)):
            data = rng.integers(-127, 128, (cells, depth)).astype(np.int8)
            put(place, data.shape, float(rng.uniform(0.005, 0.02)), 0, data)
        bias = rng.integers(-3000, 3000, cells).astype(np.int32)
        put(12 + number, bias.shape, scale * tensors[places[1 + number]].scale, 0, bias)
    put(18, (batch, cells), hidden, zero_point, name="hidden", variable=True)
    put(19, (batch, cells), 2.0 ** (bits - 15), name="cell", dtype="INT16", variable=True)
    between = [put(None, (1,), 2.0**-12, dtype="INT16") for _ in range(4)] + [put(None, (1,), hidden, zero_point)]
    output = put(None, (*shape[:2], cells), hidden, zero_point, name="y")
    for place, values in changed.pop("tensors", {}).items():
        if places[place] < 0:
            put(place, (cells,), 0.01, 0, np.ones(cells, np.int16))
        for key, value in values.items():
            setattr(tensors[places[place]], key, value)
    options = {"FusedActivationFunction": TANH, "TimeMajor": time_major, "CellClip": clip} | changed
    node = Node("UNIDIRECTIONAL_SEQUENCE_LSTM", places, [output], options, intermediates=between)
    path.write_bytes(network_bytes(tensors, [node], [places[0]], [output]))
    return path


FORMS = {
    "one step": {"steps": 1},
    "a batch": {"batch": 2, "bits": 3},
    "time first": {"batch": 2, "time_major": True, "steps": 3},
    "no input gate": {"without": ("input",), "bits": 0},
    "clipped": {"clip": 0.7, "bits": 6},
}


@pytest.mark.needs_relay  # with it comes the oracle
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, id=name, marks=[pytest.mark.slow] if at else [])
        for at, (name, form) in enumerate(FORMS.items())
    ],
)
def test_lstm_equals_tflite_over_several_inferences(form, tmp_path):
    rng = np.random.default_rng(len(form))
    path = lstm(rng, tmp_path / "lstm.tflite", **form)
    mod, params = byoc_hw.load_tflite(path)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, numerics="tflite"))
    assert not project.report.tvm_arithmetic
    reference = byoc_hw.TfliteReference(path)
    x, hidden, cell = project.inputs
    assert [(one.name, one.dtype, one.state) for one in (hidden, cell)] == [
        ("hidden", "int8", "hidden_next"),
        ("cell", "int16", "cell_next"),
    ]
    states = [np.full(hidden.shape, hidden.zero_point, np.int8), np.zeros(cell.shape, np.int16)]
    lively = set()
    for _ in range(6):
        inputs = [rng.integers(-128, 128, x.shape).astype(np.int8), *states]
        found, expected = project.run(inputs).outputs, reference.run(inputs)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        states = found[1:]
        lively.update(found[0].ravel().tolist())
    assert len(lively) > 10


NOT_TAKEN = {
    "peephole": ({"tensors": {9: {}}}, "there are no peephole weights: got some"),
    "projection": ({"tensors": {16: {}}}, "there are no projection: got some"),
    "activation": ({"FusedActivationFunction": RELU}, f"activation is TANH: got {RELU}"),
    "cell scale": ({"tensors": {19: {"scale": 0.001}}}, "the cell state's scale is a power of 2: got 0.001"),
    "cell bits": ({"bits": 7}, "the cell state has 0 to 6 integer bits: got 7"),
    "weights": ({"tensors": {3: {"zero_point": 2}}}, "zero points of weights are 0: got 2"),
    "half an input gate": ({"tensors": {1: {}}, "without": ("input",)}, "the input gate has both weights and a bias"),
    "float": ({"tensors": {0: {"dtype": "FLOAT32", "scale": None}}}, "operator reads inputs, constants and results of"),
}


@pytest.mark.needs_relay
@pytest.mark.parametrize(("form", "message"), NOT_TAKEN.values(), ids=NOT_TAKEN)
def test_other_lstms_stop_the_import_and_the_report_says_why(form, message, tmp_path):
    path = lstm(np.random.default_rng(0), tmp_path / "lstm.tflite", steps=2, **form)
    with pytest.raises(InvalidInput) as raised:
        byoc_hw.load_tflite(path)
    assert f"UNIDIRECTIONAL_SEQUENCE_LSTM (y): {message}" in str(raised.value)
    (outcome,) = byoc_hw.explain_tflite(path).outcomes
    assert outcome.placement == "stops"
