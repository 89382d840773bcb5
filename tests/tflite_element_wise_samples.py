"""TFLite files of one element-wise operator or reduction. Scales are such that many results are halves."""

from dataclasses import replace

import numpy as np
from tflite_samples import OperatorSample, TensorSample, model_bytes

X = TensorSample((1, 5, 6, 4), 0.05, 3, name="x")
Y = replace(X, scale=0.03, zero_point=-7, name="y")
MEAN = TensorSample((1, 1, 1, 4), 0.03, -7, name="y")
AXES = TensorSample((2,), None, data=np.array([1, 2], np.int32), name="axes")
ONE = TensorSample((), 0.07, 0, data=np.array(5, np.int8), name="c")
FOUR = TensorSample((4,), 0.07, 0, data=np.array([5, -7, 9, 100], np.int8), name="c")

OPERATORS = {
    "abs": ("ABS", [X], Y, {}),
    "add_one": ("ADD", [X, ONE], Y, {}),
    "elu": ("ELU", [X], Y, {}),
    "hard_swish": ("HARD_SWISH", [X], Y, {}),
    "leaky_relu": ("LEAKY_RELU", [X], Y, {"Alpha": 0.1}),
    "logistic": ("LOGISTIC", [X], replace(Y, scale=1 / 256, zero_point=-128), {}),
    "maximum": ("REDUCE_MAX", [X, AXES], replace(MEAN, scale=0.05, zero_point=3), {"KeepDims": True}),
    "mean": ("MEAN", [X, AXES], MEAN, {"KeepDims": True}),
    "mul_four": ("MUL", [X, FOUR], Y, {}),
    "quantize": ("QUANTIZE", [X], Y, {}),
    "relu": ("RELU", [X], Y, {}),
    "relu6": ("RELU6", [X], Y, {}),
    "sub": ("SUB", [X, replace(X, name="z", scale=0.07)], Y, {}),
    "tanh": ("TANH", [X], replace(Y, scale=1 / 128, zero_point=0), {}),
}


def operator_file(name):
    """The file of an operator."""
    return model_bytes(OperatorSample(*OPERATORS[name]))
