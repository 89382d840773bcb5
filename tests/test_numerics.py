"""How layers round in each numerics."""

from dataclasses import replace

import pytest

from byoc_hw.accelerator import REFERENCE
from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Add, Dense, Mul, Pool2d
from byoc_hw.numerics import NUMERICS, in_numerics
from byoc_hw.soc import Soc
from byoc_hw.tensor import Quantization, Tensor

SCALE = Quantization((0.1,), (0,))
A, B = (Tensor(name, (1, 4, 4, 8), quantization=SCALE) for name in "ab")
POOL = {"ifm": A, "ofm": B, "kernel": (2, 2), "strides": (2, 2)}
LAYERS = {
    "add": Add("", (), ifm=A, ifm2=A, ofm=B),
    "mul": Mul("", (), ifm=A, ifm2=A, ofm=B),
    "dense": Dense(
        "", (), ifm=A, weights=Tensor("w", (8, 128)), bias=None, ofm=B, accumulator=SCALE, act_min=-128, act_max=127
    ),
    "mean": Pool2d("", (), **POOL, rescaled=True),
    "mean with padding": Pool2d("", (), **POOL, rescaled=True, padding=(1, 1, 1, 1)),
    "average of integers": Pool2d("", (), **POOL),
    "maximum": Pool2d("", (), **POOL, mode="max"),
    "sum": Pool2d("", (), **POOL, mode="sum", rescaled=True),
}


def roundings(numerics):
    return {name: in_numerics(layer, numerics).rounding for name, layer in LAYERS.items()}


def test_all_layers_round_alike_in_integer_numerics():
    assert set(roundings("relay").values()) == {"upward"}
    assert set(roundings("tflite").values()) == {"tflite"}


def test_float_takes_for_each_layer_what_rounds_its_sum_alone():
    assert roundings("float") == dict.fromkeys(LAYERS, "upward") | {"add": "tflite"}
    one = [name for name, layer in LAYERS.items() if getattr(in_numerics(layer, "float"), "in_one", False)]
    assert one == ["mean"]


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("roundings", [("upward",), ("tflite",), ("tflite", "upward")], ids="-".join)
def test_numerics_need_the_roundings_of_each_accelerator(numerics, roundings):
    accelerator = replace(REFERENCE, roundings=roundings)
    chip = Soc((REFERENCE, replace(accelerator, name="dsp")))
    lacking = [one for one in NUMERICS[numerics] if one not in roundings]
    for hardware in (accelerator, chip):
        if not lacking:
            hardware.check_numerics(numerics)
            continue
        with pytest.raises(InvalidInput, match=f"numerics '{numerics}' needs the rounding '{lacking[0]}'"):
            hardware.check_numerics(numerics)
