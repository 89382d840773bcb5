"""What only the TVM with Relay has says so in one sentence where TVM has Relax."""

import pytest

from byoc_hw import Unsupported
from byoc_hw.__main__ import main
from byoc_hw.compiler import front_end
from byoc_hw.demo import detector
from byoc_hw.frontend.relax.front_end import RelaxFrontEnd


@pytest.mark.parametrize("arguments", [["new-pattern", "mine", "--layer", "Conv2d"], ["check-pattern", "lookup"]])
def test_a_command_of_patterns_says_so(arguments, capsys):
    assert main(arguments) == 2
    assert f"{arguments[0]} needs the front end of Relay" in capsys.readouterr().err


def test_the_detector_says_so(capsys):
    assert detector.main(["--pictures", "1"]) == 2
    assert "the detector with its boxes needs the front end of Relay" in capsys.readouterr().err


def test_quantize_says_so():
    assert isinstance(front_end(), RelaxFrontEnd)
    with pytest.raises(Unsupported, match=r"^quantize needs the front end of Relay"):
        front_end().load_float_tflite(detector.detector_path())
