"""What the tests of orders, gathers and suppressions share: chips that take them as a whole, and values with ties."""

from dataclasses import replace

import numpy as np
from bit_exact import assert_equals_tvm
from pattern_checks import composites
from sanitizers import SANITIZED

import byoc_hw
from byoc_hw import DIANA_DIGITAL, DSP, REFERENCE
from byoc_hw.frontend.relay.reference import Reference

DLA = replace(DIANA_DIGITAL, name="dla", label="DLA")
CHIP = byoc_hw.Soc((DLA, DSP), label="DLA + DSP")
WITHOUT = byoc_hw.Soc((DLA, replace(DSP, limits=REFERENCE.limits)), label="DLA + DSP")
"""A chip that puts nothing in order."""

KINDS = ", ".join(REFERENCE.limits)
"""The kinds of layers of an accelerator without orders."""

STRICT = f"{SANITIZED} -Wall -Wextra -Werror -Wconversion"


def no_lanes(kind, accelerator="dsp"):
    """Why one accelerator does not take a layer as a whole."""
    return f"a layer of kind {kind} runs beside the host on a chip, as of Soc(({accelerator},)): got one accelerator"


def with_ties(mod, seed):
    """An inference of few different values, so that many are equal, the ends of each type among them."""
    rng = np.random.default_rng(seed)
    arrays = []
    for parameter in mod["main"].params:
        of = parameter.checked_type
        shape = tuple(map(int, of.shape))
        if of.dtype == "float32":
            pool = np.array([-np.inf, -2.5, -1.0, -0.0, 0.0, 1e-40, 1.0, 3.0, np.inf], np.float32)
        else:
            info = np.iinfo(of.dtype)
            pool = np.array([info.min, info.min + 1, 0, 1, 7, info.max], of.dtype)
        arrays.append(rng.choice(pool[: 2 + seed % len(pool)], shape))
    return arrays


def check_on_chip(mod, expected, inferences, accelerator=CHIP, cflags=STRICT):
    """All is offloaded as these composites, with TVM's bits in every layer, in the planned cycles. The project."""
    partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=accelerator)
    assert composites(partitioned) == expected, str(byoc_hw.explain(partitioned))
    project = byoc_hw.build(partitioned)
    assert_equals_tvm(project, partitioned, mod, inferences, cflags)
    return project


def check_on_host(mod, inferences):
    """The host's function of each has the same bits."""
    project, reference = byoc_hw.build(mod), Reference(mod)
    for given, result in zip(inferences, project.run_batch(inferences), strict=True):
        for found, want in zip(result.outputs, reference.run(given), strict=True):
            np.testing.assert_array_equal(found, want, strict=True)
