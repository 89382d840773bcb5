"""Both front ends make the same of a TFLite file: what is stored here is compared in either environment."""

import pytest
from graph_descriptions import NUMERICS, STORED, description, outputs

from byoc_hw.demo import model_path

MLPERF = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")


def stored(name):
    return (STORED / f"{name}.txt").read_text(encoding="utf-8")


def test_graphs_regions_and_report_of_the_digits_are_those_stored(tmp_path):
    assert description(model_path(), tmp_path) == stored("digits_int8")


@pytest.mark.slow
@pytest.mark.parametrize("mlperf_model", MLPERF, indirect=True)
def test_graphs_regions_and_report_of_mlperf_tiny_are_those_stored(mlperf_model, tmp_path):
    assert description(mlperf_model, tmp_path) == stored(mlperf_model.stem)


@pytest.mark.slow
@pytest.mark.parametrize("numerics", NUMERICS)
def test_outputs_of_the_digits_are_those_stored(numerics, tmp_path):
    assert outputs(numerics, tmp_path / "project") == stored(f"digits_outputs_{numerics}")
