"""What a program has worked out is remembered for a while, and models are forgotten."""

import copy
import gc
import pickle
from dataclasses import replace

import pytest
from relay_samples import Conv, module, variable
from tvm.runtime import PackedFunc

import byoc_hw
from byoc_hw.graph import Graph
from byoc_hw.plan.lanes import known_plan
from byoc_hw.plan.tune import own_plan
from byoc_hw.remembered import Remembered, kept_in_first
from byoc_hw.soc import Soc
from byoc_hw.tensor import Tensor

TWINS = Soc(tuple(replace(byoc_hw.REFERENCE, name=name, label=name) for name in ("one", "two")))


class Owner:
    """What something is kept in."""


def test_the_value_that_was_asked_for_last_stays():
    some = Remembered(2)
    for key in "ab":
        some.keep(key, key)
    some.get("a")
    some.keep("c", "c")
    assert [some.get(key) for key in "abc"] == ["a", None, "c"]


def test_a_function_is_called_once_for_each_object_and_each_value_of_the_others():
    calls = []

    @kept_in_first
    def called(owner, *others):
        calls.append((owner, *others))
        return len(calls)

    one, other = Owner(), Owner()
    found = [called(*given) for given in ((one, 1), (other, 1), (one, 2), (one,), (one, 1), (one,))]
    assert found == [1, 2, 3, 4, 1, 4]
    assert calls == [(one, 1), (other, 1), (one, 2), (one,)]


def test_functions_keep_apart_what_they_find():
    @kept_in_first
    def first(owner):
        return "first"

    @kept_in_first
    def second(owner):
        return "second"

    one = Owner()
    assert (first(one), second(one), first(one)) == ("first", "second", "first")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_nothing_of_what_is_kept(copied):
    calls = []

    @kept_in_first
    def called(owner, *others):
        calls.append(others)
        return len(calls)

    one = Owner()
    called(one, lambda: "what cannot be pickled")
    assert called(copied(one)) == 2
    assert called(copied(one)) == 3


def test_an_error_is_not_kept():
    @kept_in_first
    def fails_once(owner):
        if not hasattr(owner, "failed"):
            owner.failed = True
            raise ValueError("once")
        return 1

    one = Owner()
    with pytest.raises(ValueError, match="once"):
        fails_once(one)
    assert fails_once(one) == 1


@pytest.mark.parametrize("hardware", [byoc_hw.REFERENCE, TWINS], ids=["one", "twins"])
def test_nothing_refers_to_a_model_that_was_compiled_before_the_last_ones(hardware, monkeypatch):
    """Its weights may be large, and a notebook compiles many."""
    monkeypatch.setattr(own_plan, "_layouts", Remembered(1))
    monkeypatch.setattr(known_plan, "_plans", Remembered(1))
    for filters in (13, 14):
        image = variable((1, 6, 6, 11))
        mod = module(Conv(6, 6, 11, filters).expr(image), image)
        byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=hardware))
    gc.collect()
    alive = gc.get_objects()
    graphs = [one.outputs[0].shape for one in alive if isinstance(one, Graph) and one.inputs[0].shape == (1, 6, 6, 11)]
    weights = [one.shape for one in alive if isinstance(one, Tensor) and one.data is not None and any(one.data.strides)]
    assert {shape[-1] for shape in graphs} == {14}
    assert {shape[0] for shape in weights if len(shape) == 4 and shape[-1] == 11} == {14}


def test_compiling_once_more_gives_tvm_nothing_more_to_keep():
    """TVM never forgets what it is given to call."""
    image = variable((1, 6, 6, 11))
    mod, counts = module(Conv(6, 6, 11, 13).expr(image), image), []
    for _ in range(3):
        byoc_hw.build(byoc_hw.partition_for_hwlib(mod))
        gc.collect()
        counts.append(sum(isinstance(one, PackedFunc) for one in gc.get_objects()))
    assert counts[1] == counts[2]
