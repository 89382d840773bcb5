"""non_max_suppression: what it takes, what it declines and why, and what it computes on a chip and on the host."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from bit_exact import assert_equals_tvm
from order_checks import CHIP, KINDS, STRICT, WITHOUT, check_on_chip, check_on_host, no_lanes
from pattern_checks import accepted, check_golden, composites, computing, graphs
from relay_samples import Sample, module, side_by_side, variable
from riscv32_tools import needs_riscv32
from tvm import relay

import byoc_hw
from byoc_hw import DSP

BATCHES, BOXES, VALUES = 2, 24, 6


@dataclass
class Suppressed(Sample):
    most: int = -1
    threshold: float = 0.5
    top_k: int = -1
    coord_start: int = 2
    score_index: int = 1
    id_index: int = 0
    force: bool = False
    to_bottom: bool = False
    places: bool = False

    def variables(self, prefix=""):
        indices = [variable((BATCHES, BOXES), "int32", f"{prefix}indices")] if self.places else []
        return [
            variable((BATCHES, BOXES, VALUES), "float32", f"{prefix}boxes"),
            variable((BATCHES,), "int32", f"{prefix}count"),
            *indices,
        ]

    def limits(self):
        return self.most, self.threshold

    def expr(self, boxes, count, *others):
        """Other operands are the indices, and limits that are inputs."""
        most, threshold = others[-2:] if len(others) > 1 else self.limits()
        indices = others[0] if self.places else count
        made = relay.vision.non_max_suppression(
            boxes,
            count,
            indices,
            max_output_size=most,
            iou_threshold=threshold,
            force_suppress=self.force,
            top_k=self.top_k,
            coord_start=self.coord_start,
            score_index=self.score_index,
            id_index=self.id_index,
            return_indices=self.places,
            invalid_to_bottom=self.to_bottom,
        )
        return made.astuple() if self.places else made


FORMS = {
    "as by default": Suppressed(),
    "whatever the class": Suppressed(force=True),
    "without a class": Suppressed(id_index=-1),
    "class behind the score": Suppressed(coord_start=0, score_index=4, id_index=5),
    "few outputs": Suppressed(most=3),
    "no outputs": Suppressed(most=0),
    "few candidates": Suppressed(top_k=5, force=True),
    "nothing overlaps enough": Suppressed(threshold=1.5),
    "no suppression": Suppressed(threshold=0.0, top_k=4),
    "to the bottom": Suppressed(to_bottom=True, most=9),
    "to the bottom without suppression": Suppressed(to_bottom=True, threshold=-1.0),
}


def inference(seed, samples=1, *, places=False):
    """Boxes whose scores, classes and corners have few values, some of them not positive; all counts, 0 among them."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(samples):
        counts = [rng.integers(0, BOXES + 1), [0, 1, BOXES][(seed + number) % 3]]
        found += [(rng.integers(-1, 7, (BATCHES, BOXES, VALUES)) / 4).astype(np.float32), np.array(counts, np.int32)]
        found += [np.stack([rng.permutation(BOXES) for _ in range(BATCHES)]).astype(np.int32)] * places
    return found


def test_takes_a_suppression_of_boxes():
    layer = accepted(Suppressed(most=7, threshold=0.25, top_k=9).module(), "non_max_suppression", accelerator=CHIP)
    assert (layer.kind, layer.most, layer.threshold, layer.top_k) == ("suppression", 7, 0.25, 9)
    assert [tensor.shape for tensor in layer.inputs] == [(BATCHES, BOXES, VALUES), (BATCHES,)]


DECLINED = {
    "no accelerator that suppresses": (Suppressed(), WITHOUT, f"layer kind is one of {KINDS}: got suppression"),
    "one accelerator": (Suppressed(), DSP, no_lanes("suppression")),
    "no accelerator that suppresses, places": (
        Suppressed(places=True),
        WITHOUT,
        f"layer kind is one of {KINDS}: got suppression",
    ),
    "corners beyond a box": (
        Suppressed(coord_start=3),
        CHIP,
        "coord_start is from 0 to 2, with 6 values a box: got 3",
    ),
}


@pytest.mark.parametrize(("sample", "accelerator", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines_with_the_rule_and_the_value(sample, accelerator, reason):
    mod = byoc_hw.partition_for_hwlib(sample.module(), accelerator=accelerator)
    (outcome,) = [one for one in byoc_hw.explain(mod).outcomes if "vision.non_max_suppression" in one.relay]
    assert outcome.placement == "host"
    assert [str(one) for one in outcome.rejections] == [f"non_max_suppression: {reason}"]


def test_limits_that_are_inputs_stay_on_the_host():
    limits = [variable((), "int32", "most"), variable((), "float32", "threshold")]
    inputs = Suppressed().variables()
    mod = byoc_hw.partition_for_hwlib(module(Suppressed().expr(*inputs, *limits), *inputs, *limits), accelerator=CHIP)
    assert "max_output_size is the input most, not a constant" in str(byoc_hw.explain(mod))


def test_generated_c():
    check_golden("non_max_suppression", Suppressed().module(), CHIP, [inference(2)])


@pytest.mark.slow
def test_has_tvms_bits_on_a_chip_and_on_the_host():
    """Ties, no boxes at all, boxes that are all suppressed, all forms."""
    mod = side_by_side(list(FORMS.values()))
    inferences = [inference(seed, len(FORMS)) for seed in range(12)]
    check_on_chip(mod, ["non_max_suppression"] * len(FORMS), inferences)
    check_on_host(mod, inferences)


def test_takes_the_places_of_boxes_and_counts_them_on_the_host():
    mod = byoc_hw.partition_for_hwlib(Suppressed(places=True).module(), accelerator=CHIP)
    (layer,) = computing(*graphs(mod))
    assert [tensor.shape for tensor in layer.inputs] == [(BATCHES, BOXES, VALUES), (BATCHES,), (BATCHES, BOXES)]
    assert (layer.ofm.shape, layer.ofm.dtype) == ((BATCHES, BOXES), "int32")


@pytest.mark.slow
def test_places_have_tvms_bits_on_a_chip():
    """Those that are kept, and how many there are."""
    forms = [replace(form, places=True) for form in FORMS.values()]
    mod = side_by_side(forms)
    inferences = [inference(seed, len(forms), places=True) for seed in range(12)]
    partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=CHIP)
    assert composites(partitioned) == ["non_max_suppression"] * len(forms)
    assert_equals_tvm(byoc_hw.build(partitioned), partitioned, mod, inferences, STRICT)


def test_indices_beyond_the_boxes_are_as_tvm_has_them():
    """TVM puts a 0 behind such an index, which is counted."""
    mod = Suppressed(places=True, threshold=0.0).module()
    boxes, counts, indices = inference(0, places=True)
    counts[:] = 9
    indices[:, 3:5] = [[BOXES + 1, -BOXES - 1]]
    partitioned = byoc_hw.partition_for_hwlib(mod, accelerator=CHIP)
    assert_equals_tvm(byoc_hw.build(partitioned), partitioned, mod, [[boxes, counts, indices]], STRICT)


@pytest.mark.slow
def test_counts_that_are_no_number_of_boxes_stay_inside_the_boxes():
    """TVM reads and writes beyond its tensors; the host's function is the same as the chip's."""
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(Suppressed().module(), accelerator=CHIP))
    boxes, counts = inference(0)
    sanitized = byoc_hw.Toolchain(cflags="-O1 -fsanitize=address,undefined -fno-sanitize-recover=all")
    for count, within in ((-7, 0), (2**31 - 1, BOXES)):
        found, expected = (
            project.run([boxes, np.full_like(counts, number)], toolchain=sanitized).outputs[0]
            for number in (count, within)
        )
        np.testing.assert_array_equal(found, expected)


@needs_riscv32
def test_is_the_same_on_riscv32():
    sample = replace(FORMS["to the bottom"], force=True)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(sample.module(), accelerator=CHIP))
    given = [inference(seed) for seed in range(3)]
    for one, other in zip(project.run_batch(given), project.run_batch(given, on="riscv32"), strict=True):
        assert one.outputs[0].tobytes() == other.outputs[0].tobytes()
        assert one.cycles.total == other.cycles.total == project.schedule.cycles
