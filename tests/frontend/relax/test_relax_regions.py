"""Relax modules that are not from TFLite: what is offloaded, what is declined and why, and the regions."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from relax_samples import convolution, module, real, stored
from tvm import relax

import byoc_hw
from byoc_hw import REFERENCE, InvalidInput, Unsupported
from byoc_hw.compiler import region_graphs


def layers(mod, **options):
    graphs = region_graphs(byoc_hw.partition_for_hwlib(mod, **options))
    return [layer for graph in graphs.values() for layer in graph.layers]


def outcome_reasons(mod, **options):
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, **options))
    return [str(rejection) for outcome in report.outcomes for rejection in outcome.rejections]


def test_takes_a_convolution_with_its_bias():
    (layer,) = layers(module(convolution, (1, 6, 6, 8)))
    assert layer.kind == "conv2d"
    assert (layer.weights.shape, layer.bias.shape, layer.padding) == ((8, 3, 3, 8), (8,), (1, 1, 1, 1))
    assert layer.ifm.quantization.scale == (np.float32(0.02),)
    assert layer.ofm.quantization.zero_point == (-5,)
    assert len(layer.accumulator.scale) == 8


@pytest.mark.parametrize(
    ("bound", "expected"),
    [(None, (-128, 127)), (relax.op.nn.relu, (-5, 127)), (lambda value: relax.op.clip(value, 0, 6), (-5, 115))],
    ids=["none", "relu", "relu6"],
)
def test_a_bound_of_real_sums_is_one_of_stored_values(bound, expected):
    (layer,) = layers(module(lambda x: convolution(x, bound=bound), (1, 6, 6, 8)))
    assert (layer.act_min, layer.act_max) == expected


def test_declines_with_the_rule_and_the_value():
    mod = module(lambda x: convolution(x, stride=3), (1, 9, 9, 8))
    assert outcome_reasons(mod)[0].startswith("qnn_conv2d: ")
    assert any("stride is one of 1, 2: got 3" in reason for reason in outcome_reasons(mod))


def test_images_in_nchw_become_nhwc():
    def body(x):
        kernel = real(relax.const(np.ones((4, 8, 3, 3), "int8")), np.full(4, 0.01, "float32"), 0)
        return stored(relax.op.nn.conv2d(real(x, 0.02, 3), kernel, padding=[1, 1, 1, 1]), 0.05, -5)

    (graph,) = region_graphs(byoc_hw.partition_for_hwlib(module(body, (1, 8, 6, 5)))).values()
    assert [layer.kind for layer in graph.layers] == ["transpose", "conv2d", "transpose"]
    assert [layer.ofm.shape for layer in graph.layers] == [(1, 6, 5, 8), (1, 6, 5, 4), (1, 4, 6, 5)]


def test_a_dequantize_of_several_readers_is_part_of_each_layer():
    """As exporters of PyTorch write it; TVM's importer of TFLite gives each reader its own."""

    def body(x):
        left = real(x, 0.02, 3)
        return stored(relax.op.add(left, left), 0.05, -5)

    (layer,) = layers(module(body, (1, 4, 4, 8)))
    assert layer.kind == "add"
    assert layer.ifm is layer.ifm2


def test_a_value_inside_a_layer_that_others_read_ends_the_layer():
    def body(x):
        whole = convolution(x)
        return relax.op.clip(whole, 0, 9), whole

    partitioned = byoc_hw.partition_for_hwlib(module(body, (1, 6, 6, 8)))
    (graph,) = region_graphs(partitioned).values()
    assert [layer.kind for layer in graph.layers] == ["conv2d", "lookup"]
    assert graph.layers[0].act_min == -128
    assert set(graph.outputs) == {layer.ofm for layer in graph.layers}


def test_a_region_with_two_inputs_reads_them_in_order():
    def body(x, y):
        return stored(relax.op.add(real(x, 0.02, 3), real(y, 0.04, 0)), 0.05, -5)

    (layer,) = layers(module(body, (1, 4, 4, 8), (1, 4, 4, 8)))
    assert [one.quantization.scale[0] for one in (layer.ifm, layer.ifm2)] == [np.float32(0.02), np.float32(0.04)]


def test_the_operand_that_is_broadcast_is_the_second():
    def body(x, y):
        return stored(relax.op.add(real(x, 0.02, 3), real(y, 0.04, 0)), 0.05, -5)

    (graph,) = region_graphs(byoc_hw.partition_for_hwlib(module(body, (1, 1, 1, 8), (1, 4, 4, 8)))).values()
    assert [one.shape for one in graph.inputs] == [(1, 1, 1, 8), (1, 4, 4, 8)]
    assert graph.layers[0].inputs == (graph.inputs[1], graph.inputs[0])


def patches(layout="HWIO", scales=16, zero_point=-5):
    """A convolution of windows of 4 x 3 side by side, with a row and a column that none reads."""

    def body(x):
        random = np.random.default_rng(3)
        extents = {"H": 4, "W": 3, "I": 5, "O": 16}
        weights = random.integers(-127, 128, [extents[letter] for letter in layout]).astype("int8")
        sizes = random.uniform(0.001, 0.002, scales).astype("float32") if scales > 1 else 0.0015
        kernel = real(relax.const(weights), sizes, 0, axis=layout.index("O"))
        image = real(x, 0.02, zero_point)
        conv = relax.op.nn.conv2d(image, kernel, [4, 3], data_layout="NHWC", kernel_layout=layout)
        bias = real(relax.const(np.arange(16, dtype="int32") * 40), np.float32(0.02) * sizes, 0)
        return stored(relax.op.add(conv, bias), 0.02, 4)

    return module(body, (1, 9, 10, 5))


def outputs_of(mod, directory, **options):
    partitioned = byoc_hw.partition_for_hwlib(mod, mod_name="m", **options)
    image = np.random.default_rng(4).integers(-128, 128, (1, 9, 10, 5)).astype("int8")
    project = byoc_hw.build(partitioned, output_dir=directory)
    assert byoc_hw.validate(project, [[image]], partitioned).ok
    return project.run([image]).outputs[0]


@pytest.mark.parametrize(("layout", "scales"), [("HWIO", 16), ("OIHW", 16), ("OHWI", 1)])
def test_a_convolution_of_patches_is_one_of_single_pixels(layout, scales, tmp_path):
    mod = patches(layout, scales)
    found = layers(mod)
    assert [layer.kind for layer in found] == ["slice", "reshape", "transpose", "reshape", "conv2d"]
    assert found[-1].weights.shape == (16, 1, 1, 4 * 3 * 5)
    results = outputs_of(mod, tmp_path / "offloaded")
    assert np.array_equal(results, outputs_of(mod, tmp_path / "host", deny=["qnn_conv2d"]))
    assert len(np.unique(results)) > 20


def test_a_convolution_of_patches_that_is_not_offloaded_stays_as_it_is():
    limits = dict(REFERENCE.limits) | {"conv2d": replace(REFERENCE.limits["conv2d"], weight_bits=(4,))}
    narrow = replace(REFERENCE, name="narrow", limits=limits)
    assert layers(patches(), accelerator=narrow) == []
    assert any("stride is one of 1, 2: got 4" in reason for reason in outcome_reasons(patches(), accelerator=narrow))


def counted_average(zero_point, scale=0.02):
    def body(x):
        image = real(x, scale, zero_point, axis=3)
        pool = relax.op.nn.avg_pool2d(image, [3, 2], [2, 1], [1, 0, 1, 1], layout="NHWC", count_include_pad=True)
        return stored(pool, 0.015, -7)

    return body


@pytest.mark.parametrize(("zero_point", "kinds"), [(0, ["pool2d"]), (3, ["pad", "pool2d"])])
def test_an_average_counts_its_padding_as_real_zeros(zero_point, kinds, tmp_path):
    mod = module(counted_average(zero_point), (1, 6, 5, 8))
    partitioned = byoc_hw.partition_for_hwlib(mod, mod_name="m")
    assert [layer.kind for layer in layers(mod)] == kinds
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    image = np.random.default_rng(0).integers(-128, 128, (1, 6, 5, 8)).astype("int8")
    real_values = np.pad((image.astype(np.float64) - zero_point) * np.float32(0.02), [(0, 0), (1, 1), (0, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(real_values, (3, 2), (1, 2))[:, ::2]
    expected = np.rint(windows.mean((-1, -2)) / np.float32(0.015)) - 7
    found = project.run([image]).outputs[0]
    assert found.shape == expected.shape
    assert np.abs(found - np.clip(expected, -128, 127)).max() <= 1
    assert byoc_hw.validate(project, [[image]], partitioned, tolerance=1).ok


def test_an_average_that_counts_its_padding_is_declined_where_its_zero_point_is_by_channel():
    reasons = outcome_reasons(module(counted_average(3, np.full(8, 0.02)), (1, 6, 5, 8)))
    assert "avg_pool2d: an average that counts its padding has zero point 0: got 3" in reasons


def test_a_product_of_a_value_and_its_own_sigmoid_is_one_table_with_the_names_of_both():
    def body(x):
        gate = stored(relax.op.sigmoid(real(x, 0.02, 3)), 1 / 256, -128)
        return stored(relax.op.multiply(real(x, 0.02, 3), real(gate, 1 / 256, -128)), 0.02, -5)

    (layer,) = layers(module(body, (1, 4, 4, 8)))
    assert layer.kind == "lookup"
    assert {"sigmoid", "multiply"} <= {name.partition("_")[0] for name in layer.source}


def test_a_region_of_nothing_but_reshapes_stays_on_the_host():
    mod = module(lambda x: relax.op.reshape(x, (1, 128)), (1, 4, 4, 8))
    assert layers(mod) == []
    assert outcome_reasons(mod) == ["reshape: matches, but a region of nothing but reshapes is not worth a call"]


def test_equal_operators_keep_their_own_names():
    """TVM has one function for equal matches, and for equal regions."""

    def pooled(x):
        return relax.op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1), layout="NHWC")

    def body(x):
        left = convolution(pooled(pooled(x)))
        return convolution(stored(relax.op.ceil(real(left, 0.05, -5)), 0.02, 3))

    partitioned = byoc_hw.partition_for_hwlib(module(body, (1, 6, 6, 8)))
    graphs = region_graphs(partitioned).values()
    names = [[layer.name for layer in graph.layers] for graph in graphs]
    assert names == [["nn.max_pool2d_1", "nn.max_pool2d_2", "add_1"], ["add_2"]]
    assert {outcome.placement for outcome in byoc_hw.explain(partitioned).outcomes} == {"accelerator", "host"}


def test_deny_keeps_a_composite_on_the_host():
    mod = module(convolution, (1, 6, 6, 8))
    assert layers(mod, deny=["qnn_conv2d"]) == []
    with pytest.raises(InvalidInput, match=r"deny names operators of the model or composites .*: got 'conv'"):
        byoc_hw.partition_for_hwlib(mod, deny=["conv"])


def test_the_symbols_of_regions_follow_the_name_of_the_module():
    partitioned = byoc_hw.partition_for_hwlib(module(convolution, (1, 6, 6, 8)), mod_name="net")
    assert list(region_graphs(partitioned)) == ["tvmgen_net_hwlib_main_0"]


def test_tvms_own_codegen_gets_the_c_of_a_region_with_its_numerics():
    sources = []
    for numerics in ("relay", "tflite"):
        partitioned = byoc_hw.partition_for_hwlib(module(convolution, (1, 6, 6, 8)), numerics=numerics)
        (made,) = relax.transform.RunCodegen()(partitioned).attrs["external_mods"]
        sources.append(made.inspect_source())
        assert "int32_t tvmgen_default_hwlib_main_0(" in sources[-1]
    assert sources[0] != sources[1]


@pytest.mark.parametrize("name", ["other", "host"])
def test_refuses_a_name_that_is_taken(name):
    tvm.register_global_func("relax.ext.other", lambda *given: [], override=True)
    with pytest.raises(InvalidInput, match="accelerator name is none that another compiler of TVM has"):
        byoc_hw.partition_for_hwlib(module(convolution, (1, 6, 6, 8)), accelerator=replace(REFERENCE, name=name))


def test_the_table_fuses_in_tvms_own_pass():
    mod = module(convolution, (1, 6, 6, 8))
    fused = relax.transform.FuseOpsByPattern(list(byoc_hw.pattern_table()))(mod)
    assert any(str(one.attrs["Composite"]) == "hwlib.qnn_conv2d" for one in composites(fused))


def composites(mod):
    return [one for one in mod.functions.values() if one.attrs and "Composite" in one.attrs]


# ---------------------------------------------------------------- what is refused


def test_refuses_what_is_no_module_of_relax():
    with pytest.raises(InvalidInput, match=r"mod is a tvm.IRModule: got int"):
        byoc_hw.partition_for_hwlib(3)
    with pytest.raises(InvalidInput, match="the module has a function main: got no function"):
        byoc_hw.partition_for_hwlib(tvm.IRModule({}))


def test_refuses_to_partition_twice():
    partitioned = byoc_hw.partition_for_hwlib(module(convolution, (1, 6, 6, 8)))
    with pytest.raises(InvalidInput, match="the module is already partitioned: partition the original module instead"):
        byoc_hw.partition_for_hwlib(partitioned)


def test_refuses_weights_that_main_does_not_have():
    with pytest.raises(InvalidInput, match="params are inputs of main by name: got 'w'"):
        byoc_hw.partition_for_hwlib(module(convolution, (1, 6, 6, 8)), {"w": np.zeros(1, "int8")})


def test_refuses_another_name_than_the_module_records():
    partitioned = byoc_hw.partition_for_hwlib(module(convolution, (1, 6, 6, 8)), mod_name="net")
    with pytest.raises(InvalidInput, match="the module was partitioned with mod_name 'net': got 'other'"):
        byoc_hw.build(partitioned, mod_name="other")


NEEDS_RELAY = {
    "to_integers": lambda: byoc_hw.to_integers(module(convolution, (1, 6, 6, 8))),
    "relay": lambda: byoc_hw.load("model.relay"),
}


@pytest.mark.parametrize("call", NEEDS_RELAY.values(), ids=NEEDS_RELAY)
def test_what_needs_relay_says_so(call):
    with pytest.raises(Unsupported, match=r"needs the front end of Relay: CPython 3.10 on x86-64 Linux"):
        call()
