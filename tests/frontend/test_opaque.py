"""What TVM's passes see of layers: their bodies are type-checked once, not in every pass."""

import tvm
from relay_samples import Add, Conv, module, variable
from tvm import relay
from tvm.ir.instrument import pass_instrument

import byoc_hw
from byoc_hw.frontend.relay.constant_folding import fold_constants
from byoc_hw.frontend.relay.record import regions
from byoc_hw.frontend.relay.sources import calls_in_order, operator_name


def network(layers):
    x = variable((1, 8, 8, 4))
    y = x
    for seed in range(layers):
        y = Conv(channels=4, filters=4, seed=seed).expr(y)
    return module(Add().expr(y, x), x)


def convolutions(mod):
    return sum(
        operator_name(call) == "qnn.conv2d" for function in mod.functions.values() for call in calls_in_order(function)
    )


@pass_instrument
class Watched:
    """The convolutions that each pass sees."""

    def __init__(self):
        self.seen = []

    def run_before_pass(self, mod, info):
        if all(isinstance(function, relay.Function) for function in mod.functions.values()):
            self.seen.append((str(info.name), convolutions(mod)))

    def of(self, name):
        return [count for one, count in self.seen if one == name]


def watched(job):
    watch = Watched()
    with tvm.transform.PassContext(instruments=[watch]):
        result = job()
    return watch, result


def test_passes_that_form_regions_do_not_see_convolutions():
    mod = network(3)
    watch, partitioned = watched(lambda: byoc_hw.partition_for_hwlib(mod))
    for name in ("AnnotateTarget", "MergeCompilerRegions", "PartitionGraph"):
        assert watch.of(name)
        assert not any(watch.of(name)), name
    assert convolutions(partitioned) == 3


def test_as_often_type_checked_in_a_network_of_any_length():
    counts = []
    for layers in (2, 6):
        watch, _ = watched(lambda layers=layers: byoc_hw.partition_for_hwlib(network(layers)))
        counts.append([count // layers for count in watch.of("InferType") if count])
    assert counts[0] == counts[1]
    assert sum(counts[0]) <= 5


def test_a_build_does_not_type_check_regions_again():
    partitioned = byoc_hw.partition_for_hwlib(network(2))
    watch, _ = watched(lambda: byoc_hw.build(partitioned))
    assert watch.of("InferType")
    assert not any(watch.of("InferType"))


def test_a_region_without_types_is_type_checked_in_a_build():
    partitioned = byoc_hw.partition_for_hwlib(network(2), accelerator=byoc_hw.SMALL)
    expected = byoc_hw.build(partitioned)
    for variable_, region in regions(partitioned).items():
        partitioned[variable_] = relay.Function(region.params, region.body, region.ret_type, None, region.attrs)
    again = tvm.ir.load_json(tvm.ir.save_json(partitioned))
    found = byoc_hw.build(again)
    name = "src/default_hwlib.c"
    assert (found.directory / name).read_bytes() == (expected.directory / name).read_bytes()


def test_all_calls_of_a_partitioned_module_have_types():
    partitioned = byoc_hw.partition_for_hwlib(network(2))
    for function in partitioned.functions.values():
        assert all(call.checked_type is not None for call in calls_in_order(function))


def folded(body, *inputs):
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(inputs, body)))
    return fold_constants()(mod), relay.transform.FoldConstant()(mod), mod


def test_constants_are_folded_as_by_tvm():
    x = relay.var("x", shape=(2,), dtype="int32")
    one = relay.const([1, 2], "int32")
    parts = relay.split(relay.concatenate([one, x], 0), 2)
    for body in (
        relay.add(x, relay.add(one, one)),
        relay.add(x, relay.add(relay.ones((2,), "int32"), one)),
        relay.concatenate([x, relay.concatenate([one, one], 0)], 0),
        relay.add(parts[0], one),
        relay.add(relay.cast(relay.op.shape_of(x), "int32"), one),
    ):
        ours, tvms, _ = folded(body, x)
        assert tvm.ir.structural_equal(ours, tvms, map_free_vars=True)


def test_what_has_nothing_to_fold_is_not_type_checked():
    mod = relay.transform.InferType()(network(1))
    watch, found = watched(lambda: fold_constants()(mod))
    assert found.same_as(mod)
    assert not watch.of("InferType")
