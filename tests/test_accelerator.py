"""Descriptions of hardware: what cannot be one is refused when it is made, by field, rule and value."""

from dataclasses import replace

import pytest
import tvm
from bit_exact import assert_bit_exact
from relay_samples import Conv, Dense, Pool, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE, HalInstructions, TuningSpace
from byoc_hw.errors import InvalidInput
from byoc_hw.limits import DEFAULT_LIMITS, Limits

REFUSED = {
    "default": ({"name": "default"}, "accelerator name is none that TVM reserves, default, ccompiler: got 'default'"),
    "ccompiler": ({"name": "ccompiler"}, "got 'ccompiler'"),
    "no C identifier": ({"name": "my-chip"}, "name is a C identifier of at most 64 characters: got .my-chip."),
    "no ASCII": ({"name": "größe"}, "is a C identifier of at most 64 characters: got 'größe'"),
    "long": ({"name": "a" * 65}, "is a C identifier of at most 64 characters: got a str"),
    "name of no type": ({"name": 5}, "accelerator name is a string: got 5"),
    "label": ({"label": "a\nb"}, "label has at least one character, and can be printed"),
    "odd DMA alignment": ({"dma_alignment": 3}, "accelerator hwlib: dma_alignment is a power of two: got 3"),
    "no DMA alignment": ({"dma_alignment": 0}, "dma_alignment is at least 1: got 0"),
    "local alignment": ({"local_alignment": 12}, "local_alignment is a power of two: got 12"),
    "no array": ({"array_rows": 0}, "array_rows is at least 1: got 0"),
    "no memory": ({"activation_memory": 0}, "activation_memory is at least 1: got 0"),
    "negative RAM": ({"ram": -1}, "ram is at least 0: got -1"),
    "NaN": ({"flash": float("nan")}, "flash is a whole number: got nan"),
    "string": ({"queue": "64"}, "queue is a whole number: got '64'"),
    "bool": ({"dma_width": True}, "dma_width is a whole number: got True"),
    "too large": ({"dma_setup": 2**31}, "dma_setup is at most 2147483647: got 2147483648"),
    "instructions": ({"hal_instructions": 20}, "hal_instructions is a HalInstructions: got 20"),
    "negative wait": (
        {"hal_instructions": HalInstructions(wait=-1)},
        "accelerator hwlib: hal_instructions: wait is at least 0: got -1",
    ),
    "negative job setup": ({"job_setup": -1}, "accelerator hwlib: job_setup is at least 0: got -1"),
    "half a row setup": ({"dma_row_setup": 0.5}, "dma_row_setup is a whole number: got 0.5"),
    "roundings": ({"roundings": "upward"}, "roundings is a tuple of strings: got 'upward'"),
    "packed rows": ({"packed_rows": 1}, "packed_rows is "),
    "tuning": ({"tuning": None}, "tuning is a TuningSpace: got None"),
    "library": ({"library": "v.h"}, "library is a Library or None: got 'v.h'"),
    "limits": ({"limits": ("conv2d",)}, "limits is a mapping of layer kinds to Limits"),
    "unknown kind": ({"limits": {"conv3d": Limits()}}, "limits are of layer kinds, conv2d, .*: got 'conv3d'"),
    "limit": ({"limits": {"conv2d": 3}}, "limits of conv2d is a Limits: got 3"),
    "no stride": ({"limits": {"conv2d": Limits(strides=())}}, r"limits of conv2d: strides is a tuple .*: got \(\)"),
    "stride": ({"limits": {"conv2d": Limits(strides=(0,))}}, "each of .*strides is at least 1: got 0"),
    "kernel": ({"limits": {"conv2d": Limits(max_kernel=(3,))}}, r"max_kernel is rows and columns: got \(3,\)"),
    "parts": (
        {"limits": {"pool2d": Limits(kernel_parts=True)}},
        "limits of pool2d: kernel_parts is for convolutions",
    ),
    "rounding": ({"roundings": ("stochastic",)}, "each of roundings is one of upward, tflite: got 'stochastic'"),
    "no rounding": ({"roundings": ()}, r"roundings has at least one of upward, tflite: got \(\)"),
    "huge memory": ({"weight_memory": 2**31 - 1}, "weight_memory is at most 268435456: got 2147483647"),
    "huge array": ({"array_rows": 2**31 - 1}, "array_rows is at most 65536"),
    "slow core": (
        {"host_cycles_per_instruction": 1e300},
        r"_per_instruction is at most 1048576: got 1e\+300",
    ),
    "HAL's stride": (
        {"limits": {"conv2d": Limits(strides=(64,))}},
        "limits of conv2d: each of strides is at most 31: got 64",
    ),
    "weight bits": (
        {"limits": {"conv2d": Limits(weight_bits=(8, 3))}},
        "accelerator hwlib: limits of conv2d: each of weight_bits is one of 8, 4, 2: got 3",
    ),
    "weights of none": (
        {"limits": {"add": Limits(weight_bits=(8,))}},
        r"limits of add: weight_bits is for layers with weights: got \(8,\)",
    ),
    "windows of none": ({"limits": {"dense": Limits(strides=(1,))}}, "dense: strides is for layers with windows"),
    "sums of none": ({"limits": {"lookup": Limits(accumulator_bits=32)}}, "accumulator_bits is for layers that add"),
    "no type": ({"limits": {"add": Limits(activation_types=("int9",))}}, "is one of bool, int8, .*: got 'int9'"),
    "sums": ({"limits": {"add": Limits(accumulator_bits=0)}}, "accumulator_bits is at least 1: got 0"),
    "types": ({"limits": {"add": Limits(activation_types=())}}, "activation_types has at least one type"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses_what_no_hardware_is(change, message):
    with pytest.raises(InvalidInput, match=message):
        replace(REFERENCE, **change)


@pytest.mark.parametrize("change", [{"stripes": (2, 3)}, {"stripes": "1"}, {"weight_shares": (1, 0)}, {"swap": 1}])
def test_refuses_what_no_tuning_space_is(change):
    with pytest.raises(InvalidInput, match=next(iter(change))):
        TuningSpace(**change)


@pytest.mark.parametrize(("name", "rule"), [("llvm", "none of TVM's targets"), ("dnnl", "another compiler of TVM")])
def test_refuses_names_that_tvm_has_for_something_else(name, rule):
    with pytest.raises(InvalidInput, match=f"{rule}.*got '{name}'"):
        byoc_hw.partition_for_hwlib(Dense().module(), accelerator=replace(REFERENCE, name=name))
    assert tvm.get_global_func(f"relay.ext.{name}", allow_missing=True) is None


def test_reshapes_are_offloaded_without_limits_of_their_own():
    """They cost nothing, and between two layers they would break a region in two."""
    conv, dense = Conv(), Dense(inputs=8 * 8 * 8)
    x = variable(conv.ifm_shape)
    mod = module(dense.expr(relay.reshape(conv.expr(x), (1, -1))), x)
    limits = {kind: limit for kind, limit in DEFAULT_LIMITS.items() if kind != "reshape"}
    partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=replace(REFERENCE, label="NO RESHAPE", limits=limits))
    (graph,) = byoc_hw.compiler.region_graphs(partitioned).values()
    assert [layer.kind for layer in graph.layers] == ["conv2d", "reshape", "dense"]


def test_a_memory_of_less_than_a_word_of_the_dma_has_no_layers():
    aligned = replace(REFERENCE, label="NO WORD", activation_memory=16, dma_alignment=32)
    x = variable((1, 8))
    mod = byoc_hw.partition_for_hwlib(module(relay.reshape(x, (2, 4)), x), accelerator=aligned)
    assert "memory has at least a word of the DMA, 32 bytes: got 16" in str(byoc_hw.explain(mod))


@pytest.mark.parametrize("alignment", [8, 32])
def test_tensors_of_no_whole_words_of_the_dma_are_padded(alignment):
    """Ten outputs are no whole number of words: the model's ends are copied, what lies between has room."""
    aligned = replace(REFERENCE, label="ALIGNED", dma_alignment=alignment)
    project = assert_bit_exact(Dense().module(), accelerator=aligned, count=2)
    assert len(project.report.offloaded) == 3
    main = (project.directory / "src" / "default_main.c").read_text()
    assert "memcpy(outputs->output, padded_output_output_0, 10);" in main


def test_the_alignment_of_copies_says_how_to_keep_it():
    """The window of two rows and columns leaves the last ones of 5 x 5 out: rows of four pixels are copied."""
    aligned = replace(REFERENCE, label="ALIGNED TO 8", dma_alignment=8)
    pool = Pool("nn.max_pool2d", shape=(1, 5, 5, 7)).module()
    report = str(byoc_hw.explain(byoc_hw.partition_for_hwlib(pool, accelerator=aligned)))
    assert "multiples of 8 bytes: got length 28 (pad the model's channels or outputs to a multiple of 8)" in report
