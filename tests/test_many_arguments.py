"""Regions with more arguments than 8 bits number."""

import numpy as np
import pytest
from relay_samples import Add, Quantized, module, variable

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference

SAME = Quantized(0.1, -3)


def summed(count):
    """The sum of as many inputs, in pairs, pairs of pairs and so on."""
    inputs = [variable((1, 4), name=f"x{index}") for index in range(count)]
    level = inputs
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        odd = level[len(level) // 2 * 2 :]
        level = [*(Add(lhs=SAME, rhs=SAME, out=SAME).expr(one, other) for one, other in pairs), *odd]
    return module(level[0], *inputs)


@pytest.mark.slow
def test_a_region_of_many_inputs_equals_tvm():
    count = 260
    mod = summed(count)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod))
    assert len({layer["region"] for layer in project.layers}) == 1
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-20, 20, (1, 4)).astype(np.int8) for _ in range(count)]
    np.testing.assert_array_equal(project.run(inputs).outputs[0], Reference(mod).run(inputs)[0])
