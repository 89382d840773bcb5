"""Small Relax modules in QDQ form."""

import numpy as np
import tvm
from tvm import relax


def real(stored, scale, zero_point, axis=0):
    """The real values of a stored tensor."""
    scale = np.float32(scale)
    zero_points = np.full_like(scale, zero_point, dtype="int32")
    return relax.op.dequantize(stored, relax.const(scale), relax.const(zero_points), axis=axis)


def stored(value, scale, zero_point, dtype="int8"):
    """A real value as it is stored."""
    return relax.op.quantize(value, relax.const(np.float32(scale)), relax.const(np.int32(zero_point)), out_dtype=dtype)


def module(body, *shapes, dtype="int8"):
    """A module of one function of inputs of these shapes."""
    inputs = [relax.Var(f"x{place}", relax.TensorType(shape, dtype)) for place, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            value = body(*inputs)
            several = isinstance(value, tuple)
            value = relax.Tuple([builder.emit(one) for one in value]) if several else value
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return tvm.IRModule({"main": builder.get()["main"]})


def convolution(x, *, filters=8, stride=1, bound=None, seed=0, layout="NHWC"):
    """A 3 x 3 convolution of 8 channels with a scale for each filter, a bias, and perhaps a bound of its real sums."""
    random = np.random.default_rng(seed)
    weights = random.integers(-127, 128, (3, 3, 8, filters)).astype("int8")
    scales = random.uniform(0.001, 0.01, filters).astype("float32")
    bias = random.integers(-500, 500, filters).astype("int32")
    kernel = real(relax.const(weights), scales, 0, axis=3)
    conv = relax.op.nn.conv2d(
        real(x, 0.02, 3), kernel, [stride, stride], [1, 1, 1, 1], data_layout=layout, kernel_layout="HWIO"
    )
    total = relax.op.add(conv, real(relax.const(bias), np.float32(0.02) * scales, 0))
    return stored(total if bound is None else bound(total), 0.05, -5)
