"""Projects as a whole: reproducible, side by side, with and without an accelerator, bad input refused."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from bit_exact import assert_bit_exact, input_arrays
from relay_samples import Conv, Dense, Pool, const, module, variable
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.compiler import front_end
from byoc_hw.errors import InvalidInput, PlanError
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.plan.tune.own_plan import known_layout

HERE = Path(__file__).parent


def network(seed=0):
    """conv -> pool -> dense -> softmax: a region, then the host."""
    x = variable((1, 8, 8, 4), name="image:0")
    y = Pool("nn.avg_pool2d").expr(Conv(seed=seed).expr(x))
    y = relay.qnn.op.dequantize(relay.reshape(y, (1, 128)), const(0.1, "float32"), const(0, "int32"))
    return module(relay.nn.softmax(y), x)


def files_of(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# ---------------------------------------------------------------- same input, same bytes


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(tmp_path):
    script = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import byoc_hw
from test_compiler import network
mod = network()
byoc_hw.build(byoc_hw.partition_for_hwlib(mod), output_dir=sys.argv[1] + "/regions")
byoc_hw.build(mod, output_dir=sys.argv[1] + "/host")
"""
    for name, seed in (("one", "1"), ("two", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", script, tmp_path / name], check=True, env=environment)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_building_twice_writes_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        byoc_hw.build(byoc_hw.partition_for_hwlib(network()), output_dir=tmp_path / name)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


# ---------------------------------------------------------------- the program


@pytest.mark.slow
def test_the_generated_project_is_clean_under_the_sanitizers():
    assert_bit_exact(network(), cflags=SANITIZED)


def test_an_unpartitioned_module_builds_for_the_host_alone():
    mod = network()
    project = byoc_hw.build(mod)
    reference = Reference(mod)
    for inputs in input_arrays(mod):
        result = project.run(inputs, toolchain=byoc_hw.Toolchain(cflags="-O1"))
        np.testing.assert_array_equal(result.outputs[0], reference.run(inputs)[0])
        assert result.cycles is None
    assert not (project.directory / "hwlib").exists()
    assert "not partitioned, all 9 operators on the host" in str(project.report)


def test_a_float_model_still_builds_and_the_report_says_that_nothing_is_offloaded():
    x = variable((1, 16), "float32")
    mod = module(relay.nn.softmax(relay.nn.relu(x)), x)
    project = assert_bit_exact(mod)
    assert "0 of 2 operators offloaded, in 0 regions" in str(project.report)
    assert "no pattern covers nn.relu" in str(project.report)


def test_a_model_without_inputs_runs():
    mod = module(Conv().expr(const(np.ones((1, 8, 8, 4)), "int8")))
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod))
    np.testing.assert_array_equal(project.run([]).outputs[0], Reference(mod).run([])[0])


def test_two_models_link_into_one_program(tmp_path):
    models = ("one", "two")
    projects = [
        byoc_hw.build(byoc_hw.partition_for_hwlib(network(seed), mod_name=name), output_dir=tmp_path / name)
        for seed, name in enumerate(models)
    ]
    inputs = next(iter(input_arrays(network())))
    expected = [project.run(inputs, toolchain=byoc_hw.Toolchain(cflags="-O1")).outputs[0] for project in projects]
    calls = "".join(
        f"""
  struct {name}_inputs in_{name} = {{image}};
  struct {name}_outputs out_{name} = {{result}};
  if ({name}_run(&in_{name}, &out_{name}) != 0) return 1;
  fwrite(result, sizeof result, 1, stdout);
"""
        for name in models
    )
    output = {name: (tmp_path / name / f"include/{name}.h").read_text() for name in models}
    assert all(f"{name}_run" in text for name, text in output.items())
    (tmp_path / "main.c").write_text(
        f"""#include <stdio.h>
#include "one.h"
#include "two.h"
#include "hwlib_sim.h"
int main(void) {{
  static int8_t image[256];
  static float result[128];
  for (int i = 0; i < 256; ++i) image[i] = -128;
  {calls}
  return 0;
}}
"""
    )
    sources = [path for name in models for path in sorted((tmp_path / name / "src").glob("*.c"))]
    hwlib = tmp_path / "one" / "hwlib"
    sources += [tmp_path / "main.c", *sorted((hwlib / "src").glob("*.c")), *sorted((hwlib / "sim").glob("*.c"))]
    includes = [f"-I{tmp_path / name / 'include'}" for name in models]
    includes += [f"-I{hwlib / 'include'}", f"-I{hwlib / 'sim'}"]
    subprocess.run(["gcc", "-O1", "-ffp-contract=off", *includes, *sources, "-lm", "-o", tmp_path / "both"], check=True)
    printed = subprocess.run([tmp_path / "both"], check=True, capture_output=True).stdout
    np.testing.assert_array_equal(np.frombuffer(printed, np.float32), np.concatenate(expected, axis=None))


def test_inputs_keep_the_models_names():
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(network()))
    image = np.zeros((1, 8, 8, 4), np.int8)
    np.testing.assert_array_equal(project.run({"image:0": image}).outputs[0], project.run(image).outputs[0])


def test_opens_a_project_that_was_built_before(tmp_path):
    built = byoc_hw.build(byoc_hw.partition_for_hwlib(network()), output_dir=tmp_path / "out")
    opened = byoc_hw.Project(tmp_path / "out")
    assert opened.memory == built.memory
    assert str(opened.report) == str(built.report)


def test_memory_counts_what_is_alive_at_once():
    memory = byoc_hw.build(byoc_hw.partition_for_hwlib(network())).memory
    assert memory.lower_bound <= memory.arena <= memory.lower_bound * 1.1
    assert {owner for owner, _, _ in memory.blocks.values()} == {"tensor", "host workspace"}
    assert memory.flash_bytes >= 3 * 3 * 4 * 8 + 8 * 12


def test_layers_are_planned_in_a_better_order_than_the_models():
    """In the model a layer of another branch is between those that read the widest tensor."""
    ifm = variable((1, 12, 12, 4))
    stem = Conv(12, 12, 4, 8).expr(ifm)
    wide = Conv(12, 12, 8, 40, (1, 1), padding=(0, 0, 0, 0), seed=1).expr(stem)
    first = Conv(12, 12, 40, 16, seed=2).expr(wide)
    beside = Conv(12, 12, 8, 16, seed=3).expr(stem)
    last = Conv(12, 12, 40, 32, (1, 1), padding=(0, 0, 0, 0), seed=4).expr(wide)
    mod = module(relay.Tuple([first, beside, last]), ifm)
    small = replace(REFERENCE, activation_memory=4096, weight_memory=4096, dma_width=1)
    project = assert_bit_exact(mod, accelerator=small)
    partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=small)
    (graph,) = front_end().open_model(partitioned, None, None).graphs().values()
    assert project.schedule.cycles < 0.9 * known_layout(graph, small).cycles


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ({"ram": 600}, r"RAM is 600 bytes: 1\d+ bytes needed.*\n +512  host workspace: T_softmax_exp"),
        ({"flash": 100}, r"flash is 100 bytes: \d+ bytes needed.*\n +\d+  tvmgen_default_hwlib_main_0: "),
    ],
)
def test_a_model_that_does_not_fit_names_the_largest_owners(tmp_path, memory, message):
    mod = byoc_hw.partition_for_hwlib(network(), accelerator=replace(REFERENCE, label="TINY", **memory))
    with pytest.raises(PlanError, match=message):
        byoc_hw.build(mod, output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_refuses_another_mod_name_than_the_module_records():
    with pytest.raises(InvalidInput, match="partitioned with mod_name 'net': got 'other'"):
        byoc_hw.build(byoc_hw.partition_for_hwlib(Conv().module(), mod_name="net"), mod_name="other")


@pytest.mark.slow
def test_refuses_regions_that_it_has_not_made():
    x = variable((1, 4), "float32")
    theirs = relay.Function([x], relay.nn.relu(x)).with_attr("Compiler", "other").with_attr("global_symbol", "theirs")
    mod = tvm.IRModule({relay.GlobalVar("theirs"): theirs})
    y = variable((1, 4), "float32", "y")
    mod["main"] = relay.Function([y], mod.get_global_var("theirs")(y))
    with pytest.raises(InvalidInput, match="external functions that partition_for_hwlib did not make"):
        byoc_hw.build(mod)


def test_refuses_a_shape_that_is_not_static():
    x = relay.var("x", shape=(relay.Any(), 4), dtype="int8")
    with pytest.raises(InvalidInput, match=r"input x has a static shape: got \(\?, 4\)"):
        byoc_hw.build(module(relay.nn.relu(x), x))


def test_refuses_an_accelerator_that_this_process_does_not_know():
    mod = byoc_hw.partition_for_hwlib(Dense().module())
    attribute = str(mod.attrs["byoc_hw"])
    known = byoc_hw.frontend.accelerators.digest_of(REFERENCE)
    strange = mod.with_attr("byoc_hw", tvm.runtime.String(attribute.replace(known, "0" * 16)))
    with pytest.raises(InvalidInput, match="partitioned for accelerator REFERENCE, which this process does not know"):
        byoc_hw.build(strange)


@pytest.mark.parametrize("offloaded", [True, False], ids=["offloaded", "host"])
def test_an_output_and_its_reshape_are_both_written(offloaded):
    conv = Conv(5, 7, 3, 9)
    x = variable(conv.ifm_shape, name="x")
    y = conv.expr(x)
    flat = relay.reshape(y, (1, -1))
    mod = module(relay.Tuple([flat, relay.nn.relu(y), y, relay.reshape(flat, (9, -1))]), x)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod) if offloaded else mod)
    arrays = list(input_arrays(mod, 1))[-1]
    for found, wanted in zip(project.run(arrays).outputs, Reference(mod).run(arrays), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("mod_name", "rule"),
    {
        "count": "mod_name is none of the project's own files (",
        "Flags": "mod_name is none of the project's own files (",
        "string": "mod_name is no header of the C library, which <mod_name>.h would hide: got 'string'",
        "hwlib_hal": "mod_name does not start with hwlib, as the names of HWlib do: got 'hwlib_hal'",
        "x" * 300: "mod_name has at most 63 characters: got 300",
        5: "mod_name is a string: got 5",
    }.items(),
)
def test_refuses_a_mod_name_that_clashes_with_the_projects_files(mod_name, rule):
    with pytest.raises(InvalidInput, match=re.escape(rule)):
        byoc_hw.partition_for_hwlib(network(), None, mod_name)
    with pytest.raises(InvalidInput, match=re.escape(rule)):
        byoc_hw.build(network(), mod_name=mod_name)


def test_a_header_of_the_system_is_not_hidden_by_a_models():
    """<stdint.h> includes <features.h> in common C libraries."""
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(network(), None, "features"))
    assert project.run(np.zeros((1, 8, 8, 4), "int8")).outputs


@pytest.mark.parametrize("twice", ["add", "qnn.add"])
def test_a_region_whose_output_is_also_doubled_is_called_once(twice):
    """TVM makes a product of a sum of equals, and would call the region again for it."""
    x = variable((1, 8, 8, 4))
    y = Conv().expr(x)
    quantization = (const(0.1, "float32"), const(3, "int32"))
    doubled = relay.add(y, y) if twice == "add" else relay.qnn.op.add(y, y, *quantization * 3)
    project = assert_bit_exact(module(relay.Tuple([y, doubled]), x), deny=["qnn_add", "lookup"])
    assert [layer["kind"] for layer in project.layers] == ["conv2d", "host"]


def test_a_model_without_inputs_runs_as_often_as_it_is_asked():
    pixels = relay.const(np.arange(-8, 8, dtype=np.int8).reshape(1, 4, 4, 1))
    mod = tvm.IRModule.from_expr(relay.Function([], relay.nn.max_pool2d(pixels, (2, 2), (2, 2), layout="NHWC")))
    results = byoc_hw.build(byoc_hw.partition_for_hwlib(mod)).run_batch([{}, {}, {}])
    assert [result.outputs[0].ravel().tolist() for result in results] == [[-3, -1, 5, 7]] * 3
