"""Regions: what goes in, what comes out, and what partitioning must leave alone."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from bit_exact import assert_bit_exact
from relay_samples import Add, Conv, Dense, Pool, Quantized, const, module, variable
from tvm import relay
from tvm.relay.op.contrib.register import get_pattern_table

import byoc_hw
from byoc_hw.accelerator import DSP, REFERENCE, SMALL
from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.record import record_of, regions
from byoc_hw.frontend.relay.sources import calls_in_order
from byoc_hw.soc import Soc


def operator_calls(mod):
    """Calls of operators in a module, those inside regions and composites too."""
    functions = [function for function in mod.functions.values() if isinstance(function, relay.Function)]
    return sum(isinstance(call.op, tvm.ir.Op) for function in functions for call in calls_in_order(function))


def softmax(x, scale=0.1):
    """A piece of network that stays on the host."""
    return relay.qnn.op.quantize(
        relay.nn.softmax(relay.qnn.op.dequantize(x, const(scale, "float32"), const(0, "int32"))),
        const(1 / 256, "float32"),
        const(-128, "int32"),
        out_dtype="int8",
    )


def two_regions():
    x = variable((1, 6, 6, 4))
    return module(Conv(6, 6, 8, 4, seed=1).expr(softmax(Conv(6, 6, 4, 8).expr(x))), x)


def residual(outputs=1):
    x = variable((1, 6, 6, 8))
    first = Conv(6, 6, 8, 8).expr(x)
    second = Conv(6, 6, 8, 8, seed=1).expr(first)
    total = Add(lhs=Quantized(0.4, 5), rhs=Quantized(0.4, 5)).expr(first, second)
    return module(total if outputs == 1 else relay.Tuple([total, first, total][:outputs]), x)


# ---------------------------------------------------------------- structure


@pytest.mark.parametrize("build", [two_regions, residual, Conv().module, Pool("mean").module])
def test_keeps_every_operator_call(build):
    mod = build()
    assert operator_calls(byoc_hw.partition_for_hwlib(mod)) == operator_calls(mod)


def quantized_constant(x):
    scale, zero = const(0.02, "float32"), const(3, "int32")
    numbers = relay.qnn.op.quantize(const(np.linspace(-3, 3, 48).reshape(1, 2, 6, 4), "float32"), scale, zero)
    return Add(lhs=Quantized(0.1, 3), rhs=Quantized(0.02, 3)).expr(x, numbers)


def joined_with_a_constant(x):
    numbers = const(np.arange(48).reshape(1, 2, 6, 4), "int8")
    scales = relay.Tuple([const(0.1, "float32"), const(0.2, "float32")])
    zeros = relay.Tuple([const(3, "int32"), const(4, "int32")])
    out = const(0.15, "float32"), const(0, "int32")
    return relay.qnn.op.concatenate(relay.Tuple([x, numbers]), scales, zeros, *out, axis=3)


@pytest.mark.parametrize("operator", [quantized_constant, joined_with_a_constant])
def test_quantized_constants_are_computed_before_regions_are_made(operator):
    x = variable((1, 2, 6, 4))
    assert_bit_exact(module(operator(x), x))


def test_leaves_the_module_that_it_is_given_as_it_was():
    mod = two_regions()
    before = tvm.ir.structural_hash(mod)
    byoc_hw.build(byoc_hw.partition_for_hwlib(mod))
    assert tvm.ir.structural_hash(mod) == before
    assert record_of(mod) is None


def test_a_residual_block_is_one_region():
    assert len(regions(byoc_hw.partition_for_hwlib(residual()))) == 1


def test_regions_are_named_after_module_and_accelerator():
    mod = byoc_hw.partition_for_hwlib(two_regions(), mod_name="net")
    assert [variable.name_hint for variable in regions(mod)] == ["tvmgen_net_hwlib_main_0", "tvmgen_net_hwlib_main_1"]


def test_weights_may_be_parameters_instead_of_constants():
    x, weights = variable((1, 24)), variable((10, 24), name="w")
    mod = Dense(constant_weights=False).module()
    params = {"w": np.random.default_rng(0).integers(-127, 128, (10, 24)).astype("int8")}
    assert not byoc_hw.explain(byoc_hw.partition_for_hwlib(mod)).offloaded
    assert len(byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, params)).offloaded) == 3
    assert x.name_hint != weights.name_hint


# ---------------------------------------------------------------- bit for bit


def test_two_regions_with_the_host_between_them():
    project = assert_bit_exact(two_regions())
    assert [call["kind"] for call in project.layers] == ["conv2d", "host", "conv2d"]


def test_a_tensor_that_is_used_twice():
    assert_bit_exact(residual())


def test_several_outputs_one_of_them_read_by_a_later_layer():
    assert_bit_exact(residual(outputs=2))


def test_the_same_tensor_as_two_outputs():
    assert_bit_exact(residual(outputs=3))


def test_an_input_that_is_also_an_output():
    x = variable((1, 8, 8, 4))
    assert_bit_exact(module(relay.Tuple([Conv().expr(x), x, x]), x))


def test_a_region_whose_input_is_also_an_output():
    x = variable((1, 6, 6, 4))
    y = softmax(x)
    assert_bit_exact(module(relay.Tuple([y, Conv(6, 6, 4, 8).expr(y)]), x))


@pytest.mark.parametrize("hardware", [REFERENCE, Soc((replace(REFERENCE, name="one"), DSP))], ids=["alone", "chip"])
def test_a_region_of_a_transposition_that_moves_nothing(hardware):
    x = variable((5, 17, 2))
    assert_bit_exact(module(relay.transpose(x, [0, 1, 2]), x), accelerator=hardware)


def test_both_operands_of_an_addition_are_one_tensor():
    x = variable((1, 6, 6, 8))
    assert_bit_exact(module(Add().expr(x, x), x))


def test_an_addition_with_a_constant():
    x = variable((1, 4, 4, 3))
    other = const(np.random.default_rng(0).integers(-128, 128, (1, 4, 4, 3)), "int8")
    assert_bit_exact(module(Add().expr(x, other), x))


def test_two_inputs_and_two_outputs():
    x, y = variable((1, 8, 8, 4)), variable((1, 8, 8, 4), name="y")
    assert_bit_exact(module(relay.Tuple([Conv().expr(x), Conv(seed=1).expr(y)]), x, y))


def test_host_functions_with_several_results():
    x = variable((1, 8, 8, 4))
    parts = relay.split(Conv().expr(x), 2, axis=3)
    mod = module(relay.concatenate([parts[1], parts[0]], axis=3), x)
    assert_bit_exact(mod)


def of_split(x):
    upper, lower = relay.split(x, 2, axis=1)
    return relay.add(upper, lower)


def of_concatenation(x):
    return relay.strided_slice(relay.concatenate([x, relay.nn.relu(x)], axis=1), (0, 2, 0, 0), (1, 5, 6, 8))


@pytest.mark.parametrize("on_host", [of_split, of_concatenation])
def test_a_host_operator_of_tuples_beside_a_connection(on_host):
    # TVM's passes put both convolutions in one region with the operator between, and recursed until the stack was full.
    x = variable((1, 6, 6, 8))
    first = Conv(6, 6, 8, 8).expr(x)
    real = on_host(relay.qnn.op.dequantize(first, const(0.1, "float32"), const(3, "int32")))
    other = relay.qnn.op.quantize(real, const(0.1, "float32"), const(3, "int32"), out_dtype="int8")
    mod = module(relay.concatenate([Conv(3, 6, 8, 8, seed=1).expr(other), first], axis=1), x)
    assert len(regions(byoc_hw.partition_for_hwlib(mod))) == 2
    assert_bit_exact(mod)


def test_readers_that_disagree_on_a_tensors_quantization():
    # Legal Relay: the bytes are what they are, each reader brings its own scale and zero point.
    x = variable((1, 8, 8, 4))
    first = Conv(filters=4, ofm_zero_point=5).expr(x)
    assert_bit_exact(module(Conv(ifm_zero_point=-20, ifm_scale=0.3, seed=1).expr(first), x))


@pytest.mark.parametrize("accelerator", [REFERENCE, SMALL], ids=lambda accelerator: accelerator.label)
def test_a_chain_of_every_kind(accelerator):
    x = variable((1, 12, 10, 3))
    y = Conv(12, 10, 3, 16, strides=(2, 2), clip=(-100, 100)).expr(x)
    y = Conv(6, 5, 16, depthwise=True, seed=1).expr(y)
    y = Conv(6, 5, 16, 16, kernel=(1, 1), padding=(0, 0, 0, 0), seed=2).expr(y)
    y = Pool("nn.max_pool2d", kernel=(2, 2), strides=(1, 1)).expr(y)
    y = Pool("mean").expr(y)
    assert_bit_exact(module(relay.reshape(y, (1, 4, 4)), x), accelerator=accelerator)


# ---------------------------------------------------------------- beside plain TVM


def test_the_table_of_tvm_partitions_without_us():
    mod = tvm.transform.Sequential(
        [
            relay.transform.InferType(),
            relay.transform.MergeComposite(get_pattern_table("hwlib")),
            relay.transform.AnnotateTarget("hwlib", include_non_call_ops=False),
            relay.transform.MergeCompilerRegions(),
            relay.transform.PartitionGraph("plain"),
        ]
    )(Conv(layout="NCHW").module())
    (region,) = regions(mod).values()
    assert "NHWC" in str(region)  # the optimize hook ran


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mod_name": "a-b"}, "mod_name 'a-b': characters are letters, digits and _: got '-'"),
        ({"mod_name": "3d"}, "mod_name '3d': the first character is a letter or _: got '3'"),
        ({"mod_name": ""}, "mod_name has at least one character: got ''"),
        ({"numerics": "exact"}, "numerics is one of relay, tflite, float: got 'exact'"),
        (
            {"numerics": "float"},
            "numerics 'float' is that of a Relax module's floats: Relay's operators are of integers",
        ),
        ({"accelerator": "hwlib"}, "accelerator is an Accelerator or a Soc: got str"),
        ({"deny": ["qnn_konv2d"]}, "got 'qnn_konv2d'"),
        ({"usmp": True}, "options are accelerator, numerics, deny: got usmp"),
    ],
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(InvalidInput) as error:
        byoc_hw.partition_for_hwlib(Conv().module(), **arguments)
    assert message in str(error.value)


def test_refuses_a_partitioned_module():
    mod = byoc_hw.partition_for_hwlib(Conv().module())
    with pytest.raises(InvalidInput, match="already partitioned"):
        byoc_hw.partition_for_hwlib(mod)


@pytest.mark.parametrize(
    ("mod", "message"),
    [(None, "mod is a tvm.IRModule: got NoneType"), (tvm.IRModule(), "mod has a Relay function main: got an empty")],
)
def test_refuses_what_is_no_model(mod, message):
    with pytest.raises(InvalidInput, match=message):
        byoc_hw.partition_for_hwlib(mod)


def test_denies_an_operator_of_the_model_by_name():
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(residual(), deny=["qnn.conv2d_2"]))
    placements = {outcome.name: outcome.placement for outcome in report.outcomes}
    assert placements["qnn.conv2d_1"] == "accelerator"
    assert placements["qnn.conv2d_2"] == "host"
    assert "qnn_conv2d: kept on the host by deny='qnn.conv2d_2'" in str(report)
