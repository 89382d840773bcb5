"""Transposed convolutions become convolutions to blocks of outputs: exactly, and only where those are offloaded."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_checks import SEEDS, compare, computing, graphs, partitioned, reasons
from relay_samples import Sample, const, module, side_by_side, variable
from tvm import relay

import byoc_hw
from byoc_hw import REFERENCE
from byoc_hw.frontend.relay.record import regions
from byoc_hw.frontend.relay.reference import Reference


@dataclass
class Transposed(Sample):
    height: int = 4
    width: int = 5
    channels: int = 3
    filters: int = 6
    kernel: tuple = (3, 3)
    strides: tuple = (2, 2)
    padding: tuple = (0, 0, 0, 0)
    output_padding: tuple = (0, 0)
    dilation: tuple = (1, 1)
    layout: str = "NHWC"
    bias: str = "nn.bias_add"
    per_channel: bool = True
    clip: tuple | None = None
    weight_zero_point: int = 0
    ifm_zero_point: int = -3
    dtype: str = "int8"
    scales: tuple | None = None
    seed: int = 0

    def variables(self, prefix=""):
        extents = {"N": 1, "H": self.height, "W": self.width, "C": self.channels}
        return [variable(tuple(extents[letter] for letter in self.layout), self.dtype, f"{prefix}x")]

    def total(self, x):
        rng = np.random.default_rng(self.seed)
        weights = rng.integers(-127, 128, (self.channels, self.filters, *self.kernel))
        return relay.qnn.op.conv2d_transpose(
            x,
            const(weights, "int8"),
            const(self.ifm_zero_point, "int32"),
            const(self.weight_zero_point, "int32"),
            const(0.05, "float32"),
            const(self.weight_scales, "float32"),
            strides=self.strides,
            padding=self.padding,
            output_padding=self.output_padding,
            dilation=self.dilation,
            channels=self.filters,
            kernel_size=self.kernel,
            data_layout=self.layout,
            kernel_layout="IOHW",
            out_dtype="int32",
        )

    @property
    def weight_scales(self):
        random = np.random.default_rng(self.seed).uniform(0.002, 0.02, self.filters)
        scales = np.asarray(self.scales or random, np.float32)
        return scales if self.per_channel else scales[0]

    def expr(self, x):
        axis, total = self.layout.index("C"), self.total(x)
        values = np.random.default_rng(self.seed + 1).integers(-2000, 2000, self.filters)
        if self.bias == "nn.bias_add":
            total = relay.nn.bias_add(total, const(values, "int32"), axis)
        elif self.bias == "add":
            total = relay.add(total, const(values.reshape([-1 if at == axis else 1 for at in range(4)]), "int32"))
        scales = const(self.weight_scales * np.float32(0.05), "float32")
        ofm = const(0.4, "float32"), const(5, "int32")
        out = relay.qnn.op.requantize(total, scales, const(0, "int32"), *ofm, axis=axis, out_dtype=self.dtype)
        return out if self.clip is None else relay.clip(out, *self.clip)


def test_is_a_convolution_with_stride_1_whose_blocks_are_moved():
    mod = partitioned(Transposed(padding=(0, 0, 1, 1), clip=(-100.0, 50.0)).module())
    (graph,) = graphs(mod)
    assert [layer.kind for layer in graph.layers] == ["conv2d", "reshape", "transpose", "reshape"]
    conv = graph.layers[0]
    assert (conv.strides, conv.kernel, conv.padding) == ((1, 1), (2, 2), (1, 1, 0, 0))
    assert (conv.ofm.shape, graph.outputs[0].shape) == ((1, 4, 5, 24), (1, 8, 10, 6))
    assert (conv.act_min, conv.act_max) == (-100, 50)
    assert {outcome.name for outcome in byoc_hw.explain(mod).outcomes} == {
        "qnn.conv2d_transpose_1",
        "nn.bias_add_1",
        "qnn.requantize_1",
        "clip_1",
    }


def test_cuts_blocks_that_are_not_full():
    (graph,) = graphs(partitioned(Transposed().module()))
    assert [(layer.kind, layer.ofm.shape) for layer in graph.layers[-2:]] == [
        ("reshape", (1, 10, 12, 6)),
        ("slice", (1, 9, 11, 6)),
    ]


def test_stride_1_moves_nothing():
    (graph,) = graphs(partitioned(Transposed(strides=(1, 1), padding=(1, 1, 1, 1)).module()))
    assert [layer.kind for layer in graph.layers] == ["conv2d"]


# ---------------------------------------------------------------- declined

LEFT = {
    "dilation": (Transposed(dilation=(2, 2)), None),
    "the convolution is refused": (
        Transposed(kernel=(511, 1), width=1),
        "qnn_conv2d: kernel is at most 255 x 255, in parts of at most 11 x 11: got 256 x 1",
    ),
    "dead channels": (Transposed(filters=2, scales=(1e-12, 0.01)), None),
}


@pytest.mark.parametrize(("sample", "reason"), LEFT.values(), ids=LEFT)
def test_leaves_what_would_not_be_offloaded_as_it_is(sample, reason):
    mod = partitioned(sample.module())
    assert not regions(mod)
    assert "conv2d_transpose" in str(mod["main"])
    assert reason is None or reason in reasons(mod)


def test_deny_names_the_operator_of_the_model():
    mod = partitioned(Transposed().module(), deny=["qnn.conv2d_transpose_1"])
    assert not regions(mod)
    assert "qnn_conv2d: kept on the host by deny='qnn.conv2d_transpose_1'" in reasons(mod)


def test_leaves_a_sum_that_is_used_elsewhere_too():
    sample = Transposed(bias="")
    (x,) = sample.variables()
    total = sample.total(x)
    ofm = const(0.4, "float32"), const(5, "int32")
    out = relay.qnn.op.requantize(total, const(0.001, "float32"), const(0, "int32"), *ofm, out_dtype="int8")
    assert not regions(partitioned(module(relay.Tuple([out, total]), x)))


def test_an_accelerator_without_moves_leaves_them_to_the_host():
    limits = {kind: REFERENCE.limits[kind] for kind in ("conv2d", "reshape")}
    sample = Transposed(kernel=(2, 2))
    mod = sample.module()
    after = partitioned(mod, accelerator=replace(REFERENCE, label="CONV", limits=limits))
    (graph,) = graphs(after)
    assert [layer.kind for layer in computing(graph)] == ["conv2d"]
    compare(mod, byoc_hw.build(after), Reference(mod))


# ---------------------------------------------------------------- results


@st.composite
def samples(draw):
    kernel = draw(st.tuples(*[st.integers(1, 5)] * 2))
    strides = draw(st.tuples(*[st.integers(1, 3)] * 2))
    height, width = draw(st.tuples(*[st.integers(2, 6)] * 2))
    sizes = [
        (extent - 1) * stride + size for extent, stride, size in zip((height, width), strides, kernel, strict=True)
    ]
    around = [draw(st.integers(0, min(5, (sizes[side % 2] - 1) // 2))) for side in range(4)]
    return Transposed(
        height=height,
        width=width,
        channels=draw(st.sampled_from((1, 3, 17))),
        filters=draw(st.sampled_from((1, 2, 5))),
        kernel=kernel,
        strides=strides,
        padding=tuple(around),
        output_padding=tuple(draw(st.integers(0, stride - 1)) for stride in strides),
        layout=draw(st.sampled_from(("NHWC", "NHWC", "NCHW"))),
        bias=draw(st.sampled_from(("", "add", "nn.bias_add"))),
        per_channel=draw(st.booleans()),
        clip=draw(st.sampled_from((None, (-20.0, 100.0)))),
        weight_zero_point=draw(st.sampled_from((0, -128, 7))),
        ifm_zero_point=draw(st.integers(-128, 127)),
        seed=draw(SEEDS),
    )


@pytest.mark.slow
@settings(max_examples=4)
@given(st.lists(samples(), min_size=4, max_size=4), SEEDS)
def test_gives_tvms_results_bit_for_bit(drawn, seed):
    mod = side_by_side(drawn)
    after = partitioned(mod)
    assert not [outcome for outcome in byoc_hw.explain(after).host if "conv2d_transpose" in outcome.name]
    compare(mod, byoc_hw.build(after), Reference(mod), seed)
