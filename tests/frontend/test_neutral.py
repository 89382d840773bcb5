"""Operators that change nothing are left out, and the others stay."""

import numpy as np
import pytest
import tvm
from tvm import relay

from byoc_hw.frontend.relay.neutral import without_neutral

X = relay.var("x", shape=(2, 6), dtype="float32")
N = relay.var("n", shape=(2, 6), dtype="int8")
NARROW = relay.cast(relay.clip(relay.cast(N, "int32"), -100.0, 127.0), "int8")


def number(value, dtype="float32"):
    return relay.const(np.array(value, dtype))


LEFT_OUT = {
    "a sum with zero": X + number(0),
    "a sum with a zero in front": number([0]) + X,
    "a difference from zero": X - number(0),
    "a product with one": X * number([[1]]),
    "a quotient by one": X / number(1),
    "several of them": (X + number(0)) * number(1),
    "a sum of whole numbers with zero": N + number(0, "int8"),
    "a cast to its own type": relay.cast(X, "float32"),
    "a cast there and back": relay.cast(relay.cast(N, "int32"), "int8"),
    "a clip to all numbers of a type": relay.clip(N, -128.0, 127.0),
    "a reshape to its own shape": relay.reshape(X, (2, -1)),
    "a reshape there and back": relay.reshape(relay.reshape(X, (3, 4)), (2, 6)),
}
SHORTER = {
    "a number there and back": (relay.reshape(relay.reshape(relay.sum(X), (1,)), ()), relay.sum(X)),
    "a cast by way of a larger type": (relay.cast(relay.cast(N, "int32"), "float32"), relay.cast(N, "float32")),
    "a cast of what is clipped to a smaller type": (
        relay.cast(relay.cast(relay.clip(relay.cast(N, "int32"), -128.0, 127.0), "int8"), "int64"),
        relay.cast(relay.clip(relay.cast(N, "int32"), -128.0, 127.0), "int64"),
    ),
    "a cast that cuts what is clipped": (
        relay.cast(relay.cast(relay.clip(X, 0.0, 127.0), "int8"), "int32"),
        relay.cast(relay.clip(X, 0.0, 127.0), "int32"),
    ),
    "a reshape of a reshape": (
        relay.reshape(relay.reshape(relay.reshape(X, (12,)), (3, 4)), (4, 3)),
        relay.reshape(X, (4, 3)),
    ),
    "behind what is left out": (relay.reshape(relay.reshape(X, (12,)) * number(1), (4, 3)), relay.reshape(X, (4, 3))),
}
STAYS = {
    "a difference of zero": number(0) - X,
    "a quotient of one": number(1) / X,
    "a sum with zeros": X + number([0] * 6),
    "a sum that has more dimensions": X + number([[[0]]]),
    "a product with another number": X * number(2),
    "a clip to some numbers of a type": relay.clip(N, -127.0, 127.0),
    "a clip of float": relay.clip(X, -128.0, 127.0),
    "a cast of what is clipped to more than a smaller type has": relay.cast(
        relay.cast(relay.clip(relay.cast(N, "int32"), -129.0, 127.0), "int8"), "int64"
    ),
    "a smaller type that several read": (
        relay.cast(NARROW, "int16") * relay.cast(relay.cast(NARROW, "int32") + number(1, "int32"), "int16")
    ),
    "whole numbers of float": relay.cast(relay.cast(relay.clip(X, 0.0, 127.0), "int8"), "float32"),
    "a cast by way of a smaller type": relay.cast(relay.cast(X, "int8"), "float32"),
    "a number of one that has a dimension": relay.reshape(relay.reshape(relay.var("one", shape=(1,)), (1, 1)), ()),
}


def simpler(body):
    """A function of this body, and what is left of it."""
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))
    return mod["main"], without_neutral(mod["main"])


@pytest.mark.parametrize("body", LEFT_OUT.values(), ids=LEFT_OUT)
def test_is_left_out(body):
    main, found = simpler(body)
    assert found.body.same_as(main.params[0])


@pytest.mark.parametrize(("body", "expected"), SHORTER.values(), ids=SHORTER)
def test_is_shorter(body, expected):
    _, found = simpler(body)
    tvm.ir.assert_structural_equal(simpler(found.body)[0], simpler(expected)[0])


@pytest.mark.parametrize("body", STAYS.values(), ids=STAYS)
def test_stays(body):
    main, found = simpler(body)
    assert found.same_as(main)
