"""argsort and sort: what is taken, what is declined and why, and what they compute on a chip and on the host."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from order_checks import CHIP, KINDS, WITHOUT, check_on_chip, check_on_host, no_lanes, with_ties
from pattern_checks import accepted, check_golden, declined
from relay_samples import Sample, side_by_side, variable
from riscv32_tools import needs_riscv32
from tvm import relay

import byoc_hw
from byoc_hw import DSP
from byoc_hw.frontend.relay.read import PLACES


@dataclass
class Sorted(Sample):
    shape: tuple = (3, 11)
    dtype: str = "float32"
    axis: int = -1
    ascending: bool = True
    places: str = "int32"  # "": values

    def variables(self, prefix=""):
        return [variable(self.shape, self.dtype, f"{prefix}x")]

    def expr(self, x):
        if not self.places:
            return relay.sort(x, self.axis, self.ascending)
        return relay.argsort(x, self.axis, self.ascending, self.places)


def test_takes_an_argsort():
    layer = accepted(Sorted().module(), "argsort", accelerator=CHIP)
    assert (layer.kind, layer.axis, layer.descending, layer.ofm.dtype) == ("order", 1, False, "int32")


DECLINED = {
    "no accelerator with orders": (Sorted(), WITHOUT, f"layer kind is one of {KINDS}: got order"),
    "one accelerator": (Sorted(), DSP, no_lanes("order")),
    "one accelerator, sort": (Sorted(places=""), DSP, f"{PLACES}: got values"),
    "no accelerator with orders, sort": (Sorted(places=""), WITHOUT, f"{PLACES}: got values"),
    "int64": (Sorted(dtype="int64"), CHIP, "activation type is one of int8, uint8, int32, float32: got int64 x int32"),
}


@pytest.mark.parametrize(("sample", "accelerator", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(sample, accelerator, reason):
    declined(sample.module(), f"argsort: {reason}", accelerator=accelerator)


def test_generated_c():
    mod = Sorted().module()
    check_golden("argsort", mod, CHIP, [with_ties(mod, 3)])


PLAIN = (
    Sorted(),
    Sorted(shape=(5, 4, 3), axis=0, ascending=False),
    Sorted(shape=(5, 4, 3), axis=1, dtype="int32"),
    Sorted(shape=(40,), ascending=False, places="int64"),
    Sorted(shape=(40,), dtype="int32", axis=0, places="float32"),
    Sorted(shape=(1,), axis=0),
)


def test_places_have_tvms_bits_on_a_chip_and_on_the_host():
    mod = side_by_side(PLAIN)
    inferences = [with_ties(mod, seed) for seed in range(10)]
    check_on_chip(mod, ["argsort"] * len(PLAIN), inferences)
    check_on_host(mod, inferences)


@pytest.mark.parametrize("sample", [replace(sample, places="") for sample in PLAIN], ids=str)
def test_sorted_values_are_gathered_at_their_places(sample):
    mod = sample.module()
    check_on_chip(mod, ["argsort", "gather"], [with_ties(mod, seed) for seed in range(10)])


@pytest.mark.slow
def test_bytes_have_the_order_of_wider_numbers():
    """TVM itself sorts no bytes on the build machine."""
    for dtype in ("int8", "uint8"):
        mod, wide = (Sorted((4, 30), of, places="").module() for of in (dtype, "int32"))
        projects = [byoc_hw.build(byoc_hw.partition_for_hwlib(one, accelerator=CHIP)) for one in (mod, wide)]
        for seed in range(4):
            (values,) = with_ties(mod, seed)
            found, want = (
                project.run([values.astype(of)]).outputs[0]
                for project, of in zip(projects, (dtype, "int32"), strict=True)
            )
            np.testing.assert_array_equal(found.astype("int32"), want)


@pytest.mark.slow
def test_random_shapes_have_tvms_bits():
    rng = np.random.default_rng(7)
    samples = []
    for _ in range(12):
        shape = tuple(int(extent) for extent in rng.integers(1, 9, rng.integers(1, 5)))
        dtype = str(rng.choice(["float32", "int32"]))
        samples.append(Sorted(shape, dtype, int(rng.integers(-len(shape), len(shape))), bool(rng.integers(2))))
    mod = side_by_side(samples)
    check_on_chip(mod, ["argsort"] * len(samples), [with_ties(mod, seed) for seed in range(20)])


@needs_riscv32
def test_is_the_same_on_riscv32():
    mod = Sorted(places="").module()
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=CHIP))
    given = [with_ties(mod, seed) for seed in range(4)]
    for one, other in zip(project.run_batch(given), project.run_batch(given, on="riscv32"), strict=True):
        assert one.outputs[0].tobytes() == other.outputs[0].tobytes()
        assert one.cycles.total == other.cycles.total == project.schedule.cycles
