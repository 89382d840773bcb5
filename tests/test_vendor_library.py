"""A vendor's library, with calls of its own, runs the shipped model: nothing in byoc_hw/ knows it."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bit_exact import assert_bit_exact, assert_equals_tvm, input_arrays
from relay_samples import Conv, Subtract, module
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.demo import heldout, model_path
from byoc_hw.plan.array.cost import best_cycles
from byoc_hw.plan.core import region_energy
from byoc_hw.plan.region import plan_region

sys.path.append(str(Path(__file__).parent / "emit"))
from vendor_library import QUEUED, VENDOR, conv_cycles

WHOLE_LAYERS = replace(VENDOR, limits={kind: VENDOR.limits[kind] for kind in ("conv2d", "dense", "reshape")})


@pytest.mark.slow
def test_takes_convolution_and_dense_of_the_shipped_model_bit_for_bit():
    mod, params = byoc_hw.load_tflite(model_path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="digits", accelerator=WHOLE_LAYERS)
    project = byoc_hw.build(partitioned)
    kinds = [layer["kind"] for layer in project.layers if layer["region"]]
    assert kinds.count("conv2d") == 5
    assert kinds.count("dense") == 1
    images = [[image[None]] for image in heldout().images[:20]]
    assert_equals_tvm(project, partitioned, mod, images, SANITIZED, params)


def test_what_the_library_has_no_call_for_says_so():
    mod, params = byoc_hw.load_tflite(model_path())
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, params, accelerator=WHOLE_LAYERS))
    depthwise = next(outcome for outcome in report.host if "depthwise_conv2d_3/depthwise" in outcome.name)
    assert [str(reason) for reason in depthwise.rejections] == [
        "qnn_depthwise_conv2d: layer kind is one of conv2d, dense, reshape: got depthwise_conv2d"
    ]


def test_regions_and_composites_carry_its_name():
    mod = byoc_hw.partition_for_hwlib(Conv().module(), accelerator=WHOLE_LAYERS)
    assert 'Compiler="vendor"' in str(mod)
    assert 'Composite="vendor.qnn_conv2d"' in str(mod)
    project = byoc_hw.build(mod)
    assert "vendor_conv(" in (project.directory / "src/default_vendor.c").read_text()
    assert not (project.directory / "hwlib").exists()


def test_without_a_transpose_nchw_stays_on_the_host_and_says_why():
    project = assert_bit_exact(Conv(layout="NCHW").module(), accelerator=WHOLE_LAYERS)
    assert "data layout is NHWC, or can be brought to it: got NCHW: the accelerator has no transpose" in str(
        project.report
    )


def test_a_call_that_only_adds_gets_no_subtraction():
    """Both are layers of kind `add`."""
    subtraction = Subtract((1, 2, 2, 8)).module()
    project = assert_bit_exact(subtraction, accelerator=VENDOR)
    assert "qnn_subtract: its call subtracts no input: got ifm2" in str(project.report)
    add = replace(VENDOR.library.calls["add"], subtracts=True)
    able = replace(VENDOR, label="ABLE", library=replace(VENDOR.library, calls={**VENDOR.library.calls, "add": add}))
    assert byoc_hw.explain(byoc_hw.partition_for_hwlib(subtraction, accelerator=able)).offloaded


ANSWERS = {
    "arguments": (lambda layer, operands: "x, y", "arguments of conv2d .* are texts of C expressions: got 'x, y'"),
    "pack": (lambda layer: None, "pack of conv2d .* is an array: got None"),
    "parameters": (lambda layer: {5: np.ones(1)}, "parameters of conv2d .*: each name is a string: got 5"),
    "dtype": (
        lambda layer: {"table": np.ones(1, "float16")},
        "vendor_main_0_0_table: dtype is one of int8, .*: got float16",
    ),
    "workspace": (lambda layer: -1, "workspace of conv2d .* is at least 0: got -1"),
    "an error": (lambda layer: {}["x"], "workspace of conv2d qnn.conv2d_1: KeyError: 'x'"),
}


@pytest.mark.parametrize(("what", "answer"), ANSWERS.items(), ids=ANSWERS)
def test_an_answer_of_its_functions_that_is_none_names_the_layer(what, answer, tmp_path):
    function, message = answer
    field = {"dtype": "parameters", "an error": "workspace"}.get(what, what)
    call = replace(VENDOR.library.calls["conv2d"], **{field: function})
    library = replace(VENDOR.library, calls={**VENDOR.library.calls, "conv2d": call})
    accelerator = replace(VENDOR, label="WRONG", library=library)
    with pytest.raises(byoc_hw.InvalidInput, match=message):
        byoc_hw.build(
            byoc_hw.partition_for_hwlib(Conv().module(), accelerator=accelerator), output_dir=tmp_path / "project"
        )
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize(
    ("source", "message"), [("nowhere.c", "files: .*nowhere.c is none"), ("a b.c", "a file's name has .*: got 'a b.c'")]
)
def test_a_source_that_make_cannot_compile_is_named(source, message, tmp_path):
    (tmp_path / "a b.c").touch()
    accelerator = replace(VENDOR, label="WRONG", library=replace(VENDOR.library, sources=(tmp_path / source,)))
    partitioned = byoc_hw.partition_for_hwlib(Conv().module(), accelerator=accelerator)
    with pytest.raises(byoc_hw.InvalidInput, match=message):
        byoc_hw.build(partitioned)


def test_its_weights_are_packed_at_compile_time_as_it_wants_them():
    weights = np.arange(3 * 3 * 4 * 8, dtype=np.int64).reshape(8, 3, 3, 4) % 100
    conv = Conv(weights=weights.astype("int8"))
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(conv.module(), accelerator=WHOLE_LAYERS))
    text = (project.directory / "src/default_weights.h").read_text()
    (values,) = re.findall(r"int8_t \w+\[288\][^=]*= \{([^}]*)\}", text)
    found = [int(value) for value in values.replace(",", " ").split()]
    assert found == weights.transpose(1, 2, 3, 0).ravel().tolist()  # [fy][fx][c][k]


@pytest.mark.parametrize("low", [-8, -2])
def test_narrow_weights_are_packed_as_it_wants_them(low):
    """`pack` sees in how many bits they fit: the library has them of 4 bits, of 2 it has none."""
    weights = np.random.default_rng(1).integers(low, -low, (5, 3, 3, 3)).astype("int8")
    project = assert_bit_exact(
        Conv(channels=3, filters=5, weights=weights).module(), accelerator=WHOLE_LAYERS, cflags=SANITIZED
    )
    assert re.search(r"int8_t \w+\[68\]", (project.directory / "src/default_weights.h").read_text())


def test_cannot_be_polled():
    mod, params = byoc_hw.load_tflite(model_path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params, accelerator=VENDOR)
    with pytest.raises(byoc_hw.InvalidInput, match="poll is for accelerators with a HAL: vendor has a library"):
        byoc_hw.build(partitioned, poll=True)


DLA = replace(byoc_hw.DIANA_DIGITAL, name="dla", label="DLA")
CHIP = byoc_hw.Soc((DLA, QUEUED), label="DLA + QUEUED")


@pytest.mark.slow
def test_runs_beside_a_dla_in_the_planned_cycles():
    """The second convolution is wished on the library; the pooling, for which it has no call, is the DLA's."""
    first, second = Conv(12, 12, 4, 8), Conv(6, 6, 8, 8, seed=2)
    (x,) = first.variables()
    pooled = relay.nn.max_pool2d(first.expr(x), pool_size=(2, 2), strides=(2, 2), layout="NHWC")
    mod = module(second.expr(pooled), x)
    partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=CHIP)
    (graph,) = region_graphs(partitioned).values()
    project = byoc_hw.build(partitioned, place={graph.layers[2].name: "queued"})
    assert_equals_tvm(project, partitioned, mod, list(input_arrays(mod, 2)), cflags=SANITIZED)
    kinds = [layer["kind"] for layer in project.layers if layer["region"]]
    assert kinds == ["conv2d", "pool2d", "conv2d"]
    plan = plan_region(graph, CHIP, place={graph.layers[2].name: "queued"})
    energy = byoc_hw.Energy({"dla": 0.0, "queued": 1.0}, copied=0.0, host=0.0)
    assert region_energy(plan, CHIP, energy).array["queued"] == conv_cycles(graph.layers[2])
    said = " ".join(project.report.engines.values())
    costs = f"dla {best_cycles(graph.layers[2], DLA):,} cycles, queued {conv_cycles(graph.layers[2]):,} cycles"
    assert f"on queued; alone {costs}" in said
    assert "queued not: layer kind is one of conv2d, dense, add, reshape: got pool2d" in said


def beside_the_host():
    """A convolution, and beside it what the library lacks; their sum is the host's."""
    conv = Conv(8, 8, 8, 8)
    (x,) = conv.variables()
    other = relay.sum(relay.cast(x, "int32"), axis=[1, 2, 3])
    return module(relay.Tuple([conv.expr(x), other]), x)


@pytest.mark.parametrize("accelerator", [VENDOR, QUEUED], ids=lambda one: one.name)
def test_calls_that_start_run_beside_host_functions(accelerator):
    """With the library of calls that return at the end nothing changes."""
    project = assert_bit_exact(beside_the_host(), accelerator=accelerator, cflags=SANITIZED)
    main = (project.directory / "src/default_main.c").read_text()
    assert ("_wait();" in main) == (accelerator is QUEUED)
