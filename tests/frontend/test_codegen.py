"""A partitioned module under a plain `tvm.relay.build`: the same C, compiled against TVM's own headers."""

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from bit_exact import input_arrays
from relay_samples import Conv, const, module, variable
from tvm import relay

import byoc_hw
import byoc_hw.hwlib
from byoc_hw import compiler
from byoc_hw.accelerator import REFERENCE, TuningSpace
from byoc_hw.frontend.relay.codegen import register
from byoc_hw.frontend.relay.host import quiet
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.frontend.relay.semantics import golden_semantics
from byoc_hw.frontend.seam import Backend
from byoc_hw.hwlib.accelerator_header import accelerator_header
from byoc_hw.hwlib.sim_config import sim_config
from byoc_hw.plan.region import why_no_plan

HWLIB = Path(byoc_hw.hwlib.__file__).parent
TVM = Path(tvm.__file__).parent

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "tvm/runtime/c_backend_api.h"
#include "tvmgen_plain.h"
void* TVMBackendAllocWorkspace(int type, int id, uint64_t nbytes, int code, int bits) { return malloc(nbytes); }
int TVMBackendFreeWorkspace(int type, int id, void* pointer) { free(pointer); return 0; }
int main(void) {
  static int8_t x[256];
  static float output[512];
  struct tvmgen_plain_inputs inputs = {x};
  struct tvmgen_plain_outputs outputs = {output};
  while (fread(x, sizeof x, 1, stdin) == 1) {
    int32_t status = tvmgen_plain_run(&inputs, &outputs);
    if (status != 0) return 1;
    fwrite(output, sizeof output, 1, stdout);
  }
  return 0;
}
"""
HEADER = """
#include <stdint.h>
struct tvmgen_plain_inputs { void* x; };
struct tvmgen_plain_outputs { void* output; };
int32_t tvmgen_plain_run(struct tvmgen_plain_inputs* inputs, struct tvmgen_plain_outputs* outputs);
"""


def network():
    x = variable((1, 8, 8, 4))
    y = Conv(seed=1, channels=8).expr(Conv().expr(x))
    real = relay.qnn.op.dequantize(y, const(0.1, "float32"), const(0, "int32"))
    return module(relay.nn.softmax(relay.reshape(real, (1, 512))), x)


def plain_build(mod):
    """As a user of TVM calls it, with the AoT settings that the C interface needs."""
    with quiet(), golden_semantics(), tvm.transform.PassContext(opt_level=3, config={"tir.disable_vectorize": True}):
        return relay.build(
            mod,
            "c",
            executor=relay.backend.Executor("aot", {"interface-api": "c", "unpacked-api": True}),
            runtime=relay.backend.Runtime("crt"),
            mod_name="plain",
        )


def sources_of(library):
    modules = [library.lib, *library.lib.imported_modules]
    return [module.get_source() for module in modules if module.type_key == "c"]


def test_a_plain_relay_build_runs_bit_exact(tmp_path):
    mod = network()
    library = plain_build(byoc_hw.partition_for_hwlib(mod, mod_name="plain"))
    for index, source in enumerate(sources_of(library)):
        (tmp_path / f"lib{index}.c").write_text(source)
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "tvmgen_plain.h").write_text(HEADER)
    (tmp_path / "hwlib_accelerator.h").write_text(accelerator_header(REFERENCE))
    (tmp_path / "hwlib_sim_config.h").write_text(sim_config(REFERENCE))
    include = [tmp_path, HWLIB / "include", HWLIB / "sim", TVM / "include", TVM / "dlpack" / "include"]
    sources = [*sorted(tmp_path.glob("*.c")), *sorted(HWLIB.glob("s*/*.c"))]
    flags = ["-O1", "-ffp-contract=off", *(f"-I{path}" for path in include)]
    subprocess.run(["gcc", *flags, *sources, "-lm", "-o", tmp_path / "program"], check=True)
    inputs = [arrays[0] for arrays in input_arrays(mod)]
    ran = subprocess.run([tmp_path / "program"], input=b"".join(map(bytes, inputs)), check=True, capture_output=True)
    reference = Reference(mod)
    expected = np.concatenate([reference.run([array])[0] for array in inputs])
    np.testing.assert_array_equal(np.frombuffer(ran.stdout, np.float32).reshape(expected.shape), expected)


def test_tvm_keeps_no_second_copy_of_the_weights():
    assert not plain_build(byoc_hw.partition_for_hwlib(Conv().module(), mod_name="plain")).params


def test_the_scratch_of_a_region_is_a_buffer_that_a_macro_replaces():
    layerwise = replace(REFERENCE, label="LAYERWISE", tuning=TuningSpace(longest_group=1, hold=False))
    mod = byoc_hw.partition_for_hwlib(network(), mod_name="plain", accelerator=layerwise)
    (region,) = (source for source in sources_of(plain_build(mod)) if "hwlib_start" in source)
    assert "#ifdef TVMGEN_PLAIN_HWLIB_MAIN_0_SCRATCH\n" in region


def test_an_error_inside_a_region_keeps_its_type_and_text(monkeypatch):
    mod = byoc_hw.partition_for_hwlib(Conv().module())

    def fail(graph, accelerator, place, objective):
        raise byoc_hw.PlanError(f"{graph.name}: planned to fail")

    monkeypatch.setattr(compiler, "plan_region", fail)
    with pytest.raises(byoc_hw.PlanError, match="tvmgen_default_hwlib_main_0: planned to fail"):
        byoc_hw.build(mod)


def test_regions_are_lowered_before_the_build_as_tvms_own_build_meets_them():
    mod = byoc_hw.partition_for_hwlib(network(), mod_name="plain")
    met = {}

    def source(graph, accelerator):
        met[graph.name] = str(graph)
        return ""

    register("hwlib", Backend(why_no_plan, source, compiler.BACKEND.arithmetic))
    try:
        plain_build(mod)
    finally:
        compiler.register_with_tvm()
    assert met == {name: str(graph) for name, graph in compiler.region_graphs(mod).items()}
    assert met
