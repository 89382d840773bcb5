"""Random networks on random accelerators: every output and every layer bit for bit TVM's, in the cycles planned."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bit_exact import assert_bit_exact
from effort import examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from relay_samples import Add, Conv, Dense, Mul, Pool, Quantized, Subtract, module, variable
from tvm import relay

from byoc_hw.accelerator import DIANA_DIGITAL, NO_INSTRUCTIONS, REFERENCE, REGISTERS, SMALL
from byoc_hw.graph import output_extent
from byoc_hw.soc import Soc

sys.path.append(str(Path(__file__).parent / "emit"))
from vendor_library import QUEUED

ZERO_POINTS = st.sampled_from([-128, -3, 0, 5, 127])
CHANNELS = st.sampled_from([1, 2, 3, 5, 8, 16, 17, 33])


@st.composite
def accelerators(draw):
    if draw(st.booleans()):
        return draw(st.sampled_from([REFERENCE, SMALL, DIANA_DIGITAL]))
    return replace(
        REFERENCE,
        label="RANDOM",
        activation_memory=draw(st.sampled_from([700, 1500, 2048, 4096, 16384])),
        weight_memory=draw(st.sampled_from([600, 1500, 4096, 8192])),
        array_rows=draw(st.sampled_from([2, 4, 8, 16])),
        array_columns=draw(st.sampled_from([2, 4, 8, 16])),
        depthwise_rows=draw(st.sampled_from([1, 4, 16])),
        local_alignment=draw(st.sampled_from([4, 8, 16])),
        dma_alignment=draw(st.sampled_from([1, 1, 1, 2, 4])),
        dma_width=draw(st.sampled_from([1, 4, 16])),
        dma_row_setup=draw(st.sampled_from([0, 0, 12])),
        job_setup=draw(st.sampled_from([0, 0, 120])),
        hal_instructions=draw(st.sampled_from([NO_INSTRUCTIONS, REGISTERS])),
        queue=draw(st.sampled_from([1, 2, 3, 4, 8, 64])),
        packed_rows=draw(st.booleans()),
    )


class Network:
    """A network as it grows: the value at its end, that value's shape, and what may be added to it."""

    def __init__(self, draw, name, layouts):
        self.draw = draw
        self.layout = draw(st.sampled_from(layouts))
        self.height, self.width = draw(st.integers(1, 14)), draw(st.integers(1, 14))
        self.channels = draw(CHANNELS)
        self.input = variable(Conv(self.height, self.width, self.channels, layout=self.layout).ifm_shape, name=name)
        self.value, self.same_shape, self.outputs = self.input, [], []

    def window(self):
        """Kernel, strides and padding that leave at least one output."""
        kernel = self.draw(st.integers(1, min(5, self.height + 1))), self.draw(st.integers(1, min(5, self.width + 1)))
        least = [max(0, kernel[0] - self.height), max(0, kernel[1] - self.width)]
        padding = [self.draw(st.integers(low, size - 1)) for low, size in zip(least * 2, kernel * 2, strict=True)]
        return {"kernel": kernel, "strides": self.draw(st.tuples(*[st.integers(1, 2)] * 2)), "padding": tuple(padding)}

    def moved(self, window, channels=None):
        """The shape behind a window."""
        (rows, columns), (down, along) = window["kernel"], window["strides"]
        top, left, bottom, right = window["padding"]
        self.height = output_extent(self.height, top, bottom, rows, down)
        self.width = output_extent(self.width, left, right, columns, along)
        self.channels = channels or self.channels
        self.same_shape = []

    def conv(self):
        window, depthwise = self.window(), self.channels > 1 and self.draw(st.booleans())
        # TVM itself takes a convolution from one channel to one for a depthwise one, and fails.
        filters = self.channels if depthwise else max(self.draw(CHANNELS), 2)
        conv = Conv(
            self.height,
            self.width,
            self.channels,
            filters,
            depthwise=depthwise,
            layout=self.layout,
            per_channel=self.draw(st.booleans()),
            bias=self.draw(st.booleans()),
            clip=self.draw(st.sampled_from([None, (-128, 100), (0, 127)])),
            ifm_zero_point=self.draw(ZERO_POINTS),
            weight_zero_point=self.draw(st.sampled_from([0, 0, 3])),
            ofm_zero_point=self.draw(ZERO_POINTS),
            ofm_scale=self.draw(st.sampled_from([0.1, 0.4, 2.0])),
            seed=self.draw(st.integers(0, 99)),
            **window,
        )
        self.value = conv.expr(self.value)
        self.moved(window, filters)

    def pool(self):
        window = self.window()
        operator = self.draw(st.sampled_from(["nn.avg_pool2d", "nn.max_pool2d"]))
        pool = Pool(operator, layout=self.layout, count_include_pad=self.draw(st.booleans()), **window)
        self.value = pool.expr(self.value)
        self.moved(window)

    def add(self):
        if self.same_shape:
            lhs = Quantized(0.3, self.draw(ZERO_POINTS))
            self.value = Add(lhs=lhs).expr(self.value, self.draw(st.sampled_from(self.same_shape)))

    def excite(self):
        pair = [self.value, self.pixel()]
        pairwise = self.draw(st.sampled_from([Add, Mul, Subtract]))(lhs=Quantized(0.3, self.draw(ZERO_POINTS)))
        self.value = pairwise.expr(*self.draw(st.permutations(pair)))

    def pixel(self):
        """The mean over all pixels."""
        axis = (1, 2) if self.layout == "NHWC" else (2, 3)
        return Pool("mean", axis=axis, keepdims=True).expr(self.value)

    def mean(self):
        self.value = self.pixel()
        self.height = self.width = 1
        self.same_shape = []

    def classify(self):
        self.value = relay.reshape(self.value, (1, -1))
        if self.draw(st.booleans()):
            inputs = self.height * self.width * self.channels
            self.value = Dense(inputs, self.draw(CHANNELS), seed=self.draw(st.integers(0, 99))).expr(self.value)

    def on_the_host(self):
        self.value = relay.nn.relu(self.value)


@st.composite
def networks(draw, name, layouts):
    """The input of a network and its outputs."""
    network = Network(draw, name, layouts)
    network.conv()
    for _ in range(draw(st.integers(1, 5))):
        network.same_shape.append(network.value)
        step = draw(st.sampled_from(["conv", "conv", "pool", "add", "add", "mean", "excite", "on_the_host"]))
        getattr(network, step)()
        if draw(st.integers(0, 4)) == 0:
            network.outputs.append(network.value)
    if draw(st.booleans()):
        network.classify()
    return network.input, [network.value, *network.outputs]


@st.composite
def chips(draw):
    """Two or three accelerators whose DMAs take the same words, the last one sometimes a vendor's library. Some
    have events."""
    one, *others = (draw(accelerators()) for _ in range(draw(st.sampled_from([2, 2, 3]))))
    alike = (replace(other, dma_alignment=one.dma_alignment) for other in (one, *others))
    engines = [replace(each, name=f"engine{at}") for at, each in enumerate(alike)]
    last = draw(st.sampled_from([engines[-1], QUEUED]))
    return Soc((*engines[:-1], last), events=draw(st.sampled_from([0, 0, 1, 3, 8])))


@st.composite
def models(draw, hardware):
    """An accelerator, and several networks in one module: it takes as long to compile as one."""
    accelerator = draw(hardware)
    layouts = ["NHWC", "NCHW"] if accelerator.dma_alignment == 1 else ["NHWC"]  # single bytes to be transposed
    made = [draw(networks(f"x{index}", layouts)) for index in range(3)]
    outputs = [output for _, outputs in made for output in outputs]
    return accelerator, module(relay.Tuple(outputs), *(one for one, _ in made))


@pytest.mark.slow
@given(models(accelerators()))
@settings(  # an example takes seconds: no shrinking
    max_examples=examples(6), phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
def test_random_networks_are_bit_exact(model):
    accelerator, mod = model
    assert_bit_exact(mod, accelerator=accelerator)


@pytest.mark.slow
@given(models(chips()))
@settings(max_examples=examples(3), phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_random_networks_are_bit_exact_on_several_accelerators(model):
    chip, mod = model
    assert_bit_exact(mod, accelerator=chip)
