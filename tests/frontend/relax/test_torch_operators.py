"""Operators of torch that have an importer here: their results are those that torch's documentation defines.

They are called as the importer calls them, with arguments of the schema of each, so that torch is not needed.
"""

import numpy as np
import pytest
import tvm
from tvm import relax

from byoc_hw import InvalidInput
from byoc_hw.frontend.relax.torch_operators import OPERATORS, last_states

X = np.random.default_rng(0).normal(size=(1, 8, 4, 6)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(1, 8, 4, 6)).astype(np.float32)
SCALE, BIAS, MEAN = (np.linspace(low, 2, 8).astype(np.float32) for low in (0.5, -1, -0.2))
VARIANCE = SCALE * 2
STATISTICS = {"weight": SCALE, "bias": BIAS, "running_mean": MEAN, "running_var": VARIANCE, "eps": 1e-3}


def normalized(given):
    scale, bias, mean, variance = (given[name].reshape(-1, 1, 1) for name in list(STATISTICS)[:4])
    return (X - mean) / np.sqrt(variance + given["eps"]) * scale + bias


CASES = {
    "add.Tensor": ({"self": X, "other": Y, "alpha": 3}, X + 3 * Y),
    "sub.Tensor": ({"self": X, "other": 2.5, "alpha": 0.5}, X - 1.25),
    "rsub.Scalar": ({"self": X, "other": 1, "alpha": 1}, 1 - X),
    "rsub.Tensor": ({"self": X, "other": Y, "alpha": 2}, Y - 2 * X),
    "celu.default": ({"self": X, "alpha": 0.7}, np.maximum(X, 0) + np.minimum(0, 0.7 * (np.exp(X / 0.7) - 1))),
    "batch_norm.default": ({"input": X, **STATISTICS, "training": False}, normalized(STATISTICS)),
    "_native_batch_norm_legit_no_training.default": ({"input": X, **STATISTICS}, normalized(STATISTICS)),
    "prelu.default": ({"self": X, "weight": SCALE}, np.where(X > 0, X, X * SCALE.reshape(-1, 1, 1))),
    "select.int": ({"self": X, "dim": 1, "index": -2}, X[:, -2]),
    "narrow.default": ({"self": X, "dim": -1, "start": 1, "length": 3}, X[..., 1:4]),
    "pixel_shuffle.default": (
        {"self": X, "upscale_factor": 2},
        X.reshape(1, 2, 2, 2, 4, 6).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 8, 12),
    ),
    "amax.default": ({"self": X, "dim": [2, 3], "keepdim": False}, X.max((2, 3))),
    "prod.dim_int": ({"self": X, "dim": 1, "keepdim": True}, X.prod(1, keepdims=True)),
    "adaptive_max_pool2d.default": (
        {"self": X, "output_size": [2, 3]},
        X.reshape(1, 8, 2, 2, 3, 2).max((3, 5)),
    ),
}


def computed(build, given):
    """What `build` makes of Relax values for arrays, computed by TVM; the inputs are the four-dimensional ones."""
    builder = relax.BlockBuilder()
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    inputs = {name: value for name, value in arrays.items() if value.ndim > 1}
    variables = {name: relax.Var(name, relax.TensorType(value.shape, "float32")) for name, value in inputs.items()}
    constants = {name: relax.const(value) for name, value in arrays.items() if name not in inputs}
    with builder.function("main", list(variables.values())):
        with builder.dataflow():
            made = build(builder, given | constants | variables)
            result = builder.emit_output(made[0] if isinstance(made, tuple) else made)
        builder.emit_func_output(result)
    machine = relax.VirtualMachine(relax.build(builder.get(), "llvm"), tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(value) for value in inputs.values())).numpy()


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_definition(name):
    given, expected = CASES[name]
    found = computed(OPERATORS[name], given)
    assert found.shape == expected.shape
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "given"), [("add.Tensor", {"alpha": 1}), ("sub.Tensor", {"alpha": 1})])
def test_what_tvms_importer_has_right_is_left_to_it(name, given):
    assert OPERATORS[name](None, given) is None


@pytest.mark.parametrize(("batch_first", "expected"), [(False, Y[0, -1:]), (True, Y[0, :, -1:].transpose(1, 0, 2))])
def test_the_last_states_are_those_of_the_last_step(batch_first, expected):
    def states(builder, given):
        return last_states(builder, builder.emit(relax.op.squeeze(given["outputs"], [0])), given)

    found = computed(states, {"outputs": Y, "bidirectional": False, "batch_first": batch_first})
    assert np.array_equal(found, expected)


def test_a_batch_normalization_in_training_is_refused():
    with pytest.raises(InvalidInput, match=r"has its running statistics, as after eval\(\): got training=True"):
        OPERATORS["batch_norm.default"](None, {"training": True})


def test_windows_of_several_sizes_are_refused():
    x = relax.Var("x", relax.TensorType((1, 8, 5, 6), "float32"))
    with pytest.raises(InvalidInput, match=r"windows of an adaptive maximum are of one size: got \[2, 3\] of \[5, 6\]"):
        OPERATORS["adaptive_max_pool2d.default"](None, {"self": x, "output_size": [2, 3]})
