"""NCHW models, as they come from ONNX and PyTorch, run in NHWC inside their regions."""

from dataclasses import replace

import pytest
import tvm
from bit_exact import assert_bit_exact
from relay_samples import Add, Conv, Pool, Quantized, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.compiler import front_end, region_graphs
from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.lower import lower_region
from byoc_hw.frontend.relay.model import passed_on as regions_passed_on
from byoc_hw.frontend.relay.record import regions


def kinds(mod):
    """The layer kinds of a module's only region."""
    ((symbol, function),) = regions(byoc_hw.partition_for_hwlib(mod)).items()
    return [layer.kind for layer in lower_region(function, symbol.name_hint).layers]


def nchw_chain(*, flatten):
    x = variable((1, 3, 10, 8))
    y = Conv(10, 8, 3, 8, layout="NCHW", padding=(0, 0, 0, 0), explicit_pad=(1, 0, 1, 2)).expr(x)
    as_it_left = {"ifm_zero_point": 5, "ifm_scale": 0.4}  # otherwise a Reshape stands between the views
    y = Conv(10, 8, 8, depthwise=True, layout="NCHW", strides=(2, 2), seed=1, **as_it_left).expr(y)
    y = Pool("nn.max_pool2d", layout="NCHW").expr(y)
    return module(relay.nn.batch_flatten(y) if flatten else y, x)


def test_transposes_only_at_the_borders():
    assert kinds(nchw_chain(flatten=False)) == ["transpose", "conv2d", "depthwise_conv2d", "pool2d", "transpose"]


@pytest.mark.slow
def test_a_folded_pad_leaves_the_convolutions_in_front_of_it_as_they_are():
    # Those behind an operator other than a pad were given its input, and the padding of the last one.
    x = variable((1, 3, 10, 8))
    y = Pool("nn.max_pool2d", layout="NCHW", kernel=(3, 3), strides=(1, 1), padding=(1, 1, 1, 1)).expr(x)
    y = Conv(10, 8, 3, 8, layout="NCHW").expr(y)
    same = {"ifm_zero_point": 5, "ifm_scale": 0.4}
    y = Conv(10, 8, 8, 4, layout="NCHW", padding=(0, 0, 0, 0), explicit_pad=(1, 1, 1, 1), seed=1, **same).expr(y)
    mod = module(y, x)
    assert kinds(mod) == ["transpose", "pool2d", "conv2d", "conv2d", "transpose"]
    assert_bit_exact(mod)


def test_transposes_before_a_flatten():
    assert kinds(nchw_chain(flatten=True))[-3:] == ["pool2d", "transpose", "reshape"]


@pytest.mark.slow
@pytest.mark.parametrize("flatten", [False, True])
def test_a_chain_is_bit_exact(flatten):
    assert_bit_exact(nchw_chain(flatten=flatten))


@pytest.mark.parametrize("operator", ["nn.avg_pool2d", "nn.max_pool2d", "nn.global_avg_pool2d", "mean"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_pooling_is_bit_exact(operator, keepdims):
    pool = Pool(operator, shape=(1, 5, 8, 6), layout="NCHW", axis=(2, 3), keepdims=keepdims)
    assert_bit_exact(pool.module())


@pytest.mark.slow
def test_a_residual_block_is_bit_exact():
    x = variable((1, 4, 6, 6))
    first = Conv(6, 6, 4, 8, layout="NCHW").expr(x)
    second = Conv(6, 6, 8, 8, layout="NCHW", seed=1).expr(first)
    total = Add(lhs=Quantized(0.4, 5), rhs=Quantized(0.4, 5)).expr(first, second)
    total = Pool("mean", axis=(2, 3), keepdims=True).expr(total)
    mod = module(relay.nn.batch_flatten(total), x)
    assert kinds(mod).count("transpose") == 1
    assert_bit_exact(mod)


def around_the_host(*, also_output=False, also_host=False):
    """A sum of what two regions make, with an operator of the host between them."""
    x, same = variable((1, 4, 6, 6)), {"ifm_zero_point": 5, "ifm_scale": 0.4}
    first = Conv(6, 6, 4, 8, layout="NCHW").expr(x)
    second = relay.reverse(Conv(6, 6, 8, 8, layout="NCHW", seed=1, **same).expr(first), axis=3)
    third = Conv(6, 6, 8, 8, layout="NCHW", seed=2, **same).expr(second)
    total = Add(lhs=Quantized(0.4, 5), rhs=Quantized(0.4, 5)).expr(first, third)
    more = [*([first] if also_output else []), *([relay.reverse(first, axis=2)] if also_host else [])]
    return module(relay.Tuple([total, *more]) if more else total, x)


def passed_on(mod):
    return front_end().open_model(byoc_hw.partition_for_hwlib(mod), None, None).passed_on()


def test_what_goes_from_region_to_region_is_not_transposed():
    mod = around_the_host()
    ((maker, output), ((reader, place),)) = passed_on(mod).popitem()
    graphs = region_graphs(byoc_hw.partition_for_hwlib(mod))
    assert graphs[maker].outputs[output].shape == graphs[reader].inputs[place].shape == (1, 6, 6, 8)
    counts = [[layer.kind for layer in graph.layers].count("transpose") for graph in graphs.values()]
    assert counts == [2, 2]  # what the model and the host have
    assert_bit_exact(mod)


@pytest.mark.parametrize("other", ["also_output", "also_host"])
def test_what_others_read_as_well_stays_in_the_models_layout(other):
    mod = around_the_host(**{other: True})
    assert passed_on(mod) == {}
    assert_bit_exact(mod)


@pytest.mark.parametrize("as_a_tuple", [False, True])
def test_a_tuple_that_an_operator_reads_as_it_is_is_read_by_the_host(as_a_tuple):
    image, one, two = (variable((1, 4), name=name) for name in ("image", "one", "two"))
    first, second, tensor = relay.GlobalVar("first"), relay.GlobalVar("second"), relay.TensorType((1, 4), "int8")
    functions = {
        first: relay.Function([one], relay.Tuple([one, relay.abs(one)]), relay.TupleType([tensor, tensor])),
        second: relay.Function([two], relay.abs(two), tensor),
    }
    functions = {variable: function.with_attr("Compiler", "hwlib") for variable, function in functions.items()}
    pair = relay.Call(first, [image])
    read = relay.Call(second, [relay.TupleGetItem(pair, 1)])
    also = relay.concatenate(pair, 1) if as_a_tuple else relay.TupleGetItem(pair, 0)
    main = relay.Function([image], relay.Tuple([read, also]))
    mod = relay.transform.InferType()(tvm.IRModule({**functions, relay.GlobalVar("main"): main}))
    assert regions_passed_on(mod) == ({} if as_a_tuple else {("first", 1): (("second", 0),)})


@pytest.mark.slow
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("before", ["conv", "pool", "mean"])
def test_a_mean_behind_another_layer_is_bit_exact(before, keepdims):
    x = variable((1, 5, 6, 7))
    y = {
        "conv": Conv(6, 7, 5, 9, layout="NCHW", clip=(-100, 100)).expr,
        "pool": Pool("nn.max_pool2d", layout="NCHW", kernel=(2, 3), strides=(1, 1)).expr,
        "mean": Pool("mean", axis=(2, 3), keepdims=True).expr,
    }[before](x)
    mean = Pool("mean", axis=(2, 3), keepdims=keepdims, clip=(-90, 90))
    assert_bit_exact(module(mean.expr(y), x))


def test_the_layers_of_one_channel_and_one_filter_are_compared_with_tvms():
    # TVM's conversion takes such a convolution for a depthwise one, in a layout that TVM then cannot compile.
    assert_bit_exact(Conv(channels=1, filters=1, layout="NCHW").module())


@pytest.mark.slow
def test_what_cannot_be_brought_to_nhwc_stays_on_the_host_and_says_why():
    # A mean over channels and height of an NCHW tensor is one over height and width only before the conversion.
    x = variable((1, 5, 6, 7))
    mod = module(Pool("mean", axis=(1, 2)).expr(Conv(6, 7, 5, 9, layout="NCHW").expr(x)), x)
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(mod))
    placements = {outcome.name: outcome.placement for outcome in report.outcomes}
    assert placements["qnn.conv2d_1"] == "host"
    assert placements["mean_1"] == "accelerator"
    assert "data layout is NHWC, or can be brought to it: got NCHW: " in str(report)
    assert_bit_exact(mod)


def test_every_operator_keeps_its_source_name():
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(nchw_chain(flatten=True)))
    assert {outcome.placement for outcome in report.outcomes} == {"accelerator"}


def test_an_nchw_composite_that_the_hook_has_not_seen_is_never_lowered():
    nchw = tvm.transform.Sequential(
        [
            relay.transform.MergeComposite(byoc_hw.pattern_table("hwlib")),
            relay.transform.InferType(),
        ]
    )(Conv(layout="NCHW").module())
    with pytest.raises(Unsupported, match=r"qnn_conv2d at .* cannot be lowered: its data layout is NCHW, not NHWC"):
        lower_region(nchw["main"], "region")


def test_an_operator_without_a_composite_is_named():
    x = variable((1, 8))
    mod = module(relay.nn.relu(x), x)
    with pytest.raises(Unsupported, match=r"nn.relu cannot be lowered: no composite of the pattern table holds it"):
        lower_region(mod["main"], "region")


def test_a_dma_that_cannot_move_single_bytes_leaves_nchw_to_the_host():
    mod = Conv(8, 8, 4, 8, layout="NCHW").module()
    aligned = replace(REFERENCE, label="ALIGNED", dma_alignment=2)
    project = assert_bit_exact(mod, accelerator=aligned, count=1)
    assert "NCHW: layout_transpose: a copy's addresses, lengths and strides are multiples of 2" in str(project.report)
