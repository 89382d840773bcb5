"""Adaptive pooling: to one pixel it is the global pooling that the accelerator takes, in either layout."""

from pattern_checks import check_bit_exact, compare, composites, declined, partitioned
from relay_samples import module, side_by_side, variable
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference


class Adaptive:
    def __init__(self, mode, shape, layout, size):
        self.mode, self.shape, self.layout, self.size = mode, shape, layout, size

    def variables(self, prefix=""):
        return [variable(self.shape, name=f"{prefix}x")]

    def expr(self, x):
        if self.mode == "max":
            return relay.nn.adaptive_max_pool2d(x, self.size, layout=self.layout)
        pooled = relay.nn.adaptive_avg_pool2d(relay.cast(x, "int32"), self.size, layout=self.layout)
        return relay.cast(pooled, "int8")

    def module(self):
        x = variable(self.shape)
        return module(self.expr(x), x)


def test_one_pixel_is_offloaded_and_exact():
    check_bit_exact([Adaptive("avg", (1, 7, 5, 3), "NHWC", (1, 1))], "avg_pool2d")
    check_bit_exact([Adaptive("max", (1, 7, 5, 3), "NHWC", (1,))], "global_max_pool2d")


def test_channels_first_are_brought_to_the_layout_of_the_array():
    mod = side_by_side([Adaptive(mode, (1, 3, 7, 5), "NCHW", (1, 1)) for mode in ("avg", "max")])
    after = partitioned(mod)
    assert set(composites(after)) == {"avg_pool2d", "global_max_pool2d"}
    assert not byoc_hw.explain(after).host
    compare(mod, byoc_hw.build(after), Reference(mod))


def test_the_report_keeps_the_operators_name():
    after = partitioned(Adaptive("max", (1, 7, 5, 3), "NHWC", (1, 1)).module())
    assert [outcome.name for outcome in byoc_hw.explain(after).outcomes] == ["nn.adaptive_max_pool2d_1"]


def test_more_than_one_pixel_stays_on_the_host():
    declined(Adaptive("max", (1, 7, 5, 3), "NHWC", (2, 2)).module())
