"""`python -m byoc_hw quantize`: the model that it writes, what it prints, and what it refuses."""

import numpy as np
import pytest

import byoc_hw
from byoc_hw import demo
from byoc_hw.__main__ import main


@pytest.fixture
def samples(tmp_path):
    path = tmp_path / "samples.npy"
    np.save(path, demo.calibration()[:32])
    return path


def quantize(*options):
    return main(["quantize", str(demo.float_path()), *map(str, options)])


@pytest.mark.needs_relay
@pytest.mark.parametrize("suffix", [pytest.param(".json", marks=pytest.mark.slow), ".tflite"])
def test_writes_a_model_that_builds_with_the_wished_bits(suffix, samples, tmp_path, capsys):
    output = tmp_path / f"digits{suffix}"
    assert quantize("--calibration", samples, "--bits", 4, "--output", output) == 0
    shown = capsys.readouterr().out
    assert "9 layers, 33,648 weights in 16,880 bytes" in shown
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(*byoc_hw.load(output)))
    assert str(report).count("weights of 4 bits") == 9


REFUSED = {
    "suffix": (("--output", "x.onnx"), "--output ends in .tflite or .json: got x.onnx"),
    "samples": (("--calibration", "none.npy"), "--calibration is an .npy file, or an .npz file"),
    "objective": (("--objective", "small"), 'objective is "accuracy"'),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_the_rule_and_writes_nothing(options, message, samples, tmp_path, capsys):
    output = tmp_path / "out.json"
    assert quantize("--calibration", samples, "--output", output, *options) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()
