"""lookup: which tables it takes, as what layer, what it declines and why, and what it computes."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from pattern_checks import (
    TINY,
    accepted,
    check_bit_exact,
    check_golden,
    compare,
    computing,
    declined,
    graphs,
    partitioned,
)
from relay_samples import Conv, Sample, const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw import REFERENCE, SMALL
from byoc_hw.frontend.relay.reference import Reference

COMPOSITE = "lookup"


def table(entries=256, dtype="int8", seed=0):
    return np.random.default_rng(seed).integers(0, 256, entries).astype(np.uint8).view(dtype)


@dataclass
class Lookup(Sample):
    """A value of `dtype` taken from `entries`, whose start is at `starts`."""

    shape: tuple = (1, 4, 5, 3)
    dtype: str = "int8"
    entries: np.ndarray | None = None
    starts: object = 128
    index: str = "int32"
    mode: str = "clip"
    axis: int | None = None

    def variables(self, prefix=""):
        return [variable(self.shape, self.dtype, f"{prefix}x")]

    def expr(self, x):
        index = relay.cast(x, self.index)
        if self.starts is not None:
            index = relay.add(index, const(self.starts, self.index))
        values = table() if self.entries is None else self.entries
        return relay.take(const(values, str(values.dtype)), index, axis=self.axis, mode=self.mode)


BY_CHANNEL = [128, 384, 640]

FORMS = {
    "int8": Lookup(),
    "int8 to uint8": Lookup(entries=table(dtype="uint8"), mode="fast"),
    "uint8 to int8": Lookup(dtype="uint8", starts=None),
    "uint8": Lookup(dtype="uint8", starts=0, entries=table(dtype="uint8"), index="int64"),
    "by channel": Lookup(entries=table(768), starts=BY_CHANNEL, mode="wrap"),
    "uint8 by channel": Lookup((2, 3), "uint8", table(768), np.array([[0, 256, 512]])),
    "entries beyond the table": Lookup(entries=table(100)),
    "entries beyond the table, wrapped": Lookup(entries=table(100), starts=-1000, mode="wrap"),
    "a scalar": Lookup(shape=()),
    "several in a batch": Lookup(shape=(3, 5)),
    "five dimensions": Lookup(shape=(1, 2, 3, 2, 3), entries=table(768), starts=BY_CHANNEL),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_takes_the_whole_form(form):
    layer = accepted(form.module(), COMPOSITE)
    assert (layer.kind, layer.ifm.shape, layer.ofm.shape) == ("lookup", form.shape, form.shape)
    assert layer.ifm.dtype == form.dtype
    assert layer.ofm.dtype == ("int8" if form.entries is None else str(form.entries.dtype))
    assert len(layer.tables) == (3 if np.size(form.starts) == 3 else 1)


def test_channels_of_one_table_share_it():
    layer = accepted(Lookup(entries=table(256), starts=[128, 128, 128]).module(), COMPOSITE)
    np.testing.assert_array_equal(layer.tables[0, :128], table().view(np.uint8)[128:])
    np.testing.assert_array_equal(layer.tables[0, 128:], table().view(np.uint8)[:128])


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_table_between_convolutions_stays_in_their_region(layout):
    conv, after = (Conv(channels=8, layout=layout, seed=seed) for seed in (1, 2))
    x = variable(conv.ifm_shape)
    mod = module(after.expr(Lookup().expr(conv.expr(x))), x)
    split = partitioned(mod)
    (graph,) = graphs(split)
    assert [layer.kind for layer in computing(graph)] == ["conv2d", "lookup", "conv2d"]
    compare(mod, byoc_hw.build(split), Reference(mod))


# ---------------------------------------------------------------- declined

DECLINED = {
    "int16 input": (Lookup(dtype="int16"), "input of a table is int8 or uint8: got int16"),
    "int32 output": (Lookup(entries=np.arange(256, dtype=np.int32)), "output of a table is int8 or uint8: got int32"),
    "narrow index": (Lookup(index="int16"), "index of a table is int32 or int64: got int16"),
    "rows of a table": (Lookup(axis=0), "table is taken from as one vector: got axis 0"),
    "beyond a table that is not limited": (
        Lookup(starts=129, mode="fast"),
        "indices are from 0 to 255: got 256",
    ),
    "tables by column": (
        Lookup(starts=np.arange(5).reshape(5, 1)),
        "tables are one, or one for each index of the last dimension: got starts of (5, 1)",
    ),
    "more dimensions": (
        Lookup(shape=(3,), starts=np.zeros((2, 3))),
        "starts of tables have no more dimensions than the input: got (2, 3)",
    ),
}


@pytest.mark.parametrize(("sample", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(sample, reason):
    declined(sample.module(), f"lookup: {reason}")


def test_declines_types_and_kinds_that_the_accelerator_lacks():
    limits = {**REFERENCE.limits, "lookup": replace(REFERENCE.limits["lookup"], activation_types=("int8",))}
    reason = "activation type is int8: got uint8 x int8"
    declined(FORMS["uint8 to int8"].module(), f"lookup: {reason}", accelerator=replace(REFERENCE, limits=limits))
    del limits["lookup"]
    kinds = ", ".join(limits)
    declined(
        Lookup().module(),
        f"lookup: layer kind is one of {kinds}: got lookup",
        accelerator=replace(REFERENCE, limits=limits),
    )


# ---------------------------------------------------------------- code and results


def test_generated_c_reads_as_the_golden_file():
    check_golden(COMPOSITE, module_of_two())


def module_of_two():
    """One table, then tables by channel."""
    x = variable((1, 4, 5, 3), "uint8")
    return module(FORMS["by channel"].expr(FORMS["uint8 to int8"].expr(x)), x)


@pytest.mark.parametrize("accelerator", [REFERENCE, SMALL, TINY], ids=lambda one: one.label)
def test_gives_tvms_results_bit_for_bit(accelerator):
    shapes = [(1, 17, 16, 16), (1, 1, 1, 3), (1, 3001)]
    large = [Lookup(shape) for shape in shapes]
    many = Lookup((1, 30, 7, 40), entries=table(40 * 256), starts=128 + 256 * np.arange(40))
    check_bit_exact([*FORMS.values(), *large, many], COMPOSITE, accelerator)
