"""Non-maximum suppression on the host: what a function of ours takes, and that it has TVM's results."""

import itertools

import numpy as np
import pytest
from relay_samples import module, variable
from riscv32_tools import needs_riscv32
from sanitizers import SANITIZED
from tvm import relay

import byoc_hw
from byoc_hw.errors import Unsupported
from byoc_hw.frontend.relay.reference import Reference

pytestmark = pytest.mark.filterwarnings(r"ignore:visit_\w+ is deprecated")  # TVM's own

STRICT = f"{SANITIZED} -Wall -Wextra -Werror -Wconversion"
BATCHES, BOXES, VALUES = 2, 24, 6
INPUTS = [
    variable((BATCHES, BOXES, VALUES), "float32", "boxes"),
    variable((BATCHES,), "int32", "count"),
    variable((BATCHES, BOXES), "int32", "indices"),
]

FORMS = {
    "as by default": {},
    "whatever the class": {"force_suppress": True},
    "without a class": {"id_index": -1},
    "class behind the score": {"coord_start": 0, "score_index": 4, "id_index": 5},
    "few outputs": {"max_output_size": 3},
    "no outputs": {"max_output_size": 0},
    "few candidates": {"top_k": 5, "force_suppress": True},
    "nothing overlaps enough": {"iou_threshold": 1.5},
    "no suppression": {"iou_threshold": 0.0, "top_k": 4},
    "to the bottom": {"invalid_to_bottom": True, "max_output_size": 9},
    "to the bottom without suppression": {"invalid_to_bottom": True, "iou_threshold": -1.0},
}


def suppressed(form, boxes, count, indices, *limits):
    """With the places, then without."""
    names = dict(zip(("max_output_size", "iou_threshold"), limits, strict=False))
    every = {**FORMS[form], **names}
    places = relay.vision.non_max_suppression(boxes, count, indices, **every, return_indices=True)
    return [*places, relay.vision.non_max_suppression(boxes, count, indices, **every, return_indices=False)]


def every_form():
    return module(relay.Tuple([each for form in FORMS for each in suppressed(form, *INPUTS)]), *INPUTS)


def with_ties(seed):
    """Boxes whose scores, classes and corners have few values, some of them not positive; all counts."""
    rng = np.random.default_rng(seed)
    boxes = (rng.integers(-1, 7, (BATCHES, BOXES, VALUES)) / 4).astype(np.float32)
    counts = np.array([rng.integers(0, BOXES + 1), [0, 1, BOXES][seed % 3]], np.int32)
    indices = np.stack([rng.permutation(BOXES) for _ in range(BATCHES)]).astype(np.int32)
    return [boxes, counts, indices]


def assert_equals_tvm(mod, inputs):
    project, reference = byoc_hw.build(mod), Reference(mod)
    results = project.run_batch(inputs, toolchain=byoc_hw.Toolchain(cflags=STRICT))
    for given, result in zip(inputs, results, strict=True):
        for index, (found, want) in enumerate(zip(result.outputs, reference.run(given), strict=True)):
            np.testing.assert_array_equal(found, want, err_msg=f"{list(FORMS)[index // 3]}: output {index % 3}")
    return project


@pytest.mark.slow
def test_has_tvms_boxes_places_and_counts():
    project = assert_equals_tvm(every_form(), [with_ties(seed) for seed in range(12)])
    calls = [layer["name"] for layer in project.layers]
    assert len([name for name in calls if "suppress" in name]) == 2 * len(FORMS)


def test_limits_may_be_inputs():
    limits = [variable((), "int32", "most"), variable((), "float32", "threshold")]
    mod = module(relay.Tuple(suppressed("as by default", *INPUTS, *limits)), *INPUTS, *limits)
    pairs = itertools.product((-1, 0, 4), (0.0, 0.3, 0.7))
    values = [[np.array(most, np.int32), np.array(threshold, np.float32)] for most, threshold in pairs]
    assert_equals_tvm(mod, [[*with_ties(seed), *given] for seed, given in enumerate(values)])


def test_indices_beyond_the_boxes_are_as_tvm_has_them():
    """TVM puts a 0 behind such an index, and writes beyond its output for many of them: ours ends there."""
    mod = module(relay.Tuple(suppressed("no suppression", *INPUTS)), *INPUTS)
    boxes, counts, indices = with_ties(0)
    counts[:] = 9
    indices[:, 3:5] = [[BOXES + 1, -BOXES - 1]]
    assert_equals_tvm(mod, [[boxes, counts, indices]])
    project = byoc_hw.build(mod)
    for every in (BOXES + 1, -BOXES - 1):
        given = [boxes, np.full_like(counts, BOXES), np.full_like(indices, every)]
        places, found, _ = project.run(given, toolchain=byoc_hw.Toolchain(cflags=STRICT)).outputs
        assert found.tolist() == [[BOXES]] * BATCHES
        assert set(places.ravel()) <= {0, every}


def test_counts_that_are_no_number_of_boxes_stay_inside_the_boxes():
    """TVM reads and writes beyond its tensors."""
    boxes, _, indices = with_ties(0)
    project = byoc_hw.build(every_form())
    sanitized = byoc_hw.Toolchain(cflags=STRICT)
    for count, within in ((-7, 0), (2**31 - 1, BOXES), (-(2**31), 0)):
        found, expected = (
            project.run([boxes, np.full(BATCHES, number, np.int32), indices], toolchain=sanitized).outputs
            for number in (count, within)
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@needs_riscv32
def test_is_the_same_on_riscv32():
    project = byoc_hw.build(every_form())
    given = [with_ties(seed) for seed in range(2)]
    for one, other in zip(project.run_batch(given), project.run_batch(given, on="riscv32"), strict=True):
        for here, there in zip(one.outputs, other.outputs, strict=True):
            assert here.tobytes() == there.tobytes()


def declined(dtype="float32", indices="int32", count="int32", **form):
    inputs = [variable((1, 9, 6), dtype), variable((1,), count, "n"), variable((1, 9), indices, "i")]
    found = relay.vision.non_max_suppression(*inputs, **{"return_indices": False, **form})
    return module(found.astuple() if form.get("return_indices") else found, *inputs)


DECLINED = {
    "float64": ({"dtype": "float64"}, "boxes is float32: got float64"),
    "count": ({"count": "int64"}, "valid_count is int32: got int64"),
    "score": ({"score_index": 6}, "score_index is from 0 to 5, with 6 values a box: got 6"),
    "no score": ({"score_index": -1}, "score_index is from 0 to 5, with 6 values a box: got -1"),
    "corners": ({"coord_start": 3}, "coord_start is from 0 to 2, with 6 values a box: got 3"),
    "class": ({"id_index": 6}, "id_index is from -1 to 5, with 6 values a box: got 6"),
}


@pytest.mark.parametrize(("form", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(form, reason):
    with pytest.raises(Unsupported) as error:
        byoc_hw.build(declined(**form))
    name = "vision.non_max_suppression"
    assert str(error.value) == f"{name} ({name}_1) on the host: {reason}"
