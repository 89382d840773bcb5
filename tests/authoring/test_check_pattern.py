"""check-pattern: every pattern is right at its limits; a wrong limit and a wrong lowering are found."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from tvm import relay
from tvm.relay.dataflow_pattern import is_op, wildcard

from byoc_hw import DIANA_DIGITAL, DSP, REFERENCE, SMALL, Soc
from byoc_hw import __main__ as cli
from byoc_hw.authoring.fuzzing import check_pattern
from byoc_hw.authoring.new_pattern import new_pattern
from byoc_hw.authoring.operators import known_operators
from byoc_hw.authoring.testing import variable
from byoc_hw.errors import InvalidInput, Unsupported
from byoc_hw.frontend.relay import read
from byoc_hw.frontend.relay.match import call_patterns, pattern_operator
from byoc_hw.frontend.relay.table import load_patterns
from byoc_hw.graph import Pool2d
from byoc_hw.limits import Limits, Rule
from byoc_hw.pattern import Check, Form, limit, patterns, register_pattern, unregister_pattern

load_patterns()
CHIP = Soc((replace(DIANA_DIGITAL, name="dla"), replace(DSP, name="dsp")), label="DIANA_DIGITAL+DSP")
ON_A_CHIP = ("argsort", "gather", "non_max_suppression", "topk")


@contextmanager
def registered(name, forms, **given):
    register_pattern(name, forms, **given)
    try:
        yield
    finally:
        unregister_pattern(name)


def rows(found):
    return {one.limit: one for one in found.limits}


# ---------------------------------------------------------------- patterns as they are


@pytest.mark.slow
@pytest.mark.parametrize("name", [pattern.name for pattern in patterns()])
def test_every_pattern_is_right_at_its_limits(name):
    found = check_pattern(name, CHIP if name in ON_A_CHIP else REFERENCE, seed=1, count=1)
    assert found, str(found)
    assert found.limits[0].inside > 0


def test_every_operator_of_a_pattern_has_random_ones():
    forms = [form for pattern in patterns() for form in pattern.forms]
    used = {pattern_operator(call) for form in forms for call in call_patterns(form.pattern)}
    assert used <= known_operators()


@pytest.mark.slow
def test_the_table_says_what_was_tried_of_each_limit(capsys):
    assert cli.main(["check-pattern", "global_max_pool2d", "--count", "1", "--accelerator", "SMALL"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("global_max_pool2d on SMALL (numerics relay), seed 0\n")
    assert "| kernel is at most 32 x 32 | 4 | 2 | ok |" in out
    assert "| batch is 1 | 1 | 1 | ok |" in out


@pytest.mark.slow
def test_the_same_seed_tries_the_same():
    first, second = (check_pattern("strided_slice", seed=3, count=1) for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_a_new_pattern_is_checked_from_its_file(tmp_path, capsys):
    new_pattern("my_cut", "Slice", tmp_path)
    try:
        assert cli.main(["check-pattern", "my_cut", "--file", str(tmp_path / "my_cut.py"), "--count", "2"]) == 0
    finally:
        unregister_pattern("my_cut")
    assert "| activation type is int8 | 2 | 3 | ok |" in capsys.readouterr().out


def test_samples_stand_for_operators_that_are_not_known():
    form = Form(is_op("nn.fifo_buffer")(wildcard(), wildcard()))

    def parse(match) -> Pool2d:
        raise NotImplementedError

    with registered("buffered", form, parse=parse), pytest.raises(Unsupported, match=r"no random nn\.fifo_buffer is"):
        check_pattern("buffered")

    def samples(rng):
        return relay.nn.relu(relay.nn.max_pool2d(variable((1, int(rng.integers(2, 9)), 4, 3)), layout="NHWC"))

    with registered("rectified", rectified(), parse=to_maximum, samples=samples):
        assert check_pattern("rectified", count=1).limits[0].inside == 2


# ---------------------------------------------------------------- planted


def rectified():
    return Form(is_op("nn.relu")(is_op("nn.max_pool2d")(wildcard())), anchor="nn.relu")


def to_maximum(match) -> Pool2d:
    layer = read.pool2d(match, match["nn.max_pool2d"], "max")
    return replace(layer, act_min=0)


@pytest.mark.slow
def test_a_planted_wrong_lowering_is_found(capsys):
    """One that forgets the clip below: it gives negative values."""

    def forgets(match) -> Pool2d:
        return replace(to_maximum(match), act_min=-128)

    with registered("rectified", rectified(), parse=forgets):
        assert cli.main(["check-pattern", "rectified", "--count", "1"]) == 1
    said = capsys.readouterr()
    assert "the result differs from Relay's at (0, 0, 0, " in said.out
    assert "nn.relu(" in said.out
    assert "rectified on REFERENCE (numerics relay), seed 0" in said.out
    assert "rectified: wrong in any operator" in said.err


@pytest.mark.slow
def test_a_planted_wrong_lowering_at_one_limit_is_found():
    def forgets_at_strides_that_differ(match) -> Pool2d:
        layer = to_maximum(match)
        return replace(layer, act_min=-128) if layer.strides == (1, 2) else layer

    with registered("rectified", rectified(), parse=forgets_at_strides_that_differ):
        found = check_pattern("rectified", count=1)
    assert rows(found)["stride is one of 1, 2"].failure.startswith("the result differs from Relay's at (0, ")


@pytest.mark.slow
def test_a_planted_wrong_limit_of_the_hardware_is_found(monkeypatch):
    """A rule that lets pass one row of kernel more than the description says, and one that lets pass one less."""
    rules = Limits.rules

    def planted(more):
        def wrong(limits):
            for rule in rules(limits):
                kernel = rule.text.startswith("kernel is at most")
                yield (
                    Rule(rule.text, lambda layer: Check(str(layer.kernel), layer.kernel[0] <= 32 + more))
                    if kernel
                    else rule
                )

        return wrong

    for more, said in ((1, "an operator outside is taken"), (-1, "an operator inside is declined")):
        monkeypatch.setattr(Limits, "rules", planted(more))
        found = check_pattern("max_pool2d", SMALL, count=2)
        assert rows(found)["kernel is at most 32 x 32"].failure.startswith(said)


@pytest.mark.slow
def test_a_planted_limit_that_nothing_keeps_is_found():
    @limit("rows are more than there are")
    def never(layer):
        return Check(layer.ifm.shape[1], False)

    with registered("rectified", rectified(), parse=to_maximum, limits=[never]):
        found = check_pattern("rectified", count=1)
    assert "random operators is taken" in found.limits[0].failure


# ---------------------------------------------------------------- refused


def test_names_and_kinds_that_are_not_there_are_named():
    with pytest.raises(InvalidInput, match=r"a pattern is one of .*qnn_conv2d.*: got 'conv'"):
        check_pattern("conv")
    with pytest.raises(InvalidInput, match=r"REFERENCE has the layer kinds conv2d, .*: got order"):
        check_pattern("argsort")
    with pytest.raises(InvalidInput, match="count"):
        check_pattern("pad", count=0)


def test_a_chip_is_checked_where_its_accelerators_have_the_same_limits():
    """What one of them declines the other one takes: it would be reported as wrong."""
    chip = Soc((replace(DIANA_DIGITAL, name="dla"), DSP))
    with pytest.raises(InvalidInput, match="have the same limits of add, or are checked one by one: dla, dsp"):
        check_pattern("qnn_add", chip)


def test_a_file_that_fails_is_named(tmp_path, capsys):
    file = tmp_path / "fails.py"
    file.write_text("1 / 0")
    assert cli.main(["check-pattern", "pad", "--file", str(file)]) == 2
    assert "fails.py is a file of Python that registers a pattern: ZeroDivisionError" in capsys.readouterr().err
