"""Why an operator stayed on the host: every broken rule with its value, or how far the match got."""

import pytest
from relay_samples import Conv, Dense, const, module, variable
from tvm import relay

import byoc_hw


def outcome_of(mod, name, **options):
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, **options))
    return next(outcome for outcome in report.outcomes if outcome.name == name)


def reasons(mod, name):
    return [str(rejection) for rejection in outcome_of(mod, name).rejections]


def bare_conv(**knobs):
    """A convolution without its requantize."""
    x = variable((1, 8, 8, 4))
    conv = relay.qnn.op.conv2d(
        x,
        const([[[[1] * 8] * 4] * 3] * 3, "int8"),
        const(0, "int32"),
        const(0, "int32"),
        const(1.0, "float32"),
        const(1.0, "float32"),
        kernel_size=(3, 3),
        channels=8,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    return x, conv


def test_lists_every_broken_rule_with_the_value_found():
    broken = outcome_of(Conv(strides=(3, 3), padding=(256, 0, 0, 0), batch=2).module(), "qnn.conv2d_1").rejections
    assert [str(rule) for rejection in broken for rule in rejection.broken] == [
        "batch is 1: got 2",
        "padding is at most 255: got 256",
        "stride is one of 1, 2: got 3",
    ]


def test_a_near_miss_names_what_is_missing():
    x, conv = bare_conv()
    assert reasons(module(conv, x), "qnn.conv2d_1") == [
        "qnn_depthwise_conv2d or qnn_conv2d: matched to qnn.conv2d; "
        "expected qnn.requantize or nn.bias_add or add, found the model's output"
    ]


def test_a_near_miss_names_what_stands_in_its_place():
    x, conv = bare_conv()
    (reason,) = reasons(module(relay.nn.relu(conv), x), "qnn.conv2d_1")
    assert reason.endswith("expected qnn.requantize or nn.bias_add or add, found nn.relu")


def test_a_near_miss_names_the_argument_that_is_no_constant():
    x, conv = bare_conv()
    bias = variable((8,), "int32", "b")
    (reason,) = reasons(module(relay.nn.bias_add(conv, bias, axis=3), x, bias), "qnn.conv2d_1")
    assert reason.endswith("matched to qnn.conv2d; nn.bias_add: bias is the input b, not a constant")
    (reason,) = reasons(Dense(constant_weights=False).module(), "qnn.dense_1")
    assert reason == "qnn_dense: qnn.dense: weight is the input w, not a constant"


def test_a_near_miss_says_that_an_intermediate_result_is_used_elsewhere():
    x, conv = bare_conv()
    scale, zero = const(1.0, "float32"), const(0, "int32")
    out = relay.qnn.op.requantize(conv, scale, zero, scale, zero, axis=3, out_dtype="int8")
    (reason,) = reasons(module(relay.Tuple([out, conv]), x), "qnn.conv2d_1")
    assert "the result of qnn.conv2d is used elsewhere too" in reason


def test_a_layer_whose_smallest_tile_does_not_fit_stays_on_the_host():
    small = byoc_hw.Accelerator(label="TOO SMALL", activation_memory=8, weight_memory=1024)
    (reason,) = outcome_of(Conv().module(), "qnn.conv2d_1", accelerator=small).rejections
    assert str(reason).startswith("qnn_conv2d: qnn.conv2d_1: the smallest tile fits local activation memory: ")
    assert str(reason).endswith(" bytes needed, 8 bytes there")


def test_an_operator_that_no_pattern_covers_is_named():
    x = variable((1, 8), "float32")
    outcome = outcome_of(module(relay.exp(x), x), "exp_1")
    assert outcome.placement == "host"
    assert outcome.uncovered == ("exp",)


def test_a_lone_reshape_says_why_it_went_back():
    x = variable((1, 8, 8, 4))
    (reason,) = reasons(module(relay.reshape(x, (1, 256)), x), "reshape_1")
    assert reason == "reshape: matches, but a region of nothing but reshapes is not worth a call"


def test_an_operator_that_only_goes_along_with_others_says_with_which():
    x = variable((1, 8), "int32")
    scale, zero = const(1.0, "float32"), const(0, "int32")
    mod = module(relay.qnn.op.requantize(x, scale, zero, scale, zero, out_dtype="int8"), x)
    assert reasons(mod, "qnn.requantize_1") == [
        "qnn.requantize is offloaded only together with max, mean, qnn.batch_matmul, qnn.conv2d, qnn.dense, sum"
    ]


def test_what_is_computed_at_compile_time_counts_on_neither_side():
    x = variable((1, 8, 8, 4))
    folded = relay.add(const([1, 2], "int32"), const([3, 4], "int32"))
    mod = module(relay.Tuple([Conv().expr(x), relay.cast(relay.cast(folded, "float32"), "int32")]), x)
    assert outcome_of(mod, "add_1").placement == "folded"


@pytest.mark.parametrize("name", ["qnn.conv2d_1", "nn.bias_add_1", "qnn.requantize_1"])
def test_all_operators_of_a_rejected_match_give_its_reason(name):
    assert reasons(Conv(strides=(3, 3)).module(), name) == ["qnn_conv2d: stride is one of 1, 2: got 3"]
