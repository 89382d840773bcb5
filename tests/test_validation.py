"""Validation: the first layer that differs, where, and by how much."""

import csv
import importlib
import inspect
import io
import json
import re

import numpy as np
import pytest
from onnx_samples import QdqNet
from relay_samples import Conv, Pool, module, variable
from tflite_samples import Node, TensorSample, network_bytes
from tvm import relay

import byoc_hw
from byoc_hw.compiler import front_end
from byoc_hw.demo import heldout, model_path
from byoc_hw.errors import InvalidInput
from byoc_hw.run.new_hal import new_hal
from byoc_hw.validation import Difference, _Sums


@pytest.fixture(scope="module")
def chain():
    """A convolution and a pooling as partitioned module and project."""
    x = variable((1, 8, 8, 4))
    conv = Conv().expr(x)
    mod = byoc_hw.partition_for_hwlib(module(Pool().expr(conv), x))
    return mod, byoc_hw.build(mod)


def images(count=3, seed=0):
    return [np.random.default_rng(seed + i).integers(-128, 128, (1, 8, 8, 4)).astype(np.int8) for i in range(count)]


class Altered:
    """A reference that is wrong in one layer."""

    def __init__(self, project, layers, change):
        self.project, self.names, self.change = project, layers, change

    def run(self, inputs):
        self.result = self.project.run(inputs, trace=True)
        return self.result.outputs

    def layers(self):
        trace = {
            layer["name"]: np.frombuffer(self.result.trace[layer["id"]], np.int8).copy()
            for layer in self.project.layers
            if layer["id"] in self.result.trace
        }
        for name in self.names:
            self.change(trace[name])
        return trace


def bumped(values):
    values[5:8] += np.where(values[5:8] > 0, -3, 3).astype(np.int8)


def seen(project):
    trace = project.run(images()[0], trace=True).trace
    return [layer["name"] for layer in project.layers if layer["id"] in trace]


def test_equal_to_tvm_layer_by_layer(chain):
    mod, project = chain
    validation = byoc_hw.validate(project, images(), mod)
    assert validation.ok
    assert validation
    assert validation.first is None
    assert set(validation.compared) == {*seen(project), "output 0"}
    assert str(validation).startswith(f"equal: {len(validation.compared)} layers and outputs in 3 inferences")
    assert repr(validation).startswith(f"<Validation equal: {len(validation.compared)} layers and outputs in 3 ")


def test_a_project_of_another_name_is_compared_layer_by_layer(chain):
    mod, project = chain
    x = variable((1, 8, 8, 4))
    other = byoc_hw.partition_for_hwlib(module(Pool().expr(Conv().expr(x)), x), mod_name="other")
    same, found = byoc_hw.validate(project, images(), mod), byoc_hw.validate(project, images(), other)
    assert not found.unseen
    assert found == same


def test_layers_of_other_regions_are_compared(chain):
    """What is placed on the host cuts a region in two."""
    x = variable((1, 8, 8, 4))
    last = Conv(channels=4, height=8, width=8)
    y = last.expr(Pool().expr(Conv(filters=4).expr(x)))
    mod = byoc_hw.partition_for_hwlib(module(y, x))
    project = byoc_hw.build(mod, place={"pool2d": "host"})
    found = byoc_hw.validate(project, images(), mod)
    assert len({layer["region"] for layer in project.layers}) == 3  # two regions and the host
    assert (len(found.compared), found.unseen) == (3, ())
    assert found.ok


def test_one_array_is_one_inference(chain):
    mod, project = chain
    assert byoc_hw.validate(project, images()[0], reference=mod).inferences == 1


def test_one_array_of_several_rows_is_one_input():
    x = variable((5, 3))
    mod = byoc_hw.partition_for_hwlib(module(relay.clip(x, 0, 9), x))
    project, image = byoc_hw.build(mod), np.arange(15, dtype=np.int8).reshape(5, 3)
    assert byoc_hw.validate(project, image, mod)
    assert byoc_hw.validate(project, [image, -image], mod).inferences == 2


def test_names_the_first_layer_that_differs_and_where(chain):
    _, project = chain
    names = seen(project)
    reference = Altered(project, names, bumped)
    validation = byoc_hw.validate(project, images(2), reference)
    assert not validation
    first = validation.first
    assert (first.name, first.inference, first.index) == (names[0], 0, (5,))
    assert abs(first.found - first.expected) == 3
    assert (first.count, first.largest) == (6, 3)
    assert first.elements == 2 * reference.layers()[names[0]].size
    assert [difference.name for difference in validation.differences] == names
    text = str(validation)
    assert f"first layer {first.id} ({first.kind} {first.name}) at [5] of inference 0: got" in text
    assert "6 of" in text
    assert "by up to 3" in text
    assert f"<Validation {len(names)} of {len(names) + 1} layers and outputs in 2 inferences differ" in repr(validation)
    assert len(repr(validation)) <= 100


def test_differences_within_the_tolerance_do_not_count(chain):
    _, project = chain
    reference = Altered(project, seen(project)[:1], bumped)
    assert byoc_hw.validate(project, images(1), reference, tolerance=3)
    assert not byoc_hw.validate(project, images(1), reference, tolerance=2)


@pytest.mark.slow
def test_finds_the_layer_where_two_arithmetics_part():
    """TVM's answer for a project that follows TFLite: what a wrong rounding in a HAL would look like."""
    mod, params = byoc_hw.load_tflite(model_path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params, numerics="tflite")
    pictures = [image[None] for image in heldout().images[:10]]
    validation = byoc_hw.validate(byoc_hw.build(partitioned), pictures, partitioned)
    assert not validation
    assert validation.first.largest == 1


# ---------------------------------------------------------------- on a HAL


def with_a_fault(directory, pattern, replacement):
    """The template HAL with other text in one place of its jobs."""
    new_hal(directory)
    (jobs,) = directory.glob("*_jobs.c")
    broken, count = re.subn(pattern, replacement, jobs.read_text())
    assert count == 1
    jobs.write_text(broken)
    return byoc_hw.Toolchain(hal=directory, cflags="-O1")


@pytest.fixture(scope="module")
def digits():
    """The shipped model as partitioned module and project, and two images."""
    mod, params = byoc_hw.load_tflite(model_path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params)
    return partitioned, byoc_hw.build(partitioned), [image[np.newaxis] for image in heldout().images[:2]]


@pytest.mark.slow
def test_a_fault_of_a_hal_is_found_in_the_first_layer_that_has_it(digits, tmp_path):
    """Layers pass their outputs on in local memory: they are compared all the same, and all of them."""
    partitioned, project, pictures = digits
    toolchain = with_a_fault(tmp_path / "hal", r"clamp\(maximum, layer", "clamp(maximum + 1, layer")
    pool = next(layer for layer in project.layers if layer["kind"] == "pool2d")
    assert pool["id"] > 5
    validation = byoc_hw.validate(project, pictures, partitioned, toolchain=toolchain)
    first = validation.first
    assert (first.id, first.name, first.kind) == (pool["id"], pool["name"], "pool2d")
    assert set(validation.compared) == {*(layer["name"] for layer in project.layers if layer["region"]), "output 0"}


@pytest.mark.slow
def test_a_fault_in_one_layer_is_found_there(digits, tmp_path):
    """In the last layer of its kind: the outputs of those before it are right."""
    partitioned, project, pictures = digits
    layer = [layer for layer in project.layers if layer["kind"] == "conv2d"][-1]
    fault = rf"""static void right(const hwlib_job_t *job);

void \1_run(const hwlib_job_t *job)
{{
  right(job);
  if (job->layer->id == {layer["id"]} && (job->tile->flags & HWLIB_TILE_LAST) != 0) {{
    \1_activations[job->tile->ofm] ^= 1;
  }}
}}

static void right(const hwlib_job_t *job)"""
    toolchain = with_a_fault(tmp_path / "hal", r"void (\w+)_run\(const hwlib_job_t \*job\)", fault)
    validation = byoc_hw.validate(project, pictures, partitioned, toolchain=toolchain)
    first = validation.first
    assert (first.id, first.name, first.inference) == (layer["id"], layer["name"], 0)
    assert not any(first.index)
    assert abs(first.found - first.expected) == 1


# ---------------------------------------------------------------- what is refused


def test_options_reach_the_runner(chain):
    mod, project = chain
    with pytest.raises(byoc_hw.ToolchainMissing, match="no-such-compiler"):
        byoc_hw.validate(project, images(1), mod, toolchain=byoc_hw.Toolchain("no-such-compiler"))
    with pytest.raises(InvalidInput, match="on is one of"):
        byoc_hw.validate(project, images(1), mod, on="the moon")


def test_refuses_a_reference_of_another_model(chain):
    mod, project = chain
    with pytest.raises(InvalidInput, match="reference is a module that partition_for_hwlib made"):
        byoc_hw.validate(project, images(1), Conv().module())
    other = byoc_hw.build(byoc_hw.partition_for_hwlib(Conv().module()))
    with pytest.raises(InvalidInput, match="the reference has"):
        byoc_hw.validate(other, images(1), mod)


def test_refuses_a_file_that_is_not_there(chain, tmp_path):
    pytest.importorskip("tflite_runtime")
    with pytest.raises(InvalidInput, match="cannot be read"):
        byoc_hw.validate(chain[1], images(1), tmp_path / "none.tflite")


@pytest.fixture
def flattened(tmp_path):
    """A fully connected layer over an image, which TVM imports as a reshape and a dense layer of one name."""
    pytest.importorskip("tflite_runtime")

    def write(name="x", **more):
        weights = np.random.default_rng(0).integers(-127, 128, (5, 16)).astype(np.int8)
        path = tmp_path / "flattened.tflite"
        layer = Node("FULLY_CONNECTED", [0, 1, -1], [2])
        tensors = [
            TensorSample((1, 4, 4, 1), name=name),
            TensorSample((5, 16), data=weights, name="w", **more),
            TensorSample((1, 5), 0.5, name="y"),
        ]
        path.write_bytes(network_bytes(tensors, [layer], [0], [2]))
        return path

    return write


def pixels():
    return np.arange(-8, 8, dtype=np.int8).reshape(1, 4, 4, 1)


def built(path):
    mod, params = byoc_hw.load_tflite(path)
    return byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, numerics="tflite"))


def test_an_operator_of_the_file_is_compared_with_its_last_layer(flattened):
    path = flattened()
    project = built(path)
    assert [layer["source"] for layer in project.layers] == [["y"], ["y"]]
    validation = byoc_hw.validate(project, pixels(), path)
    assert validation.ok
    assert validation.compared == (project.layers[1]["name"], "output 0")
    assert validation.unseen == (project.layers[0]["name"],)


def test_inputs_without_names_are_given_by_place(flattened):
    path = flattened(name="")
    assert byoc_hw.validate(built(path), {"input_0": pixels()}, path)
    with pytest.raises(InvalidInput, match="input input_0 is given: got image"):
        byoc_hw.TfliteReference(path).run({"image": pixels()})
    with pytest.raises(InvalidInput, match="the model takes 1 inputs: got 2"):
        byoc_hw.TfliteReference(path).run([pixels(), pixels()])


def test_a_file_that_tflite_refuses(flattened):
    project = built(flattened())
    with pytest.raises(InvalidInput, match=r"flattened.tflite: TFLite's .* refuses it: quantized_dimension must be in"):
        byoc_hw.validate(project, pixels(), flattened(axis=5))


def test_values_that_tflite_refuses(flattened):
    with pytest.raises(InvalidInput, match=r"TFLite's interpreter refuses it: .*[Dd]imension mismatch"):
        byoc_hw.TfliteReference(flattened()).run([pixels()[:, 1:]])


def test_the_module_and_the_function_have_names_of_their_own():
    assert inspect.ismodule(importlib.import_module("byoc_hw.validation"))
    assert byoc_hw.validate is byoc_hw.validation.validate


# ---------------------------------------------------------------- figures of each layer


def test_figures_of_a_layer_are_those_of_all_inferences(chain):
    _, project = chain
    wrong = seen(project)[0]
    found = byoc_hw.validate(project, images(), Altered(project, [wrong], bumped))
    figures = {one.name: one for one in found.comparisons}
    assert list(figures) == list(found.compared)
    one = figures[wrong]
    assert (one.differing, one.elements, one.largest) == (9, found.first.elements, 3)
    assert one.rms == pytest.approx(np.sqrt(9 * 3**2 / one.elements))
    here = np.concatenate([np.frombuffer(r.trace[one.id], np.int8) for r in project.run_batch(images(), trace=True)])
    there = here.reshape(3, -1).copy()
    for row in there:
        bumped(row)
    a, b = here.astype(float), there.ravel().astype(float)
    assert one.cosine == pytest.approx(a @ b / np.sqrt((a @ a) * (b @ b)))
    assert all(other.exact and other.rms == 0 for name, other in figures.items() if name != wrong)


def test_a_tolerance_leaves_the_largest_difference_visible(chain):
    _, project = chain
    found = byoc_hw.validate(project, images(), Altered(project, seen(project)[:1], bumped), tolerance=3)
    assert found.ok
    assert (found.comparisons[0].differing, found.comparisons[0].largest) == (0, 3)
    assert not found.comparisons[0].exact


def test_figures_as_text_table_json_and_html(chain):
    _, project = chain
    found = byoc_hw.validate(project, images(), Altered(project, seen(project)[:1], bumped))
    heading, first, *others = found.table().splitlines()
    assert heading.split() == ["layer", "kind", "elements", "differing", "largest", "RMS", "cosine"]
    assert first.split()[3:5] == ["9", "3"]
    assert all(line.endswith("exact") for line in others)
    (row, *_) = csv.DictReader(io.StringIO(found.to_csv()))
    assert (row["differing"], float(row["largest"])) == ("9", 3)
    assert json.loads(found.to_json())["comparisons"][0]["differing"] == 9
    assert "<table>" in found._repr_html_()


def test_zeros_have_the_same_direction_as_zeros_only():
    sums = _Sums(Difference("x", 0, "add", 0, (), 0, 0, 0, 0, 0))
    sums.add(np.zeros(4, np.int8), np.zeros(4, np.int8))
    assert sums.comparison(0).cosine == 1
    sums.add(np.zeros(4, np.int8), np.ones(4, np.int8))
    assert sums.comparison(4).cosine is None


class OneWrong:
    """TVM's answers, with one element of a layer wrong."""

    def __init__(self, mod, name, index):
        self.answers, self.name, self.index = front_end().reference(mod), name, index

    def run(self, inputs):
        return self.answers.run(inputs)

    def layers(self):
        found = self.answers.layers()
        (key,) = (key for key in found if key.partition(":")[2] == self.name)
        found[key] = found[key].copy()
        found[key][self.index] ^= 1
        return found


@pytest.mark.slow
def test_a_layer_that_lies_in_another_order_is_compared_at_the_models_indices(tmp_path):
    net = QdqNet()
    image = net.conv(net.input(1, 3, 6, 5), 8)
    net.output(net.conv(net.concat(net.conv(image, 4, 1), net.conv(image, 4, 1)), 2, 1))
    mod, params = byoc_hw.load(net.save(tmp_path / "branches.onnx"))
    partitioned = byoc_hw.partition_for_hwlib(mod, params)
    project = byoc_hw.build(partitioned)
    (joined,) = (layer for layer in project.layers if layer["kind"] == "concat")
    assert joined["axes"] == [0, 2, 3, 1]
    inputs = np.random.default_rng(0).standard_normal((1, 3, 6, 5)).astype(np.float32)
    right = byoc_hw.validate(project, inputs, partitioned)
    assert right
    assert joined["name"] in right.compared
    wrong = byoc_hw.validate(project, inputs, OneWrong(partitioned, joined["name"], (0, 7, 4, 3)))
    assert [(one.name, one.index, one.count) for one in wrong.differences] == [(joined["name"], (0, 7, 4, 3), 1)]
