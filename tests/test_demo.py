"""The demo: what it says, and that it says so when something is wrong."""

from collections import defaultdict

import numpy as np
import pytest
from quoted_output import assert_readme_quotes

import byoc_hw.demo.__main__ as demo
from byoc_hw.demo import expected_outputs, heldout, model_path
from byoc_hw.demo.expected import relay_outputs
from byoc_hw.frontend.relay import reference


@pytest.mark.slow
def test_every_held_out_digit_equals_tvm(tmp_path, capsys):
    assert demo.main(["--output-dir", str(tmp_path / "digits")]) == 0
    out = capsys.readouterr().out
    assert "450 of 450 outputs equal TVM's, bit for bit" in out
    assert "130 of 130 outputs of offloaded layers equal TVM's, bit for bit (10 digits)" in out
    assert "generated C   98.9%" in out
    assert (tmp_path / "digits/Makefile").exists()
    assert_readme_quotes(out, "digits on REFERENCE")


def test_a_difference_is_counted_and_fails(tmp_path, capsys, monkeypatch):
    class Other:
        """In the place of TVM: all zeros."""

        def __init__(self, mod, params=None, *, layers=False):
            pass

        def run(self, inputs):
            return [np.zeros((1, 10), "int8")]

        def layers(self):
            return defaultdict(lambda: np.zeros(1, "int8"))

    monkeypatch.setattr(reference, "Reference", Other)
    assert demo.main(["--output-dir", str(tmp_path / "digits"), "--images", "3"]) == 1
    out = capsys.readouterr().out
    assert "0 of 3 outputs equal TVM's" in out
    assert "0 of 39 outputs of offloaded layers equal TVM's" in out


def test_a_directory_in_use_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("")
    assert demo.main(["--output-dir", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_the_stored_outputs_are_those_of_tvm():
    assert np.array_equal(expected_outputs(), relay_outputs())


def test_the_data_fits_the_model():
    digits = heldout()
    assert model_path().read_bytes()[4:8] == b"TFL3"
    assert digits.images.shape == (*digits.pixels.shape, 1) == (450, 8, 8, 1)
    assert digits.images.dtype == np.int8
    assert len(digits.labels) == 450
    assert 0.9 < digits.int8_accuracy <= digits.float_accuracy <= 1
