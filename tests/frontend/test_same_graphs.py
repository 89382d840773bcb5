"""Both front ends make the same of a TFLite file: what is stored here is compared in either environment."""

import pytest
from graph_descriptions import DETECTOR, NETWORKS, NUMERICS, SHIPPED, STORED, description, outputs

import byoc_hw
from byoc_hw.demo import model_path
from byoc_hw.pattern import patterns

MLPERF = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")


def stored(name):
    return (STORED / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_graphs_regions_and_report_of_the_digits_are_those_stored(tmp_path):
    assert description(model_path(), tmp_path) == stored("digits_int8")


@pytest.mark.slow
def test_graphs_regions_and_report_of_the_detector_are_those_stored(tmp_path):
    assert description(DETECTOR, tmp_path) == stored("shapes_int8")


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_graphs_regions_and_report_of_small_networks_are_those_stored(name, tmp_path):
    (tmp_path / f"{name}.tflite").write_bytes(NETWORKS[name]())
    assert description(tmp_path / f"{name}.tflite", tmp_path / "project") == stored(name)


@pytest.mark.slow
@pytest.mark.parametrize("mlperf_model", MLPERF, indirect=True)
def test_graphs_regions_and_report_of_mlperf_tiny_are_those_stored(mlperf_model, tmp_path):
    assert description(mlperf_model, tmp_path) == stored(mlperf_model.stem)


@pytest.mark.slow
@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("name", SHIPPED)
def test_outputs_are_those_stored(name, numerics, tmp_path):
    assert outputs(name, numerics, tmp_path / "project") == stored(f"{name}_outputs_{numerics}")


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_outputs_of_the_host_alone_are_those_of_the_accelerator(name, tmp_path):
    byoc_hw.pattern_table()  # loads the patterns
    everything = [one.name for one in patterns()]
    assert outputs(name, "relay", tmp_path / "project", everything) == stored(f"{name}_outputs_relay")
